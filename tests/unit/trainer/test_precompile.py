"""Counting graphs, and who compiles them."""

from __future__ import annotations

import json
import os
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.wording import wording
from trainer import precompile
from trainer.compiler import compilation
from trainer.compiler.compilation import GraphCounts

PRINTS_TOTALS = """
import os, sys
graphs, failed = sys.argv[1:3]
before = "2022-12-21 00:07:10.000925: INFO ||PARALLEL_COMPILE||: Total"
print("TRAINFLOW_PRECOMPILE is", os.environ.get("TRAINFLOW_PRECOMPILE"))
print(f"{before} graphs: {graphs}")
print(f"{before} successful compilations: {int(graphs) - int(failed)}")
print(f"{before} failed compilations: {failed}")
sys.exit(int(sys.argv[3]))
"""


def run(tmp_path: Path, *command: str, path: str = "", again: bool = False, **variables: str) -> tuple[int, Any]:
    """Exit code and result of a precompile job."""
    result_file = tmp_path / "result"
    environ = {**os.environ, "PATH": path or os.environ["PATH"], "TRAINFLOW_RESULT_FILE": str(result_file)}
    code = precompile.main([*(["--retry_failed"] if again else []), "--", *command], {**environ, **variables})
    return code, json.loads(result_file.read_text()) if result_file.exists() else None


def test_the_program_is_told_to_compile_only_and_its_counts_are_the_result(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    code, document = run(tmp_path, sys.executable, "-c", PRINTS_TOTALS, "6", "0", "0")
    assert (code, document) == (0, {"result": {"graphs": 6, "succeeded": 6, "failed": 0}})
    assert "TRAINFLOW_PRECOMPILE is 1" in capfd.readouterr().out


def test_a_failed_graph_fails_the_job(tmp_path: Path) -> None:
    code, document = run(tmp_path, sys.executable, "-c", PRINTS_TOTALS, "6", "2", "0")
    assert (code, document["error"]) == (1, "GraphCompilationFailed")
    assert document["message"] == "2 of 6 graphs failed to compile; read this job's log."


def test_a_program_that_fails_ends_the_job_with_its_code(tmp_path: Path) -> None:
    assert run(tmp_path, sys.executable, "-c", "raise SystemExit(3)") == (3, None)
    assert run(tmp_path, sys.executable, "-c", "import os; os.kill(os.getpid(), 15)") == (143, None)


def test_a_node_without_rank_0_has_no_counts_and_no_result(tmp_path: Path) -> None:
    assert run(tmp_path, sys.executable, "-c", "print('waiting')") == (0, None)


ONE, TWO = "MODULE_8068656800389078395+abb26765", "MODULE_17109392703413819652+abb26765"


def run_neuron(tmp_path: Path, *command: str, again: bool = False, **variables: str) -> tuple[int, Any]:
    """The same where `neuron_parallel_compile` is installed."""
    path = f"{Path('tests/assets/programs').resolve()}{os.pathsep}{os.environ['PATH']}"
    cache = tmp_path / "key" / "run"
    told = {"TRAINFLOW_CACHE_DIR": str(cache), "NEURON_COMPILE_CACHE_URL": f"{cache}/neuron", **variables}
    return run(
        tmp_path, *(command or (sys.executable, "-c", "")), path=path, again=again, FAKE_GRAPHS=f"{ONE} {TWO}", **told
    )


def test_neurons_own_tool_does_the_work_where_it_is_installed(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    extract = """
import os
print("precompile", os.environ.get("TRAINFLOW_PRECOMPILE"), os.environ["NEURON_EXTRACT_GRAPHS_ONLY"])
"""
    code, document = run_neuron(tmp_path, sys.executable, "-c", extract)
    assert (code, document) == (0, {"result": {"graphs": 2, "succeeded": 2, "failed": 0}})
    assert "precompile None 1" in capfd.readouterr().out


def test_a_graph_that_failed_once_compiles_when_it_is_retried_with_the_flag(tmp_path: Path) -> None:
    code, document = run_neuron(tmp_path, FAKE_FAIL_ONCE=TWO)
    assert (code, document["error"]) == (1, "GraphCompilationFailed")
    assert document["message"] == f"1 of 2 graphs failed to compile: {TWO}; read this job's log."
    assert run_neuron(tmp_path, FAKE_FAIL_ONCE=TWO)[0] == 1, "without the flag a failure stays in the cache"
    code, document = run_neuron(tmp_path, FAKE_FAIL_ONCE=TWO, again=True, NEURON_CC_FLAGS="--model-type transformer")
    assert (code, document["result"]["succeeded"]) == (0, 2)


def test_graphs_that_fail_again_are_named(tmp_path: Path) -> None:
    run_neuron(tmp_path, FAKE_FAIL=f"{ONE} {TWO}")
    code, document = run_neuron(tmp_path, FAKE_FAIL=f"{ONE} {TWO}", again=True)
    assert code == 1
    assert document["message"] == f"2 of 2 graphs failed to compile again: {ONE}, {TWO}; read this job's log."
    assert not (tmp_path / "key" / "run" / "_READY").exists()


@pytest.mark.parametrize(("rank", "code"), [("0", 0), ("1", 1)])
def test_the_gangs_first_node_removes_the_locks_of_an_attempt_that_was_cut_off(
    tmp_path: Path, rank: str, code: int
) -> None:
    run_neuron(tmp_path)
    (lock,) = [module / "model.lock" for module in (tmp_path / "key" / "run").rglob(ONE)]
    lock.touch()
    command = (sys.executable, "-c", "", "--node_rank", rank)
    assert run_neuron(tmp_path, *command, again=True)[0] == code


@pytest.mark.parametrize("argv", [[], ["--"]])
def test_without_a_command_the_use_is_shown(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert precompile.main(argv, {}) == 2
    assert "torchrun" in capsys.readouterr().err


def test_a_command_that_does_not_exist_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, _ = run(tmp_path, "no-such-command")
    assert code == 2
    assert "'no-such-command'" in capsys.readouterr().err


def test_the_report_is_worded_as_neurons_tool_does() -> None:
    graphs = GraphCounts(total=6, failed=1, cached=2, failed_names=("forward (bert.py:40)",))
    lines = compilation.report(graphs, now=datetime(2022, 12, 21, 0, 7, 10, 925, tzinfo=UTC))
    assert lines == [
        wording("precompile.the_report_is_worded_as_neurons_tool_does.1", "2022", "00", "07", "10.000925"),
        "2022-12-21 00:07:10.000925: INFO ||PARALLEL_COMPILE||: Total graphs: 6",
        wording("precompile.the_report_is_worded_as_neurons_tool_does.2", "2022", "00", "07", "10.000925"),
        wording("precompile.the_report_is_worded_as_neurons_tool_does.3", "2022", "00", "07", "10.000925"),
        wording("precompile.the_report_is_worded_as_neurons_tool_does.4", "2022", "00", "07", "10.000925"),
    ]


def test_counts_are_read_from_inductors_counters() -> None:
    counted = compilation.graph_counts({"total": 3, "ok": 2, "autograd_cache_hit": 1, "autograd_cache_miss": 2})
    assert counted == GraphCounts(total=3, failed=1, cached=1)
    assert compilation.graph_counts({}) == compilation.NONE
