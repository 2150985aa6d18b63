"""Runs with faults in the twin: what they come to, and what differs from runs without faults."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.result import BenchmarkFailed
from local.aws import deployment, folder_buckets
from local.fault_injection import Mail, Plan
from local.many_runs import left_in_cluster, published_losses, run_all
from local.place import TwinRuns
from local.twin import Twin
from trainflow.client.observe.executions import ExecutionTree
from trainflow.record.failure import run_error
from trainflow.record.history import ExecutionHistory

TIME_SCALE = 100
RUN_SECONDS = 900.0
"""Time limit of the runs of one row."""
INJECTED = "A fault that was asked for."
"""What the twin's Lambda says of an injected fault."""


@dataclass
class Row:
    """A row of the table."""

    injected: int = 0
    lost: int = 0
    doubled: int = 0
    left: int = 0
    notes: list[str] = field(default_factory=list)
    """What was lost, doubled or left."""

    def add(self, other: Row) -> None:
        """Count another row in this one."""
        self.injected, self.lost = self.injected + other.injected, self.lost + other.lost
        self.doubled, self.left = self.doubled + other.doubled, self.left + other.left
        self.notes += other.notes


@dataclass(frozen=True, kw_only=True)
class Expected:
    """A run, and what it comes to without faults."""

    spec: Mapping[str, Any]
    status: str = "SUCCEEDED"
    error: str | None = None
    points: int | None = None
    """Data points of the loss; None where the run may end at any step."""
    messages: int = 1
    jobs: int | None = None
    """Visits of SubmitPrecompile and SubmitTraining."""


Part = tuple[dict[str, Row], dict[str, Any], dict[str, Any]]
"""Rows of the table, times, and further facts."""


@contextmanager
def twin_with(plan: Plan, **options: Any) -> Iterator[Twin]:
    """A twin with folders of its own and the demo's data set, inside the block."""
    with tempfile.TemporaryDirectory(prefix="trainflow-faults-") as folder:
        home = Path(folder) / "home"
        folder_buckets.ensure_demo_data(home / "s3")
        with Twin(home=home, log_dir=Path(folder) / "logs", faults=plan, **options) as twin:
            yield twin


def steps(**arguments: Any) -> dict[str, Any]:
    """The spec of a program that logs steps."""
    return {
        "version": 1,
        "name": "faults",
        "workload": {"script": "tests/assets/programs/steps.py", "image": "trainer:test", "arguments": arguments},
        "compute": {"instance_type": "trn1.32xlarge", "num_nodes": 2, "processes_per_node": 1},
        "precompile": {"enabled": False},
    }


def outcome(twin: Twin, runs: Mapping[str, Expected], mail: Mail) -> tuple[Row, list[ExecutionHistory]]:
    """Start the runs and count what differs from runs without faults; also all of their histories."""
    row = Row()
    statuses = run_all(twin, {name: run.spec for name, run in runs.items()}, limit_seconds=RUN_SECONDS)
    TwinRuns(twin).settle()
    executions: list[ExecutionHistory] = []
    for run_id, expected in runs.items():
        own, *windows = histories(twin.client("stepfunctions"), execution_arn(twin, run_id))
        executions += [own, *windows]
        ended = run_error(own)
        error = ended.name if ended else None
        if (statuses[run_id], error) != (expected.status, expected.error):
            row.lost += 1
            row.notes.append(f"{run_id} ended as {statuses[run_id]} with {error}")
        points, _ = published_losses(twin, run_id)
        submits = sum(name.startswith("Submit") for name in exited(own.events))
        if expected.points is not None and points != expected.points:
            row.lost += max(0, round(expected.points - points))
            row.doubled += max(0, round(points - expected.points))
            row.notes.append(f"{run_id} has {points:g} data points for {expected.points}")
        if expected.jobs is not None and submits > expected.jobs:
            row.doubled += submits - expected.jobs
            row.notes.append(f"{run_id} has submitted {submits} jobs for {expected.jobs}")
    messages, wanted = len(mail.subjects()), sum(run.messages for run in runs.values())
    row.doubled += max(0, messages - wanted)
    row.lost += max(0, wanted - messages)
    if messages != wanted:
        row.notes.append(f"{messages} messages for {wanted}")
    row.add(left(twin))
    return row, executions


def left(twin: Twin) -> Row:
    """What ended runs have left after a moment."""
    objects = left_in_cluster(twin)
    deadline = time.monotonic() + 30
    while (nodes := deployment.gang_nodes()) and time.monotonic() < deadline:
        time.sleep(0.5)
    notes = [f"left: {name}" for name in objects] + ([f"{nodes} nodes"] if nodes else [])
    return Row(left=len(objects) + nodes, notes=notes)


def histories(sfn: Any, execution_arn: str) -> list[ExecutionHistory]:
    """The history of a run's execution, then those of its windows.

    Raises:
        BenchmarkFailed: If Step Functions does not answer.
    """
    tree = ExecutionTree(sfn, execution_arn)
    tree.read()
    if tree.trouble:
        raise BenchmarkFailed(tree.trouble)
    return [tree.history, *tree.children]


def execution_arn(twin: Twin, run_id: str) -> str:
    """ARN of a run's execution."""
    assert twin.deployment is not None
    machine = twin.deployment.address.state_machine_arn
    return f"{machine.replace(':stateMachine:', ':execution:')}:{run_id}"


def injected(executions: Iterable[ExecutionHistory]) -> Iterator[str]:
    """The state of each injected fault."""
    for execution in executions:
        state = ""
        for event in execution.events:
            if "stateEnteredEventDetails" in event:
                state = event["stateEnteredEventDetails"]["name"]
            elif INJECTED in str(event.get("taskFailedEventDetails", {}).get("cause")):
                yield state


def exited(events: Iterable[Any]) -> list[str]:
    """Names of the states that an execution has left."""
    return [event["stateExitedEventDetails"]["name"] for event in events if "stateExitedEventDetails" in event]
