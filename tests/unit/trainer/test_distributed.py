from __future__ import annotations

import pytest

from trainer import device
from trainer.device.distributed import Gang, require_world_size
from trainer.runtime.errors import ConfigInvalid, DatasetInvalid, WorldSizeMismatch


def test_a_group_of_the_wrong_size_is_refused_with_both_numbers() -> None:
    require_world_size(64, 64)
    with pytest.raises(WorldSizeMismatch, match="has 1 processes and WORLD_SIZE is 64"):
        require_world_size(1, 64)


def test_alone_nothing_is_communicated() -> None:
    alone = Gang(rank=0, world_size=1, control=None)
    assert alone.means([1.0, 2.0]) == [1.0, 2.0]
    assert alone.from_rank0(lambda: 3) == 3
    alone.barrier()

    def fails() -> int:
        raise DatasetInvalid("Bad.")

    with pytest.raises(DatasetInvalid, match="Bad"):
        alone.from_rank0(fails)


def test_a_device_that_is_not_there_is_named() -> None:
    with pytest.raises(ConfigInvalid, match=r"--device is neuron.*container"):
        device.choose("neuron", local_rank=0)


def test_the_cpu_is_always_there() -> None:
    assert device.choose("cpu", local_rank=3).backend == "gloo"
