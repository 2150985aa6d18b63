"""The commands of docs/rehearsal.md, typed as they are written there against a twin that stays."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from local.twin import REPOSITORY
from tests.documents import blocks

PAGE = "docs/rehearsal.md"
TYPED = [block.text for block in blocks() if block.where.startswith(PAGE) and not block.inline]
(SERVE, *LINES) = TYPED
PROGRAMS = Path(sys.executable).parent
TAIL = '''
"""The requests of `aws logs tail` of version 2, which PyPI has not: pages of FilterLogEvents, every event once."""
import sys, time, boto3
logs, shown, begin = boto3.client("logs"), set(), int((time.time() - 3600) * 1000)
while True:
    for page in logs.get_paginator("filter_log_events").paginate(logGroupName=sys.argv[1], startTime=begin):
        for event in page["events"]:
            if event["eventId"] not in shown:
                print(event["logStreamName"], event["message"], flush=True)
                shown.add(event["eventId"])
    if "--follow" not in sys.argv:
        break
    time.sleep(1)
'''


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Home of a twin that `python -m local` serves."""
    home = tmp_path_factory.mktemp("rehearsal") / ".trainflow"
    command = [sys.executable, "-m", "local", "--home", str(home), "--no-op", "600"]  # no run ends before it is stopped
    with subprocess.Popen(command, cwd=REPOSITORY, stdout=subprocess.PIPE, text=True) as twin:
        try:
            assert twin.stdout is not None
            assert twin.stdout.readline().endswith(f". {home}/twin.env\n")
            assert (home / "twin.env").stat().st_mode & 0o777 == 0o600
            yield home
        finally:
            twin.send_signal(signal.SIGINT)
    assert twin.returncode == 0
    assert not (home / "twin.env").exists()


@pytest.fixture
def shell_folder(tmp_path: Path) -> Path:
    """A folder with programs that come before those of the machine."""
    tail = f'exec {sys.executable} {tmp_path / "tail.py"} "${{@:3}}"'
    real = f'exec {PROGRAMS / "aws"} "$@"'
    (tmp_path / "tail.py").write_text(TAIL)
    (tmp_path / "aws").write_text(f'#!/bin/bash\n[ "$1 $2" = "logs tail" ] && {tail}\n{real}\n')
    (tmp_path / "aws").chmod(0o755)
    return tmp_path


def typed(text: str, home: Path, folder: Path) -> str:
    """Output of a shell into which lines were typed, without the commands of version 2 that PyPI lacks."""
    lines = text.replace("/tmp/", f"{folder}/").replace(".trainflow/", f"{home}/")
    lines = re.sub(r'^export PATH="\$PWD/.venv/bin:.*', "", lines, flags=re.MULTILINE)
    lines = re.sub(r"^(aws logs tail .*--follow)", r"timeout 4 \1 || [ $? = 124 ]", lines, flags=re.MULTILINE)
    done = subprocess.run(
        ["bash", "-eu", "-o", "pipefail"],
        input=f"cd {REPOSITORY}\n. {home}/twin.env\n{lines}",
        env={"PATH": f"{folder}:{PROGRAMS}:{os.environ['PATH']}", "HOME": str(folder)},
        text=True,
        capture_output=True,
        check=False,
        timeout=240,
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout


def test_the_page_says_how_to_serve_a_twin() -> None:
    assert SERVE.startswith(".venv/bin/python -m local")


def test_every_command_of_the_page_answers_as_in_an_account(home: Path, shell_folder: Path) -> None:
    first, runs, uploads, rules, results = LINES

    assert "arn:aws:sts::123456789012:" in typed(first, home, shell_folder)

    ran = typed(runs, home, shell_folder)
    assert re.search(r'"RUNNING",\s+\d', ran)
    assert "ExecutionStarted" not in ran.split("stopDate")[1]
    assert re.search(r'"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"', ran.split("stopDate")[1]), "a UUID for a name"
    assert re.search(r'"RUNNING",\s+1\s', ran.split("redriveDate")[1])

    uploaded = typed(uploads, home, shell_folder)
    assert "name: this field is missing" in uploaded
    assert len(re.findall(r'"runs/mine.yaml",', uploaded)) == 2

    ruled = typed(rules, home, shell_folder)
    assert '"FailedEntryCount": 0' in ruled
    assert re.search(r'"hourly",\s+"ENABLED"', ruled)

    seen = typed(results, home, shell_folder)
    assert "task done" in seen, "the log of ValidateRun"
    assert "mine.yaml" in seen, "the log of StartRun"
    assert re.search(r'"Values": \[\s+\d', seen)
