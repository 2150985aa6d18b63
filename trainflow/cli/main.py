"""Train on Trainium, GPUs and CPUs through Step Functions, in an AWS account or on this machine."""

# Each command imports what it needs: `--help` waits for no model, `validate` for no cluster (benchmarks/cli.py).

from __future__ import annotations

import functools
import io
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trainflow.cli.exit_status import ABORTED, BAD_INPUT, STOPPED_BEFORE, refuse
from trainflow.cli.help import EXAMPLES, epilog
from trainflow.cli.json_output import VERSION, AsJson, print_json
from trainflow.cli.on_demand import OnDemandTyper
from trainflow.cli.operate.commands import register
from trainflow.cli.operate.completion import run_ids
from trainflow.cli.operate.place import (
    HOME,
    OUT,
    Faults,
    Home,
    Local,
    Out,
    PlaceName,
    WallsOption,
    print_to,
    require_time_scale,
    require_twin,
    twin_arguments,
)
from trainflow.cli.plugins import leave_plugins
from trainflow.cli.schema_names import SchemaOf
from trainflow.cli.spec_options import Overrides, SpecPath, SpecPathOrInput
from trainflow.errors import TrainflowError

if TYPE_CHECKING:
    from trainflow.cli.terminal import Console
    from trainflow.client.programs.options import Flag
    from trainflow.spec.workload import Workload

app = OnDemandTyper(
    groups=EXAMPLES,
    epilog=epilog,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help=__doc__,
    context_settings={"help_option_names": ["--help", "-h"]},
)

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
    image_root: Annotated[
        Path | None,
        typer.Option(
            help="Folder that stands for the image in the twin. Default: SPEC's folder if the program is there, "
            "otherwise the repository."
        ),
    ] = None,
    faults: Faults = None,
    walls: WallsOption = None,
    override: Overrides = None,
    place: PlaceName = None,
    detach: Annotated[
        bool, typer.Option("--detach", help="Start it and print its id on the last line; it goes on by itself.")
    ] = False,
    announce_to: Annotated[int | None, typer.Option(hidden=True)] = None,
    page: Annotated[bool, typer.Option("--page/--no-page", help="Show the run on a page of this machine, too.")] = True,
) -> None:
    """Run SPEC, in the twin or in a deployment.

    The run is followed to its end unless --detach is given, and leaves a record and a report. For a deployment the code
    is packed and uploaded first. On a terminal Ctrl-C asks whether to stop the run or to detach from it; a run goes on
    when its terminal is closed.

    Exit status: 0 succeeded or detached, 1 failed, 2 the input is at fault, 3 the loss is not finite, 4 a limit of the
    run was reached, 130 aborted.
    """
    if local and place is not None:
        refuse("Give --local for the twin or --place for a deployment, not both.")
    if kubeconfig is not None and not kubeconfig.is_file():
        refuse(f"--kubeconfig {kubeconfig}: there is no such file.")
    try:
        require_twin(local=local, faults=faults, walls=walls)
        require_time_scale(time_scale)
        if not local:
            status = _run_in_deployment(place, spec, override or [], out=out, detach=detach, page=page)
        elif announce_to is None and (detach or (sys.stdin.isatty() and sys.stdout.isatty())):
            from trainflow.cli.attended import run_attended, run_detached

            arguments = _run_arguments(spec, out, home, time_scale, kubeconfig, image_root, override or [])
            arguments += [*twin_arguments(faults=faults, walls=walls), *([] if page else ["--no-page"])]
            status = (
                run_detached(arguments, out=out, home=home) if detach else run_attended(arguments, out=out, home=home)
            )
        else:
            from trainflow.cli.attended import Attendant
            from trainflow.cli.run import run_at
            from trainflow.cli.terminal import Console
            from trainflow.client.place import LOCAL, PlaceOptions

            console = Console()
            options = PlaceOptions(
                out=out,
                home=home,
                time_scale=time_scale,
                kubeconfig=kubeconfig,
                image_root=image_root,
                faults=faults,
                walls=walls,
                busy=console.status,
                say=print_to(console),
            )
            attendant = Attendant(announce_to) if announce_to is not None else None
            status = run_at(
                LOCAL, spec, override or (), options=options, console=console, attendant=attendant, page=page
            )
    except TrainflowError as error:
        refuse(str(error))
    except KeyboardInterrupt:
        typer.echo(STOPPED_BEFORE)
        status = ABORTED
    raise typer.Exit(status)


