"""Every function of a run crashes, or times out, at every Task state, before or after it has acted: nothing is lost,
nothing happens twice, and nothing is left."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from benchmarks.fault_cells import CELL_FAULTS, WITHOUT_CAPACITY, kinds_of_runs, run_cell, states_of_functions
from benchmarks.fault_events import EVENTS, event_cell
from benchmarks.fault_injection import (
    EVENT_FUNCTIONS,
    FAULTS,
    TASK_FUNCTIONS,
    Blindness,
    FirstRequests,
    FirstTries,
    Mail,
    OneOfEach,
    Plan,
    twin_with,
)
from local.aws.deployment import DATA_BUCKET
from local.aws.faults import NAMES_OF_FAULTS
from local.place import TwinRuns
from local.twin import Twin
from tests.integration.running import follow_run, replayed
from tests.integration.test_runs import assert_nothing_is_left, demo_spec, steps_spec
from tests.waiting import wait_until
from trainflow.client.place import RunSummary
from trainflow.spec.run_spec import parse_run_spec
from trainflow.state_machines import NAMES, definition
from trainflow.workflow.run_record import RunRecord, RunStatus


@pytest.fixture(scope="module")
def plan() -> Plan:
    return Plan()


@pytest.fixture(scope="module")
def throttling() -> FirstRequests:
    return FirstRequests()


@pytest.fixture(scope="module")
def twin(plan: Plan, throttling: FirstRequests, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Twin]:
    options = {"throttled": throttling, "without_capacity": [WITHOUT_CAPACITY]}
    with twin_with(plan, tmp_path_factory.mktemp("twin"), time_scale=100, **options) as running:
        yield running


def follow(twin: Twin, spec: dict[str, Any], run_id: str, folder: Path) -> RunRecord:
    return follow_run(twin, parse_run_spec(spec), run_id, folder=folder)


def states_of(record: RunRecord) -> set[str]:
    return {visit.name for visit in record.states}


def test_every_task_state_is_covered_by_the_runs_below() -> None:
    """The definitions say which there are. A state that calls a function has a run of the benchmark, too."""
    every = {
        name for machine in NAMES for name, state in definition(machine)["States"].items() if state["Type"] == "Task"
    }
    of_cells = {kind: expected.states for kind, expected in kinds_of_runs().items()}
    assert every == (SUCCEEDING | FAILING).union(*(of_cells[kind] for kind in CELLS))
    assert states_of_functions() == frozenset[str]().union(*of_cells.values())
    assert every - states_of_functions() == {"WatchPrecompile", "WatchTraining"}, "these start executions"


SUCCEEDING = kinds_of_runs()["demo"].states | {"WatchPrecompile", "WatchTraining"}
"""Task states of the demo."""
FAILING = {
    "DeleteJob",
    "NotifyRestart",
    "PublishLastMetrics",
    "CollectDiagnostics",
    "TearDownAfterFailure",
    "WriteFailureRecord",
    "NotifyFailure",
}
"""Further ones of a run whose worker always dies."""
CELLS = ("limited", "scarce", "unseen", "unread", "refused")
"""Kinds of runs of the benchmark that reach all others."""


@pytest.mark.slow
@pytest.mark.parametrize("kind", FAULTS)
def test_a_run_whose_every_call_fails_once_is_as_one_without_faults(
    twin: Twin, plan: Plan, tmp_path: Path, kind: str
) -> None:
    mail, faults = Mail(twin, f"succeeds-{kind}"), FirstTries(FAULTS[kind])
    with plan.replaced(faults):
        record = follow(twin, demo_spec(variant=list(FAULTS).index(kind)), f"{kind}-0000000000aa", tmp_path)
    assert (record.error, record.status) == (None, RunStatus.SUCCEEDED)
    assert states_of(record) >= SUCCEEDING
    published = record.metrics_published
    assert published is not None
    assert (published.datapoints, published.gaps, published.duplicates) == (12, 0, 0)
    assert mail.subjects() == [f"Trainflow: {record.run_id} SUCCEEDED"]
    assert [len(record.jobs[stage].pods) for stage in ("precompile", "training")] == [2, 2]
    assert_nothing_is_left(twin, record.run_id)
    assert set(faults.met) == TASK_FUNCTIONS - {"CollectDiagnostics"}


@pytest.mark.slow
@pytest.mark.parametrize("kind", FAULTS)
def test_a_failing_run_whose_every_call_fails_once_fails_with_its_own_error(
    twin: Twin, plan: Plan, tmp_path: Path, kind: str
) -> None:
    mail = Mail(twin, f"fails-{kind}")
    # Rank 0 is located while it runs: a loaded machine looks at a gang every few seconds.
    spec = steps_spec(max_steps=3, dies_by_signal_at=3, seconds_per_step=4.0)
    spec["limits"] = {"max_restarts": 1, "restart_in_place": False}
    with plan.replaced(FirstTries(FAULTS[kind])):
        record = follow(twin, spec, f"fails-{kind}-000000aa", tmp_path)
    assert record.error is not None
    assert (record.status, record.error.name) == (RunStatus.FAILED, "WorkerFailed")
    assert f"Pod '{record.run_id}-training-2-" in record.error.message
    assert states_of(record) >= FAILING
    published = record.metrics_published
    assert published is not None
    assert (published.datapoints, published.duplicates) == (2, 0)
    events = ("restarts", "FAILED")
    assert mail.subjects() == [f"Trainflow: {record.run_id} {event}: WorkerFailed" for event in events]
    assert replayed(twin, record.run_id) == [record.run_id, *(f"{record.run_id}-training-{n}-1" for n in (1, 2))]
    assert_nothing_is_left(twin, record.run_id)


@pytest.mark.slow
@pytest.mark.parametrize("kind", CELLS)
@pytest.mark.parametrize("fault", CELL_FAULTS)
def test_a_run_that_goes_another_way_loses_doubles_and_leaves_nothing(
    twin: Twin, plan: Plan, fault: str, kind: str
) -> None:
    expected = kinds_of_runs()[kind]
    row, found = run_cell(twin, plan, fault, kind, expected)
    assert (row.lost, row.doubled, row.left) == (0, 0, 0), row.notes
    assert found.keys() >= expected.states, "each of them has failed"


FUNCTIONS_OF_EVENTS = {
    "upload": {"StartRun", "CleanUp"},
    "refused upload": {"StartRun"},
    "lost request": {"ReportLostRequest"},
    "stop": {"CleanUp"},
    "idle nodes": {"SurveyFleet"},
}


EVENT_CELLS = [
    pytest.param(fault, event, marks=[] if event in ("refused upload", "lost request") else pytest.mark.slow)
    for fault in CELL_FAULTS
    for event in EVENTS
]


def test_every_function_of_an_event_is_covered() -> None:
    assert FUNCTIONS_OF_EVENTS.keys() == EVENTS.keys()
    assert set().union(*FUNCTIONS_OF_EVENTS.values()) == EVENT_FUNCTIONS


@pytest.mark.parametrize(("fault", "event"), EVENT_CELLS)
def test_an_event_whose_functions_fail_at_first_loses_doubles_and_leaves_nothing(
    twin: Twin, plan: Plan, fault: str, event: str
) -> None:
    row, found = event_cell(twin, plan, fault, event)
    assert (row.lost, row.doubled, row.left) == (0, 0, 0), row.notes
    assert found.keys() >= FUNCTIONS_OF_EVENTS[event], "each of them has failed"


def test_every_name_under_which_an_invocation_fails_is_tried_again(twin: Twin, plan: Plan, tmp_path: Path) -> None:
    """Each name costs one call of one run, of whichever function comes next."""
    mail, faults = Mail(twin, "names"), OneOfEach(NAMES_OF_FAULTS)
    with plan.replaced(faults):
        record = follow(twin, steps_spec(max_steps=5), "names-0000000000aa", tmp_path)
    assert faults.met.keys() == set(NAMES_OF_FAULTS)
    assert len(set(faults.met.values())) > 5, "and so at several states"
    assert (record.error, record.status) == (None, RunStatus.SUCCEEDED)
    published = record.metrics_published
    assert published is not None
    assert (published.datapoints, published.gaps, published.duplicates) == (5, 0, 0)
    assert mail.subjects() == [f"Trainflow: {record.run_id} SUCCEEDED"]
    assert_nothing_is_left(twin, record.run_id)


@pytest.mark.parametrize(
    "error",
    [
        "ClusterUnavailable",
        pytest.param("ClusterAccessDenied", marks=pytest.mark.slow),
        pytest.param("Runtime.ExitError", marks=pytest.mark.slow),
    ],
)
def test_a_job_that_cannot_be_polled_for_a_while_trains_on_and_the_owner_is_told_once(
    twin: Twin, plan: Plan, tmp_path: Path, error: str
) -> None:
    name = error.lower().replace(".", "-")
    mail, blindness = Mail(twin, f"blind-{name}"), Blindness("PollJob", error=error, seconds=6)
    spec = steps_spec(max_steps=5) | {"limits": {"blind_minutes": 0.03}}
    with plan.replaced(blindness):
        record = follow(twin, spec, f"{name}-0000", tmp_path)
    assert (record.error, record.status) == (None, RunStatus.SUCCEEDED)
    assert blindness.failed > 3, "more than one poll with its retries"
    assert "DeleteJob" not in states_of(record)
    published = record.metrics_published
    assert published is not None
    assert (published.datapoints, published.gaps, published.duplicates) == (5, 0, 0)
    assert mail.subjects() == [f"Trainflow: {record.run_id} {end}" for end in ("cannot be seen", "SUCCEEDED")]
    assert_nothing_is_left(twin, record.run_id)


def test_a_log_that_cannot_be_read_for_a_while_costs_nothing_in_the_end(twin: Twin, plan: Plan, tmp_path: Path) -> None:
    unread = Blindness("PublishMetrics", "LocateRank0", error="ClusterUnavailable", seconds=6)
    with plan.replaced(unread):
        record = follow(twin, steps_spec(max_steps=5), "unread-0000000000aa", tmp_path)
    assert (record.error, record.status) == (None, RunStatus.SUCCEEDED)
    assert unread.failed > 0
    published = record.metrics_published
    assert published is not None
    assert (published.datapoints, published.gaps, published.duplicates) == (5, 0, 0)


def test_a_tear_down_that_fails_leaves_the_run_succeeded_and_nothing_behind(
    twin: Twin, plan: Plan, tmp_path: Path
) -> None:
    refused = Blindness("TearDown", error="ClusterAccessDenied", seconds=3600)
    with plan.replaced(refused):
        record = follow(twin, steps_spec(max_steps=2), "untorn-0000000000aa", tmp_path)
    assert (record.error, record.status) == (None, RunStatus.SUCCEEDED)
    assert refused.failed == 4, "once, and three more times"
    assert_nothing_is_left(twin, record.run_id)


def test_an_upload_whose_events_come_twice_and_whose_requests_are_throttled_is_one_run(
    twin: Twin, plan: Plan, throttling: FirstRequests
) -> None:
    mail, place = Mail(twin, "twice"), TwinRuns(twin)
    text = yaml.safe_dump(steps_spec(max_steps=2) | {"name": "twice"})
    with plan.events_doubled(), throttling.throttled(each=2):
        twin.client("s3").put_object(Bucket=DATA_BUCKET, Key="runs/twice.yaml", Body=text.encode())
        wait_until(lambda: [run.status for run in of_upload(place, "twice")] == [RunStatus.SUCCEEDED])
        place.settle()
    (run,) = of_upload(place, "twice")
    assert run.status is RunStatus.SUCCEEDED
    assert plan.doubled.keys() >= {"StartRun", "CleanUp"}
    assert {service for service, _ in throttling.met} == {"s3", "dynamodb"}
    assert mail.subjects() == [f"Trainflow: {run.run_id} SUCCEEDED"]
    assert len(replayed(twin, run.run_id)) == 2
    assert_nothing_is_left(twin, run.run_id)


def of_upload(place: TwinRuns, name: str) -> list[RunSummary]:
    return [run for run in place.runs() if run.run_id.startswith(f"{name}-")]


@pytest.mark.slow
def test_an_upload_that_is_refused_is_answered_beside_it_until_it_is_corrected(twin: Twin, plan: Plan) -> None:
    """From the upload through EventBridge and the queue, each of which hands it on twice."""
    mail, place, s3 = Mail(twin, "amended"), TwinRuns(twin), twin.client("s3")

    def upload(num_nodes: int) -> None:
        spec = steps_spec(max_steps=2) | {"name": "amended"}
        spec["compute"]["num_nodes"] = num_nodes
        s3.put_object(Bucket=DATA_BUCKET, Key="runs/amended.yaml", Body=yaml.safe_dump(spec).encode())

    def refusals() -> list[str]:
        found = s3.list_objects_v2(Bucket=DATA_BUCKET, Prefix="runs/amended.yaml.").get("Contents", ())
        return [str(each["Key"]) for each in found]

    subjects: list[str] = []

    def told_by_mail() -> bool:
        subjects.extend(mail.subjects())
        return subjects != []

    with plan.events_doubled():
        upload(num_nodes=0)
        wait_until(lambda: refusals() != [])
        place.settle()
        assert refusals() == ["runs/amended.yaml.refused.txt"]
        told = s3.get_object(Bucket=DATA_BUCKET, Key="runs/amended.yaml.refused.txt")["Body"].read().decode()
        assert "compute.num_nodes: must be at least 1, got 0." in told
        wait_until(told_by_mail)
        assert of_upload(place, "amended") == []

        upload(num_nodes=2)
        wait_until(lambda: refusals() == [])
        wait_until(lambda: [run.status for run in of_upload(place, "amended")] == [RunStatus.SUCCEEDED])
        place.settle()
    (run,) = of_upload(place, "amended")
    refused, ended = [*subjects, *mail.subjects()]
    assert ("amended" in refused, ended) == (True, f"Trainflow: {run.run_id} SUCCEEDED")
