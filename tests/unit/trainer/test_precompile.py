"""Counting graphs, and who compiles them."""

from __future__ import annotations

import json
import os
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from trainer import compilation, precompile
from trainer.compilation import GraphCounts

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


def run(tmp_path: Path, *command: str, path: str = "") -> tuple[int, Any]:
    """Exit code and result of a precompile job."""
    result_file = tmp_path / "result"
    environ = {**os.environ, "PATH": path or os.environ["PATH"], "TRAINFLOW_RESULT_FILE": str(result_file)}
    code = precompile.main(["--", *command], environ)
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
    assert "2 of 6 graphs" in document["message"]


def test_a_program_that_fails_ends_the_job_with_its_code(tmp_path: Path) -> None:
    assert run(tmp_path, sys.executable, "-c", "raise SystemExit(3)") == (3, None)
    assert run(tmp_path, sys.executable, "-c", "import os; os.kill(os.getpid(), 15)") == (143, None)


def test_a_node_without_rank_0_has_no_counts_and_no_result(tmp_path: Path) -> None:
    assert run(tmp_path, sys.executable, "-c", "print('waiting')") == (0, None)


def test_neurons_own_tool_does_the_work_where_it_is_installed(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    tool = tmp_path / "bin" / "neuron_parallel_compile"
    tool.parent.mkdir()
    tool.write_text('#!/bin/sh\necho "extracting graphs of: $@"\nexec "$@"\n')
    tool.chmod(0o755)
    path = f"{tool.parent}{os.pathsep}{os.environ['PATH']}"
    code, document = run(tmp_path, sys.executable, "-c", PRINTS_TOTALS, "4", "0", "0", path=path)
    shown = capfd.readouterr().out
    assert (code, document["result"]["graphs"]) == (0, 4)
    assert "extracting graphs of:" in shown
    assert "TRAINFLOW_PRECOMPILE is None" in shown


@pytest.mark.parametrize("argv", [[], ["--"]])
def test_without_a_command_the_use_is_shown(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert precompile.main(argv, {}) == 2
    assert "torchrun" in capsys.readouterr().err


def test_a_command_that_does_not_exist_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, _ = run(tmp_path, "no-such-command")
    assert code == 2
    assert "'no-such-command'" in capsys.readouterr().err


def test_the_report_is_worded_as_neurons_tool_does() -> None:
    graphs = GraphCounts(total=6, failed=1, cached=2)
    lines = compilation.report(graphs, now=datetime(2022, 12, 21, 0, 7, 10, 925, tzinfo=UTC))
    assert lines == [
        "2022-12-21 00:07:10.000925: INFO ||PARALLEL_COMPILE||: Total graphs: 6",
        "2022-12-21 00:07:10.000925: INFO ||PARALLEL_COMPILE||: Total successful compilations: 5",
        "2022-12-21 00:07:10.000925: INFO ||PARALLEL_COMPILE||: Total failed compilations: 1",
        "2022-12-21 00:07:10.000925: INFO ||PARALLEL_COMPILE||: Total cached graphs: 2",
    ]
    assert precompile.totals_in(lines) == {"graphs": 6, "succeeded": 5, "failed": 1, "cached": 2}


def test_counts_are_read_from_inductors_counters() -> None:
    counted = compilation.graph_counts({"total": 3, "ok": 2, "autograd_cache_hit": 1, "autograd_cache_miss": 2})
    assert counted == GraphCounts(total=3, failed=1, cached=1)
    assert compilation.graph_counts({}) == compilation.NONE
