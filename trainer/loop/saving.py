"""Saves a training's checkpoints when they are due, and resumes from the newest one."""

from __future__ import annotations

import time
from typing import Any

from trainer.checkpoints import checkpoint, checkpoint_files
from trainer.checkpoints.checkpoint import Progress
from trainer.checkpoints.checkpoint_files import CheckpointFile
from trainer.checkpoints.checkpoint_writer import CheckpointWriter
from trainer.loop.learner import Learner
from trainer.loop.task import TrainingProcess
from trainer.optimizers import zero
from trainer.optimizers.zero import ShardedOptimizer
from trainer.runtime.errors import none_to_continue_from
from trainer.runtime.files import require_writable
from trainflow.protocol import report


def resume(process: TrainingProcess, learner: Learner) -> tuple[Progress, CheckpointFile | None]:
    """Resume from the newest complete checkpoint that fits, or start from the initial weights.

    A run that continues others resumes from theirs until it has a checkpoint of its own. Rank 0 finds the checkpoint.
    One process of each node then reads it, and the others find it in the node's page cache.

    Raises:
        CheckpointInvalid: If the folder holds another training's checkpoints, or only damaged ones.
        CheckpointNotFound: If the run continues others, and none of them has a complete checkpoint.
        ConfigInvalid: If `--allow_changes` names a setting that may not change.
        StorageFailed: If the folder cannot be written, or a node cannot read the checkpoint.
    """
    if process.graphs_only:
        return Progress(), None
    found = process.gang.from_rank0(lambda: _prepared(process))
    if found is not None:
        read_once_a_node(process, found)
        progress = checkpoint.restore(found, learner.model, learner.optimizer)
        process.say(f"Resuming from {found.path.name}, verified, after step {progress.step}.")
        return progress, found
    process.task.start(learner.model, process)
    return Progress(), None


def _prepared(process: TrainingProcess) -> CheckpointFile | None:
    require_writable(process.output_dir, option="output_dir")
    checkpoint_files.remove_remains(process.output_dir)
    changes, training = process.config.allow_changes or "", process.task.fingerprint
    for folder in (process.output_dir, *process.earlier_dirs):
        bound = process.earlier_bounds.get(folder)
        found = checkpoint.newest_fitting(folder, training, allow_changes=changes, bound=bound, say=process.say)
        if found is not None:
            return found
    if process.earlier_dirs:
        raise none_to_continue_from(process.earlier_dirs)
    return None


def read_once_a_node(process: TrainingProcess, found: CheckpointFile) -> None:
    """Read a checkpoint into the page cache of every node; rank 0 has read it already when it verified it."""
    if process.leads_node and process.gang.rank != 0:
        checkpoint_files.require_same_bytes(found)
    process.gang.barrier()


class Saver:
    """Writes the checkpoints of one training; ranks other than 0 contribute their part of a sharded optimizer state."""

    def __init__(self, process: TrainingProcess, learner: Learner, *, last_step: int) -> None:
        """
        Args:
            process: This process and what it trains.
            learner: The model and the optimizer that are saved.
            last_step: The last step of this process, which always writes a checkpoint.
        """
        self._process = process
        self._learner = learner
        self._last_step = last_step
        self._fingerprint = process.task.fingerprint
        self._saved_at = time.monotonic()
        self._divided = isinstance(learner.optimizer, ShardedOptimizer)
        self._prepared = False
        self.writer = CheckpointWriter(self._write, process.device)

    def due(self, step: int) -> bool:
        """Whether this step writes a checkpoint because of its number."""
        return step % self._process.config.checkpoint_steps == 0 or step == self._last_step

    def overdue(self) -> bool:
        """Whether `--checkpoint_minutes` have passed since the last checkpoint."""
        minutes = self._process.config.checkpoint_minutes
        return minutes > 0 and time.monotonic() - self._saved_at >= 60 * minutes

    def after_step(self) -> None:
        """Raise the error of the last checkpoint, if it failed; after the first step, allocate memory for all
        checkpoints.

        Raises:
            StorageFailed: If the last checkpoint could not be written.
        """
        self.writer.check()
        if not self._prepared and self._takes_part:
            self._prepared = True
            self.writer.prepare(self._state())  # now, because the optimizer has no state before the first step

    def save(self, progress: Progress) -> None:
        """Copy the state; a thread writes the copy while the training continues."""
        self._saved_at = time.monotonic()
        if self._takes_part:
            self.writer.submit(self._state(), progress)

    @property
    def _takes_part(self) -> bool:
        return not self._process.graphs_only and (self._process.records or self._divided)

    def _state(self) -> dict[str, Any]:
        state: dict[str, Any] = {"optimizer": self._learner.optimizer.state_dict()}
        if self._process.records:
            state["model"] = self._learner.model.state_dict(keep_vars=True)  # keeps the identity of tied weights
        return state

    def _write(self, state: dict[str, Any], progress: Progress) -> CheckpointFile | None:
        """Write a checkpoint; runs in the writer's thread."""
        if self._divided:
            state["optimizer"] = zero.gather(state["optimizer"], self._process.gang)
        if not self._process.records:
            return None
        written = checkpoint.write(self._process.output_dir, state, progress, self._fingerprint)
        report.checkpoint(progress.step, written.path)
        keep = self._process.config.keep_checkpoints
        checkpoint_files.keep_newest(self._process.output_dir, keep, until=progress.step)
        return written
