"""Checkpoints on disk: `checkpoints/step-00000100.pt` and, beside it, a small JSON record with its checksum.

The record is written after the weights and holds their checksum, and one of its own text, since it decides where a
training resumes. Weights without a record were left by a crash, and weights that do not match theirs are damaged; both
are skipped, and so are damaged records. Nothing here needs torch.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, BinaryIO

from trainer.runtime.errors import CheckpointInvalid, StorageFailed
from trainer.runtime.files import MIB, written_whole

FOLDER = "checkpoints"

RECORD_CHECKSUM = "record_sha256"
"""Field of a record's file with the SHA-256 of the other fields, as JSON in one line."""


@dataclass(frozen=True, kw_only=True)
class Record:
    """The record of a checkpoint, which is read without opening the checkpoint."""

    step: int
    """Steps that had been taken."""
    samples_seen: int
    """Position in the stream of samples where a training resumes."""
    first_loss: float
    """Loss of the training's first step, in nats."""
    last_loss: float
    """Loss of the last step before the checkpoint, in nats."""
    model: dict[str, int]
    """Shape of the model."""
    settings: dict[str, Any]
    """Further settings that a training has to share to resume (`trainer.checkpoints.fingerprint`); empty if the file
    has only weights."""
    bytes: int
    sha256: str

    def to_text(self) -> str:
        """The record as a file that people read, too: its fields and the checksum of these."""
        fields = asdict(self)
        return json.dumps({**fields, RECORD_CHECKSUM: _text_checksum(fields)}, indent=2) + "\n"

    @classmethod
    def read(cls, path: Path) -> Record:
        """Read a record.

        Raises:
            FileNotFoundError: If the file does not exist.
            CheckpointInvalid: If any byte differs from those that were written.
        """
        try:
            written = path.read_bytes()
            document = json.loads(written)
            del document[RECORD_CHECKSUM]
            record = cls(**document)
            if record.to_text().encode() != written:
                raise ValueError("its own checksum does not match")
            record.require_position_of(path)
        except FileNotFoundError:
            raise
        except KeyError:
            raise CheckpointInvalid("it has no checksum of its own") from None
        except (ValueError, TypeError, AttributeError, RecursionError, MemoryError, OSError) as error:
            raise CheckpointInvalid(str(error) or type(error).__name__) from error
        return record

    def require_position_of(self, path: Path) -> None:
        """Check the position in the training.

        Raises:
            ValueError: If it cannot be that of a checkpoint with this name.
        """
        if path.stem != checkpoint_name(self.step):
            raise ValueError(f"it says step {self.step}")
        if self.step < 0 or self.samples_seen < 0 or (self.step == 0 and self.samples_seen > 0):
            raise ValueError(f"it says {self.samples_seen} samples after {self.step} steps")


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
    """A checkpoint that a training cannot resume from."""

    path: Path
    reason: str
    was_whole: bool = True
    """Whether it has ever been complete; a new training may write over one that was not."""


def write(output_dir: Path, write_weights: Callable[[BinaryIO], None], describe: dict[str, Any]) -> CheckpointFile:
    """Write a checkpoint so that it is complete or absent.

    Args:
        output_dir: The run's folder.
        write_weights: Writes the content to the file it is given.
        describe: Returns the fields of the record, without size and checksum.
    """
    path = output_dir / FOLDER / f"{checkpoint_name(describe['step'])}.pt"
    with _weights_written(path) as hashing:
        write_weights(hashing)  # type: ignore[arg-type]  # torch.save asks for write and flush alone
    record = Record(**describe, bytes=hashing.num_bytes, sha256=hashing.hexdigest())
    return _with_record(path, record)


