"""Runs LocalStack's tests, whose answers were recorded on AWS, against the twin's AWS, and counts the same answers.

Nothing of these tests is in this repository. `--recordings FOLDER` is a checkout of `localstack/localstack` with a
Python environment in `.venv/`; `PREPARATION` makes it, and docs/twin-contract.md names its commit.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.aws.comparison import AREAS, TESTS, Area, Judged, Verdict, judge, table
from benchmarks.result import BenchmarkFailed, Result, this_machine

HERE = Path(__file__).parent

PREPARATION = f"python3.13 -m venv FOLDER/.venv && FOLDER/.venv/bin/pip install --requirement {HERE / 'packages.txt'}"

TEST_SECONDS = 90
"""Longest time of a test."""


def run(recordings: Path | None = None) -> Result:
    """Runs the tests of every area, and prints the table.

    Args:
        recordings: The checkout of the tests.

    Raises:
        BenchmarkFailed: If the folder lacks the tests or their environment.
    """
    if recordings is None or not (recordings / TESTS).is_dir():
        raise BenchmarkFailed("give --recordings FOLDER: a checkout of https://github.com/localstack/localstack.")
    python = recordings.absolute() / ".venv" / "bin" / "python"
    if not python.is_file():
        raise BenchmarkFailed(f"{recordings} has no .venv. Make it: {PREPARATION.replace('FOLDER', str(recordings))}")
    with tempfile.TemporaryDirectory(prefix="trainflow-aws-") as folder, _server(Path(folder)) as variables:
        lines = _run_tests(python, recordings.absolute(), Path(folder), variables)
    judged = {area.name: [judge(line, area) for line in lines if _is_in(line, area)] for area in AREAS}
    print(table(judged), file=sys.stderr)
    return Result(
        benchmark="aws",
        ratios={name: _share(found) for name, found in judged.items()},
        seconds={},
        machine=this_machine(),
        details={
            "areas": {name: dict(Counter(each.verdict for each in found)) for name, found in judged.items()},
            "differs": {
                each.test.removeprefix(f"{TESTS}/"): each.reason[:300]
                for found in judged.values()
                for each in found
                if each.verdict is Verdict.DIFFERS
            },
        },
    )


def _is_in(line: Mapping[str, Any], area: Area) -> bool:
    return str(line["test"]).startswith(tuple(f"{TESTS}/{file}" for file in area.files))


def _share(found: list[Judged]) -> float:
    """Share of the tests that apply and differ cosmetically at most."""
    counts = Counter(each.verdict for each in found)
    applies = len(found) - counts[Verdict.NOT_APPLICABLE]
    return round((counts[Verdict.SAME] + counts[Verdict.COSMETIC]) / applies, 3) if applies else 0.0


@contextmanager
def _server(folder: Path) -> Iterator[Mapping[str, str]]:
    """The twin's AWS in a process; yields the variables for the tests."""
    command = [sys.executable, "-m", "benchmarks.aws.recorded_server", str(folder / "logs")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdin and server.stdout
        first = server.stdout.readline()
        if not first:
            raise BenchmarkFailed("the twin's AWS did not start; the reason stands above.")
        yield json.loads(first)
        server.stdin.close()
        server.wait(60)


def _run_tests(python: Path, recordings: Path, folder: Path, variables: Mapping[str, str]) -> list[dict[str, Any]]:
    output = folder / "tests.jsonl"
    output.touch()
    environment = {
        **os.environ,
        **variables,
        "PYTHONPATH": f"{HERE}:{recordings}:{recordings / 'localstack-core'}",
        "TEST_SKIP_LOCALSTACK_START": "1",
        "RECORDED_TESTS_OUTPUT": str(output),
        "RECORDED_TESTS_SKIPPED": _inapplicable(),
    }
    files = [f"{TESTS}/{file}" for area in AREAS for file in area.files]
    options = ["-q", "-p", "recorded_tests", "-p", "no:cacheprovider", "--timeout", str(TEST_SECONDS)]
    command = [str(python), "-m", "pytest", *options, *files]
    subprocess.run(command, cwd=recordings, env=environment, stdout=sys.stderr, check=False)  # tests that differ fail
    return [json.loads(line) for line in output.read_text(encoding="utf-8").splitlines()]


def _inapplicable() -> str:
    """A regular expression that finds the tests that do not apply."""
    rules = [(file, rule) for area in AREAS for file in area.files for rule in area.inapplicable]
    return "|".join(f"{TESTS}/{file}.*(?:{rule})" for file, rule in rules)
