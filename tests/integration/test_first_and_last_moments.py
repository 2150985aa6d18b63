"""Ctrl-C from the first moment on, and disks that are full: real keys in a real terminal, a real file system."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.integration.commands import Commands
from tests.integration.terminal import Terminal
from tests.integration.test_runs import steps_spec

MAIN = "from trainflow.__main__ import main; print('begun', flush=True); main()"
"""The command's own first lines: before them Python itself begins, whose traceback nobody can prevent."""

NEEDS_TMPFS = "mount -t tmpfs none /mnt"

WITH_FULL_DISK = "mkdir -p {folder}; mount -t tmpfs -o size={size} none {folder}; exec {command}"
"""A folder on a file system of its own, which is seen by the command alone and gone with it."""


@pytest.fixture
def command(tmp_path: Path) -> Commands:
    (tmp_path / "spec.yaml").write_text(yaml.safe_dump(steps_spec(max_steps=4, seconds_per_step=0.1)))
    return Commands(tmp_path)


@pytest.mark.parametrize("seconds", [0.05, 0.1, 0.3, 0.6, 1.0, 2.0, 3.0, 4.0])
def test_ctrl_c_in_the_first_moments_is_one_sentence(command: Commands, seconds: float) -> None:
    words = [sys.executable, "-c", MAIN, "run", "spec.yaml", "--local"]
    with Terminal(words, command.folder, command.environment) as terminal:
        terminal.wait_for("begun")
        terminal.pause(seconds)
        terminal.type("\x03")
        assert terminal.wait() == 130, terminal.shown
    assert "Traceback" not in terminal.shown
    assert "Stopped before" in terminal.shown
    assert command.json("list", "--local") == []


def on_full_disk(command: Commands, folder: str, size: str, *words: str) -> subprocess.CompletedProcess[str]:
    """A command while a folder is on a file system of this size."""
    if subprocess.run(["unshare", "--map-root-user", "--mount", "sh", "-c", NEEDS_TMPFS], check=False).returncode:
        pytest.skip("file systems cannot be mounted here, not even in a namespace of one's own")
    script = WITH_FULL_DISK.format(folder=folder, size=size, command=shlex.join(command.words(*words)))
    return subprocess.run(
        ["unshare", "--map-root-user", "--mount", "sh", "-c", script],
        cwd=command.folder,
        env=command.environment,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.slow
@pytest.mark.parametrize(("folder", "size"), [("out", "24k"), (".trainflow", "40k")])
def test_a_run_whose_disk_is_full_tells_how_it_ended(command: Commands, folder: str, size: str) -> None:
    done = on_full_disk(command, folder, size, "run", "spec.yaml", "--local", "--time-scale", "200", "--no-page")
    assert "Traceback" not in done.stdout + done.stderr
    assert "Run succeeded with warnings: steps-" in done.stdout, done
    assert done.returncode == 0
    assert "was not written: No space left on device." in done.stdout


@pytest.mark.parametrize("words", ["list --local", "status ended --local", "logs ended --local", "--help"])
def test_an_answer_that_cannot_be_written_is_one_sentence(command: Commands, words: str) -> None:
    (command.folder / "out" / "ended" / "logs").mkdir(parents=True)
    (command.folder / "out" / "ended" / "logs" / "ended-training-1-0.log").write_text("step\n")
    if words.startswith("logs"):
        words += " --pod ended-training-1-0"
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            command.words(*words.split()),
            cwd=command.folder,
            env=command.environment,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert done.stderr == "trainflow: a file cannot be written: No space left on device. Free some space first.\n"
    assert done.returncode == 1
    assert [path.name for path in (command.folder / "out").iterdir()] == ["ended"]
