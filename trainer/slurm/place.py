"""Names of the files and objects of a Slurm job: files in its folder on the shared file system, objects in S3.

The job script repeats the files' names; the objects' names are those of `trainflow.protocol.slurm_job`.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from trainflow.protocol import slurm_job
from trainflow.protocol.s3_urls import S3Url

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

    run: S3Url
    job: str

    def segment(self, *, stamp: int, end: int) -> S3Url:
        """A piece of the first node's log.

        Args:
            stamp: Time of the last line, in microseconds since 1970.
            end: Offset of its end in the file.
        """
        return self.run.below(slurm_job.segment_name(self.job, stamp=stamp, end=end))

    def tail(self, index: int) -> S3Url:
        """The last lines of a node."""
        return self.run.below(slurm_job.tail_name(self.job, index))

    @property
    def record(self) -> S3Url:
        """Record of the job's end."""
        return self.run.below(slurm_job.record_name(self.job))