def _run_arguments(
    spec: Path,
    out: Path,
    home: Path,
    time_scale: float,
    kubeconfig: Path | None,
    image_root: Path | None,
    overrides: list[Path],
) -> list[str]:
    """The command for the process that runs it."""
    options: list[tuple[str, object]] = [("--out", out), ("--home", home), ("--time-scale", time_scale)]
    options += [("--kubeconfig", kubeconfig)] if kubeconfig else []
    options += [("--image-root", image_root)] if image_root else []
    options += [("--override", path) for path in overrides]
    return ["run", str(spec), "--local", *(str(word) for option in options for word in option)]


def _run_in_deployment(
    place: str | None, spec: Path, overrides: list[Path], *, out: Path, detach: bool, page: bool
) -> int:
    from trainflow.cli.deployed.start import run_in_deployment
    from trainflow.cli.terminal import Console

    return run_in_deployment(place, spec, overrides, out=out, detach=detach, console=Console(), page=page)


register(app)


@app.command()
def ui(
    place: PlaceName = None,
    out: Annotated[Path, typer.Option(help="Folder with the folders of this machine's runs.")] = Path("out"),
    home: Home = HOME,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0: any that is free.")] = 0,
) -> None:
    """Show runs on a page in the browser.

    They are this machine's, or with --place those of a deployment, read with your own credentials. The page is served
    only to this machine, until Ctrl-C. Its address contains a token: everyone who knows it sees the runs.
    """
    from trainflow.cli.operate.place import open_deployment_named, open_reader
    from trainflow.cli.page import serve
    from trainflow.cli.terminal import Console
    from trainflow.client.background import resume_in_background
    from trainflow.client.owned_folder import OwnedFolder
    from trainflow.page.library import RunLibrary

    with OwnedFolder("trainflow-page-") as nothing:
        try:
            if place is None:
                here = open_reader(local=True, place=None, out=out, home=home)
                resume = functools.partial(resume_in_background, out=out, home=home)
                library = RunLibrary(folder=out, place=here, resume=resume, words=here.hint_words)
            else:
                # The folders of this machine say nothing of a deployment's runs.
                runs = open_deployment_named(place)
                library = RunLibrary(
                    folder=Path(nothing), place=runs, resume=runs.resume, name=place, words=runs.hint_words
                )
            serve(library, port=port, console=Console(), home=home)
        except TrainflowError as error:
            refuse(str(error))
        except OSError as taken:
            refuse(f"The page cannot listen on port {port}: {taken.strerror}. Leave --port out, or choose another.")


