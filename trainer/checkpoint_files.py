"""Checkpoints on disk: `checkpoints/step-00000100.pt` and, beside it, a small JSON record that vouches for it.

The record is written after the weights and holds their checksum, so weights without a record, or with one that does
not match, are the remains of a crash and are passed over. Nothing here needs torch.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, BinaryIO

from trainer.files import written_whole

FOLDER = "checkpoints"


@dataclass(frozen=True, kw_only=True)
class Record:
    """What is known of a checkpoint without opening it."""

    step: int
    """Steps that had been taken."""
    samples_seen: int
    """Position in the stream of samples to go on from."""
    first_loss: float
    """Loss of the training's first step, in nats."""
    last_loss: float
    """Loss of the last step before the checkpoint, in nats."""
    seed: int
    model: dict[str, int]
    """Shape of the model."""
    bytes: int
    sha256: str
    optimizer: str = "adamw"
    """Whose state it holds."""
    precision: str = "float32"


@dataclass(frozen=True)
class CheckpointFile:
    """A checkpoint whose bytes match its record."""

    path: Path
    record: Record

    @property
    def record_path(self) -> Path:
        return self.path.with_suffix(".json")


def write(output_dir: Path, write_weights: Callable[[BinaryIO], None], describe: dict[str, Any]) -> CheckpointFile:
    """Write a checkpoint so that it is whole or not there.

    Args:
        output_dir: The run's folder.
        write_weights: Writes the content to the file it is given.
        describe: The record's fields but for size and checksum.
    """
    path = output_dir / FOLDER / f"step-{describe['step']:08d}.pt"
    with written_whole(path) as file:
        hashing = _HashingWriter(file)
        write_weights(hashing)  # type: ignore[arg-type]  # torch.save asks for write and flush alone
        if hashing.failure is not None:
            raise hashing.failure
    record = Record(**describe, bytes=hashing.num_bytes, sha256=hashing.hexdigest())
    with written_whole(path.with_suffix(".json")) as file:
        file.write(json.dumps(asdict(record), indent=2).encode() + b"\n")
    return CheckpointFile(path, record)


def newest_verified(
    output_dir: Path, *, say: Callable[[str], None], misfit: Callable[[Record], str | None] = lambda _: None
) -> CheckpointFile | None:
    """The checkpoint to go on from.

    Args:
        output_dir: The run's folder.
        say: Told, in a sentence, of every newer one that had to be passed over.
        misfit: Why a checkpoint cannot be gone on from although it is whole; None if it can.
    """
    for path in sorted((output_dir / FOLDER).glob("step-*.pt"), reverse=True):
        found = _verified(path, misfit)
        if isinstance(found, CheckpointFile):
            return found
        say(f"The checkpoint {path.name} is passed over: {found}.")
    return None


def keep_newest(output_dir: Path, count: int, *, until: int) -> None:
    """Delete old checkpoints, also those of earlier attempts; the record goes first, so that a crash leaves nothing
    vouched for.

    Args:
        output_dir: The run's folder.
        count: Checkpoints that stay; -1 for all.
        until: The step just written. Whatever lies ahead of it was passed over, so it neither counts nor goes.
    """
    if count == -1:
        return
    written = [path for path in (output_dir / FOLDER).glob("step-*.pt") if path.name <= f"step-{until:08d}.pt"]
    for path in sorted(written, reverse=True)[count:]:
        path.with_suffix(".json").unlink(missing_ok=True)
        path.unlink(missing_ok=True)


def remove_remains(output_dir: Path) -> None:
    """Delete what a process left that was killed while it wrote."""
    for path in (output_dir / FOLDER).glob(".step-*"):
        path.unlink(missing_ok=True)


def _verified(path: Path, misfit: Callable[[Record], str | None]) -> CheckpointFile | str:
    """The checkpoint, or what is wrong with it."""
    try:
        record = Record(**json.loads(path.with_suffix(".json").read_text()))
    except FileNotFoundError:
        return "it has no record beside it, so writing it was interrupted"
    except (ValueError, TypeError) as error:
        return f"its record cannot be read ({error})"
    if path.stat().st_size != record.bytes:
        return f"it has {path.stat().st_size} bytes and its record says {record.bytes}"
    unfit = misfit(record)
    if unfit is not None:
        return unfit
    with path.open("rb") as file:
        if hashlib.file_digest(file, "sha256").hexdigest() != record.sha256:
            return "its checksum does not match its record"
    return CheckpointFile(path, record)


class _HashingWriter:
    """Passes bytes on to a file and keeps their checksum, which spares a second reading.

    When the file refuses bytes, the rest is swallowed: torch.save would hide the reason behind an error of its own.
    """

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._hash = hashlib.sha256()
        self.num_bytes = 0
        self.failure: OSError | None = None

    def write(self, data: bytes) -> int:
        if self.failure is None:
            try:
                self._file.write(data)
            except OSError as error:
                self.failure = error
        self._hash.update(data)
        self.num_bytes += len(data)
        return len(data)

    def flush(self) -> None:
        self._file.flush()

    def hexdigest(self) -> str:
        return self._hash.hexdigest()
