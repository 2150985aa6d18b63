"""Train on Trainium through Step Functions, here or in an AWS account."""

# Each command imports what it needs: `--help` waits for no model, `validate` for no cluster (benchmarks/cli.py).

from __future__ import annotations

import io
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from trainflow.errors import TrainflowError

if TYPE_CHECKING:
    from rich.console import Console

app = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False, rich_markup_mode=None, help=__doc__)

BAD_INPUT = 2
"""Exit status when what was handed in is at fault: the spec, the data set, the program, a folder."""

ABORTED = 130
"""128 + SIGINT, as shells have it."""

SpecPath = Annotated[Path, typer.Argument(help="Run spec: a YAML or JSON file.", show_default=False)]
Overrides = Annotated[
    list[Path] | None,
    typer.Option("--override", help="A file with fields that differ this time; may be given more than once."),
]
Kubeconfig = Annotated[Path | None, typer.Option(help="A cluster to use instead of the twin's own.")]


def _print_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        print(f"trainflow {version('trainflow')}")
        raise typer.Exit


@app.callback(help=__doc__)
def prepare_output(
    _version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """Print `?` for a character that the terminal's encoding lacks, instead of ending the run."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


@app.command()
def run(
    spec: SpecPath,
    local: Annotated[bool, typer.Option("--local", help="Run in the twin, on this machine.")] = False,
    out: Annotated[Path, typer.Option(help="Folder for the run's record, report and logs.")] = Path("out"),
    home: Annotated[Path, typer.Option(help="The twin's S3 buckets and shared file system.")] = Path(".trainflow"),
    time_scale: Annotated[
        float, typer.Option(min=1, help="Waits of the state machines take 1/X of their time.", metavar="X")
    ] = 30.0,
    kubeconfig: Kubeconfig = None,
    override: Overrides = None,
) -> None:
    """Run SPEC and follow it to its end.

    Leaves a record and a report.

    Exit status: 0 succeeded, 1 failed, 2 what was handed in is at fault, 130 aborted.
    """
    if not local:
        _refuse("Say where to run: `--local` runs in the twin; deployed runs are started by an upload of SPEC.")
    from rich.console import Console

    from trainflow.cli.run import run_at
    from trainflow.client.place import LOCAL, PlaceOptions

    console = Console()
    options = PlaceOptions(out=out, home=home, time_scale=time_scale, kubeconfig=kubeconfig, busy=console.status)
    try:
        status = run_at(LOCAL, spec, override or (), options=options, console=console)
    except TrainflowError as error:
        _refuse(str(error))
    except KeyboardInterrupt:
        console.print("Stopped before the run began; nothing is left running.")
        status = ABORTED
    raise typer.Exit(status)


@app.command()
def validate(spec: SpecPath, override: Overrides = None) -> None:
    """Check SPEC without starting anything."""
    _leave_plugins()
    from trainflow.cli.spec_file import read_spec

    try:
        valid = read_spec(spec, override or ())
    except TrainflowError as error:
        _refuse(str(error))
    compute = valid.compute
    print(
        f"{spec}: valid. {valid.name}: {compute.num_nodes} × {compute.instance_type}, "
        f"{compute.world_size} processes, backend {compute.backend}."
    )


@app.command()
def schema(
    markdown: Annotated[bool, typer.Option("--markdown", help="A reference for people instead.")] = False,
) -> None:
    """Print the JSON Schema of run specs, for editors."""
    _leave_plugins()
    from trainflow.cli.spec_reference import spec_reference
    from trainflow.models.run_spec import RunSpec

    typer.echo(spec_reference() if markdown else json.dumps(RunSpec.model_json_schema(), indent=2))


@app.command()
def doctor(
    run: Annotated[str, typer.Option(help="The run's id.")],
    kubeconfig: Annotated[Path | None, typer.Option(help="The run's cluster. Default: as kubectl chooses.")] = None,
    namespace: Annotated[str, typer.Option(help="Where runs live.")] = "training",
) -> None:
    """Find what keeps a run's pods from working.

    Checks whether they find each other, their files, their devices and their image.
    """
    from rich.console import Console

    from trainflow.cli.doctor import DoctorError
    from trainflow.cli.doctor import doctor as examine

    console = Console()
    try:
        status = examine(run, kubeconfig=kubeconfig, namespace=namespace, console=console)
    except DoctorError as error:
        _refuse(str(error))
    raise typer.Exit(status)


Configuration = Annotated[Path, typer.Option(help="The deployment's configuration: config/NAME.yaml.")]
EXAMPLE = Path("config/example.yaml")


@app.command()
def check_account(
    config: Configuration = EXAMPLE,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document, for programs.")] = False,
) -> None:
    """Say what would fail or surprise in a deployment.

    Reads the account and the registries that CONFIG needs, and makes nothing.

    Exit status: 0 nothing fails, 1 something would fail, 2 what was handed in is at fault.
    """
    from rich.console import Console

    from trainflow.cli.account import BadInput
    from trainflow.cli.account import check_account as check

    console = Console(stderr=True) if as_json else Console()
    try:
        status = check(config, as_json=as_json, console=console)
    except BadInput as error:
        _refuse(str(error))
    raise typer.Exit(status)


@app.command()
def images(
    config: Configuration = EXAMPLE,
    only: Annotated[str | None, typer.Option(help="Build this kind alone: cpu, tools, …", metavar="KIND")] = None,
) -> None:
    """Build the images that the account lacks.

    Prints what run specs name.
    """
    from trainflow.cli import deployed

    console = _console_for_sentences()
    try:
        deployment = deployed.read_deployment(config)
        for kind, image in deployed.build_images(deployment, say=console.print, only=only):
            typer.echo(f"{kind}: {image}")
    except deployed.DeploymentError as error:
        _refuse(str(error))


@app.command("check-idle")
def check_idle(
    config: Configuration = EXAMPLE,
    force: Annotated[bool, typer.Option("--force", help="Only say what runs.")] = False,
) -> None:
    """Refuse while runs go on.

    The first step of `make deploy`.
    """
    from trainflow.cli import deployed

    console = _console_for_sentences()
    try:
        executions = deployed.running_executions(deployed.read_deployment(config))
        if not force:
            deployed.refuse_during_runs(executions)
    except deployed.DeploymentError as error:
        _refuse(str(error))
    if executions:
        names = ", ".join(deployed.run_names(executions))
        console.print(f"These runs go on with the code that they began with: {names}.")


@app.command("delete-old-versions")
def delete_old_versions(config: Configuration = EXAMPLE) -> None:
    """Delete versions of functions that no run uses.

    And those of state machines: the last step of `make deploy`.
    """
    from trainflow.cli import deployed

    console = _console_for_sentences()
    try:
        deployed.delete_old_versions(deployed.read_deployment(config), say=console.print)
    except deployed.NotDeployed as error:
        console.print(f"No versions to delete: {error}")
    except deployed.DeploymentError as error:
        _refuse(str(error))


@app.command()
def rest(
    config: Configuration = EXAMPLE,
    yes: Annotated[bool, typer.Option("--yes", help="Stop what runs without asking.")] = False,
) -> None:
    """Stop every run and wait until no node is left.

    Training nodes are meant; the cluster's own stay.
    """
    from trainflow.cli import deployed

    console = _console_for_sentences()
    try:
        deployment = deployed.read_deployment(config)
        executions = deployed.running_executions(deployment)
        names = ", ".join(deployed.run_names(executions))
        if executions and not yes and not typer.confirm(f"{len(executions)} running: {names}. Stop them?"):
            raise typer.Exit(ABORTED)
        deployed.bring_to_rest(deployment, executions, say=console.print)
    except deployed.DeploymentError as error:
        _refuse(str(error))
    console.print(f"{deployment.name} is at rest: nothing runs, no training node is up.")


def _leave_plugins() -> None:
    """Let pydantic look for no plugins: it reads the metadata of every installed package, 0.1 s of processor time.

    For commands alone that start no other program, which would inherit it.
    """
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "1")


def _console_for_sentences() -> Console:
    """Prints text as it is: names in brackets are no markup, numbers have no colour, and no line is broken."""
    from rich.console import Console

    return Console(stderr=True, markup=False, highlight=False, soft_wrap=True)


def _refuse(sentence: str) -> NoReturn:
    from rich.console import Console
    from rich.markup import escape  # file names and values may hold brackets

    Console(stderr=True).print(f"[red]trainflow:[/] {escape(sentence)}", highlight=False, soft_wrap=True)
    raise typer.Exit(BAD_INPUT)
