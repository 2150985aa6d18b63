"""Checkpoints on disk: `checkpoints/step-00000100.pt` and, beside it, a small JSON record that vouches for it.

The record is written after the weights and holds their checksum. Weights without a record are the remains of a crash,
and weights that do not match theirs are damaged; both are passed over. Nothing here needs torch.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, BinaryIO, Literal

from trainer.runtime.errors import CheckpointInvalid, StorageFailed
from trainer.runtime.files import written_whole

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
    model: dict[str, int]
    """Shape of the model."""
    settings: dict[str, Any]
    """What a training that continues from it has to agree on besides (`trainer.checkpoints.fingerprint`); empty for
    weights alone."""
    bytes: int
    sha256: str

    @classmethod
    def read(cls, path: Path) -> Record:
        """A record out of its file; those of versions that compared less are understood.

        Raises:
            FileNotFoundError: If there is none.
            ValueError, TypeError: If it is damaged.
        """
        document = json.loads(path.read_text())
        if "seed" in document:
            document["settings"] = {
                "seed": document.pop("seed"),
                "optimizer": document.pop("optimizer", "adamw"),
                "precision": document.pop("precision", "float32"),
                "data_order": 1,
            }
        return cls(**document)


@dataclass(frozen=True)
class CheckpointFile:
    """A checkpoint whose bytes match its record."""

    path: Path
    record: Record

    @property
    def record_path(self) -> Path:
        return self.path.with_suffix(".json")


@dataclass(frozen=True)
class PassedOver:
    """A checkpoint that a training cannot go on from."""

    path: Path
    kind: Literal["unfinished", "damaged", "foreign"]
    reason: str


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
        # The record of a checkpoint that was passed over, and whose place this one takes, would not match it.
        path.with_suffix(".json").unlink(missing_ok=True)
    record = Record(**describe, bytes=hashing.num_bytes, sha256=hashing.hexdigest())
    with written_whole(path.with_suffix(".json")) as file:
        file.write(json.dumps(asdict(record), indent=2).encode() + b"\n")
    return CheckpointFile(path, record)


def newest_verified(
    output_dir: Path, *, say: Callable[[str], None], misfit: Callable[[Record], str | None] = lambda _: None
) -> CheckpointFile | None:
    """The newest checkpoint that is whole.

    Args:
        output_dir: The run's folder.
        say: Told, in a sentence, of every newer one that had to be passed over.
        misfit: Why a checkpoint cannot be gone on from although it is whole; None if it can.
    """
    return _look_through(output_dir, say, misfit)[0]


def newest_to_resume(
    output_dir: Path, *, say: Callable[[str], None], misfit: Callable[[Record], str | None]
) -> CheckpointFile | None:
    """The checkpoint to go on from; None if the training begins, also after a crash in its very first checkpoint.

    Args:
        output_dir: The run's folder.
        say: Told, in a sentence, of every newer one that had to be passed over.
        misfit: Why a checkpoint cannot be gone on from although it is whole; None if it can.

    Raises:
        CheckpointInvalid: If there are checkpoints and none can be gone on from. A training that began anew would
            overwrite them.
    """
    found, passed_over = _look_through(output_dir, say, misfit)
    lost = [f"{other.path.name}: {other.reason}" for other in passed_over if other.kind != "unfinished"]
    if found is None and lost:
        raise CheckpointInvalid(
            f"No checkpoint in {output_dir / FOLDER} can be gone on from ({'; '.join(lost)}); bring back what is "
            "damaged, give the arguments that it was made with, or begin anew with another --output_dir or without "
            "that folder."
        )
    return found


def require_same_bytes(found: CheckpointFile) -> None:
    """Read a checkpoint that another node has verified, from this node, whose memory then holds it for all processes.

    Raises:
        StorageFailed: If it cannot be read, or reads otherwise than on the other node.
    """
    try:
        same = _sha256(found.path) == found.record.sha256
    except OSError as error:
        raise StorageFailed(
            f"The checkpoint {found.path} cannot be read on this node ({error}); look at the file system's mounts."
        ) from error
    if not same:
        raise StorageFailed(
            f"The checkpoint {found.path} reads otherwise on this node than on that of rank 0, which verified it; look "
            "at the file system's mounts."
        )


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


def _look_through(
    output_dir: Path, say: Callable[[str], None], misfit: Callable[[Record], str | None]
) -> tuple[CheckpointFile | None, list[PassedOver]]:
    """The newest checkpoint to go on from, and the newer ones that it cannot be."""
    passed_over: list[PassedOver] = []
    folder = output_dir / FOLDER
    for stem in sorted({path.stem for path in folder.glob("step-*") if path.suffix in (".pt", ".json")}, reverse=True):
        found = _verified(folder / f"{stem}.pt", misfit)
        if isinstance(found, CheckpointFile):
            return found, passed_over
        say(f"The checkpoint {found.path.name} is passed over: {found.reason}.")
        passed_over.append(found)
    return None, passed_over


def _verified(path: Path, misfit: Callable[[Record], str | None]) -> CheckpointFile | PassedOver:
    """The checkpoint, or what is wrong with it."""
    try:
        record = Record.read(path.with_suffix(".json"))
    except FileNotFoundError:
        return PassedOver(path, "unfinished", "it has no record beside it, so writing it was interrupted")
    except (ValueError, TypeError) as error:
        return PassedOver(path, "damaged", f"its record cannot be read ({error})")
    if not path.exists():
        return PassedOver(path, "damaged", "its record is there and the file is not")
    if path.stat().st_size != record.bytes:
        return PassedOver(path, "damaged", f"it has {path.stat().st_size} bytes and its record says {record.bytes}")
    unfit = misfit(record)
    if unfit is not None:
        return PassedOver(path, "foreign", unfit)
    if _sha256(path) != record.sha256:
        return PassedOver(path, "damaged", "its checksum does not match its record")
    return CheckpointFile(path, record)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


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
