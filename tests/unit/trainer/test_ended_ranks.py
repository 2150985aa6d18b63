"""The line about ranks that have ended, while torchrun waits for those of other nodes."""

from __future__ import annotations

import sys
import textwrap
from pathlib import Path

import pytest

from trainer.steps import ended_ranks
from trainer.steps.processes import Process, run
from trainflow.failures.table import Kind, failure_table
from trainflow.protocol.ended_ranks import LINE

pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="reads /proc")

TORCHRUN = """
    import subprocess, sys, time
    ranks = [subprocess.Popen([sys.executable, "-c", "import time; time.sleep(0.7)"]) for _ in range(2)]
    for rank in ranks:
        rank.wait()
    time.sleep(float(sys.argv[1]))  # the exit barrier
"""


def printed(script: str, barrier_seconds: float, capsys: pytest.CaptureFixture[str]) -> str:
    words = (sys.executable, "-c", textwrap.dedent(script), str(barrier_seconds))
    assert run([Process(words=words)], ended_ranks.watch) == 0
    return capsys.readouterr().out


def test_a_launcher_that_waits_without_any_rank_is_reported_once(capsys: pytest.CaptureFixture[str]) -> None:
    assert printed(TORCHRUN, 8, capsys) == LINE + "\n"


def test_a_launcher_that_ends_with_its_ranks_is_not_reported(capsys: pytest.CaptureFixture[str]) -> None:
    assert printed(TORCHRUN, 0, capsys) == ""


def test_a_launcher_that_works_without_ranks_is_not_reported(capsys: pytest.CaptureFixture[str]) -> None:
    works = "while time.process_time() < 1.5: pass"
    assert printed(TORCHRUN.replace("time.sleep(float(sys.argv[1]))", works), 0, capsys) == ""


def test_the_line_is_the_evidence_of_the_rule_about_gangs() -> None:
    [rule] = failure_table().of_kind(Kind.GANG)
    assert any(expression.search(LINE.lower()) for expression in rule.log)
