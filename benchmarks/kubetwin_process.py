"""`python -m kubetwin` as a process of a benchmark."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from benchmarks.result import BenchmarkFailed


@contextmanager
def kubetwin_process(
    log: Path, *arguments: str, environment: Mapping[str, str] | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """A process of the twin's Kubernetes side, which ends when its standard input is closed."""
    command = [sys.executable, "-m", "kubetwin", *arguments, "--until-stdin-closes"]
    with log.open("ab") as errors:
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            start_new_session=True,
            env={**os.environ, **(environment or {})},
        )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        yield process
    finally:
        process.stdin.close()
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()


def next_line(process: subprocess.Popen[bytes], log: Path) -> bytes:
    """The next line that the process prints.

    Raises:
        BenchmarkFailed: If it ends without one.
    """
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        raise BenchmarkFailed(f"A part of the cluster did not start: {log.read_text()[-500:]}")
    return line
