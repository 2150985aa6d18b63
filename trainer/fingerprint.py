"""What makes a training the one that a checkpoint was made by, so that no other goes on from it by mistake.

The fingerprint holds what decides the weights: data set, batch, optimizer, schedule, dropout, precision, seed. It does
not hold what may differ between two attempts at one training: the number of processes that share a global batch, the
device, folders, when checkpoints and metrics lines are written.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from trainer import data_order
from trainer.config import PretrainConfig
from trainer.errors import ConfigInvalid
from trainer.shards import ShardedDataset

DIVIDES_WORK = frozenset(
    {"micro_batch_size", "gradient_accumulation_steps", "scaling", "global_batch_size", "zero1", "bucket_mib"},
)
"""Options of the optimization that say how processes share its work. The global batch that they make is compared
instead."""

PURE_BFLOAT16 = "pure_bfloat16"
"""The precision whose weights are not float32."""

NOT_OPTIONS = {"dataset": "the data set", "data_order": "the version of the data's order"}
"""Settings that no option gives, and what messages call them."""


@dataclass(frozen=True)
class Fingerprint:
    """What a checkpoint and the training that goes on from it have to agree on."""

    model: Mapping[str, int]
    """Shape of the model."""
    settings: Mapping[str, Any]
    """What else decides the weights, as values that JSON can hold."""


@dataclass(frozen=True)
class Difference:
    """One value in which two fingerprints differ."""

    name: str
    written: Any
    """In the checkpoint."""
    asked: Any
    """Of this run."""
    can_be_allowed: bool
    """False where the checkpoint's tensors would not fit."""

    def __str__(self) -> str:
        subject = NOT_OPTIONS.get(self.name, f"--{self.name}")
        return f"{subject} is {_text(self.asked)} and the checkpoint was made with {_text(self.written)}"


def of_pretraining(config: PretrainConfig, dataset: ShardedDataset, *, global_batch_size: int) -> Fingerprint:
    """The fingerprint of a pretraining.

    Every option of `OptimizationConfig` and `ModelConfig` counts without being named here, so that a new one is
    compared from its first day on.

    Args:
        config: What was asked for.
        dataset: What is trained on.
        global_batch_size: Sequences in a step.
    """
    shape = vars(config.model.shape)
    settings = {
        "dataset": describe_dataset(dataset),
        "data_order": data_order.VERSION,
        "global_batch_size": global_batch_size,
        "precision": config.precision,
        **{name: value for name, value in vars(config.model).items() if name not in shape and name != "model"},
        **{name: value for name, value in vars(config.optimization).items() if name not in DIVIDES_WORK},
    }
    return Fingerprint(shape, {name: _as_json(value) for name, value in settings.items()})


def describe_dataset(dataset: ShardedDataset) -> str:
    """A data set in words, with a checksum that another one does not have.

    The checksum covers each shard's name, number of samples and first samples. It does not cover folders, which differ
    between nodes and attempts, nor how a file is compressed. Reading all samples would take as long as an epoch of
    reading, so a change behind the first samples of a shard that keeps their number is not noticed.
    """
    digest = hashlib.sha256()
    for shard in dataset.shards:
        digest.update(f"{shard.path.name} {shard.num_samples} {shard.digest}\n".encode())
    shards = "1 shard" if len(dataset.shards) == 1 else f"{len(dataset.shards)} shards"
    return f"{dataset.num_samples} samples of {dataset.max_seq_length} tokens in {shards} ({digest.hexdigest()[:12]})"


def differences(
    written_model: Mapping[str, Any], written_settings: Mapping[str, Any], asked: Fingerprint
) -> list[Difference]:
    """In what a checkpoint's training and this one differ.

    A setting that only one of them has is none: another version of the program did not know it.
    """
    found = [
        Difference(name, written_model.get(name), value, can_be_allowed=False)
        for name, value in asked.model.items()
        if written_model.get(name) != value
    ]
    for name, value in asked.settings.items():
        if name in written_settings and written_settings[name] != value:
            found.append(_difference_of_setting(name, written_settings[name], value))
    return found


def allowed_names(text: str, asked: Fingerprint) -> frozenset[str]:
    """The settings that `--allow_changes` names.

    Raises:
        ConfigInvalid: If one of them is no setting, or one that the checkpoint's tensors depend on.
    """
    names = frozenset(name.strip() for name in text.split(",") if name.strip())
    for name in sorted(names):
        if name in asked.model or name == "optimizer":
            raise ConfigInvalid(
                f"--allow_changes names {name}, with which a checkpoint's tensors would not fit; start a new training "
                "in another --output_dir instead, with --initial_weights if the shape of the model stays."
            )
        if name not in asked.settings:
            raise ConfigInvalid(
                f"--allow_changes names {name!r}, which checkpoints are not compared by; give some of "
                f"{', '.join(sorted(set(asked.settings) - {'optimizer'}))}."
            )
    return names


def _difference_of_setting(name: str, written: Any, asked: Any) -> Difference:
    other_tensors = name == "optimizer" or (name == "precision" and PURE_BFLOAT16 in (written, asked))
    return Difference(name, written, asked, can_be_allowed=not other_tensors)


def _as_json(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def listed(found: Iterable[Difference]) -> str:
    """Differences in one sentence's part."""
    return "; ".join(map(str, found))
