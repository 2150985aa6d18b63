"""What a training does when its disk, its numbers or its checkpoints fail it."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from lambdas.models.metrics_line import parse_metrics_line
from tests.integration.forked_training import Forked, small_training


@pytest.fixture
def training(tmp_path: Path) -> Forked:
    return small_training(tmp_path)


def not_finite_steps(out: str) -> list[float]:
    """What the workflow reads of the steps whose loss is no number."""
    steps = [step for line in out.splitlines() if (step := parse_metrics_line(line))]
    return [step.loss for step in steps if not math.isfinite(step.loss)]


@pytest.mark.parametrize("world_size", [1, 2])
def test_a_loss_that_is_not_finite_ends_with_its_own_code_and_keeps_the_last_good_checkpoint(
    training: Forked, world_size: int
) -> None:
    assert training.run(world_size, steps_this_run=2).code == 0
    ended = training.run(world_size, learning_rate=1e38, warmup_steps=0, max_grad_norm=1e38, checkpoint_steps=1)
    assert (ended.code, ended.result["error"]) == (3, "LossNotFinite"), ended.out
    assert not_finite_steps(ended.out), "the alarm hears of it from the metrics line"
    assert "Traceback" not in ended.out
    assert "step-00000002.pt" in training.checkpoints
    for name in training.checkpoints:
        if name.endswith(".pt"):
            weights = training.checkpoint(int(name.removeprefix("step-").removesuffix(".pt")))["model"]
            assert all(value.isfinite().all() for value in weights.values())


@pytest.mark.parametrize("zero1", ["false", "true"])
def test_no_room_for_a_checkpoint_leaves_the_older_one_intact(training: Forked, zero1: str) -> None:
    """The limit on the size of a file stands for a full disk: both refuse a write in the middle of the file."""
    assert training.run(2, steps_this_run=2, zero1=zero1).code == 0
    before = training.checkpoints
    ended = training.run(2, max_file_bytes=100_000, checkpoint_steps=4, zero1=zero1)
    assert (ended.code, ended.result["error"]) == (1, "StorageFailed"), ended.out
    assert "The checkpoint of step 4 could not be written" in ended.result["message"]
    assert "Traceback" not in ended.out
    assert training.checkpoints == before
    again = training.run(2, zero1=zero1)
    assert (again.code, again.steps) == (0, [3, 4, 5, 6, 7, 8])


def test_a_damaged_checkpoint_is_passed_over_for_the_one_before(training: Forked) -> None:
    assert training.run(checkpoint_steps=2, steps_this_run=6).code == 0
    damaged = training.folder / "run" / "checkpoints" / "step-00000006.pt"
    content = bytearray(damaged.read_bytes())
    content[len(content) // 2] ^= 1
    damaged.write_bytes(content)
    ended = training.run()
    assert "The checkpoint step-00000006.pt is passed over: its checksum does not match its record." in ended.out
    assert "Going on from step-00000004.pt, verified, after step 4." in ended.out
    assert (ended.code, ended.steps) == (0, [5, 6, 7, 8])


def test_a_checkpoint_of_another_model_is_passed_over_for_the_one_before(training: Forked, tmp_path: Path) -> None:
    assert training.run(checkpoint_steps=2, steps_this_run=4).code == 0
    other = training.like("other")
    assert other.run(steps_this_run=6, hidden_size=16).code == 0
    for name in ("step-00000006.pt", "step-00000006.json"):
        (training.folder / "run" / "checkpoints" / name).write_bytes(
            (other.folder / "run" / "checkpoints" / name).read_bytes()
        )
    ended = training.run()
    assert "step-00000006.pt is passed over: it was written with --hidden_size 16" in ended.out
    assert (ended.code, ended.steps) == (0, [5, 6, 7, 8])


def test_minutes_leave_checkpoints_too(training: Forked) -> None:
    ended = training.run(checkpoint_minutes=1e-9, checkpoint_steps=1000, keep_checkpoints=3)
    assert ended.code == 0, ended.out
    assert [name for name in training.checkpoints if name.endswith(".pt")] == [
        f"step-0000000{step}.pt" for step in (6, 7, 8)
    ]


def test_a_global_batch_that_the_ranks_cannot_divide_is_refused(training: Forked) -> None:
    ended = training.run(3, scaling="strong", global_batch_size=8)
    assert (ended.code, ended.result["error"]) == (2, "ConfigInvalid")
    assert "--global_batch_size is 8, which 3 processes" in ended.result["message"]
