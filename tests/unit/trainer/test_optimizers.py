"""What an update does to the weights, against references that were made elsewhere."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers.optimization import (
    get_constant_schedule_with_warmup,
    get_cosine_schedule_with_warmup,
    get_linear_schedule_with_warmup,
)

from trainer.device.cpu import CpuDevice
from trainer.device.distributed import Gang
from trainer.optimizers import building
from trainer.optimizers.adamw import AdamW, FusedAdamW
from trainer.optimizers.lamb import Lamb
from trainer.optimizers.low_precision import rounded_stochastically
from trainer.optimizers.optimization_config import OptimizationConfig
from trainer.optimizers.schedule import learning_rate
from trainer.optimizers.zero import owners
from trainer.runtime.errors import ConfigInvalid

REFERENCE = json.loads((Path(__file__).parents[2] / "assets" / "reference" / "lamb.json").read_text())


def tensors(values: list[list[float]]) -> list[torch.Tensor]:
    return [
        torch.tensor(flat, dtype=torch.float64).reshape(shape)
        for flat, shape in zip(values, REFERENCE["shapes"], strict=True)
    ]


@pytest.mark.parametrize("case", REFERENCE["cases"], ids=lambda case: str(case["options"]))
def test_lamb_takes_the_reference_steps(case: dict[str, Any]) -> None:
    """Where the reference clips inside its step, the loop clips before it: 1e-6 is clip_grad_norm_'s own epsilon."""
    options = case["options"]
    parameters = [torch.nn.Parameter(values) for values in tensors(REFERENCE["initial"])]
    optimizer = Lamb(parameters, lr=0.0, weight_decay=options["weight_decay"], trust_clip=options["trust_clip"])
    tolerance = 1e-12 if options["max_grad_norm"] is None else 1e-8
    steps = zip(REFERENCE["learning_rates"], REFERENCE["gradients"], case["parameters_after_each_step"], strict=True)
    for rate, gradients, expected in steps:
        for parameter, gradient in zip(parameters, tensors(gradients), strict=True):
            parameter.grad = gradient
        if options["max_grad_norm"] is not None:
            torch.nn.utils.clip_grad_norm_(parameters, options["max_grad_norm"])
        optimizer.param_groups[0]["lr"] = rate
        optimizer.step()
        for parameter, after in zip(parameters, tensors(expected), strict=True):
            torch.testing.assert_close(parameter.detach(), after, rtol=0, atol=tolerance)


def test_lamb_resumes_from_its_state() -> None:
    def made() -> tuple[torch.nn.Parameter, Lamb]:
        parameter = torch.nn.Parameter(torch.arange(6.0))
        return parameter, Lamb([parameter], lr=0.1)

    def steps(parameter: torch.nn.Parameter, optimizer: Lamb, gradients: range) -> None:
        for scale in gradients:
            parameter.grad = torch.sin(torch.arange(6.0) * scale)
            optimizer.step()

    whole, optimizer = made()
    steps(whole, optimizer, range(1, 9))
    first, before = made()
    steps(first, before, range(1, 5))
    second, after = made()
    after.load_state_dict(before.state_dict())
    second.data.copy_(first.data)
    steps(second, after, range(5, 9))
    assert torch.equal(second, whole)


def test_adamw_is_torchs_where_epsilon_does_not_count() -> None:
    gradients = [torch.randn(7, generator=torch.Generator().manual_seed(step)) for step in range(20)]
    ours, theirs = (torch.nn.Parameter(torch.linspace(-1, 1, 7)) for _ in range(2))
    for parameter, optimizer in (
        (ours, AdamW([ours], lr=0.01, weight_decay=0.1, eps=1e-30)),
        (theirs, torch.optim.AdamW([theirs], lr=0.01, weight_decay=0.1, eps=1e-30)),
    ):
        for gradient in gradients:
            parameter.grad = gradient
            optimizer.step()
    torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("optimizer_type", [AdamW, Lamb])
def test_the_state_of_bfloat16_weights_is_float32(optimizer_type: Any) -> None:
    parameter = torch.nn.Parameter(torch.ones(3, dtype=torch.bfloat16))
    parameter.grad = torch.ones_like(parameter)
    optimizer = optimizer_type([parameter], lr=0.1)
    optimizer.step()
    assert {value.dtype for value in optimizer.state[parameter].values()} == {torch.float32}
    assert parameter.dtype is torch.bfloat16


@pytest.mark.lengthy
def test_updates_too_small_for_bfloat16_are_not_lost() -> None:
    """1e-4 is a fortieth of the distance between 1 and the next number: rounded to the nearest, all 2,000 vanish."""
    torch.manual_seed(0)
    parameter = torch.nn.Parameter(torch.ones(1000, dtype=torch.bfloat16))
    optimizer = AdamW([parameter], lr=1e-4, weight_decay=0.0, seed_rounding=lambda _parameter, _step: None)
    nearest = torch.ones(1000, dtype=torch.bfloat16)
    for _ in range(2000):
        parameter.grad = torch.ones_like(parameter)
        optimizer.step()
        nearest -= 1e-4
    assert torch.all(nearest == 1)
    assert parameter.float().mean().item() == pytest.approx(0.8, abs=0.005)


@given(st.floats(-(2.0**100), 2.0**100, width=32, allow_subnormal=False))
def test_stochastic_rounding_gives_a_neighbour(value: float) -> None:
    exact = torch.full((200,), value, dtype=torch.float32)
    rounded = rounded_stochastically(exact)
    assert torch.equal(rounded, rounded.bfloat16().float())
    below = (exact.view(torch.int32) >> 16 << 16).view(torch.float32)
    above = ((exact.view(torch.int32) >> 16) + 1 << 16).view(torch.float32)
    assert torch.all((rounded == below) | (rounded == above))


