"""`from trainflow.protocol import report`: what a program prints, and what is read of it."""

from __future__ import annotations

import io
import json
import math
import runpy
from datetime import UTC, datetime
from pathlib import Path

import pytest

from trainflow.observed.step import parse_report_line
from trainflow.protocol import report, result, step_report, variables


class Tensor:
    """What a tensor of one element has in common with torch's."""

    def item(self) -> float:
        return 2.5


@pytest.fixture(autouse=True)
def rank0(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RANK", raising=False)
    monkeypatch.delenv(variables.RESULT_FILE, raising=False)


def test_a_step_is_read_as_it_was_reported(capsys: pytest.CaptureFixture[str]) -> None:
    before = datetime.now(UTC)
    report.step(7, loss=Tensor(), learning_rate=1e-4, epoch=0.5, accuracy=0.75, perplexity=math.inf, unknown=None)
    step = parse_report_line(capsys.readouterr().out, before)
    assert step is not None
    assert (step.step, step.loss, step.learning_rate, step.epoch, step.throughput) == (7, 2.5, 1e-4, 0.5, None)
    assert step.metrics == {"accuracy": 0.75}
    assert abs((step.logged_at - before).total_seconds()) < 60


def test_the_line_of_a_step_has_the_names_that_the_documentation_promises(capsys: pytest.CaptureFixture[str]) -> None:
    report.step(7, loss=2.5, accuracy=0.75)
    said = json.loads(capsys.readouterr().out)["trainflow_metrics"]
    assert {name: value for name, value in said.items() if name != "logged_at"} == {
        "step": 7,
        "loss": 2.5,
        "accuracy": 0.75,
    }
    assert isinstance(said["logged_at"], float)


def test_the_time_of_a_step_is_the_clocks_to_the_millisecond(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("time.time", lambda: 1793534400.123456)
    report.step(7)
    assert '"logged_at": 1793534400.123}' in capsys.readouterr().out


def test_a_line_is_written_whole_so_that_no_other_process_writes_into_it(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    written: list[str] = []
    monkeypatch.setattr(stream, "write", written.append)
    monkeypatch.setattr("sys.stdout", stream)
    report.step(1, loss=1.0)
    (line,) = written
    assert line.endswith("\n")
    assert parse_report_line(line, datetime.now(UTC)) is not None


@pytest.mark.parametrize("loss", [math.nan, math.inf, -math.inf])
def test_a_diverged_loss_is_seen(capsys: pytest.CaptureFixture[str], loss: float) -> None:
    report.step(1, loss=loss)
    line = capsys.readouterr().out
    found = parse_report_line(line, datetime.now(UTC))
    assert found is not None
    assert repr(found.loss) == repr(loss)
    json.loads(line, parse_constant=pytest.fail)


def test_other_ranks_print_nothing(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "3")
    report.step(1, loss=1.0)
    assert capsys.readouterr().out == ""


def test_a_result_is_left_where_the_workflow_reads_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "result"
    report.result(steps=3)  # outside of Trainflow there is nowhere to leave it
    monkeypatch.setenv(variables.RESULT_FILE, str(file))
    report.result(steps=3, last_loss=1.5)
    assert result.read_result(file.read_bytes()) == result.success({"steps": 3, "last_loss": 1.5})
    for too_much in ("x" * 5000, object()):
        with pytest.raises(ValueError, match="result"):
            report.result(text=too_much)
    assert result.read_result(file.read_bytes()) == result.success({"steps": 3, "last_loss": 1.5})


def test_the_file_alone_is_enough(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    copy = tmp_path / "report.py"
    copy.write_text(Path(report.__file__).read_text(encoding="utf-8"), encoding="utf-8")
    runpy.run_path(str(copy))["step"](1, loss=1.0)
    assert parse_report_line(capsys.readouterr().out, datetime.now(UTC)) is not None
    assert "import trainflow" not in copy.read_text(encoding="utf-8").replace("    from trainflow", "")
    facts = (report.METRICS, report.RESULT_FILE, report.MAX_RESULT_BYTES)
    assert facts == (step_report.METRICS, variables.RESULT_FILE, result.MAX_BYTES)
