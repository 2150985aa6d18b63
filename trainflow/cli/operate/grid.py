"""`trainflow grid`: the runs of a grid, in both places."""

from __future__ import annotations

import functools
import json
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trainflow.cli.json_output import VERSION, AsJson, print_json
from trainflow.cli.operate.place import (
    HOME,
    OUT,
    Home,
    Local,
    Out,
    PlaceChoice,
    PlaceName,
    WallsOption,
    require_time_scale,
    require_twin,
)
from trainflow.cli.spec_options import Overrides, SpecPath

if TYPE_CHECKING:
    from trainflow.client.code import PackedCode
    from trainflow.client.grid import Grid, GridRun
    from trainflow.client.place import Place, PlaceOptions
    from trainflow.client.runs import DeployedRuns

FAILED, ABORTED = 1, 130

POLL_SECONDS = 15.0
"""Time between two polls of the runs of a deployment that have to end before others start."""


def grid(
    spec: SpecPath,
    over: Annotated[
        list[str],
        typer.Option("--over", help="A field and its values, FIELD=VALUE,VALUE; several make a grid.", metavar="F=V,V"),
    ],
    parallel: Annotated[
        int | None,
        typer.Option(min=1, help="Most runs at a time. Default: 1 with --local, otherwise all.", show_default=False),
    ] = None,
    local: Local = False,
    place: PlaceName = None,
    out: Out = OUT,
    home: Home = HOME,
    override: Overrides = None,
    time_scale: Annotated[
        float, typer.Option(min=1, help="With --local: waits take 1/X of their time.", metavar="X")
    ] = 30.0,
    walls: WallsOption = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Check and list the runs, and start none.")] = False,
    as_json: AsJson = False,
) -> None:
    """Start a run for each combination of values, at most 100.

    Every spec is checked before the first run starts. The ids of the runs begin with the grid's, and follow from the
    spec, its code and the values: the same command again starts only those that there are not yet.

    With --local the command ends when all runs have; in a deployment, when all are started.

    Exit status: 0 done, 1 a run of the twin has failed, 2 what was handed in is at fault, 130 aborted.
    """
    if local and place is not None:
        raise PlaceChoice("Give --local for the twin or --place for a deployment, not both.")
    require_twin(local=local, faults=None, walls=walls)
    require_time_scale(time_scale)
    from trainflow.cli.operate.shown import table
    from trainflow.client.code import pack
    from trainflow.client.grid import grid_of
    from trainflow.client.grid_code import code_difference, remember
    from trainflow.client.place import PlaceOptions
    from trainflow.client.spec_file import read_document
    from trainflow.spec.document import canonical

    document = read_document(spec, override or ())
    canonical(document)
    first = grid_of(document, over).runs[0].spec  # checks all of them before anything is packed
    code = pack(first.workload, beside=spec.parent, leave_out=(out, home))
    grid = grid_of(document, over, code_sha256=code.sha256 if code else None)
    say = _Words(quiet=as_json)
    say(f"Grid {grid.grid_id}: {len(grid.runs)} runs.")
    if not as_json:
        typer.echo(table(("RUN", *grid.runs[0].values), [(run.run_id, *_texts(run)) for run in grid.runs]))
    if (difference := code_difference(grid, code, out=out)) is not None:
        say(difference)
    status, started = 0, functools.cache(functools.partial(remember, grid, code, out=out))
    if not dry_run:
        if local:
            options = PlaceOptions(
                out=out, home=home, time_scale=time_scale, walls=walls, spec_folder=spec.parent, say=say
            )
            status = _Local(grid, code, options=options, parallel=parallel or 1, say=say, started=started).run()
        else:
            parallel = parallel or len(grid.runs)
            status = _Deployed(grid, code, place=place, parallel=parallel, say=say, started=started).run()
    if as_json:
        rows = [{"run_id": run.run_id, "values": run.values} for run in grid.runs]
        print_json({"version": VERSION, "grid": grid.grid_id, "runs": rows})
    raise typer.Exit(status)


class _Words:
    def __init__(self, *, quiet: bool) -> None:
        self._quiet = quiet

    def __call__(self, sentence: str) -> None:
        typer.echo(sentence, err=self._quiet)


