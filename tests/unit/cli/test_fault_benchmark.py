"""The table of faults: what is counted, and which runs reach which states."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from benchmarks import __main__ as command
from benchmarks import faults
from benchmarks.fault_cells import kinds_of_runs
from benchmarks.fault_loads import compare_crowd, compare_uploads
from benchmarks.fault_runs import INJECTED, Expected, Row, compare_messages, compare_run, injected
from benchmarks.result import BenchmarkFailed
from local.no_op_logs import STEPS, step_loss
from trainflow.client.place import RunSummary
from trainflow.errors import InvalidRunSpec
from trainflow.record.history import ExecutionHistory
from trainflow.spec.run_spec import parse_run_spec
from trainflow.workflow.run_record import Job, MetricsPublished, Pod, RunError, RunRecord, RunStatus


def test_the_parts_that_are_named_are_measured_and_their_rows_are_summed(monkeypatch: pytest.MonkeyPatch) -> None:
    def part(row: Row) -> Any:
        return lambda: ({"a row": row}, {"all": 1.5}, {"fact": 7})

    parts = {
        "one": part(Row(injected=3)),
        "two": part(Row(injected=2, lost=1, notes=["x failed"])),
        "three": part(Row()),
    }
    monkeypatch.setattr(faults, "PARTS", parts)
    result = faults.run(["one", "two"])
    assert result.ratios == {"injected": 5, "lost": 1, "doubled": 0, "left": 0}
    assert result.seconds == {"one": {"all": 1.5}, "two": {"all": 1.5}}
    assert result.details["two"]["rows"]["a row"]["notes"] == ["x failed"]
    assert result.details["one"]["fact"] == 7
    with pytest.raises(BenchmarkFailed, match=r"\bfour\b.*one, two, three"):
        faults.run(["four"])


def test_parts_belong_to_this_benchmark_alone(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        command.main(["cli", "--part", "year"])
    assert "--part is for the benchmark faults." in capsys.readouterr().err


def test_an_injected_fault_is_counted_for_the_state_that_it_failed() -> None:
    def entered(name: str) -> dict[str, Any]:
        return {"type": "TaskStateEntered", "stateEnteredEventDetails": {"name": name}}

    def failed(cause: str) -> dict[str, Any]:
        return {"type": "TaskFailed", "taskFailedEventDetails": {"error": "Runtime.ExitError", "cause": cause}}

    left = {"type": "TaskStateExited", "stateExitedEventDetails": {"name": "Notify"}}
    events = (
        entered("PollJob"),
        failed("killed"),
        failed(f"Error: {INJECTED}"),
        entered("Notify"),
        failed(INJECTED),
        left,
    )
    histories = [ExecutionHistory(arn="a", events=events), ExecutionHistory(arn="b", events=(failed(INJECTED),))]
    assert list(injected(histories)) == ["PollJob", "Notify", ""]


def test_of_the_runs_that_meet_faults_one_alone_is_refused() -> None:
    refused = []
    for kind, expected in kinds_of_runs().items():
        try:
            parse_run_spec(dict(expected.spec))
        except InvalidRunSpec:
            refused.append((kind, expected.error))
    assert refused == [("refused", "InvalidRunSpec")]


NOW = datetime(2026, 11, 23, tzinfo=UTC)
EXPECTED = Expected(spec={}, points=5, pods={"training": 2})


def record(*, datapoints: int = 5, gaps: int | None = 0, duplicates: int | None = 0, pods: int = 2) -> RunRecord:
    return RunRecord(
        run_id="a-1",
        status=RunStatus.SUCCEEDED,
        spec={},
        started_at=NOW,
        jobs={
            "stage": Job(name="a-1-stage-1", phase="Succeeded", pods=[Pod(name="a-1-stage-1-0", phase="Succeeded")]),
            "training": Job(
                name="a-1-training-1",
                phase="Succeeded",
                pods=[Pod(name=f"a-1-training-1-{number}", phase="Succeeded") for number in range(pods)],
            ),
        },
        metrics_published=MetricsPublished(datapoints=datapoints, gaps=gaps, duplicates=duplicates),
    )


def counted(row: Row) -> tuple[int, int]:
    """Lost and doubled; there are notes if there is any."""
    assert bool(row.notes) == bool(row.lost or row.doubled)
    return row.lost, row.doubled


@pytest.mark.parametrize(
    ("found", "lost", "doubled"),
    [
        (record(), 0, 0),
        (record(pods=4), 0, 2),
        (record(pods=1), 1, 0),
        (record(gaps=1, duplicates=1), 1, 1),
        (record(datapoints=6, duplicates=1), 0, 1),
        (record(datapoints=4, gaps=1), 1, 0),
        (record(datapoints=3), 2, 0),
        (record(gaps=None, duplicates=None), 5, 0),
        (record().model_copy(update={"metrics_published": None}), 5, 0),
        (record().model_copy(update={"jobs": {}}), 2, 0),
        (record().model_copy(update={"status": RunStatus.FAILED}), 1, 0),
        (record().model_copy(update={"error": RunError(name="X", message="", what_to_do="")}), 1, 0),
    ],
)
def test_a_run_loses_and_doubles_independently(found: RunRecord, lost: int, doubled: int) -> None:
    assert counted(compare_run(EXPECTED, found)) == (lost, doubled)


def test_of_a_run_that_may_end_at_any_step_every_step_of_its_log_counts() -> None:
    expected = Expected(spec={}, points=None, pods={"training": 2})

    def of(last_step: int, **published: int) -> tuple[int, int]:
        found = MetricsPublished(first_step=1, last_step=last_step, **published)
        return counted(compare_run(expected, record().model_copy(update={"metrics_published": found})))

    assert of(40, datapoints=40, gaps=0, duplicates=0) == (0, 0)
    assert of(40, datapoints=40, gaps=6, duplicates=0) == (6, 0), "logged while the run was stopped"
    assert of(40, datapoints=39, gaps=7, duplicates=0) == (7, 0)
    assert of(40, datapoints=40, gaps=1, duplicates=1) == (1, 1)


def test_a_message_of_one_run_does_not_make_up_for_that_of_another() -> None:
    runs = {"a-1": Expected(spec={}), "b-1": Expected(spec={}, messages=["cannot be seen", "FAILED"])}
    right = ["Trainflow: b-1 cannot be seen", "Trainflow: a-1 SUCCEEDED", "Trainflow: b-1 FAILED"]
    assert counted(compare_messages(runs, right)) == (0, 0)
    assert counted(compare_messages(runs, [*right[:2], right[1]])) == (1, 1)
    assert counted(compare_messages(runs, [*right, "Trainflow: c-1 FAILED"])) == (0, 1)


def summary(run_id: str, status: RunStatus = RunStatus.SUCCEEDED) -> RunSummary:
    return RunSummary(run_id=run_id, status=status, started_at=NOW, ended_at=NOW)


def test_a_content_that_ran_twice_does_not_make_up_for_one_that_did_not_run() -> None:
    right = [summary(f"upload-{number}-0123456789ab") for number in range(4)]
    again = summary("upload-0-ba9876543210")
    assert counted(compare_uploads(right)) == (0, 0)
    assert counted(compare_uploads([*right[:3], again])) == (1, 1)
    assert counted(compare_uploads([*right, summary("broken-0123456789ab", RunStatus.FAILED)])) == (0, 1)
    assert counted(compare_uploads([*right[:3], summary("upload-3-0123456789ab", RunStatus.FAILED)])) == (1, 0)


def test_in_a_crowd_points_that_are_missing_doubled_or_of_another_run_are_counted() -> None:
    def losses(*found: tuple[str, int]) -> tuple[float, float]:
        return len(found), sum(step_loss(run_id, step) for run_id, step in found)

    def of(*published: tuple[float, float]) -> Row:
        return compare_crowd({"a": "SUCCEEDED", "b": "SUCCEEDED"}, dict(zip("ab", published, strict=True)))

    a, b = ([(run_id, step) for step in range(1, STEPS + 1)] for run_id in "ab")
    assert counted(of(losses(*a), losses(*b))) == (0, 0)
    assert counted(of(losses(*a, a[0]), losses(*b[1:]))) == (1, 1)
    assert counted(of(losses(*a[1:], b[0]), losses(*b))) == (1, 1)
    assert counted(compare_crowd({"a": "FAILED"}, {"a": losses(*a)})) == (1, 0)
