"""Names of what a Slurm job keeps: files in its folder on the shared file system, objects in S3.

The workflow's Lambda functions read the objects; they know the names from here by text alone, as the job script does.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from trainflow.protocol.s3_urls import S3Url

EPOCH = datetime.fromtimestamp(0, UTC)

TAIL_LINES = 200
"""Of each log that is kept as its end: more than anybody asks for."""


@dataclass(frozen=True)
class JobFolder:
    """A job's folder on the shared file system."""

    path: Path

    def log(self, index: int) -> Path:
        """What the program printed on a node."""
        return self.path / f"{index}.log"

    def result(self, index: int) -> Path:
        """What it left as its result there."""
        return self.path / f"{index}.result"

    def exit(self, index: int) -> Path:
        """Its exit code there, and the node's name."""
        return self.path / f"{index}.exit"

    @property
    def shipping(self) -> Path:
        """Which piece of the first node's log is on its way to S3, or was the last one."""
        return self.path / "shipping"

    @property
    def ended(self) -> Path:
        """Is there when the program has ended on all nodes."""
        return self.path / "ended"


@dataclass(frozen=True)
class JobObjects:
    """A job's objects below the run's prefix."""

    run: S3Url
    job: str

    def segment(self, *, stamp: int, end: int) -> S3Url:
        """A piece of the first node's log.

        Args:
            stamp: Time of its last line, in microseconds since 1970.
            end: Offset behind it in the file.
        """
        return self.run.below(f"logs/{self.job}/{stamp:020d}-{end:015d}.log")

    def tail(self, index: int) -> S3Url:
        """The last lines of a node."""
        return self.run.below(f"tails/{self.job}-{index}.log")

    @property
    def record(self) -> S3Url:
        """How the job ended."""
        return self.run.below(f"jobs/{self.job}.json")


def stamped(line: bytes, stamp: int) -> bytes:
    """A line with its time before it."""
    logged_at = (EPOCH + timedelta(microseconds=stamp)).isoformat(timespec="microseconds")
    return logged_at.encode() + b" " + line + b"\n"
