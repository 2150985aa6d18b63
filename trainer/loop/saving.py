"""Saves a training's checkpoints when they are due, and resumes from the newest one."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, BinaryIO

from trainer.checkpoints import checkpoint, checkpoint_files, node_copies
from trainer.checkpoints.checkpoint import Progress
from trainer.checkpoints.checkpoint_files import CheckpointFile, Record
from trainer.checkpoints.checkpoint_writer import CheckpointWriter
from trainer.checkpoints.node_copies import BackgroundCopy, NodeFolder
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
    Where all nodes have their own copy of it, each process reads that of its node. Else one process of each node reads
    it, and the others find it in the node's page cache.

    Raises:
        CheckpointInvalid: If the folder holds another training's checkpoints, or only damaged ones.
        CheckpointNotFound: If the run continues others, and none of them has a complete checkpoint.
        ConfigInvalid: If `--allow_changes` names a setting that may not change.
        StorageFailed: If the folder cannot be written, or a node cannot read the checkpoint.
    """
    if process.graphs_only:
        return Progress(), None
    common = _newest_of_nodes(process, learner)
    found, is_on_nodes = process.gang.from_rank0(lambda: _prepared(process, common))
    if found is None:
        process.task.start(learner.model, process)
        return Progress(), None
    if is_on_nodes and process.local_dir is not None:
        found = CheckpointFile(checkpoint_files.checkpoint_path(found.record, process.local_dir), found.record)
    else:
        read_once_a_node(process, found)
    progress = checkpoint.restore(found, learner.model, learner.optimizer)
    source = "from memory or disks of the nodes" if is_on_nodes else "verified"
    process.say(f"Resuming from {found.path.name}, {source}, after step {progress.step}.")
    return progress, found


def _newest_of_nodes(process: TrainingProcess, learner: Learner) -> Record | None:
    """The record of the newest checkpoint that all nodes have in their own folders; None without one."""
    if process.local_dir is None:
        return None
    records = None
    if process.leads_node:
        checkpoint_files.remove_remains(process.local_dir)
        records = checkpoint_files.complete_ones(process.local_dir)
    nodes = [each for each in process.gang.gathered(records) if each is not None]
    if len(nodes) > 1 and isinstance(learner.optimizer, ShardedOptimizer):
        process.say(
            "Warning: the optimizer's state is divided between the nodes, so only the first node keeps checkpoints of "
            "its own, and a restart reads those of the shared storage."
        )
    step = node_copies.newest_common([{step: record.sha256 for step, record in each.items()} for each in nodes])
    return None if step is None else nodes[0][step]


def _prepared(process: TrainingProcess, common: Record | None) -> tuple[CheckpointFile | None, bool]:
    """The checkpoint to resume from, and whether it is the one that all nodes have."""
    require_writable(process.output_dir, option="output_dir")
    checkpoint_files.remove_remains(process.output_dir)
    changes, training = process.config.allow_changes or "", process.task.fingerprint
    if common is not None and checkpoint.differences(common, training):
        common = None  # a pod trains with the same settings all the time, but nothing has to rely on that
    for folder in (process.output_dir, *process.earlier_dirs):
        found = checkpoint.newest_fitting(
            folder,
            training,
            allow_changes=changes,
            bound=process.earlier_bounds.get(folder),
            newer_than=None if common is None else common.step,
            say=process.say,
        )
        if found is not None:
            return found, False
        if common is not None and process.local_dir is not None:
            return CheckpointFile(checkpoint_files.checkpoint_path(common, process.local_dir), common), True
    if process.earlier_dirs:
        raise none_to_continue_from(process.earlier_dirs)
    return None, False


def read_once_a_node(process: TrainingProcess, found: CheckpointFile) -> None:
    """Read a checkpoint into the page cache of every node; rank 0 has read it already when it verified it."""
    if process.leads_node and process.gang.rank != 0:
        checkpoint_files.require_same_bytes(found)
    process.gang.barrier()


