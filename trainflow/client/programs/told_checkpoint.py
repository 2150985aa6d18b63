"""Whether a restarted program is given the path of its checkpoint, as far as spec and source show it."""

from __future__ import annotations

from pathlib import Path

from trainflow.protocol import variables
from trainflow.spec.run_spec import RunSpec

MAX_SOURCE_BYTES = 2_000_000
"""Largest file that is searched for the variable."""


def untold_checkpoint(spec: RunSpec, *, folder: Path | None = None) -> str | None:
    """The sentence about a program that may begin anew although it has a checkpoint; None for other programs.

    Args:
        spec: The spec.
        folder: Folder of the spec, with the source of `workload.code`; None if it is not at hand.
    """
    if spec.checkpoint is None or spec.checkpoint.resume or _reads_variable(spec, folder):
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
    name = variables.CHECKPOINT.encode()
    files = (file for ending in ("*.py", "*.sh", "*.jl") for file in _below(folder / workload.code, ending))
    return any(name in file.read_bytes() for file in files)


def _below(code: Path, ending: str) -> list[Path]:
    try:
        found = (file for file in code.rglob(ending) if file.is_file())
        return [file for file in found if file.stat().st_size <= MAX_SOURCE_BYTES]
    except OSError:
        return []