def copy(content: BinaryIO, record: Record, output_dir: Path) -> CheckpointFile:
    """Copy a checkpoint so that the copy is complete or absent.

    Args:
        content: The open file of the checkpoint.
        record: Its record.
        output_dir: The folder of the copy, which has the name of the checkpoint's step.

    Raises:
        OSError: If the content cannot be read, or the copy cannot be written.
        CheckpointInvalid: If the content is not the one that the record describes.
    """
    path = checkpoint_path(record, output_dir)
    with _weights_written(path) as hashing:
        shutil.copyfileobj(content, hashing, MIB)
        if hashing.hexdigest() != record.sha256:
            raise CheckpointInvalid("its checksum does not match its record")
    return _with_record(path, record)


@contextmanager
def _weights_written(path: Path) -> Iterator[_HashingWriter]:
    with written_whole(path) as file:
        hashing = _HashingWriter(file)
        yield hashing
        if hashing.failure is not None:
            raise hashing.failure
        # Remove the record of a skipped checkpoint that this one replaces, since it would not match the new file.
        path.with_suffix(".json").unlink(missing_ok=True)


def _with_record(path: Path, record: Record) -> CheckpointFile:
    with written_whole(path.with_suffix(".json")) as file:
        file.write(record.to_text().encode())
    return CheckpointFile(path, record)


def is_copied(record: Record, output_dir: Path) -> bool:
    """Whether a folder has this checkpoint; its content is not read."""
    path = checkpoint_path(record, output_dir)
    try:
        return Record.read(path.with_suffix(".json")).sha256 == record.sha256 and _damage(path, record) is None
    except (OSError, CheckpointInvalid):
        return False


def complete_ones(output_dir: Path) -> dict[int, Record]:
    """Records of the checkpoints in a folder, by their steps; contents are not read.

    A folder of the node is lost with the pod. So only a killed process leaves an incomplete checkpoint there, and it
    lacks its record.
    """
    found: dict[int, Record] = {}
    for path in (output_dir / FOLDER).glob("step-*.pt"):
        with suppress(OSError, CheckpointInvalid):
            record = Record.read(path.with_suffix(".json"))
            if _damage(path, record) is None:
                found[record.step] = record
    return found


def newest_verified(
    output_dir: Path, *, say: Callable[[str], None], misfit: Callable[[Record], str | None] = lambda _: None
) -> CheckpointFile | None:
    """Find the newest complete checkpoint.

    Args:
        output_dir: The run's folder.
        say: Called with a sentence for every newer checkpoint that is skipped.
        misfit: Returns the reason why a complete checkpoint cannot be resumed from; None if it can.
    """
    return _look_through(output_dir, say, misfit)[0]


def newest_to_resume(
    output_dir: Path,
    *,
    say: Callable[[str], None],
    misfit: Callable[[Record], str | None],
    newer_than: int | None = None,
) -> CheckpointFile | None:
    """Find the checkpoint to resume from; None for a new training, also after a crash in its first checkpoint.

    Args:
        output_dir: The run's folder.
        say: Called with a sentence for every newer checkpoint that is skipped.
        misfit: Returns the reason why a complete checkpoint cannot be resumed from; None if it can.
        newer_than: Step of a checkpoint elsewhere that can be resumed from: only later ones are read. None without one.

    Raises:
        CheckpointInvalid: If there are checkpoints and none can be resumed from. A new training would
            overwrite them.
    """
    found, passed_over = _look_through(output_dir, say, misfit, newer_than)
    without_record = [other for other in passed_over if not other.was_whole]
    # A crash leaves one file without a record at most: the next one is written only when it has its own.
    lost = passed_over if len(without_record) > 1 else [other for other in passed_over if other.was_whole]
    if found is None and lost and newer_than is None:
        named = "; ".join(f"{other.path.name}: {other.reason}" for other in lost)
        raise CheckpointInvalid(
            f"No checkpoint in {output_dir / FOLDER} can be resumed from ({named}); bring back what is missing or "
            "damaged, give the arguments that it was made with, or start again with another --output_dir or without "
            "that folder."
        )
    return found


