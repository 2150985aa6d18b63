"""The tutorials' recipes, and what the number of processes makes of a step."""

from __future__ import annotations

from dataclasses import replace

import pytest

from trainer.loop.scaling import micro_batches_per_step
from trainer.optimizers.optimization_config import OptimizationConfig
from trainer.pretraining.config import PretrainConfig
from trainer.pretraining.presets import PRESETS, with_preset
from trainer.runtime import arguments
from trainer.runtime.errors import ConfigInvalid


def parse(*argv: str) -> PretrainConfig:
    return arguments.parse(PretrainConfig, argv, program="trainer.pretrain", complete=with_preset)


def micro_batches(config: OptimizationConfig, world_size: int, local_world_size: int = 32) -> int:
    return micro_batches_per_step(config, world_size=world_size, local_world_size=local_world_size)


def test_the_tutorials_recipes() -> None:
    recipes = {name: parse("--preset", name, "--initial_weights", "/phase1").optimization for name in PRESETS}
    assert {
        name: (o.optimizer, o.micro_batch_size, micro_batches(o, 32), o.learning_rate, o.warmup_steps, o.max_steps)
        for name, o in recipes.items()
    } == {
        "adamw-phase1": ("adamw", 16, 32, 4e-4, 2000, 28125),
        "adamw-phase2": ("adamw", 2, 512, 2.8e-4, 781, 1563),
        "lamb-phase1": ("lamb", 16, 128, 6e-3, 2000, 7032),
        "lamb-phase2": ("lamb", 2, 512, 4e-3, 781, 1563),
    }
    assert recipes["lamb-phase1"].global_batch_size == 65536
    assert recipes["adamw-phase1"].global_batch_size == 16384


def test_the_first_phase_of_adamw_is_what_the_defaults_are_in_bfloat16() -> None:
    recipe = parse("--preset", "adamw-phase1")
    same = replace(recipe.optimization, scaling="weak", global_batch_size=None)
    assert replace(recipe, preset=None, optimization=same) == PretrainConfig(precision="pure_bfloat16")


def test_what_is_given_wins_over_the_recipe() -> None:
    config = parse("--max_steps", "7", "--preset", "lamb-phase1", "--lr", "0.1", "--model", "tiny")
    assert (config.optimization.max_steps, config.optimization.learning_rate) == (7, 0.1)
    assert (config.model.model, config.optimization.optimizer) == ("tiny", "lamb")


def test_phase_2_wants_the_weights_of_phase_1() -> None:
    with pytest.raises(ConfigInvalid, match=r"initial_weights.*; --preset lamb-phase2"):
        parse("--preset", "lamb-phase2")


@pytest.mark.parametrize(("num_nodes", "accumulation"), [(1, 128), (2, 64), (16, 8), (128, 1)])
def test_strong_scaling_keeps_the_global_batch(num_nodes: int, accumulation: int) -> None:
    lamb = parse("--preset", "lamb-phase1").optimization
    assert micro_batches(lamb, 32 * num_nodes) == accumulation


def test_without_a_number_strong_scaling_keeps_the_batch_of_one_node() -> None:
    config = OptimizationConfig(micro_batch_size=4, gradient_accumulation_steps=6, scaling="strong")
    assert [micro_batches(config, 2 * num_nodes, 2) for num_nodes in (1, 2, 3, 6)] == [6, 3, 2, 1]


def test_weak_scaling_lets_the_global_batch_grow() -> None:
    lamb = parse("--preset", "lamb-phase1", "--scaling", "weak").optimization
    assert [micro_batches(lamb, world_size) for world_size in (1, 32, 2048)] == [128, 128, 128]


@pytest.mark.parametrize("world_size", [3, 24, 32 * 256])
def test_a_global_batch_that_cannot_be_divided_is_refused(world_size: int) -> None:
    with pytest.raises(ConfigInvalid, match=rf"65536.* {world_size} processes.* 16\b") as caught:
        micro_batches(parse("--preset", "lamb-phase1").optimization, world_size)
    assert "\n" not in str(caught.value)


def test_a_global_batch_needs_strong_scaling() -> None:
    with pytest.raises(ConfigInvalid, match=r"--global_batch_size .*64.*scaling strong"):
        parse("--global_batch_size", "64")
