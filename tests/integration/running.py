"""Runs in a twin that a test has started, followed as the command follows them."""

from __future__ import annotations

import io
from pathlib import Path

from rich.console import Console

from local.place import TwinRuns
from local.twin import Twin
from tests.asl.replay import assert_run_replayed
from trainflow.cli.run import follow_to_end
from trainflow.spec.run_spec import RunSpec
from trainflow.workflow.run_record import RunRecord


def follow_run(twin: Twin, spec: RunSpec, run_id: str, *, folder: Path, console: Console | None = None) -> RunRecord:
    """Start a run and follow it to its end; its record and report are left in `folder`.

    Args:
        twin: A twin that runs.
        spec: The run.
        run_id: Its id.
        folder: Where to leave its files.
        console: Where to show it; nowhere if left out.
    """
    place = TwinRuns(twin)
    place.start(spec, run_id=run_id)
    return follow_to_end(place, run_id, folder=folder, console=console or Console(file=io.StringIO()))


def replayed(twin: Twin, run_id: str) -> list[str]:
    """Let the second engine take the way of a run that is over: names of its executions, the run's first.

    Raises:
        AssertionError: If it comes to another state, or gives other data to a task.
    """
    assert twin.deployment is not None, "the twin runs, with everything deployed"
    executions = twin.deployment.address.state_machine_arn.replace(":stateMachine:", ":execution:")
    return assert_run_replayed(twin.client("stepfunctions"), f"{executions}:{run_id}")