class _Deployed:
    """A grid in a deployment. The command may be stopped and started again at any moment."""

    def __init__(
        self,
        grid: Grid,
        code: PackedCode | None,
        *,
        place: str | None,
        parallel: int,
        say: _Words,
        started: Callable[[], None],
    ) -> None:
        from trainflow.client.place_names import read_names
        from trainflow.client.places import open_deployment

        self._grid, self._code, self._parallel, self._say = grid, code, parallel, say
        self._started = started
        self._runs: DeployedRuns = open_deployment(read_names().named(place))

    def run(self) -> int:
        """Start the runs, each as soon as fewer than are allowed go on; the command's exit status."""
        from trainflow.client.grid import members

        known = [run.run_id for run in members(self._runs.runs(), self._grid.grid_id)]
        pending = [run for run in self._grid.runs if run.run_id not in known]
        for run_id in known:
            self._say(f"{run_id} exists already.")
        active = self._running(known)
        try:
            while pending:
                while pending and len(active) < self._parallel:
                    self._start(pending[0])
                    active.append(pending.pop(0).run_id)
                if pending:
                    time.sleep(POLL_SECONDS)
                    active = self._running(active)
        except KeyboardInterrupt:
            self._say(f"{len(pending)} runs are not started; the same command goes on.")
            return ABORTED
        return 0

    def _running(self, run_ids: Sequence[str]) -> list[str]:
        """Those that go on. Each is asked for: a list of executions lacks the newest ones for a while."""
        from trainflow.workflow.run_status import RunStatus

        return [run_id for run_id in run_ids if self._runs.describe(run_id).status is RunStatus.RUNNING]

    def _start(self, run: GridRun) -> None:
        from trainflow.client.place import RunExists

        try:
            self._runs.start(run.spec, code=self._code, run_id=run.run_id)
        except RunExists:  # another command for this grid was first
            self._say(f"{run.run_id} exists already.")
        else:
            self._started()
            self._say(f"Started {run.run_id}.")


class _Local:
    """A grid in one twin, which lives as long as the command."""

    def __init__(
        self,
        grid: Grid,
        code: PackedCode | None,
        *,
        options: PlaceOptions,
        parallel: int,
        say: _Words,
        started: Callable[[], None],
    ) -> None:
        self._grid, self._code, self._options = grid, code, options
        self._parallel, self._say, self._started = parallel, say, started

    def run(self) -> int:
        """Run them to their ends; the command's exit status."""
        from trainflow.client.grid import members
        from trainflow.client.local_runs import LocalOptions, LocalRuns
        from trainflow.client.place import LOCAL, open_place

        runs = LocalRuns(LocalOptions(out=self._options.out, home=self._options.home)).runs()
        existing = members(runs, self._grid.grid_id)
        for run in existing:
            self._say(f"{run.run_id} exists already: {run.status.value}.")
        known = {run.run_id for run in existing}
        pending = [run for run in self._grid.runs if run.run_id not in known]
        if not pending:
            return 0
        with open_place(LOCAL, self._options) as place:
            for each in pending:
                place.require_startable(each.spec)
            return self._run_all(place, pending)

    def _run_all(self, place: Place, pending: Sequence[GridRun]) -> int:
        from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait

        from trainflow.cli.run import stopped_by

        waiting, active, failed = list(pending), dict[Future[int], str](), False
        with ThreadPoolExecutor(self._parallel, thread_name_prefix="grid") as pool:
            try:
                while waiting or active:
                    while waiting and len(active) < self._parallel:
                        run = waiting.pop(0)
                        place.start(run.spec, code=self._code, run_id=run.run_id)
                        self._started()
                        self._say(f"Started {run.run_id}.")
                        active[pool.submit(self._follow, place, run.run_id)] = run.run_id
                    for ended in wait(active, return_when=FIRST_COMPLETED).done:
                        active.pop(ended)
                        failed = bool(ended.result()) or failed
            except KeyboardInterrupt:
                self._say("Stopping the runs of the grid …")
                for run_id in active.values():
                    place.stop(run_id, reason=stopped_by())
                self._say(f"{len(waiting)} runs are not started; the same command goes on with them.")
                return ABORTED
        return FAILED if failed else 0

    def _follow(self, place: Place, run_id: str) -> int:
        from trainflow.cli.attended import CONSOLE_LOG
        from trainflow.cli.run import exit_status, follow_to_end
        from trainflow.cli.terminal import Console
        from trainflow.client.hints import local_words
        from trainflow.record.wording import significant

        folder = self._options.out / run_id
        with (folder / CONSOLE_LOG).open("a", encoding="utf-8") as log:
            words = local_words(out=self._options.out, home=self._options.home)
            record = follow_to_end(place, run_id, folder=folder, console=Console(file=log), words=words)
        last = record.training.last_loss if record.training else None
        loss = f", last loss {significant(last)}" if last is not None else ""
        self._say(f"{run_id} has ended: {record.status.value}{loss}.")
        return exit_status(record)


def _texts(run: GridRun) -> list[str]:
    return [_text(value) for value in run.values.values()]


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
