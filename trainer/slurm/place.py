"""Places of what a Slurm job keeps: files in its folder on the shared file system, objects in S3.

The job script knows the files' names by text; the objects' names are those of `trainflow.protocol.slurm_job`.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from trainflow.protocol import slurm_job
from trainflow.protocol.s3_urls import S3Url

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
        return self.run.below(slurm_job.segment_name(self.job, stamp=stamp, end=end))

    def tail(self, index: int) -> S3Url:
        """The last lines of a node."""
        return self.run.below(slurm_job.tail_name(self.job, index))

    @property
    def record(self) -> S3Url:
        """How the job ended."""
        return self.run.below(slurm_job.record_name(self.job))
