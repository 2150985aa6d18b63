"""The spec's section `progress`: how a program says which step it has reached."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, ConfigDict, Field, field_validator, model_validator

from trainflow.spec.field_docs import DescribedFields

PresetName = Literal["hugging-face", "lightning", "torchtitan", "nemo", "megatron"]

RELATIVE = r"^(?!/)(?!(?:.*/)?\.\.(?:/|$))[^\x00-\x1f]+$"


class Format(DescribedFields):
    """Format of the lines of a program. Exactly one of the fields."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    pattern: Annotated[str, Field(min_length=1, max_length=1000)] | None = None
    """Regular expression that is searched in the first 1,000 characters of each line: Python's, without look-around and
    backreferences, and with the flag ASCII. Its named groups are the figures: `step` is required; `loss`,
    `learning_rate`, `epoch`, `grad_norm`, `total` (the last step of the training), `throughput` (over all ranks, in the
    unit that stands behind it, such as `samples/s`; sequences per second without one) and `tokens_per_second` have a
    meaning, any other name is a figure of its own."""
    json_lines: Literal[True] | None = None
    """True for programs that print one JSON object a line, with keys such as `step`, `loss` and `lr`; every other
    number in it is a figure of its own."""
    tensorboard: str | None = None
    """Folder of TensorBoard event files, relative to the run's folder (`.` for the run's folder itself). A small
    program beside the workload reads them, so the image needs no TensorBoard."""
    trainer_state: str | None = None
    """Glob, relative to the run's folder, of Hugging Face's `trainer_state.json`, such as
    `checkpoint-*/trainer_state.json`. Steps appear when a checkpoint is written."""
    preset: PresetName | None = None
    """Lines that the programs of a library print: `hugging-face`, `lightning`, `torchtitan`, `nemo` or `megatron`."""

    @field_validator("tensorboard", "trainer_state")
    @classmethod
    def _below_the_runs_folder(cls, path: str | None) -> str | None:
        if path is not None and not re.match(RELATIVE, path):
            raise ValueError(f"must be a path relative to the run's folder, without '..', got {path!r}")
        return path

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        given = [name for name, value in self if value is not None]
        if len(given) != 1:
            raise ValueError(
                "needs exactly one of 'pattern', 'json_lines', 'tensorboard', 'trainer_state' and 'preset'"
                + (f", got {' and '.join(map(repr, given))}" if given else "")
            )
        return self


def _is_word_or_format(value: Any) -> Any:
    if isinstance(value, dict):
        return Format.model_validate(value)
    if isinstance(value, Format) or value in ("auto", "none"):
        return value
    raise ValueError(f"must be 'auto', 'none' or a format such as {{preset: lightning}}, got {value!r}")


Progress = Annotated[Literal["auto", "none"] | Format, BeforeValidator(_is_word_or_format)]
"""`auto` finds the format by what the log shows; `none` is for programs that report no steps."""


def named(progress: Literal["auto", "none"] | Format) -> str:
    """The setting in words, for messages."""
    if isinstance(progress, str):
        return f"progress '{progress}'"
    return next(f"progress.{name}" for name, value in progress if value is not None)


def read_from_files(progress: Literal["auto", "none"] | Format) -> bool:
    """Whether the steps are in files of the run's folder, and not in what the program prints."""
    return isinstance(progress, Format) and (progress.tensorboard or progress.trainer_state) is not None
