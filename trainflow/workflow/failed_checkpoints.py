"""Checkpoints that failed jobs of a run resumed from, and those that its next jobs pass over."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

from trainflow.errors import CheckpointUnusable


# Decision 89: once for each checkpoint, and the checkpoint is kept.
class FailedCheckpoints(BaseModel):
    """Checkpoints that programs may have failed to open."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    suspected: str | None = None
    """Path of the checkpoint of the newest job, if that ended before its first step by an error that may pass."""
    unusable: tuple[str, ...] = ()
    """Jobs whose checkpoints are passed over. Each has noted its own: a later one may have the same path."""

    def after(self, *, error: str, checkpoint: str | None, job: str) -> FailedCheckpoints:
        """The checkpoints after another job has failed.

        Args:
            error: Name of the error.
            checkpoint: The checkpoint that the job may have failed to open.
            job: Name of the job.
        """
        if error != CheckpointUnusable.__name__:
            return self.model_copy(update={"suspected": checkpoint})
        return FailedCheckpoints(unusable=tuple(dict.fromkeys((*self.unusable, job))))