@app.command()
def validate(
    spec: SpecPathOrInput,
    override: Overrides = None,
    run_help: Annotated[
        bool,
        typer.Option("--run-help", help="Also run the program with --help and this Python, for at most 20 s."),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Check SPEC without starting anything.

    Arguments are compared with the flags in the script's source; with --run-help, with those that the program prints.
    The program and the code of a spec on the standard input are looked for in the present folder.

    Exit status: 0 the spec is valid, 2 it is not.
    """
    leave_plugins()
    from trainflow.client.code import require_code
    from trainflow.client.programs.arguments import doubts_about
    from trainflow.client.programs.ignored_checkpoint import ignored_checkpoint
    from trainflow.client.spec_file import STANDARD_INPUT, read_spec
    from trainflow.record.wording import count
    from trainflow.spec.document import MAX_BYTES

    # One byte more tells that there is too much.
    given = sys.stdin.buffer.read(MAX_BYTES + 1) if spec == STANDARD_INPUT else None
    try:
        valid = read_spec(spec, override or (), given=given)
        left_out = require_code(valid.workload, beside=spec.parent)
    except TrainflowError as error:
        if not as_json:
            refuse(str(error))
        print_json({"version": VERSION, "spec": str(spec), "valid": False, "error": str(error)})
        raise typer.Exit(BAD_INPUT) from None
    compute = valid.compute
    notes = (_doubts_by_help if run_help else doubts_about)(valid.workload, folder=spec.parent)
    notes += [f"{note}." for note in (left_out, ignored_checkpoint(valid, folder=spec.parent)) if note is not None]
    if as_json:
        print_json(
            {
                "version": VERSION,
                "spec": str(spec),
                "valid": True,
                "name": valid.name,
                "instance_type": compute.instance_type,
                "num_nodes": compute.num_nodes,
                "processes": compute.world_size,
                "backend": compute.backend,
                "precompiles": valid.precompiles,
                "precompile_reason": valid.precompile_reason,
                "notes": notes,
            }
        )
        return
    print(
        f"{spec}: valid. {valid.name}: {compute.num_nodes} × {compute.instance_type}, "
        f"{count(compute.world_size, 'process')}, backend {compute.backend}.\n"
        f"Precompilation: {'on' if valid.precompiles else 'off'}, since {valid.precompile_reason}."
    )
    for note in notes:
        print(f"Note: {note}")


def _doubts_by_help(workload: Workload, *, folder: Path) -> list[str]:
    from trainflow.client.programs.arguments import doubts_about
    from trainflow.client.programs.help import HelpUnavailable, doubts_by_help

    try:
        return doubts_by_help(workload, folder=folder)
    except HelpUnavailable as reason:
        unavailable = f"the program's --help is not available here ({reason}); its source was read instead."
        return [unavailable, *doubts_about(workload, folder=folder)]


@app.command()
def init(
    script: Annotated[
        Path | None, typer.Option("--from", help="Script to write the spec for, without questions.", show_default=False)
    ] = None,
    out: Annotated[Path, typer.Option(help="File to write.")] = Path("spec.yaml"),
    name: Annotated[str | None, typer.Option(help="Name of the spec. Default: the script's.")] = None,
    instance_type: Annotated[str, typer.Option(help="EC2 instance type of every node.")] = "c7i.xlarge",
    nodes: Annotated[int, typer.Option(min=1, help="Nodes of the gang.")] = 1,
    processes: Annotated[int | None, typer.Option(min=1, help="Processes on each node.", show_default=False)] = None,
) -> None:
    """Write a commented run spec for a script.

    Reads the script's flags, launcher and libraries from its source, which is not run. The JSON Schema that the spec
    names in its first line is written beside it.
    """
    leave_plugins()
    from trainflow.cli.init import Answers, init_notes, name_for, program_in, spec_text, write_spec
    from trainflow.cli.spec_lines import open_arguments
    from trainflow.cli.spec_schema import SCHEMA_FILE

    if script is None and not sys.stdin.isatty():
        refuse("Name the script: `trainflow init --from train.py`; there is no terminal to ask on.")
    asks = script is None
    try:
        script = script or Path(typer.prompt("Script, below the folder of the spec"))
        program = program_in(script, folder=out.parent)
        name = name or name_for(script)
        processes = processes or (2 if program.launcher == "torchrun" else 1)
        if asks:
            name = typer.prompt("Name of the spec", default=name)
            instance_type = typer.prompt("Instance type", default=instance_type)
            nodes = typer.prompt("Nodes", default=nodes, type=int)
            processes = typer.prompt("Processes on each node", default=processes, type=int)
        values = {flag.name: typer.prompt(_question(flag)) for flag in open_arguments(program)} if asks else {}
        answers = Answers(
            script=script,
            name=name,
            instance_type=instance_type,
            num_nodes=nodes,
            processes_per_node=processes,
            values=values,
        )
        write_spec(out, spec_text(answers, program, folder=out.parent))
    except TrainflowError as error:
        refuse(str(error))
    print(f"Wrote {out}, and {SCHEMA_FILE}, from which editors complete and check it.")
    for note in init_notes(program, answers, folder=out.parent):
        print(f"Note: {note}.")
    print(f"Run it on this machine: trainflow run {shlex.quote(str(out))} --local")


def _question(flag: Flag) -> str:
    """Question for the value of a required argument."""
    return f"{flag.name} ({flag.help})" if flag.help else flag.name


@app.command()
def schema(
    of: Annotated[SchemaOf, typer.Option(help="What it describes.")] = SchemaOf.RUN_SPEC,
    markdown: Annotated[bool, typer.Option("--markdown", help="A reference of run specs for people instead.")] = False,
    instance_types: Annotated[bool, typer.Option("--instance-types", help="The instance types instead.")] = False,
    errors: Annotated[bool, typer.Option("--errors", help="The named errors instead.")] = False,
) -> None:
    """Print a JSON Schema: of run specs, for editors, or of another document.

    The others are overrides, configurations of deployments, records of runs, the event of a run's end, and what
    commands print with --json.
    """
    leave_plugins()
    from trainflow.cli.error_reference import error_reference
    from trainflow.cli.instance_reference import instance_reference
    from trainflow.cli.schemas import schema_text
    from trainflow.cli.spec_reference import spec_reference

    if instance_types or errors:
        typer.echo(instance_reference() if instance_types else error_reference(), nl=instance_types)
        return
    typer.echo(spec_reference() if markdown else schema_text(of), nl=markdown)


@app.command()
def doctor(
    run: Annotated[
        str | None,
        typer.Option(help="The run's id; without it the deployment is examined.", autocompletion=run_ids),
    ] = None,
    kubeconfig: Annotated[Path | None, typer.Option(help="A cluster that no place names.")] = None,
    namespace: Annotated[str, typer.Option(help="Where runs live in it.")] = "training",
    as_json: AsJson = False,
    local: Local = False,
    place: PlaceName = None,
    out: Out = OUT,
) -> None:
    """Find what keeps a run's pods, or a whole deployment, from working.

    With --run, checks whether its pods find each other, their files, their devices and their image. The cluster is that
    of the run's place, or with --kubeconfig any other one. Without --run, checks the parts of the deployment of --place
    and of its cluster.

    Exit status: 0 nothing failed, 1 a check failed, 2 no pods were found or the deployment cannot be examined.
    """
    from trainflow.cli.doctor import DoctorError
    from trainflow.cli.doctor import doctor as examine
    from trainflow.cli.terminal import Console

    if run is None:
        _examine_place(place, is_elsewhere=local or kubeconfig is not None, as_json=as_json)
        return

    if kubeconfig is not None and (local or place is not None):
        refuse("Give the run's place (--local, --place) or a cluster (--kubeconfig), not both.")
    console, api = Console(stderr=True) if as_json else Console(), None
    try:
        if kubeconfig is None:
            from trainflow.cli.operate.place import open_reader

            reader = open_reader(local=local, place=place, out=out)
            run = reader.describe(run).run_id
            api, namespace = reader.cluster(run)
        status = examine(
            run,
            kubeconfig=kubeconfig,
            namespace=namespace,
            console=console,
            as_json=as_json,
            api=api,
            devices_on_paper=local,
        )
    except (DoctorError, TrainflowError) as error:
        refuse(str(error))
    raise typer.Exit(status)


def _examine_place(place: str | None, *, is_elsewhere: bool, as_json: bool) -> None:
    """Examine a deployment, and end the command.

    Args:
        place: The option `--place`.
        is_elsewhere: Whether other options name a run's cluster.
        as_json: Print JSON.
    """
    from trainflow.cli.doctor import doctor_of_place
    from trainflow.cli.operate.place import open_deployment_named
    from trainflow.cli.terminal import Console

    if is_elsewhere:
        refuse("Give the run, --run, or leave --local and --kubeconfig out: without a run a deployment is examined.")
    try:
        deployed = open_deployment_named(place)
        status = doctor_of_place(
            deployed.address,
            client=deployed.client,
            kubernetes=deployed.kubernetes,
            console=Console(stderr=True) if as_json else Console(),
            as_json=as_json,
        )
    except TrainflowError as error:
        refuse(str(error))
    raise typer.Exit(status)


Configuration = Annotated[Path, typer.Option(help="The deployment's configuration: config/NAME.yaml.")]
EXAMPLE = Path("config/example.yaml")


@app.command()
def check_account(
    config: Configuration = EXAMPLE,
    as_json: AsJson = False,
) -> None:
    """Say what would fail or surprise in a deployment.

    Reads the account and the registries that CONFIG needs, and makes nothing.

    Exit status: 0 nothing fails, 1 something would fail, 2 what was handed in is at fault.
    """
    from trainflow.cli.account import BadInput
    from trainflow.cli.account import check_account as check
    from trainflow.cli.terminal import Console

    console = Console(stderr=True) if as_json else Console()
    try:
        status = check(config, as_json=as_json, console=console)
    except BadInput as error:
        refuse(str(error))
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
        refuse(str(error))


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
        refuse(str(error))
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
        refuse(str(error))


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
        refuse(str(error))
    console.print(f"{deployment.name} is at rest: nothing runs, no training node is up.")


def _console_for_sentences() -> Console:
    """Prints text as it is: it ignores markup, colours nothing, and does not break lines."""
    from trainflow.cli.terminal import Console

    return Console(stderr=True, markup=False, highlight=False, soft_wrap=True)
