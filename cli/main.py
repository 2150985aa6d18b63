"""The `trainflow` command."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, NoReturn

import typer
from rich.console import Console

from cli.spec_file import read_spec
from cli.spec_reference import spec_reference
from lambdas.errors import TrainflowError
from lambdas.models.run_spec import RunSpec

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False, help=__doc__)

BAD_INPUT = 2
"""Exit status when what was handed in is at fault: the spec, the data set, the program, a folder."""

ABORTED = 130
"""128 + SIGINT, as shells have it."""

SpecPath = Annotated[Path, typer.Argument(help="Run spec: a YAML or JSON file.", show_default=False)]


@app.command()
def run(
    spec: SpecPath,
    local: Annotated[bool, typer.Option("--local", help="Run in the twin, on this machine.")] = False,
    out: Annotated[Path, typer.Option(help="Folder for the run's record, report and logs.")] = Path("out"),
    home: Annotated[Path, typer.Option(help="The twin's S3 buckets and shared file system.")] = Path(".trainflow"),
    time_scale: Annotated[
        float, typer.Option(min=1, help="Waits of the state machines take 1/X of their time.", metavar="X")
    ] = 30.0,
    kubeconfig: Annotated[Path | None, typer.Option(help="A cluster to use instead of the twin's own.")] = None,
) -> None:
    """Train what SPEC says, follow it, and leave a record and a report.

    Exit status: 0 succeeded, 1 failed, 2 what was handed in is at fault, 130 aborted.
    """
    console = Console()
    if not local:
        _refuse(
            console, "Say where to run: `--local` runs in the twin; deployed runs are started by an upload of SPEC."
        )
    from cli.run_local import Refused, run_local  # the twin's imports take a second: `validate` need not wait

    try:
        status = run_local(spec, out=out, home=home, time_scale=time_scale, kubeconfig=kubeconfig, console=console)
    except (TrainflowError, Refused) as error:
        _refuse(console, str(error))
    except KeyboardInterrupt:
        console.print("Stopped before the run began; nothing is left running.")
        status = ABORTED
    raise typer.Exit(status)


@app.command()
def validate(spec: SpecPath) -> None:
    """Say whether SPEC can be run, without starting anything."""
    console = Console()
    try:
        valid = read_spec(spec)
    except TrainflowError as error:
        _refuse(console, str(error))
    compute = valid.compute
    console.print(
        f"{spec}: valid. {valid.name}: {compute.num_nodes} × {compute.instance_type}, "
        f"{compute.world_size} processes, backend {compute.backend}.",
        highlight=False,
        soft_wrap=True,
    )


@app.command()
def schema(
    markdown: Annotated[bool, typer.Option("--markdown", help="A reference for people instead.")] = False,
) -> None:
    """Print the JSON Schema of run specs, from which editors complete them."""
    typer.echo(spec_reference() if markdown else json.dumps(RunSpec.model_json_schema(), indent=2))


def _refuse(console: Console, sentence: str) -> NoReturn:
    error_console = Console(stderr=True, width=console.width)
    error_console.print(f"[red]trainflow:[/] {_escaped(sentence)}", highlight=False, soft_wrap=True)
    raise typer.Exit(BAD_INPUT)


def _escaped(text: str) -> str:
    """Text without markup: file names and values may hold brackets."""
    from rich.markup import escape

    return escape(text)
