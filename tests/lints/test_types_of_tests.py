"""Tests call what is there: a slow test would otherwise learn by night that the function it calls has changed."""

from __future__ import annotations

import subprocess
import sys

CODES = ("[call-arg]", "[name-defined]")
"""Findings that end a test whenever it runs: missing or unknown arguments, and names that nothing defines. Fakes stand
for other types on purpose, so mypy's other findings do not count here."""


def test_calls_of_tests_have_the_arguments_of_what_they_call() -> None:
    checked = subprocess.run([sys.executable, "-m", "mypy", "tests"], capture_output=True, text=True, check=False)
    assert checked.returncode in (0, 1), checked.stdout + checked.stderr
    assert "checked" in checked.stdout.splitlines()[-1]
    assert [line for line in checked.stdout.splitlines() if line.endswith(CODES)] == []
