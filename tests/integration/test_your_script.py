"""The first page for a user, typed: `docs/your-script.md` promises a live step within five minutes of a clone.

The commands are those of the page's first block, and the repository is one that knows nothing of Trainflow. The page
promises that a step is shown within a minute of the program's first line; the wait for it ends then.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.integration.commands import OTHERS
from tests.integration.test_stranger import cloned

PAGE = Path("docs/your-script.md")
DDP = Path("tests/assets/programs/strangers/plain_ddp/train.py")
TRAINER = Path("tests/assets/programs/strangers/plain_trainer/train.py")
LIGHTNING = Path("tests/assets/programs/strangers/lightning_bar/train.py")

STEP = re.compile(r"^\[ *[\d:]+\] step [\d,]+.*loss ", re.M)
TORCHRUN = re.compile(r"[IWE]\d{4} .* torch/distributed/")
"""A line of torchrun itself."""
PROMISED_SECONDS = 60.0
"""From the program's first line to the first step that is shown."""
DEADLINE_SECONDS = 300.0
"""From the command to the program's first line, which is far above what it takes on a busy machine."""


def typed() -> list[str]:
    """Commands of the page's first block, without their comments."""
    block = re.search(r"^## In five minutes.*?^```console\n(.*?)^```", PAGE.read_text(), re.M | re.S)
    assert block is not None
    lines = [shlex.join(shlex.split(line, comments=True)) for line in block[1].splitlines()]
    return [line for line in lines if line]


def test_a_script_from_elsewhere_runs_with_three_commands() -> None:
    clone, init, run = typed()
    assert clone.startswith("git clone https://github.com/you/your-project")
    assert init == "trainflow init --from train.py"
    assert run == "trainflow run spec.yaml --local"


@pytest.fixture
def clone(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A clone of a repository with one program."""
    origin = tmp_path / "your-project"
    origin.mkdir()
    (origin / "train.py").write_text((Path(request.config.rootpath) / request.param).read_text())
    return cloned(origin, tmp_path / "clone")


@pytest.mark.slow
@pytest.mark.parametrize("clone", [DDP, TRAINER, LIGHTNING], ids=["ddp", "trainer", "lightning"], indirect=True)
def test_a_step_is_shown_within_a_minute_of_the_programs_first_line(clone: Path) -> None:
    _, init, run = typed()
    environment = {name: value for name, value in os.environ.items() if not name.startswith(OTHERS)}
    environment["PATH"] = f"{Path(sys.executable).parent}:{environment['PATH']}"
    subprocess.run(shlex.split(init), cwd=clone, env=environment, check=True)
    with following(shlex.split(run), clone, environment) as shown:
        wait(lambda: program_has_printed(clone), DEADLINE_SECONDS, shown)
        wait(lambda: STEP.search("".join(shown)), PROMISED_SECONDS, shown)


@contextmanager
def following(command: list[str], folder: Path, environment: dict[str, str]) -> Iterator[list[str]]:
    """Lines of a command that is running; it is stopped at the end."""
    shown: list[str] = []
    with subprocess.Popen(
        command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        assert process.stdout is not None
        reader = threading.Thread(target=lambda lines: shown.extend(lines), args=(process.stdout,), daemon=True)
        reader.start()
        try:
            yield shown
        finally:
            process.terminate()
            reader.join()


def program_has_printed(folder: Path) -> bool:
    """Whether the log of rank 0's pod has a line that is not torchrun's, which comes before the program's imports."""
    logs = folder.glob("out/*/logs/*-training-1-0-*.log")
    lines = (line for path in logs for line in path.read_text(encoding="utf-8", errors="replace").splitlines())
    return any(not TORCHRUN.match(line) for line in lines)


def wait(condition: Callable[[], object], seconds: float, shown: list[str]) -> None:
    """Wait until a condition holds, for at most so many seconds."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "".join(shown)
        time.sleep(0.2)
