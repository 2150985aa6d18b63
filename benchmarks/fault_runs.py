"""Runs with faults in the twin: what they come to, and what differs from runs without faults."""

from __future__ import annotations

import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.fault_injection import Mail, Plan, twin_with
from benchmarks.many_runs import await_all, left_in_cluster, start_all
from benchmarks.result import BenchmarkFailed
from local.aws import deployment
from local.place import TwinRuns
from local.twin import Twin
from trainflow.client.observe.executions import ExecutionTree
from trainflow.record.history import ExecutionHistory, arn_of_execution
from trainflow.record.jobs import GANGS
from trainflow.workflow.run_record import RunRecord

TIME_SCALE = 100
RUN_SECONDS = 900.0
"""Time limit of the runs of one row."""
INJECTED = "A fault that was asked for."
"""Message of an injected fault in the twin's Lambda."""


@dataclass
class Row:
    """A row of the table."""

    injected: int = 0
    lost: int = 0
    doubled: int = 0
    left: int = 0
    notes: list[str] = field(default_factory=list)
    """Lost, doubled and left objects."""

    def count(self, what: str, *, found: int, wanted: int) -> None:
        """Count what is missing as lost, and what is more as doubled."""
        if found != wanted:
            self.lost += max(0, wanted - found)
            self.doubled += max(0, found - wanted)
            self.notes.append(f"{what}: {found} for {wanted}")

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
    """Steps whose loss is published; None where the run may end at any step."""
    messages: Sequence[str] = ("SUCCEEDED",)
    """Ends of the subjects of its messages, after the run's id."""
    pods: Mapping[str, int] = field(default_factory=dict)
    """Pods of its gangs by stage, those of all attempts together."""
    states: frozenset[str] = frozenset()
    """Task states that this kind of run is there to reach."""


Part = tuple[dict[str, Row], dict[str, Any], dict[str, Any]]
"""Rows of the table, times, and further facts."""


@contextmanager
def faulty_twin(plan: Plan, **options: Any) -> Iterator[Twin]:
    """A twin with folders of its own, inside the block."""
    temporary = tempfile.TemporaryDirectory(prefix="trainflow-faults-")
    with temporary as folder, twin_with(plan, Path(folder), **options) as twin:
        yield twin


def steps(**arguments: Any) -> dict[str, Any]:
    """The spec of a program that logs steps.

    Its nodes are not tested before it starts: they share one machine, and where several gangs start at once, one of two
    nodes may well have an eighth of the other's memory bandwidth. That is a restart, and no fault that was injected.
    """
    return {
        "version": 1,
        "name": "faults",
        "workload": {"script": "tests/assets/programs/steps.py", "image": "trainer:test", "arguments": arguments},
        "compute": {"instance_type": "trn1.32xlarge", "num_nodes": 2, "processes_per_node": 1, "check_nodes": False},
        "precompile": {"enabled": False},
    }


def outcome(twin: Twin, runs: Mapping[str, Expected], mail: Mail) -> tuple[Row, list[ExecutionHistory]]:
    """Start the runs and count what differs from runs without faults; also all of their histories."""
    place, sfn = TwinRuns(twin), twin.client("stepfunctions")
    with tempfile.TemporaryDirectory(prefix="trainflow-faults-") as folder:
        with ExitStack() as observing:
            arns = start_all(twin, {name: run.spec for name, run in runs.items()})
            followed = {
                run_id: observing.enter_context(place.follow(run_id, log_dir=Path(folder) / run_id)) for run_id in runs
            }
            await_all(twin, arns, limit_seconds=RUN_SECONDS)
        records = {run_id: each.record() for run_id, each in followed.items()}
    row = compare_messages(runs, mail.subjects())
    for run_id, expected in runs.items():
        row.add(compare_run(expected, records[run_id]))
    row.add(left(twin))
    return row, [history for arn in arns.values() for history in histories(sfn, arn)]


def compare_run(expected: Expected, record: RunRecord) -> Row:
    """Compare a run's end, its gangs' pods that were seen in the cluster, and its data points with rank 0's log."""
    row = Row()
    error = record.error.name if record.error else None
    if (record.status, error) != (expected.status, expected.error):
        row.lost += 1
        row.notes.append(f"{record.run_id} ended as {record.status} with {error}")
    for stage in GANGS:
        job = record.jobs.get(stage)
        pods = len(job.pods) if job else 0
        row.count(f"pods of {record.run_id} {stage}", found=pods, wanted=expected.pods.get(stage, 0))
    row.add(_compare_points(expected, record))
    return row


def _compare_points(expected: Expected, record: RunRecord) -> Row:
    """A lost point does not make up for a doubled one. Steps count from 1."""
    published = record.metrics_published
    if published is None or published.gaps is None or published.duplicates is None:
        if expected.points == 0:
            return Row()
        return Row(lost=expected.points or 1, notes=[f"the points of {record.run_id} were not compared with its log"])
    steps_published = published.datapoints - published.duplicates
    wanted = (published.last_step or 0) if expected.points is None else expected.points
    row = Row(
        lost=max(published.gaps, wanted - steps_published),
        doubled=published.duplicates + max(0, steps_published - wanted),
    )
    if row.lost or row.doubled:
        row.notes.append(
            f"{record.run_id} has {published.datapoints} data points for {wanted} steps; {published.duplicates} are "
            f"duplicates, and {published.gaps} steps of its log have none"
        )
    return row


def compare_messages(runs: Mapping[str, Expected], subjects: Iterable[str]) -> Row:
    """Compare the subjects of all messages; each subject names its run."""
    return compare_subjects(
        (f"Trainflow: {run_id} {end}" for run_id, run in runs.items() for end in run.messages), subjects
    )


def compare_subjects(wanted: Iterable[str], found: Iterable[str]) -> Row:
    """Compare the subjects of messages one by one."""
    num_wanted, num_found, row = Counter(wanted), Counter(found), Row()
    for subject in num_wanted | num_found:
        row.count(f"messages '{subject}'", found=num_found[subject], wanted=num_wanted[subject])
    return row


def left(twin: Twin) -> Row:
    """Objects that remain after the functions for the ends of runs have answered."""
    twin.aws.targets.drain(RUN_SECONDS)
    objects = left_in_cluster(twin)
    deadline = time.monotonic() + 30
    while (nodes := deployment.gang_nodes()) and time.monotonic() < deadline:
        time.sleep(0.5)
    notes = [f"left: {name}" for name in objects] + ([f"{nodes} nodes"] if nodes else [])
    return Row(left=len(objects) + nodes, notes=notes)


def histories(sfn: Any, arn: str) -> list[ExecutionHistory]:
    """The history of a run's execution, then those of its windows.

    Raises:
        BenchmarkFailed: If Step Functions does not answer.
    """
    tree = ExecutionTree(sfn, arn)
    tree.read()
    if tree.trouble:
        raise BenchmarkFailed(tree.trouble)
    return [tree.history, *tree.children]


def arn_of_run(twin: Twin, run_id: str) -> str:
    """ARN of a run's execution."""
    assert twin.deployment is not None
    return arn_of_execution(twin.deployment.address.state_machine_arn, run_id)


def injected(executions: Iterable[ExecutionHistory]) -> Iterator[str]:
    """The state of each injected fault."""
    for execution in executions:
        state = ""
        for event in execution.events:
            if "stateEnteredEventDetails" in event:
                state = event["stateEnteredEventDetails"]["name"]
            elif INJECTED in str(event.get("taskFailedEventDetails", {}).get("cause")):
                yield state
