"""Section `checkpoint` of the run spec: the checkpoints of a program that is not Trainflow's own."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field, field_validator, model_validator

from trainflow.protocol.checkpoint_pattern import ANY_FOLDERS
from trainflow.protocol.placeholders import CHECKPOINT, STEP, placeholders_in
from trainflow.spec.empty import empty_list
from trainflow.spec.section import Section
from trainflow.spec.workload import Word


class Checkpoint(Section):
    """Checkpoints of the program: how they are found, and how a restarted program gets the path of the newest one."""

    path: str
    """Path below the run's folder, such as `checkpoint-{step}` or `ckpt/step_{step}.pt`: `{step}` stands for a number,
    `*` for any part of a name and `**` for any folders, as in `**/checkpoint-{step}`. The highest number is the newest;
    without `{step}`, the newest file is."""
    resume: Annotated[list[Word], Field(max_length=100)] = Field(default_factory=empty_list)
    """Words that are added to the command line when there is a checkpoint, such as `[--resume, "{checkpoint}"]`. The
    variable TRAINFLOW_CHECKPOINT has its path in any case."""
    marker: Annotated[str, Field(min_length=1)] | None = None
    """Name of a file inside a complete checkpoint's folder, which the program writes last. Default: files and folders
    of known formats and libraries are checked by their content (docs/workloads.md), and any other has to be unchanged
    for `settled_seconds`."""
    settled_seconds: Annotated[float, Field(ge=0, le=86400)] = 60.0
    """Seconds without a change before a checkpoint of an unknown format counts as complete."""

    @field_validator("path")
    @classmethod
    def _below_the_runs_folder(cls, path: str) -> str:
        if not path or path.startswith("/") or {"", ".", ".."} & set(path.split("/")):
            raise ValueError(f"must be a path below the run's folder, without '.' and '..', got {path!r}")
        if any(ANY_FOLDERS in part and part != ANY_FOLDERS for part in path.split("/")):
            raise ValueError(f"must have '{ANY_FOLDERS}' as a whole name, for any folders, got {path!r}")
        if path.count(STEP) > 1 or path.replace(STEP, "").strip("/*") == "":
            raise ValueError(f"must name the checkpoints, with {STEP} at most once, got {path!r}")
        return path

    @field_validator("marker")
    @classmethod
    def _a_name(cls, marker: str | None) -> str | None:
        if marker is not None and ("/" in marker or marker in (".", "..")):
            raise ValueError(f"must be the name of a file, without a folder, got {marker!r}")
        return marker

    @model_validator(mode="after")
    def _placeholders_are_known(self) -> Self:
        for name in placeholders_in(self.resume):
            if name != CHECKPOINT:
                raise ValueError(f"resume has the placeholder {{{name}}}, but only {{{CHECKPOINT}}} is filled in there")
        return self
