"""The program beside a training: exit codes and signals pass through it, and nothing about files ends the training."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from lambdas.logic.program_output import last_line
from tests.fakes.plans import supervised
from tests.waiting import PATIENCE
from trainer.runtime.commands import node_rank
from trainer.steps import progress
from trainer.steps.progress import MAX_STEPS_OF_A_FAILURE, Relay
from trainflow.observed.step import parse_report_line
from trainflow.protocol import variables
from trainflow.protocol.plan import Progress

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)

WRITES_STEPS = """
import sys
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.event_file_writer import EventFileWriter
writer = EventFileWriter(sys.argv[1])
for step in range(1, 41):
    value = Summary.Value(tag="train/loss", simple_value=10.0 / step)
    writer.add_event(Event(wall_time=1.0, step=step, summary=Summary(value=[value])))
writer.close()
print("ValueError: no flux")
sys.exit(int(sys.argv[2]))
"""


TENSORBOARD = Progress(tensorboard="tb")


def relayed(run_dir: Path, *command: str, step: Progress = TENSORBOARD, node_rank: int = 0) -> subprocess.Popen[str]:
    return subprocess.Popen(
        supervised(*command, node_rank=node_rank, progress=step),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={"PATH": "/usr/bin:/bin", variables.RUN_DIR: str(run_dir), "PYTHONPATH": "."},
    )


@pytest.mark.parametrize("code", [0, 3])
def test_steps_in_files_are_told_and_the_exit_code_is_the_commands(tmp_path: Path, code: int) -> None:
    with relayed(tmp_path, sys.executable, "-c", WRITES_STEPS, str(tmp_path / "tb"), str(code)) as process:
        printed, complaint = process.communicate(timeout=120)
    assert (process.returncode, complaint) == (code, "")
    steps = [found.step for line in printed.splitlines() if (found := parse_report_line(line, NOW))]
    assert steps == list(range(1 if code == 0 else 41 - MAX_STEPS_OF_A_FAILURE, 41))
    assert last_line(printed.splitlines()) == "ValueError: no flux"


def test_other_nodes_tell_nothing(tmp_path: Path) -> None:
    shell = ("sh", "-c", 'exec "$0" -c "$1" "$2" 0', sys.executable, WRITES_STEPS, str(tmp_path / "tb"))
    with relayed(tmp_path, *shell, node_rank=1) as process:
        printed, _ = process.communicate(timeout=120)
    assert (process.returncode, printed) == (0, "ValueError: no flux\n")


def test_a_signal_goes_to_the_command_which_may_end_as_it_likes(tmp_path: Path) -> None:
    waits = "import signal, sys; signal.signal(signal.SIGTERM, lambda *_: sys.exit(7)); print('up', flush=True); "
    with relayed(tmp_path, sys.executable, "-c", waits + "signal.pause()", step=Progress()) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=PATIENCE) == 7


def test_a_command_that_was_killed_has_the_shells_exit_code(tmp_path: Path) -> None:
    with relayed(tmp_path, "sh", "-c", "kill -9 $$") as process:
        assert process.wait(timeout=PATIENCE) == 128 + 9


def test_a_command_that_does_not_exist_is_one_sentence(tmp_path: Path) -> None:
    with relayed(tmp_path, "no-such-program") as process:
        _, complaint = process.communicate(timeout=PATIENCE)
    assert process.returncode == 2
    assert "The program 'no-such-program' cannot be started" in complaint
    assert "Traceback" not in complaint


@pytest.mark.parametrize(
    ("command", "rank"),
    [
        ("torchrun --nnodes 2 --node_rank 3 --master_addr x train.py --node_rank 5", 3),
        ("torchrun --node-rank=4 train.py", 4),
        ("torchrun --nnodes 1:2 --rdzv_backend c10d train.py", 0),
        ("python train.py", 0),
        ("torchrun --node_rank", 0),
    ],
)
def test_the_rank_of_the_node_is_torchruns(command: str, rank: int) -> None:
    assert node_rank(command.split()) == rank


class Files:
    """Steps that are there, or a fault."""

    def __init__(self, *steps: dict[str, Any], error: Exception | None = None) -> None:
        self._steps, self._error = list(steps), error

    def new_steps(self, *, final: bool) -> Iterator[dict[str, Any]]:
        del final
        if self._error:
            raise self._error
        yield from self._steps
        self._steps = []


@pytest.mark.parametrize("error", [OSError("stale file handle"), ValueError("no JSON"), KeyError("step")])
def test_a_fault_of_the_files_is_told_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], error: Exception
) -> None:
    relay = Relay(tmp_path, files=Files(error=error))
    relay.poll()
    relay.poll(final=True)
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.count("trainer.steps.progress") == 1


def test_figures_that_are_not_finite_cost_no_step(tmp_path: Path) -> None:
    lines: list[str] = []
    Relay(
        tmp_path,
        files=Files({"step": 1, "train/loss": float("nan"), "grad_norm": float("inf"), "note": "x"}),
        write=lines.append,
    ).poll()
    (line,) = lines
    json.loads(line, parse_constant=pytest.fail)
    found = parse_report_line(line, NOW)
    assert found is not None
    assert (found.step, str(found.loss), found.metrics) == (1, "nan", {})


def test_changed_files_are_a_sign_of_life(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "ALIVE_SECONDS", 0.0)
    lines: list[str] = []
    relay = Relay(tmp_path, files=None, write=lines.append)
    for change in (None, "model.pt", None, "deeper.pt"):
        if change:
            (tmp_path / change).write_bytes(b"x")
        relay.poll()
    assert [json.loads(line) for line in lines] == [{"trainflow_alive": {"changed_files": 1}}] * 2
    assert last_line(["RuntimeError: out of luck", *lines]) == "RuntimeError: out of luck"
