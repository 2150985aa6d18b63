"""Checkpoints are written beside the training, and belong to one training only."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from trainer import checkpoint
from trainer.checkpoint import Progress
from trainer.checkpoint_files import CheckpointFile, Record
from trainer.checkpoint_writer import CheckpointWriter
from trainer.config import ModelConfig, OptimizationConfig, PretrainConfig
from trainer.device.cpu import CpuDevice
from trainer.errors import CheckpointInvalid, StorageFailed
from trainer.host_copy import HostCopy

CONFIG = PretrainConfig(model=ModelConfig(model="tiny", vocab_size=50))


def state(value: float = 1.0) -> dict[str, Any]:
    return {"model": {"weight": torch.full((4,), value)}, "optimizer": {"state": {}, "param_groups": [{"lr": value}]}}


def newest(folder: Path, config: PretrainConfig) -> tuple[int | None, list[str]]:
    said: list[str] = []
    found = checkpoint.newest_fitting(folder, config, say=said.append)
    return (found.record.step if found else None), said


def other(**model: Any) -> PretrainConfig:
    return replace(CONFIG, model=replace(CONFIG.model, **model))


def test_a_host_copy_does_not_change_with_what_it_was_taken_of() -> None:
    tied = torch.nn.Parameter(torch.zeros(3))
    live = {"model": {"a": tied, "b": tied}, "groups": [{"lr": 1.0, "betas": (0.9, 0.999)}], "step": torch.tensor(1.0)}
    copied, wait = HostCopy(CpuDevice()).start(live)
    wait()
    tied.data += 1
    live["groups"][0]["lr"] = 2.0
    live["step"] += 1
    assert torch.equal(copied["model"]["a"], torch.zeros(3))
    assert copied["model"]["a"] is copied["model"]["b"]
    assert (copied["groups"], copied["step"].item()) == ([{"lr": 1.0, "betas": (0.9, 0.999)}], 1.0)


def test_host_memory_is_taken_once() -> None:
    host_copy = HostCopy(CpuDevice())
    first, _ = host_copy.start({"a": torch.zeros(3)})
    second, _ = host_copy.start({"a": torch.ones(3)})
    assert first["a"] is second["a"]
    assert torch.equal(second["a"], torch.ones(3))


def test_memory_can_be_taken_beforehand_and_the_state_stays_as_it_is() -> None:
    host_copy, live = HostCopy(CpuDevice()), {"a": torch.ones(3)}
    host_copy.make_room(live)
    assert torch.equal(live["a"], torch.ones(3))
    copied, wait = host_copy.start(live)
    wait()
    assert torch.equal(copied["a"], torch.ones(3))


def test_the_training_goes_on_while_a_checkpoint_is_written() -> None:
    may_write, written = threading.Event(), []

    def write(content: Any, progress: Progress) -> CheckpointFile | None:
        may_write.wait(30)
        written.append((progress.step, content["model"]["weight"].tolist()))
        return None

    live = state(1.0)
    with CheckpointWriter(write, CpuDevice()) as writer:
        writer.submit(live, Progress(step=1))
        live["model"]["weight"] += 1  # the training goes on
        assert written == []
        may_write.set()
        writer.submit(live, Progress(step=2))  # waits until the first is written: it needs its memory
        assert written[0] == (1, [1.0] * 4)
    assert written == [(1, [1.0] * 4), (2, [2.0] * 4)]
    assert len(writer.stops) == 2


def test_a_checkpoint_that_could_not_be_written_stops_the_training() -> None:
    def write(_content: Any, _progress: Progress) -> CheckpointFile | None:
        raise StorageFailed("No room.")

    with pytest.raises(StorageFailed), CheckpointWriter(write, CpuDevice()) as writer:
        writer.submit(state(), Progress(step=1))

    with CheckpointWriter(write, CpuDevice()) as writer:
        writer.submit(state(), Progress(step=1))
        with pytest.raises(StorageFailed):
            writer.wait()


def test_a_checkpoint_is_read_back(tmp_path: Path) -> None:
    progress = Progress(step=5, samples_seen=50, first_loss=9.0, last_loss=8.0)
    written = checkpoint.write(tmp_path, state(3.0), progress, CONFIG)
    assert newest(tmp_path, CONFIG) == (5, [])
    content = checkpoint.load(written)
    assert torch.equal(content["model"]["weight"], torch.full((4,), 3.0))
    assert content["optimizer"] == state(3.0)["optimizer"]


@pytest.mark.parametrize(
    ("config", "words"),
    [
        (other(hidden_size=64), "--hidden_size 128 and this run asks for 64"),
        (replace(CONFIG, optimization=OptimizationConfig(seed=1)), "--seed 12349 and this run asks for 1"),
        (replace(CONFIG, optimization=OptimizationConfig(optimizer="lamb")), "--optimizer adamw and this run asks for"),
        (replace(CONFIG, precision="pure_bfloat16"), "--precision float32 and this run asks for pure_bfloat16"),
    ],
)
def test_a_folder_of_another_training_is_refused_with_the_option_that_differs(
    tmp_path: Path, config: PretrainConfig, words: str
) -> None:
    checkpoint.write(tmp_path, state(), Progress(step=1), CONFIG)
    with pytest.raises(CheckpointInvalid) as caught:
        newest(tmp_path, config)
    assert words in str(caught.value)


def test_autocast_may_be_switched_on_and_off(tmp_path: Path) -> None:
    checkpoint.write(tmp_path, state(), Progress(step=1), CONFIG)
    assert newest(tmp_path, replace(CONFIG, precision="bfloat16")) == (1, [])


def test_of_a_mixed_folder_the_newest_that_fits_is_taken_and_the_others_are_named(tmp_path: Path) -> None:
    checkpoint.write(tmp_path, state(), Progress(step=1), CONFIG)
    checkpoint.write(tmp_path, state(), Progress(step=2), other(hidden_size=64))
    damaged = checkpoint.write(tmp_path, state(), Progress(step=3), CONFIG)
    damaged.path.write_bytes(damaged.path.read_bytes()[:-1] + b"x")
    step, said = newest(tmp_path, CONFIG)
    assert step == 1
    assert "step-00000003.pt is passed over: its checksum does not match" in said[0]
    assert "step-00000002.pt is passed over: it was written with --hidden_size 64" in said[1]


def test_records_of_earlier_versions_are_understood() -> None:
    earlier = {
        "step": 1,
        "samples_seen": 2,
        "first_loss": 9.0,
        "last_loss": 8.0,
        "seed": 12349,
        "bytes": 1,
        "sha256": "",
    }
    assert checkpoint.difference_to(Record(**earlier, model=vars(CONFIG.model.shape)), CONFIG) is None
