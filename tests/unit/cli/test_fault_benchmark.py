"""The table of faults: what is counted, and which runs reach which states."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks import __main__ as command
from benchmarks import faults
from benchmarks.fault_runs import INJECTED, Row, exited, injected
from benchmarks.result import BenchmarkFailed
from trainflow.errors import InvalidRunSpec
from trainflow.models.run_spec import parse_run_spec
from trainflow.record.history import ExecutionHistory


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
    with pytest.raises(BenchmarkFailed, match="There is no part four; there are one, two, three"):
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
    assert exited(events) == ["Notify"]


def test_of_the_runs_that_meet_faults_one_alone_is_refused() -> None:
    refused = []
    for kind, expected in faults.kinds_of_runs().items():
        try:
            parse_run_spec(dict(expected.spec))
        except InvalidRunSpec:
            refused.append((kind, expected.error))
    assert refused == [("refused", "InvalidRunSpec")]
