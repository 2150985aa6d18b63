"""A checkpoint's copy into host memory takes few large transfers."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from trainer.checkpoints.host_copy import HostCopy
from trainer.device import do_nothing
from trainer.device.cpu import CpuDevice
from trainer.device.packing import Bucket, copy_packed, in_buckets


class CountingDevice(CpuDevice):
    """Packs as an accelerator does, and counts what crosses to the host."""

    def __init__(self) -> None:
        self.copied_bytes: list[int] = []
        self.most_packed_at_once = 0

    def copy_to_host(self, buckets: Sequence[Bucket]) -> Callable[[], None]:
        alive: list[weakref.ref[torch.Tensor]] = []

        def copy(host: torch.Tensor, packed: torch.Tensor) -> None:
            alive.append(weakref.ref(packed))
            self.most_packed_at_once = max(self.most_packed_at_once, sum(ref() is not None for ref in alive))
            self.copied_bytes.append(packed.nbytes)
            host.copy_(packed)

        copy_packed(buckets, copy)
        return do_nothing


def bert_base(scale: int) -> dict[str, Any]:
    """The state of a BERT-base, 205 parameters with AdamW's two moments and its steps, as much narrower."""
    hidden = 768 // scale
    layer = [(hidden, hidden)] * 4 + [(hidden,)] * 8 + [(4 * hidden, hidden), (4 * hidden,), (hidden, 4 * hidden)]
    shapes = [(30522 // scale, hidden), (512, hidden), (2, hidden), *layer * 12]
    draw = torch.Generator().manual_seed(0)
    weights = [torch.randn(shape, generator=draw) for shape in shapes]
    moments = {
        number: {"step": torch.tensor(3.0), "exp_avg": weight + 1, "exp_avg_sq": weight + 2}
        for number, weight in enumerate(weights)
    }
    named = {f"layer.{number}": weight for number, weight in enumerate(weights)}
    return {"model": {**named, "tied": weights[0]}, "optimizer": {"state": moments, "param_groups": [{"lr": 0.1}]}}


def flat(state: Any) -> list[torch.Tensor]:
    moments = [value for values in state["optimizer"]["state"].values() for value in values.values()]
    return [*state["model"].values(), *moments]


def test_more_than_seven_hundred_tensors_travel_in_one_copy_a_bucket() -> None:
    device, state = CountingDevice(), bert_base(scale=8)
    copied, wait = HostCopy(device).start(state)
    wait()
    assert len(flat(state)) > 700
    assert len(device.copied_bytes) == 1
    assert all(torch.equal(one, other) for one, other in zip(flat(copied), flat(state), strict=True))
    assert copied["model"]["tied"] is copied["model"]["layer.0"]


def test_no_more_than_one_bucket_lies_on_the_device_beside_the_state() -> None:
    device = CountingDevice()
    tensors = [torch.full((1000,), float(number)) for number in range(10)]
    numbers = in_buckets(tensors, bucket_bytes=8000)
    buckets = [Bucket([tensors[number] for number in bucket], torch.empty(1000 * len(bucket))) for bucket in numbers]
    device.copy_to_host(buckets)
    assert device.copied_bytes == [8000] * 5
    assert device.most_packed_at_once == 1
    assert torch.equal(torch.cat([bucket.host for bucket in buckets]), torch.cat(tensors))


def test_tensors_of_other_types_travel_apart_and_large_ones_alone() -> None:
    tensors = [
        torch.zeros(10),
        torch.zeros(10, dtype=torch.bfloat16),
        torch.zeros(100),
        torch.zeros(10),
        torch.zeros(10, dtype=torch.bfloat16),
    ]
    assert in_buckets(tensors, bucket_bytes=100) == [[0], [1, 4], [2], [3]]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.bool])
def test_values_and_shapes_survive(dtype: torch.dtype) -> None:
    state = {"a": torch.arange(6).reshape(2, 3).to(dtype), "turned": torch.arange(6).reshape(2, 3).to(dtype).t()}
    state |= {"number": torch.tensor(1).to(dtype), "empty": torch.zeros(0, 3, dtype=dtype)}
    for device in (CountingDevice(), CpuDevice()):
        copied, wait = HostCopy(device).start(state)
        wait()
        assert all(torch.equal(copied[name], value) for name, value in state.items())
        assert {tensor.dtype for tensor in copied.values()} == {dtype}


def test_in_a_file_every_tensor_is_by_itself(tmp_path: Path) -> None:
    """Torch writes all of the memory that a tensor is a part of: a process that loads one would hold its whole
    bucket."""
    copied, _ = HostCopy(CountingDevice()).start({"a": torch.ones(1000), "b": torch.ones(1)})
    torch.save({"b": copied["b"]}, tmp_path / "b.pt")
    torch.save(copied, tmp_path / "both.pt")
    assert (tmp_path / "b.pt").stat().st_size < 2000
    assert torch.load(tmp_path / "both.pt")["b"].untyped_storage().nbytes() == 4


def test_a_state_without_tensors_is_copied_as_it_is() -> None:
    state = {"groups": [{"lr": 0.1}], "pair": (1, "a"), "none": None}
    copied, wait = HostCopy(CountingDevice()).start(state)
    wait()
    assert copied == state
    assert copied["groups"] is not state["groups"]


def test_a_state_that_grows_gets_more_room() -> None:
    host_copy = HostCopy(CountingDevice())
    host_copy.start({"a": torch.ones(3)})
    copied, _ = host_copy.start({"a": torch.ones(3), "b": torch.full((2,), 2.0)})
    assert (copied["a"].tolist(), copied["b"].tolist()) == ([1.0] * 3, [2.0] * 2)
