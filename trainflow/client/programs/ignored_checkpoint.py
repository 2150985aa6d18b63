"""Whether a restarted program is given the path of its checkpoint, as far as spec and source show it."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from trainflow.client.code import code_files
from trainflow.protocol import variables
from trainflow.spec.run_spec import RunSpec

MAX_SOURCE_BYTES = 2_000_000
"""Largest file that is searched for the variable."""

SOURCES = (".py", ".sh", ".jl")
"""Ends of names of the files that are searched."""


def ignored_checkpoint(spec: RunSpec, *, folder: Path | None = None) -> str | None:
    """The sentence about a program that may begin anew although it has a checkpoint; None for other programs.

    Args:
        spec: The spec.
        folder: Folder of the spec, with the source of `workload.code`; None if it is not at hand.
    """
    described = spec.described_checkpoint
    if described is None or described.resume or _reads_variable(spec, folder):
        return None
    return (
        f"checkpoint.resume is empty, so a restarted or continued program begins anew unless it reads "
        f"{variables.CHECKPOINT} or finds its checkpoint itself; a run that continues another one has an empty folder"
    )


def _reads_variable(spec: RunSpec, folder: Path | None) -> bool:
    """Whether the command or a source file below `workload.code` names the variable."""
    workload = spec.workload
    if any(variables.CHECKPOINT in word for word in (*(workload.command or ()), *workload.words)):
        return True
    if folder is None or workload.code is None or "://" in workload.code:
        return False
    return any(_names_variable(path) for name, path in code_files(folder / workload.code) if name.endswith(SOURCES))


def _names_variable(path: Path) -> bool:
    with suppress(OSError):  # unreadable, or gone since
        is_small = path.is_file() and path.stat().st_size <= MAX_SOURCE_BYTES
        return is_small and variables.CHECKPOINT.encode() in path.read_bytes()
    return False
