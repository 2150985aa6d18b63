"""What the CPU computes in a way of its own is what torch computes."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
import torch
from torch.nn import functional

from tests.unit.trainer.conftest import TINY, make_rows
from trainer.device import choose, cpu_kernels
from trainer.device.cpu import CpuDevice
from trainer.device.cpu_kernels import CpuKernels
from trainer.device.kernels import TorchKernels
from trainer.device.neuron import NeuronDevice
from trainer.pretraining.batches import as_micro_batch
from trainer.pretraining.bert import BertPretraining
from trainer.runtime.errors import ConfigInvalid


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("probability", [0.1, 0.5, 0.9])
def test_dropout_keeps_the_mean_and_its_gradient_passes_where_a_value_did(
    dtype: torch.dtype, probability: float
) -> None:
    torch.manual_seed(0)
    given = torch.ones(400_003, dtype=dtype, requires_grad=True)
    out = CpuKernels().dropout(given, probability)
    assert out.dtype is dtype
    assert (out == 0).float().mean().item() == pytest.approx(probability, abs=0.004)
    assert out.float().mean().item() == pytest.approx(1, abs=0.015)
    out.backward(torch.full_like(out, 2.0))
    assert given.grad is not None
    torch.testing.assert_close(given.grad, 2 * out.detach())


def test_neighbours_are_dropped_independently_of_each_other() -> None:
    """Four of them come from one draw of 64 bits."""
    torch.manual_seed(0)
    dropped = (CpuKernels().dropout(torch.ones(400_000), 0.5) == 0).float()
    for distance in (1, 2, 3, 4):
        together = (dropped[:-distance] * dropped[distance:]).mean().item()
        assert together == pytest.approx(0.25, abs=0.004)


def test_dropout_is_a_function_of_the_seed() -> None:
    given, results = torch.ones(1001), []
    for seed in (7, 7, 8):
        torch.manual_seed(seed)
        results.append(torch.stack([CpuKernels().dropout(given, 0.1) for _ in range(2)]))
    assert torch.equal(results[0], results[1])
    assert not torch.equal(results[0], results[2])
    assert not torch.equal(results[0][0], results[0][1])


def test_attention_with_dropout_is_torchs_with_the_same_weights_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    query, key, value = (torch.randn(2, 3, 8, 4) for _ in range(3))
    mask = torch.zeros(2, 1, 1, 8)
    mask[1, ..., 5:] = torch.finfo(torch.float32).min
    monkeypatch.setattr(cpu_kernels, "factors", lambda like, _probability: torch.ones_like(like))
    ours = CpuKernels().attention(query, key, value, mask, 0.1)
    torch.testing.assert_close(ours, TorchKernels().attention(query, key, value, mask, 0.0), rtol=1e-5, atol=1e-6)


def gradients(model: BertPretraining) -> dict[str, torch.Tensor]:
    sum(model(as_micro_batch(make_rows(6)))).backward()
    return {name: parameter.grad for name, parameter in model.named_parameters() if parameter.grad is not None}


def same_weights(kernels: CpuKernels | TorchKernels) -> BertPretraining:
    torch.manual_seed(0)
    return BertPretraining(TINY, kernels)


def test_a_model_learns_the_same_with_either() -> None:
    """The embeddings' table, which the head uses too, among the rest."""
    theirs, ours = gradients(same_weights(TorchKernels())), gradients(same_weights(CpuKernels()))
    assert ours.keys() == theirs.keys()
    for name, gradient in ours.items():
        assert gradient.layout is torch.strided
        torch.testing.assert_close(gradient, theirs[name], rtol=1e-5, atol=1e-7, msg=name)


def test_columns_that_round_the_vocabulary_up_change_nothing() -> None:
    plain, padded = same_weights(TorchKernels()), same_weights(TorchKernels())
    padded.cls.predictions.multiple = 64
    batch = as_micro_batch(make_rows(6))
    assert padded.cls.predictions(torch.randn(3, 16), padded.bert.embeddings.word_embeddings.weight).shape == (3, 50)
    for one, other in zip(plain(batch), padded(batch), strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-6)
    theirs = gradients(plain)
    for name, gradient in gradients(padded).items():
        torch.testing.assert_close(gradient, theirs[name], rtol=1e-5, atol=1e-7, msg=name)


class WithFlashAttention(CpuDevice):
    """A CPU that is asked for batches as a GPU takes them."""

    attends_faster_without_mask = True


@pytest.mark.parametrize("kernels", [TorchKernels(), CpuKernels()])
def test_a_batch_without_padding_needs_no_mask_and_gives_the_same_losses(
    kernels: CpuKernels | TorchKernels,
) -> None:
    rows = make_rows(6)
    full = as_micro_batch({**rows, "input_mask": np.ones_like(rows["input_mask"])})
    without = full.on(WithFlashAttention())
    assert without.attended_BS is None
    assert full.on(CpuDevice()).attended_BS is not None
    model = same_weights(kernels)
    for one, other in zip(model(full), model(without), strict=True):
        torch.testing.assert_close(one, other)


def test_a_batch_with_padding_keeps_its_mask() -> None:
    rows = make_rows(6)
    rows["input_mask"][3, -1] = 0
    batch = as_micro_batch(rows).on(WithFlashAttention())
    assert batch.attended_BS is not None


def test_graphs_of_a_neuron_device_always_have_a_mask() -> None:
    assert not NeuronDevice.attends_faster_without_mask


FAULTS = """
import resource, torch
{first}
def faults(): return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(20): torch.ones(16_000_000)  # until the heap has found its size
before = faults()
for _ in range(10): torch.ones(16_000_000)
print(faults() - before)
"""


@pytest.mark.lengthy
@pytest.mark.skipif(sys.platform != "linux", reason="only the C library of Linux is told to keep its memory")
def test_memory_that_a_step_frees_is_there_for_the_next() -> None:
    def page_faults(first: str) -> int:
        program = FAULTS.format(first=first)
        return int(subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout)

    kept = page_faults("from trainer.device import cpu_kernels; cpu_kernels.keep_freed_memory()")
    assert kept < page_faults("") / 10


def test_tf32_is_refused_where_no_gpu_is() -> None:
    with pytest.raises(ConfigInvalid, match=r"--precision is tf32.*cpu"):
        choose("cpu", local_rank=0, precision="tf32")


def test_the_kernels_without_dropout_are_torchs_own() -> None:
    given = torch.randn(5)
    assert CpuKernels().dropout(given, 0.0) is given
    torch.manual_seed(0)
    one = TorchKernels().dropout(given, 0.5)
    torch.manual_seed(0)
    assert torch.equal(one, functional.dropout(given, 0.5))