def require_same_bytes(found: CheckpointFile) -> None:
    """Read a checkpoint that another node has verified into this node's page cache, for all processes of the node.

    Raises:
        StorageFailed: If it cannot be read, or has another content than on the other node.
    """
    try:
        same = _sha256(found.path) == found.record.sha256
    except OSError as error:
        raise StorageFailed(
            f"The checkpoint {found.path} cannot be read on this node ({error}); check the mounts of the file system."
        ) from error
    if not same:
        raise StorageFailed(
            f"The checkpoint {found.path} has another content on this node than on that of rank 0, which verified it; "
            "check the mounts of the file system."
        )


def keep_newest(output_dir: Path, count: int, *, until: int) -> None:
    """Delete old checkpoints, also those of earlier attempts. The record is deleted first, so that a crash leaves no
    record without its checkpoint.

    Args:
        output_dir: The run's folder.
        count: Number of checkpoints to keep; -1 for all.
        until: The step that was just written. Checkpoints of later steps were skipped, so they are neither counted nor
            deleted.
    """
    if count == -1:
        return
    written = [path for path in (output_dir / FOLDER).glob("step-*.pt") if path.stem <= checkpoint_name(until)]
    for path in sorted(written, reverse=True)[count:]:
        path.with_suffix(".json").unlink(missing_ok=True)
        path.unlink(missing_ok=True)


def remove_remains(output_dir: Path) -> None:
    """Delete the files of a process that was killed while it wrote."""
    for path in (output_dir / FOLDER).glob(".step-*"):
        path.unlink(missing_ok=True)


def _look_through(
    output_dir: Path,
    say: Callable[[str], None],
    misfit: Callable[[Record], str | None],
    newer_than: int | None = None,
) -> tuple[CheckpointFile | None, list[PassedOver]]:
    """The newest checkpoint to resume from, and the newer ones that are skipped."""
    passed_over: list[PassedOver] = []
    folder = output_dir / FOLDER
    stems = {path.stem for path in folder.glob("step-*") if path.suffix in (".pt", ".json")}
    for stem in sorted(stems, reverse=True):
        if newer_than is not None and stem <= checkpoint_name(newer_than):
            break
        found = _verified(folder / f"{stem}.pt", misfit)
        if isinstance(found, CheckpointFile):
            return found, passed_over
        say(f"The checkpoint {found.path.name} is skipped: {found.reason}.")
        passed_over.append(found)
    return None, passed_over


def _verified(path: Path, misfit: Callable[[Record], str | None]) -> CheckpointFile | PassedOver:
    """Verify a checkpoint, and return it or the reason why it is skipped."""
    try:
        record = Record.read(path.with_suffix(".json"))
        reason = _damage(path, record) or misfit(record) or _wrong_checksum(path, record)
    except FileNotFoundError:
        return PassedOver(path, "it has no record beside it, so writing it was interrupted", was_whole=False)
    except CheckpointInvalid as error:
        return PassedOver(path, f"its record cannot be read ({error})")
    except OSError as error:
        return PassedOver(path, f"it cannot be read ({error})")
    return CheckpointFile(path, record) if reason is None else PassedOver(path, reason)


def _damage(path: Path, record: Record) -> str | None:
    """Damage that is seen without reading the file."""
    if not path.exists():
        return "its record is there and the file is not"
    size = path.stat().st_size
    return f"it has {size} bytes and its record says {record.bytes}" if size != record.bytes else None


def _wrong_checksum(path: Path, record: Record) -> str | None:
    return "its checksum does not match its record" if _sha256(path) != record.sha256 else None


def checkpoint_path(record: Record, output_dir: Path) -> Path:
    """The path of a checkpoint in a folder of a run or of a node."""
    return output_dir / FOLDER / f"{checkpoint_name(record.step)}.pt"


def checkpoint_name(step: int) -> str:
    """The name of a checkpoint's files, without their endings."""
    return f"step-{step:08d}"


def _text_checksum(fields: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(fields, separators=(",", ":")).encode()).hexdigest()


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


class _HashingWriter:
    """Writes bytes to a file and computes their checksum, so that the file need not be read again.

    When the file refuses bytes, the rest is dropped: torch.save would replace the error by one of its own.
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
