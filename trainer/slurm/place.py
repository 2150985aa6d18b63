"""Names of the files and objects of a Slurm job: files in its folder on the shared file system, objects in S3.

The workflow's Lambda functions read the objects; they repeat the names, as the job script does.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from trainer.runtime.s3 import Location

EPOCH = datetime.fromtimestamp(0, UTC)

TAIL_LINES = 200
"""Lines of each log that are kept as its end; callers ask for fewer."""


@dataclass(frozen=True)
class JobFolder:
    """A job's folder on the shared file system."""

    path: Path

    def log(self, index: int) -> Path:
        """Output of the program on a node."""
        return self.path / f"{index}.log"

    def result(self, index: int) -> Path:
        """Result of the program on a node."""
        return self.path / f"{index}.result"

    def exit(self, index: int) -> Path:
        """Exit code of the program on a node, and the node's name."""
        return self.path / f"{index}.exit"

    @property
    def shipping(self) -> Path:
        """Piece of the first node's log that is being sent to S3, or was sent last."""
        return self.path / "shipping"

    @property
    def ended(self) -> Path:
        """Exists when the program has ended on all nodes."""
        return self.path / "ended"


@dataclass(frozen=True)
class JobObjects:
    """A job's objects below the run's prefix."""

    run: Location
    job: str

    def segment(self, *, stamp: int, end: int) -> Location:
        """A piece of the first node's log.

        Args:
            stamp: Time of the last line, in microseconds since 1970.
            end: Offset of its end in the file.
        """
        return self.run.below(f"logs/{self.job}/{stamp:020d}-{end:015d}.log")

    def tail(self, index: int) -> Location:
        """The last lines of a node."""
        return self.run.below(f"tails/{self.job}-{index}.log")

    @property
    def record(self) -> Location:
        """Record of the job's end."""
        return self.run.below(f"jobs/{self.job}.json")


def stamped(line: bytes, stamp: int) -> bytes:
    """A line with its time before it."""
    logged_at = (EPOCH + timedelta(microseconds=stamp)).isoformat(timespec="microseconds")
    return logged_at.encode() + b" " + line + b"\n"
