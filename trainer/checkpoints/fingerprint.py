"""Identifies the training that a checkpoint belongs to, so that no other training resumes from it by mistake.

The fingerprint holds the settings that determine the weights: data set, batch, optimizer, schedule, dropout, precision,
seed. It does not hold what may differ between two attempts of one training: the number of processes that share a global
batch, the device, folders, when checkpoints and metrics lines are written.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from trainer.runtime.errors import ConfigInvalid

PURE_BFLOAT16 = "pure_bfloat16"
"""The precision whose weights are not float32."""

NOT_OPTIONS = {"dataset": "the data set", "data_order": "the version of the data's order"}
"""Settings without an option, with their names in messages."""


@dataclass(frozen=True)
class Fingerprint:
    """The settings that a checkpoint and the training that resumes from it must share."""

    model: Mapping[str, int]
    """Shape of the model."""
    settings: Mapping[str, Any]
    """Further settings that determine the weights, as values that JSON can hold."""


@dataclass(frozen=True)
class Difference:
    """One value that differs between two fingerprints."""

    name: str
    written: Any
    """Value in the checkpoint."""
    asked: Any
    """Value in this run."""
    can_be_allowed: bool
    """Whether `--allow_changes` may name it; False if the checkpoint's tensors would not fit."""

    def __str__(self) -> str:
        subject = NOT_OPTIONS.get(self.name, f"--{self.name}")
        return f"{subject} is {_text(self.asked)} and the checkpoint was made with {_text(self.written)}"


# Decision 32: a checkpoint belongs to one training.
def differences(
    written_model: Mapping[str, Any], written_settings: Mapping[str, Any], asked: Fingerprint
) -> list[Difference]:
    """Compare a checkpoint's training with this one.

    A setting that only one of them has does not count: another version of the program did not have it.
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
        ConfigInvalid: If one of them is not a setting, or the checkpoint's tensors depend on it.
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


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def listed(found: Iterable[Difference]) -> str:
    """The differences, joined for use in a sentence."""
    return "; ".join(map(str, found))
