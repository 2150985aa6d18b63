"""What a checkpoint has to agree on with the training that goes on from it."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import h5py
import pytest

from tests.unit.trainer.conftest import make_rows, write_shard
from trainer.checkpoints import fingerprint
from trainer.checkpoints.fingerprint import Fingerprint
from trainer.data.shards import ShardedDataset, open_dataset
from trainer.optimizers.optimization_config import OptimizationConfig
from trainer.pretraining.config import ModelConfig, PretrainConfig
from trainer.pretraining.task import DIVIDES_WORK, Pretraining

CONFIG = PretrainConfig(model=ModelConfig(model="tiny", vocab_size=50))


def dataset(folder: Path, *, seed: int = 0, num_samples: int = 40) -> ShardedDataset:
    for number in range(2):
        write_shard(folder, number, make_rows(num_samples, seed=seed + number))
    return open_dataset(folder)


def settings(of: ShardedDataset, config: PretrainConfig = CONFIG) -> dict[str, Any]:
    micro_batches = config.optimization.gradient_accumulation_steps
    return dict(Pretraining(config, of, "float32", micro_batches, world_size=1).fingerprint.settings)


def test_every_option_of_the_optimization_and_of_the_model_counts(tmp_path: Path) -> None:
    """A new option is compared without being named anywhere, unless it only divides the work."""
    known = settings(dataset(tmp_path))
    optimization = {field.name for field in fields(OptimizationConfig)} - DIVIDES_WORK
    assert known.keys() == optimization | {"dropout", "precision", "dataset", "data_order", "global_batch_size"}
    assert {field.name for field in fields(OptimizationConfig)} >= DIVIDES_WORK


def test_attempts_at_one_training_may_differ_in_all_that_does_not_decide_the_weights(tmp_path: Path) -> None:
    of = dataset(tmp_path)
    other_attempt = replace(
        CONFIG,
        data_dir=Path("/elsewhere"),
        output_dir=Path("/runs/x"),
        steps_this_run=3,
        log_steps=7,
        device="cpu",
        compile=False,
        optimization=replace(CONFIG.optimization, micro_batch_size=4, gradient_accumulation_steps=128, zero1=True),
        checkpoint_steps=3,
        keep_checkpoints=9,
    )
    assert settings(of, other_attempt) == settings(of)


def test_a_data_set_is_known_by_its_content_wherever_and_however_it_lies(tmp_path: Path) -> None:
    first = dataset(tmp_path / "first")
    for path in sorted((tmp_path / "first").iterdir()):
        again = tmp_path / "again" / "deeper" / path.name
        again.parent.mkdir(parents=True, exist_ok=True)
        with h5py.File(path) as source, h5py.File(again, "w") as target:
            for key, values in source.items():
                target.create_dataset(key, data=values[:].astype("int64"), chunks=(5, *values.shape[1:]))
    assert open_dataset(tmp_path / "again").description == first.description
    assert first.description.startswith("80 samples of 16 tokens in 2 shards (")


@pytest.mark.parametrize(("seed", "num_samples"), [(5, 40), (0, 41)])
def test_other_samples_make_another_data_set(tmp_path: Path, seed: int, num_samples: int) -> None:
    first, other = dataset(tmp_path / "a"), dataset(tmp_path / "b", seed=seed, num_samples=num_samples)
    assert first.description != other.description


def test_the_same_shards_under_each_others_names_are_read_in_another_order(tmp_path: Path) -> None:
    first = dataset(tmp_path / "a")
    for number in range(2):
        write_shard(tmp_path / "b", 1 - number, make_rows(40, seed=number))
    assert open_dataset(tmp_path / "b").description != first.description


def test_values_that_json_changes_are_equal_after_it(tmp_path: Path) -> None:
    """The values are pairs, which JSON writes as lists."""
    asked = Fingerprint({}, settings(dataset(tmp_path)))
    assert not [name for name, value in asked.settings.items() if isinstance(value, tuple)]
    assert fingerprint.differences({}, dict(asked.settings), asked) == []
