"""The numbers of a training do not depend on who computes them, nor on what interrupted it."""

from __future__ import annotations

import random
import signal
import time
from pathlib import Path

import pytest

from tests.integration.trainer.forked_training import Forked, same, small_training

GOLDEN = Path(__file__).parents[2] / "assets" / "golden" / "bert_loss.txt"
SUMS_IN_ANOTHER_ORDER = 2e-4
"""Tolerance of the loss between gangs of different sizes, in nats. A float32 sum in another order differs by 1e-7 of
itself;
Adam divides by the gradient's own size, which lets that grow, but not beyond the fourth decimal of these 8 steps (seen:
no difference in the four decimals of a line). A wrong sample, weight or dropout mask moves the loss by 1e-2."""


@pytest.fixture
def training(tmp_path: Path) -> Forked:
    return small_training(tmp_path)


def test_the_loss_follows_the_golden_curve(tmp_path: Path) -> None:
    """Written by the loop under order 2 of the data, with dropout on; other processors add up in another order."""
    golden = [float(line) for line in GOLDEN.read_text().split()]
    training = small_training(
        tmp_path, micro_batch_size=4, gradient_accumulation_steps=2, max_steps=40, warmup_steps=4, learning_rate=5e-3
    )
    assert training.run().losses == pytest.approx(golden, abs=5e-3)


@pytest.mark.parametrize("optimizer", ["adamw", "lamb"])
def test_one_two_and_four_ranks_give_one_loss_curve(training: Forked, optimizer: str) -> None:
    options = {"optimizer": optimizer, "scaling": "strong", "global_batch_size": 8}
    alone = training.run(**options)
    assert (alone.code, len(alone.losses)) == (0, 8), alone.out
    for world_size in (2, 4):
        together = training.like(f"of-{world_size}").run(world_size, **options)
        assert together.code == 0, together.out
        assert together.losses == pytest.approx(alone.losses, abs=SUMS_IN_ANOTHER_ORDER)


@pytest.mark.parametrize("precision", ["float32", "pure_bfloat16"])
@pytest.mark.parametrize("optimizer", ["adamw", "lamb"])
def test_a_divided_optimizer_gives_the_same_weights_and_the_same_checkpoint(
    training: Forked, optimizer: str, precision: str
) -> None:
    options = {"optimizer": optimizer, "precision": precision}
    whole, divided = training.run(3, **options), training.like("divided")
    ended = divided.run(3, **options, zero1="true")
    assert (whole.code, ended.code) == (0, 0), ended.out
    assert ended.losses == whole.losses
    assert same(divided.checkpoint(8), training.checkpoint(8))


def test_a_divided_training_resumes_with_any_number_of_ranks(training: Forked) -> None:
    options = {"scaling": "strong", "global_batch_size": 8}
    undisturbed = training.run(**options)
    changing = training.like("changing", **options)
    ended = [
        changing.run(4, steps_this_run=3, zero1="true"),
        changing.run(2, steps_this_run=3, zero1="true"),
        changing.run(1),
    ]
    assert [part.steps for part in ended] == [[1, 2, 3], [4, 5, 6], [7, 8]], ended[-1].out
    losses = [loss for part in ended for loss in part.losses]
    assert losses == pytest.approx(undisturbed.losses, abs=SUMS_IN_ANOTHER_ORDER)


def test_a_run_that_continues_another_takes_its_steps_and_leaves_its_folder_as_it_is(training: Forked) -> None:
    undisturbed = training.run()
    first = training.like("first")
    assert first.run(steps_this_run=3).steps == [1, 2, 3]
    earlier = first.folder / "earlier"
    (first.folder / "run").rename(earlier)
    before = {path: path.stat().st_mtime_ns for path in earlier.rglob("*")}
    ended = first.run(environ={"TRAINFLOW_RESUME_FROM": "gone,earlier"})
    assert ended.steps == [4, 5, 6, 7, 8], ended.out
    assert ended.losses == undisturbed.losses[3:]
    assert {path: path.stat().st_mtime_ns for path in earlier.rglob("*")} == before
    alone = training.like("alone").run(environ={"TRAINFLOW_RESUME_FROM": "gone"})
    assert alone.code == 2
    assert "there is no complete checkpoint in " in alone.out


@pytest.mark.parametrize(
    "options",
    [
        {"precision": "pure_bfloat16"},
        {"precision": "pure_bfloat16", "optimizer": "lamb"},
        {"precision": "bfloat16", "zero1": "true"},
    ],
    ids=str,
)
def test_an_interrupted_training_ends_with_the_same_bits(training: Forked, options: dict[str, object]) -> None:
    undisturbed = training.run(2, **options)
    assert undisturbed.code == 0, undisturbed.out
    interrupted = training.like("interrupted", **options)
    assert interrupted.run(2, steps_this_run=3).code == 0
    assert interrupted.run(2).code == 0
    assert same(interrupted.checkpoint(8), training.checkpoint(8))


@pytest.mark.parametrize("precision", ["bfloat16", "pure_bfloat16"])
def test_low_precision_learns_what_float32_learns(tmp_path: Path, precision: str) -> None:
    """Random labels leave little to learn: from ln 50 + ln 2 = 4.61 to about 4.4. Within that, the curves agree."""
    options = {"max_steps": 30, "warmup_steps": 4, "learning_rate": 5e-3}
    exact = small_training(tmp_path, **options)
    expected = exact.run().losses
    losses = exact.like(precision).run(precision=precision).losses
    assert sum(losses[-10:]) / 10 == pytest.approx(sum(expected[-10:]) / 10, abs=0.05)


def test_phase_2_starts_from_the_weights_of_phase_1_with_a_schedule_of_its_own(training: Forked) -> None:
    first = training.run()
    second = training.like("phase-2").run(initial_weights=training.folder / "run", max_steps=3, warmup_steps=3)
    assert f"Starting from the weights in {training.folder / 'run' / 'checkpoints' / 'step-00000008.pt'}" in second.out
    assert second.steps == [1, 2, 3]
    assert "learning_rate : 3.33e-03" in second.out
    assert second.losses[0] < first.losses[0]


@pytest.mark.slow
def test_twenty_crashes_at_random_steps_leave_no_trace(tmp_path: Path) -> None:
    """SIGKILL after a random step and a random moment more: while computing, copying or writing a checkpoint."""
    training = small_training(tmp_path, max_steps=40, checkpoint_steps=3, keep_checkpoints=2)
    undisturbed = training.run()
    assert undisturbed.code == 0, undisturbed.out
    expected = training.checkpoint(40)
    draw = random.Random(20)
    for trial in range(20):
        crashed = training.like(f"trial-{trial}")
        started = crashed.start()
        started.wait_for_step(draw.randint(1, 34))
        time.sleep(draw.uniform(0, 0.03))  # a step takes about 0.01 s
        started.kill(signal.SIGKILL)
        assert started.processes[0].exitcode == -signal.SIGKILL, "the training was over before its crash"
        resumed = crashed.run()
        assert resumed.code == 0, resumed.out
        assert same(crashed.checkpoint(40), expected), f"trial {trial}"
        assert crashed.checkpoints == training.checkpoints
