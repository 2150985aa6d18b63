"""Ctrl-C in the middle: everything that was started is stopped, and the record says so."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
import yaml

from tests.integration.test_runs import processes_of, steps_spec


@pytest.mark.parametrize(
    "number",
    [*(pytest.param(each, marks=pytest.mark.slow) for each in (signal.SIGINT, signal.SIGTERM)), signal.SIGKILL],
    ids=lambda number: number.name,
)
def test_an_interrupted_run_leaves_no_process(tmp_path: Path, number: signal.Signals) -> None:
    spec_file, out = tmp_path / "spec.yaml", tmp_path / "out"
    spec_file.write_text(yaml.safe_dump(steps_spec(launcher="torchrun", max_steps=600, seconds_per_step=0.1)))
    command = [sys.executable, "-c", "from trainflow.cli.main import app; app()", "run", str(spec_file), "--local"]
    process = subprocess.Popen(
        [*command, "--out", str(out), "--home", str(tmp_path / "home")],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None
    lines = []
    for line in process.stdout:
        lines.append(line)
        if "step 1/600" in line:
            break
    else:
        raise AssertionError("".join(lines))
    children = psutil.Process(process.pid).children(recursive=True)
    process.send_signal(number)
    rest = process.stdout.read()
    process.wait(60)

    run_id = next(path.name for path in out.iterdir() if path.name.startswith("steps-"))
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline and (processes_of(run_id) or any(map(alive, children))):
        time.sleep(0.1)
    assert processes_of(run_id) == []
    assert [child for child in children if alive(child)] == []
    if number is signal.SIGKILL:
        return  # no process is left to write a record
    assert process.returncode == 130, rest
    assert "Traceback" not in rest
    record = json.loads((out / "latest" / "run.json").read_text())
    assert (record["run_id"], record["status"], record["error"]["name"]) == (run_id, "ABORTED", "Aborted")
    assert (out / "latest" / "report.html").exists()


def alive(process: psutil.Process) -> bool:
    return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
