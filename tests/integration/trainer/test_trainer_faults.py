"""What a training does when its disk, its numbers or its checkpoints fail it."""

from __future__ import annotations

import math
import shutil
from pathlib import Path

import pytest

from tests.integration.trainer.forked_training import Forked, small_training
from tests.unit.trainer.conftest import make_rows, write_shard
from trainflow.observed.step import parse_metrics_line


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
    absurd = {"learning_rate": 1e38, "warmup_steps": 0, "max_grad_norm": 1e38}
    ended = training.run(world_size, **absurd, allow_changes=",".join(absurd), checkpoint_steps=1)
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


def test_a_damaged_checkpoint_is_skipped_for_the_one_before(training: Forked) -> None:
    assert training.run(checkpoint_steps=2, steps_this_run=6).code == 0
    damaged = training.folder / "run" / "checkpoints" / "step-00000006.pt"
    content = bytearray(damaged.read_bytes())
    content[len(content) // 2] ^= 1
    damaged.write_bytes(content)
    ended = training.run()
    assert "The checkpoint step-00000006.pt is skipped: its checksum does not match its record." in ended.out
    assert "Resuming from step-00000004.pt, verified, after step 4." in ended.out
    assert (ended.code, ended.steps) == (0, [5, 6, 7, 8])


def test_a_training_whose_checkpoints_are_all_damaged_stops_and_leaves_them_as_they_are(training: Forked) -> None:
    assert training.run(checkpoint_steps=2, steps_this_run=4).code == 0
    for step in (2, 4):
        training.checkpoint_path(step).write_bytes(b"damaged")
    before = training.checkpoints
    ended = training.run(2, gradient_accumulation_steps=2)
    assert (ended.code, ended.result["error"]) == (2, "CheckpointInvalid"), ended.out
    assert "step-00000004.pt: it has 7 bytes and its record says" in ended.result["message"]
    assert "step-00000002.pt: it has 7 bytes" in ended.result["message"]
    assert "Traceback" not in ended.out
    assert (ended.steps, training.checkpoints) == ([], before)
    assert training.checkpoint_path(4).read_bytes() == b"damaged"


def test_a_training_killed_in_its_very_first_checkpoint_starts_from_the_beginning(training: Forked) -> None:
    """The process is killed between the rename of the weights and that of the record, the only moment that leaves a
    file."""
    assert training.run(steps_this_run=2).code == 0
    training.checkpoint_path(2).with_suffix(".json").unlink()
    ended = training.run()
    assert "step-00000002.pt is skipped: it has no record beside it" in ended.out
    assert (ended.code, ended.steps) == (0, [1, 2, 3, 4, 5, 6, 7, 8])


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"learning_rate": 0.5}, "--learning_rate is 0.5 and the checkpoint was made with 0.01"),
        ({"gradient_accumulation_steps": 2}, "--global_batch_size is 4 and the checkpoint was made with 8"),
    ],
)
def test_another_training_is_refused_with_both_values_and_resumes_when_that_is_allowed(
    training: Forked, changes: dict[str, object], words: str
) -> None:
    assert training.run(steps_this_run=2).code == 0
    ended = training.run(**changes)
    assert (ended.code, ended.result["error"]) == (2, "CheckpointInvalid"), ended.out
    assert words in ended.result["message"]
    assert "Traceback" not in ended.out
    name = words.split()[0].removeprefix("--")
    allowed = training.run(**changes, allow_changes=name)
    assert (allowed.code, allowed.steps[0]) == (0, 3), allowed.out
    again = training.run(**changes)
    assert again.code == 0, "the change is part of the training from its first checkpoint on"


def test_another_data_set_is_refused_and_the_same_one_elsewhere_is_not(training: Forked, tmp_path: Path) -> None:
    assert training.run(steps_this_run=2).code == 0
    copy = shutil.copytree(training.folder / "data", tmp_path / "staged" / "anew")
    assert training.run(steps_this_run=2, data_dir=copy).steps == [3, 4]
    write_shard(copy, 1, make_rows(50, seed=77))
    ended = training.run(data_dir=copy)
    assert (ended.code, ended.result["error"]) == (2, "CheckpointInvalid"), ended.out
    assert "the data set is 100 samples of 16 tokens in 2 shards (" in ended.result["message"]
    assert training.run(data_dir=copy, allow_changes="dataset").steps == [5, 6, 7, 8]


def test_a_checkpoint_of_another_model_is_skipped_for_the_one_before(training: Forked, tmp_path: Path) -> None:
    assert training.run(checkpoint_steps=2, steps_this_run=4).code == 0
    other = training.like("other")
    assert other.run(steps_this_run=6, hidden_size=16).code == 0
    for name in ("step-00000006.pt", "step-00000006.json"):
        (training.folder / "run" / "checkpoints" / name).write_bytes(
            (other.folder / "run" / "checkpoints" / name).read_bytes()
        )
    ended = training.run()
    assert "step-00000006.pt is skipped: --hidden_size is 32 and the checkpoint was made with 16" in ended.out
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
