"""Cost, marks, differing fields and logs, each from values alone."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from trainflow.nodes.prices import usd_per_hour
from trainflow.observed.pod import Pod
from trainflow.observed.run_state import RunState
from trainflow.observed.step import Step
from trainflow.page.cost import forecast
from trainflow.page.logs import Found, Tail, found_in, read_tail, search
from trainflow.page.marks import Mark, marks
from trainflow.page.view import ScalingRow, field_rows, no_steps, period, pod_rows, scaling_rows
from trainflow.protocol.checkpoint_line import CheckpointReport
from trainflow.record.run_states import state_of_record
from trainflow.workflow.run_record import Cost, Restart, RunRecord, RunStatus, SavedCheckpoint

BEGIN = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
ARN = "arn:aws:states:us-east-1:123456789012:execution:training:bert-1"


def after(minutes: float) -> datetime:
    return BEGIN + timedelta(minutes=minutes)


def snapshot(*, steps: tuple[Step, ...] = (), **values: object) -> RunState:
    arguments = {
        "run_id": "bert-1",
        "status": RunStatus.RUNNING,
        "observed_at": after(90),
        "started_at": BEGIN,
        "arn": ARN,
        "spec": {"compute": {"instance_type": "trn1.32xlarge", "num_nodes": 2}},
        "steps": steps,
    }
    return RunState(**{**arguments, **values})  # type: ignore[arg-type]


HELD = Cost(usd=43.0, node_hours=2.0, region="us-east-1")
"""Estimate of the record of a run that has held two nodes for an hour."""


def test_the_cost_so_far_is_the_records_and_the_hourly_price_that_of_all_nodes() -> None:
    price = usd_per_hour("trn1.32xlarge", region="us-east-1")
    assert price is not None

    known = forecast(snapshot(cost=HELD))

    assert known is not None
    assert (known.node_hours, known.so_far, known.per_hour) == (2.0, 43.0, 2 * price)
    assert known.at_the_end is None
    assert "2 × trn1.32xlarge are held" in known.basis


def test_spares_are_nodes_of_the_run() -> None:
    spec = {"compute": {"instance_type": "trn1.32xlarge", "num_nodes": 2, "spares": 1}}
    known = forecast(snapshot(cost=HELD, spec=spec))
    assert known is not None
    assert "3 × trn1.32xlarge are held" in known.basis


def test_the_forecast_adds_the_time_that_the_training_still_takes() -> None:
    steps = tuple(Step(after(30 + number / 60), 0, number, 1.0, None, None) for number in range(1, 61))

    known = forecast(snapshot(steps=steps, total_steps=3660, cost=HELD, observed_at=after(31)))

    assert known is not None
    assert known.per_hour is not None
    assert known.at_the_end == pytest.approx(43.0 + known.per_hour, rel=0.01)  # 3,600 steps of a second are left


def test_a_run_that_waits_for_its_nodes_has_cost_nothing_yet() -> None:
    known = forecast(snapshot())

    assert known is not None
    assert (known.node_hours, known.so_far) == (0.0, 0.0)


def test_a_run_that_ended_without_nodes_has_no_cost() -> None:
    assert forecast(snapshot(status=RunStatus.FAILED)) is None


def test_a_price_that_is_not_known_is_not_taken_from_another_region() -> None:
    known = forecast(snapshot(arn=ARN.replace("us-east-1", "mars-north-1")))

    assert known is not None
    assert (known.so_far, known.basis) == (None, "The price of trn1.32xlarge in mars-north-1 is not known.")


def test_a_spec_without_nodes_has_no_cost() -> None:
    assert forecast(snapshot(spec={})) is None


def restart(*, minutes: float, last_step: int | None, stage: str = "training") -> Restart:
    return Restart(stage=stage, attempt=1, at=after(minutes), error="WorkerFailed", message="gone", last_step=last_step)


def test_a_restart_is_marked_at_the_last_step_before_it() -> None:
    steps = tuple(Step(after(minute), 0, number, 1.0, None, None) for number, minute in ((1, 1), (2, 2), (3, 11)))
    restarts = (restart(minutes=10, last_step=None), restart(minutes=20, last_step=7))

    assert marks(snapshot(steps=steps, restarts=restarts)) == (
        Mark(2, "restart", "restart 1, after WorkerFailed"),
        Mark(7, "restart", "restart 2, after WorkerFailed"),
    )
    assert marks(snapshot(restarts=restarts[:1])) == ()
    assert marks(snapshot(steps=steps, restarts=(restart(minutes=10, last_step=2, stage="precompile"),))) == ()


def test_the_checkpoints_of_the_record_are_marked() -> None:
    saved = CheckpointReport(step=1500, num_bytes=7, saved_at=BEGIN)

    assert marks(snapshot(checkpoints=(saved,))) == (Mark(1500, "checkpoint", "checkpoint of step 1,500"),)


def test_a_run_that_has_ended_keeps_its_restarts_checkpoints_and_cost() -> None:
    record = RunRecord(
        run_id="bert-1",
        status=RunStatus.SUCCEEDED,
        spec={},
        started_at=BEGIN,
        restarts=[restart(minutes=10, last_step=40)],
        checkpoints=[SavedCheckpoint(step=80, saved_at=after(20), size_bytes=7), SavedCheckpoint(url="s3://b/last.pt")],
        cost=HELD,
    )

    ended = state_of_record(record, ())

    assert (ended.restarts, ended.cost) == ((restart(minutes=10, last_step=40),), HELD)
    assert ended.checkpoints == (CheckpointReport(step=80, num_bytes=7, saved_at=after(20)),)


def test_only_the_fields_that_differ_are_listed() -> None:
    specs = (
        {"name": "a", "compute": {"num_nodes": 2, "backend": "job"}, "workload": {"arguments": {"lr": 0.1}}},
        {"name": "a", "compute": {"num_nodes": 4, "backend": "job"}, "workload": {"arguments": {"wd": None}}},
    )

    assert field_rows([snapshot(spec=spec) for spec in specs]) == [
        ("compute.num_nodes", ["2", "4"]),
        ("workload.arguments.lr", ["0.1", "–"]),
    ]


def test_runs_on_more_and_more_nodes_are_a_scaling_study() -> None:
    def run(num_nodes: int, throughput: float) -> RunState:
        steps = (Step(BEGIN, 0, 1, 1.0, None, throughput, throughput_of="samples"),)
        spec = {"name": f"bert-{num_nodes}", "compute": {"num_nodes": num_nodes}}
        return snapshot(run_id=f"bert-{num_nodes}", spec=spec, steps=steps)

    def scaled(num_nodes: int, **figures: str) -> ScalingRow:
        return ScalingRow(run_id=f"bert-{num_nodes}", num_nodes=num_nodes, throughput_of="samples", **figures)

    assert scaling_rows([run(16, 48_000.0), run(2, 6_450.0)]) == [
        scaled(2, throughput="6,450", per_node="3,225", efficiency="100%"),
        scaled(16, throughput="48,000", per_node="3,000", efficiency="93%"),
    ]
    assert scaling_rows([run(2, 6_450.0), run(2, 6_400.0)]) == []


def test_a_log_is_read_from_its_end_and_then_on(tmp_path: Path) -> None:
    log = tmp_path / "pod.log"
    log.write_text("one\ntwo\nthr")

    tail = read_tail(log)
    assert tail == Tail(lines=["one", "two"], offset=8, is_whole=True)

    with log.open("a") as file:
        file.write("ee\nfour\n")
    assert read_tail(log, since=tail.offset).lines == ["three", "four"]
    assert read_tail(log, since=10_000).lines == ["one", "two", "three", "four"]


def test_of_a_long_log_the_last_lines_are_sent(tmp_path: Path) -> None:
    log = tmp_path / "pod.log"
    log.write_text("".join(f"line {number}\n" for number in range(400_000)))

    tail = read_tail(log)

    assert (len(tail.lines), tail.lines[-1], tail.is_whole) == (10_000, "line 399999", False)


def test_a_search_reads_the_whole_log_in_either_case(tmp_path: Path) -> None:
    log = tmp_path / "pod.log"
    log.write_text("fine\nRuntimeError: NaN\nfine\nruntimeerror again\n")

    assert search(log, "RUNTIMEerror") == Found(lines=[(2, "RuntimeError: NaN"), (4, "runtimeerror again")], total=2)
    assert found_in(["no"], "yes") == Found(lines=[], total=0)


def pod(phase: str, *, exit_code: int | None = None, message: str = "", stage: str = "training") -> Pod:
    return Pod(
        name="bert-1-training-1-0", uid="u", stage=stage, phase=phase, exit_code=exit_code, message=message or None
    )


@pytest.mark.parametrize(
    ("code", "said"), [(None, "–"), (0, "0"), (1, "1"), (137, "137 (SIGKILL)"), (143, "143 (SIGTERM)"), (255, "255")]
)
def test_an_exit_code_says_which_signal_it_stands_for(code: int | None, said: str) -> None:
    (row,) = pod_rows(snapshot(pods=(pod("Failed", exit_code=code),)), set())
    assert row.exit_code == said


def test_of_a_pods_message_the_programs_last_line_is_shown() -> None:
    told = 'step 29\nTraceback (most recent call last):\n  File "bad.py", line 5\nFileNotFoundError: labels.csv\n'
    assert [
        row.note
        for each in (pod("Failed", message=told), pod("Succeeded", message=told), pod("Pending"))
        for row in pod_rows(snapshot(pods=(each,)), set())
    ] == ["FileNotFoundError: labels.csv", "", ""]


def test_a_run_without_a_curve_says_why() -> None:
    assert "progress" in no_steps(snapshot(pods=(pod("Failed"),)))
    assert no_steps(snapshot(pods=(pod("Failed", stage="preflight"),))) == "The run ended before its training began."


def test_a_run_that_goes_on_says_for_how_long() -> None:
    assert period(snapshot()) == "since 2026-11-21 12:00:00 UTC, for 1 h 30 min"