@given(st.lists(st.integers(1, 10**9), max_size=60), st.integers(1, 16))
def test_the_shares_of_the_ranks_differ_by_one_parameter_at_most(sizes: list[int], world_size: int) -> None:
    owned = owners(sizes, world_size)
    load = [sum(size for size, owner in zip(sizes, owned, strict=True) if owner == rank) for rank in range(world_size)]
    assert sum(load) == sum(sizes)
    assert max(load) - min(load) <= max(sizes, default=0)


@pytest.mark.lengthy
@pytest.mark.parametrize("schedule", ["linear", "cosine", "constant"])
@pytest.mark.parametrize(("warmup_steps", "max_steps"), [(2000, 28125), (781, 1563), (3, 10), (0, 5)])
def test_each_step_has_the_rate_that_hugging_faces_schedule_takes_it_with(
    schedule: Any, warmup_steps: int, max_steps: int
) -> None:
    """The tutorial takes a step with the optimizer and then one with the scheduler."""
    config = OptimizationConfig(warmup_steps=warmup_steps, max_steps=max_steps, learning_rate=4e-4, schedule=schedule)
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=4e-4)
    reference: Any = {
        "linear": lambda: get_linear_schedule_with_warmup(optimizer, warmup_steps, max_steps),
        "cosine": lambda: get_cosine_schedule_with_warmup(optimizer, warmup_steps, max_steps),
        "constant": lambda: get_constant_schedule_with_warmup(optimizer, warmup_steps),
    }[schedule]()
    for step in range(1, max_steps + 1):
        assert learning_rate(step, config) == pytest.approx(optimizer.param_groups[0]["lr"], rel=1e-9, abs=1e-18)
        optimizer.step()
        reference.step()


def tutorials_adamw(
    weights: torch.Tensor, gradients: list[torch.Tensor], *, lr: float, eps: float, weight_decay: float
) -> torch.Tensor:
    """What the tutorial's optimizer does, written down anew in float64."""
    weights, m, v = weights.double().clone(), torch.zeros(weights.shape).double(), torch.zeros(weights.shape).double()
    for step, gradient in enumerate((gradient.double() for gradient in gradients), start=1):
        m = 0.9 * m + 0.1 * gradient
        v = 0.999 * v + 0.001 * gradient**2
        weights = weights - lr * (1 - 0.999**step) ** 0.5 / (1 - 0.9**step) * m / (v.sqrt() + eps)
        weights = weights - lr * weight_decay * weights
    return weights


@pytest.mark.parametrize("make", [AdamW, None], ids=["ours", "fused"])
def test_epsilon_stands_where_the_tutorial_has_it(make: Any) -> None:
    """Gradients as small as ε show its place: after the correction, its effect would be a thirtieth at first."""
    gradients = [
        1e-6 * torch.randn(64, dtype=torch.float64, generator=torch.Generator().manual_seed(step)) for step in range(50)
    ]
    initial = torch.linspace(-1, 1, 64, dtype=torch.float64)
    parameter = torch.nn.Parameter(initial.clone())
    group = {"params": [parameter], "weight_decay": 0.01}
    if make is None:
        optimizer: torch.optim.Optimizer = FusedAdamW([group], lr=1e-3, betas=(0.9, 0.999), eps=1e-6)
    else:
        optimizer = make([group], lr=1e-3, eps=1e-6)
    for gradient in gradients:
        parameter.grad = gradient.clone()
        optimizer.step()
    expected = tutorials_adamw(initial, gradients, lr=1e-3, eps=1e-6, weight_decay=0.01)
    moved = (expected - initial).abs().max().item()
    assert (parameter.detach() - expected).abs().max().item() < 1e-4 * moved
    behind = torch.nn.Parameter(initial.clone())
    optimizer = torch.optim.AdamW([behind], lr=1e-3, eps=1e-6, weight_decay=0.01)
    for gradient in gradients:
        behind.grad = gradient.clone()
        optimizer.step()
    assert (behind.detach() - expected).abs().max().item() > 1e-2 * moved


@pytest.mark.parametrize("optimizer", ["adamw", "lamb"])
def test_bfloat16_is_rounded_alike_whichever_rank_changes_the_parameter(optimizer: Any) -> None:
    """One process with all parameters, and one that owns every second one, as ZeRO divides them."""

    def changed(owned: Callable[[int], bool]) -> list[torch.Tensor]:
        parameters = [torch.nn.Parameter(torch.ones(50, dtype=torch.bfloat16)) for _ in range(4)]
        config = OptimizationConfig(optimizer=optimizer, learning_rate=1e-3)
        seeding = building._rounding_seeds([{"params": parameters}], config, CpuDevice())
        make = building._maker(config, fused=False, seed_rounding=seeding)
        own = make([{"params": [p for place, p in enumerate(parameters) if owned(place)], "weight_decay": 0.01}])
        for step in range(5):
            for parameter in parameters:
                parameter.grad = torch.full_like(parameter, 0.1 * (step + 1))
            own.step()
        return [parameter.detach() for parameter in parameters]

    whole, even = changed(lambda _: True), changed(lambda place: place % 2 == 0)
    assert torch.equal(whole[0], even[0])
    assert torch.equal(whole[2], even[2])
    assert not torch.equal(whole[0], whole[2]), "two parameters are rounded with the same noise"


def test_a_state_is_not_divided_on_a_device_that_traces() -> None:
    device: Any = SimpleNamespace(average=lambda tensors, world_size, bucket_mib: None)
    gang = Gang(rank=0, world_size=2, control=None)
    with pytest.raises(ConfigInvalid, match="--zero1 is true"):
        building.build([], OptimizationConfig(zero1=True), device, gang)
