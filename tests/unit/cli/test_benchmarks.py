from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from recorded_runs import recorded

from benchmarks import __main__ as command
from benchmarks import cli, judging, overhead
from benchmarks.overhead import MeasuredRun, summary
from benchmarks.result import BenchmarkFailed, Result, this_machine
from trainflow.client.files import write_record

MACHINE = {"cores": 2}


def test_the_overhead_benchmark_compares_the_second_run_with_the_first() -> None:
    first = recorded("succeeded").record()
    second = recorded("succeeded").record().model_copy(update={"overhead_seconds": 9.397})

    result = summary(MeasuredRun(140.0, first), MeasuredRun(91.0, second), MACHINE)

    assert result.ratios == {
        "second_to_first_wall": 0.65,
        "second_to_first_overhead": 0.5,
        "first_overhead_to_execution": 0.144,
        "second_overhead_to_execution": 0.072,
    }
    assert result.seconds["first_run"]["wall"] == 140.0
    assert result.seconds["first_run"]["overhead"] == 18.794
    by_state = result.seconds["first_run"]["overhead_by_state"]
    assert next(iter(by_state)) == "WatchPrecompile"
    assert sum(by_state.values()) == pytest.approx(18.794, abs=0.01)
    assert result.details["first_run"] == {"compile_cache": "miss", "steps": 200, "sequences_per_second": 118.6}


def test_the_benchmark_of_judging_compares_the_medians_of_both_ways() -> None:
    rounds = {
        judging.WITH: [{"wall": 30.0, "cpu": 10.5}, {"wall": 90.0, "cpu": 11.0}, {"wall": 33.0, "cpu": 10.0}],
        judging.WITHOUT: [{"wall": 30.0, "cpu": 10.0}, {"wall": 29.0, "cpu": 10.0}, {"wall": 99.0, "cpu": 9.0}],
    }
    result = judging.summary(rounds, MACHINE)
    assert result.ratios == {"wall_with_to_without": 1.1, "cpu_with_to_without": 1.05}
    assert result.seconds["medians"] == {"with": {"wall": 33.0, "cpu": 10.5}, "without": {"wall": 30.0, "cpu": 10.0}}
    assert result.seconds["rounds"] == rounds


def test_every_benchmark_has_the_projects_form() -> None:
    record = recorded("succeeded").record()
    result = summary(MeasuredRun(1.0, record), MeasuredRun(1.0, record), this_machine())

    document = json.loads(result.to_json())

    assert {"benchmark", "ratios", "seconds", "machine"} <= set(document)
    assert document["machine"]["cores"] >= 1


def test_the_demo_runs_twice_in_the_same_state_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    commands: list[list[str]] = []

    def run(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        commands.append(command)
        out = Path(command[command.index("--out") + 1])
        write_record(recorded("succeeded").record(), out / "latest" / "run.json")
        return subprocess.CompletedProcess(command, 0)

    monkeypatch.setattr(overhead.subprocess, "run", run)

    assert overhead.run().benchmark == "overhead"

    assert commands[0] == commands[1]
    assert commands[0][1:4] == ["run", str(overhead.SPEC), "--local"]


def test_a_run_that_fails_is_no_measurement(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(overhead.subprocess, "run", lambda command, **_: subprocess.CompletedProcess(command, 2))

    with pytest.raises(BenchmarkFailed, match="exit status 2"):
        overhead.run()


def test_the_command_prints_the_result_and_writes_it_where_asked(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    result = Result(benchmark="overhead", ratios={"a": 0.5}, seconds={"b": 1.0}, machine=MACHINE)
    monkeypatch.setattr(command, "BENCHMARKS", {"overhead": lambda: result})
    path = tmp_path / "results" / "overhead.json"

    assert command.main(["overhead", "--out", str(path)]) == 0

    printed = json.loads(capsys.readouterr().out)
    assert printed == json.loads(path.read_text())
    assert printed["ratios"] == {"a": 0.5}


def test_a_failed_benchmark_says_why_and_exits_with_1(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail() -> Result:
        raise BenchmarkFailed("Run x ended as FAILED.")

    monkeypatch.setattr(command, "BENCHMARKS", {"overhead": fail})

    assert command.main(["overhead"]) == 1
    assert capsys.readouterr().err == "overhead: Run x ended as FAILED.\n"


def test_the_commands_whose_start_is_measured_find_the_run(tmp_path: Path) -> None:
    cli._leave_run(tmp_path)
    for name in ("list", "status"):
        done = subprocess.run(
            [sys.executable, *cli.commands(tmp_path)[name]], capture_output=True, text=True, check=False
        )
        assert (done.returncode, cli.RUN_ID in done.stdout) == (0, True), done.stderr
