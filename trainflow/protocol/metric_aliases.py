"""The names that programs give to the figures of a step, and the one name that Trainflow uses for each."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

ALIASES: Mapping[str, tuple[str, ...]] = {
    "step": ("step", "global_step", "trainer/global_step", "train/global_step", "iteration", "iter", "steps"),
    "loss": (
        *("loss", "step_loss", "train_loss", "train/loss", "loss/train", "training_loss", "train_loss_step"),
        *("lm_loss", "reduced_train_loss", "loss_metrics/global_avg_loss"),
    ),
    "learning_rate": ("learning_rate", "lr", "train/learning_rate", "train/lr"),
    "epoch": ("epoch", "train/epoch"),
    "grad_norm": ("grad_norm", "grad-norm", "gradient_norm", "train/grad_norm"),
    "sequences_per_second": (
        *("sequences_per_second", "samples_per_second", "train/samples_per_second"),
        *("sequences/s", "samples/s", "samples/sec"),
    ),
    "tokens_per_second": (
        *("tokens_per_second", "tokens_per_sec", "train/tokens_per_second", "tokens/s", "tokens/sec"),
    ),
}
"""Names by meaning, the one that counts first. Each says its unit: a plain `throughput` of an unknown program does not,
and is kept under its own name."""

SEQUENCES = "sequences"
"""Unit of a training's throughput unless its program reports another."""

MEANING = {alias: meaning for meaning, aliases in ALIASES.items() for alias in aliases}

MAX_METRICS = 50
"""Most figures of one line that are read."""

MAX_NAME_LENGTH = 100
"""Most characters of a figure's name; CloudWatch takes 255."""

LARGEST_STEP = 10**15
"""Largest number of a step. A larger one is a time or an identifier."""

LONGEST_NUMBER = 400
"""Most characters of a number that is read: the largest float without an exponent has 309 digits."""

_THOUSANDS = re.compile(r"[-+]?\d{1,3}(,\d{3})+(\.\d+)?")
"""A number with separators of thousands."""

_UNUSUAL = re.compile(r"[^A-Za-z0-9_./-]+")


def by_meaning(values: Mapping[str, object]) -> dict[str, object]:
    """Figures under Trainflow's names. Unknown figures keep their own names, with `_` for characters that CloudWatch or
    a column's title does not accept. If several names have one meaning, the first in `ALIASES` is used."""
    named: dict[str, object] = {}
    for raw, value in values.items():
        if len(named) == MAX_METRICS:
            break
        name = _UNUSUAL.sub("_", raw[: 2 * MAX_NAME_LENGTH]).strip("_")[:MAX_NAME_LENGTH]
        if name:
            named.setdefault(name, value)
    lower = {name.lower(): name for name in reversed(named)}
    for meaning, aliases in ALIASES.items():
        found = next((lower[alias] for alias in aliases if alias in lower), None)
        if found is not None and found != meaning:
            named[meaning] = named.pop(found)
    return named


def counted(values: Mapping[str, object]) -> str:
    """Unit of the figure that `by_meaning` calls `sequences_per_second`: `sequences`, or `samples` if the program
    reports those."""
    lower = {name.lower() for name in values}
    said = next((alias for alias in ALIASES["sequences_per_second"] if alias in lower), SEQUENCES)
    return "samples" if "samples" in said else SEQUENCES


def number(value: object) -> float | None:
    """A figure as a float, which may be NaN or infinite; None if the value is not a number."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    if isinstance(value, str) and len(value) > LONGEST_NUMBER:
        return None
    try:
        return float(value.replace(",", "") if isinstance(value, str) and _THOUSANDS.fullmatch(value) else value)
    except (ValueError, OverflowError):
        return None


def whole(value: object) -> int | None:
    """The number of a step; None for other values. `99.00` is valid: PyTorch Lightning logs numbers as floats."""
    found = number(value)
    if found is None or not 0 <= found <= LARGEST_STEP or not math.isfinite(found) or found != int(found):
        return None
    return int(found)
