"""Section `checkpoint` of the run spec: how checkpoints are found, and where they are written first."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, field_validator, model_validator

from trainflow.protocol.checkpoint_pattern import ANY_FOLDERS
from trainflow.protocol.placeholders import CHECKPOINT, STEP, placeholders_in
from trainflow.spec.empty import empty_list
from trainflow.spec.section import Section
from trainflow.spec.workload import Word


class KeepLocal(Section):
    """A folder of each node, where checkpoints are written first; a thread copies them to the shared storage."""

    medium: Literal["memory", "nvme"] = "memory"
    """`memory` of the node, or its own disks (`nvme`), for instance types that have some. Either is lost with the pod;
    then the newest copy on the shared storage counts."""
    gib: Annotated[int, Field(ge=1, le=2048)] | None = None
    """Size of the folder in memory, in GiB, at most half of the pod's memory, as which it counts. Three times a
    checkpoint's size is best, and twice the least. If it is full, checkpoints are written to the shared storage.
    Required with `memory`, and not allowed with `nvme`."""

    @model_validator(mode="after")
    def _memory_has_a_size(self) -> Self:
        if (self.gib is None) == (self.medium == "memory"):
            problem = (
                "gib is missing, which limits the folder in memory; add it, at best three times a checkpoint's size"
                if self.gib is None
                else "gib limits memory, but medium is 'nvme'; remove it"
            )
            raise ValueError(problem)
        return self


class Checkpoint(Section):
    """Checkpoints of the program: how they are found, and how a restarted program gets the path of the newest one."""

    path: str = ""
    """Path below the run's folder, such as `checkpoint-{step}` or `ckpt/step_{step}.pt`: `{step}` stands for a number,
    `*` for any part of a name and `**` for any folders, as in `**/checkpoint-{step}`. The highest number is the newest;
    without `{step}`, the newest file is. Required, except for Trainflow's own programs."""
    resume: Annotated[list[Word], Field(max_length=100)] = Field(default_factory=empty_list)
    """Words that are added to the command line when there is a checkpoint, such as `[--resume, "{checkpoint}"]`. The
    variable TRAINFLOW_CHECKPOINT has its path in any case."""
    marker: Annotated[str, Field(min_length=1)] | None = None
    """Name of a file inside a complete checkpoint's folder, which the program writes last. Default: files and folders
    of known formats and libraries are checked by their content (docs/workloads.md), and any other has to be unchanged
    for `settled_seconds`."""
    settled_seconds: Annotated[float, Field(ge=0, le=86400)] = 60.0
    """Seconds without a change before a checkpoint of an unknown format counts as complete."""
    keep_local: KeepLocal | None = None
    """Write checkpoints to each node first, so that a restart in the pods loads them from there. Only for Trainflow's
    own programs; None writes them to the shared storage."""

    @field_validator("path")
    @classmethod
    def _below_the_runs_folder(cls, path: str) -> str:
        if not path:
            return path  # of Trainflow's own programs, whose stored specs have the field, too
        if path.startswith("/") or {"", ".", ".."} & set(path.split("/")):
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