class Saver:
    """Writes the checkpoints of one training; ranks other than 0 contribute their part of a sharded optimizer state.

    With folders of the nodes, one process of each node writes there, and a thread of rank 0 copies to the run's folder.
    """

    def __init__(
        self, process: TrainingProcess, learner: Learner, *, last_step: int, resumed_from: CheckpointFile | None = None
    ) -> None:
        """
        Args:
            process: This process and what it trains.
            learner: The model and the optimizer that are saved.
            last_step: The last step of this process, which always writes a checkpoint.
            resumed_from: The checkpoint that this process has resumed from: one of the nodes' is copied, too.
        """
        self._process = process
        self._learner = learner
        self._last_step = last_step
        self._fingerprint = process.task.fingerprint
        self._saved_at = time.monotonic()
        self._divided = isinstance(learner.optimizer, ShardedOptimizer)
        self._prepared = False
        self.writer = CheckpointWriter(self._write, process.device)
        self.copies = BackgroundCopy(self._copy)
        writes = process.records if self._divided else process.leads_node and not process.graphs_only
        self._node_folder = NodeFolder(process.local_dir) if process.local_dir is not None and writes else None
        self._ensure_copied(resumed_from)

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
            StorageFailed: If the last checkpoint could not be written or copied.
        """
        self.writer.check()
        self.copies.check()
        if not self._prepared and self._takes_part:
            self._prepared = True
            self.writer.prepare(self._state())  # now, because the optimizer has no state before the first step

    def save(self, progress: Progress) -> None:
        """Copy the state; a thread writes the copy while the training continues."""
        self._saved_at = time.monotonic()
        if self._takes_part:
            self.writer.submit(self._state(), progress)

    @property
    def newest(self) -> CheckpointFile | None:
        """The newest checkpoint in the run's folder that this process has written; None without one."""
        written = (each for each in (self.writer.newest, self.copies.newest) if each is not None)
        return max(written, key=lambda each: each.record.step, default=None)

    @property
    def _writes(self) -> bool:
        return self._process.records or self._node_folder is not None

    @property
    def _takes_part(self) -> bool:
        return not self._process.graphs_only and (self._writes or self._divided)

    def _state(self) -> dict[str, Any]:
        state: dict[str, Any] = {"optimizer": self._learner.optimizer.state_dict()}
        if self._writes:
            state["model"] = self._learner.model.state_dict(keep_vars=True)  # keeps the identity of tied weights
        return state

    def _write(self, state: dict[str, Any], progress: Progress) -> CheckpointFile | None:
        """Write a checkpoint, the one in the run's folder if it is there already; runs in the writer's thread."""
        if self._divided:
            state["optimizer"] = zero.gather(state["optimizer"], self._process.gang)

        def write_into(folder: Path) -> CheckpointFile:
            return checkpoint.write(folder, state, progress, self._fingerprint)

        on_node = None if self._node_folder is None else self._node_folder.write(write_into, step=progress.step)
        if not self._process.records:
            return None
        if on_node is not None:
            self.copies.submit(on_node)
            return None
        return self._finished(write_into(self._process.output_dir))

    def _copy(self, content: BinaryIO, record: Record) -> CheckpointFile:
        """Copy a checkpoint of this node to the run's folder; runs in the thread of the copies."""
        return self._finished(node_copies.copy_to_shared(content, record, self._process.output_dir))

    def _finished(self, written: CheckpointFile) -> CheckpointFile:
        """Report a checkpoint in the run's folder, and delete old ones."""
        report.checkpoint(written.record.step, written.path)
        keep = self._process.config.keep_checkpoints
        checkpoint_files.keep_newest(self._process.output_dir, keep, until=written.record.step)
        return written

    def _ensure_copied(self, found: CheckpointFile | None) -> None:
        """Copy a checkpoint of this node that a process before this one has not copied."""
        if found is None or self._process.local_dir is None or not self._process.records:
            return
        shared = checkpoint_files.checkpoint_path(found.record, self._process.output_dir)
        if checkpoint_files.is_copied(found.record, self._process.output_dir):
            self.copies.newest = CheckpointFile(shared, found.record)
        elif found.path.is_relative_to(self._process.local_dir):
            self.copies.submit(found)
