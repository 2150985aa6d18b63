"""Numbers of steps that rise over a whole run; pure."""

from __future__ import annotations

from dataclasses import dataclass

from trainflow.workflow.learned_progress import EpochCounter


def numbered(counter: EpochCounter, batch: int, total: int | None, epoch: int | None, *, restarts: bool) -> int:
    """The step of a line; moves the counter.

    A program may count its batches over the whole run, or anew in each epoch. In the second case the step is the number
    of batches before the epoch plus the batch.

    Args:
        counter: State behind the line before.
        batch: Number of the batch, or of the step.
        total: Batches of an epoch, if the line says it.
        epoch: Epoch, if the line or a heading says it.
        restarts: A number that falls without an epoch begins a new epoch, as that of a bar does.
    """
    if epoch is None:
        step = _without_epoch(counter, batch, total, restarts=restarts)
    else:
        step = _with_epoch(counter, batch, total, epoch)
    if counter.batch is not None and batch > counter.batch and epoch == counter.epoch:
        counter.stride = batch - counter.batch
    counter.batch, counter.epoch = batch, epoch
    return step


def _with_epoch(counter: EpochCounter, batch: int, total: int | None, epoch: int) -> int:
    if counter.first_epoch is None:
        # Programs count epochs from 0 or from 1; a later one is that of a training that was resumed.
        counter.first_epoch = min(epoch, 1) if total is not None else epoch
    if counter.epoch is not None and epoch > counter.epoch and counter.batch is not None:
        _end_epoch(counter, batch, epochs=epoch - counter.epoch)
    if total is not None:
        counter.batches = total
    if counter.is_global:
        return counter.offset + batch
    return max(0, epoch - counter.first_epoch) * (counter.batches or 0) + batch


def _end_epoch(counter: EpochCounter, batch: int, *, epochs: int) -> None:
    """Learn from the first line of a new epoch whether batches are counted anew, and how many an epoch has."""
    last = counter.batch or 0
    if counter.batches is None and not counter.is_global:
        if batch > last:
            counter.is_global = True
        else:
            counter.batches = max(1, (last + (counter.stride or 1 if last != batch else 0)) // epochs)
    elif batch > last and (
        counter.batches is None or batch > counter.batches or last < counter.batches - counter.stride
    ):
        # The batch before was not the last one of its epoch, so the total is that of the run.
        if not counter.is_global:
            counter.offset = max(0, (counter.epoch or 0) - (counter.first_epoch or 0)) * (counter.batches or 0)
        counter.is_global = True


def _without_epoch(counter: EpochCounter, batch: int, total: int | None, *, restarts: bool) -> int:
    last = counter.batch
    if restarts and last is not None and batch < last:
        if total is None:
            counter.offset += last + counter.stride - batch
        elif last + max(counter.stride, 1) >= total:
            counter.offset += total
    return counter.offset + batch


@dataclass
class CountedLines:
    """Numbers for the lines of a format without numbers: they are counted."""

    lines_apart: int = 1
    """Steps from one line to the next."""
    last_step: int = 0
    last_epoch: float | None = None
    total: int | None = None
    """Last step of the training; None if the spec does not say it."""

    def number(self, epoch: float | None) -> int | None:
        """The step of the next line; None for one that a restarted program prints again: of an earlier epoch, or behind
        the last step."""
        if epoch is not None and self.last_epoch is not None and epoch < self.last_epoch:
            return None
        if self.total is not None and self.last_step >= self.total:
            return None
        return self.last_step + self.lines_apart

    def advance(self, step: int, epoch: float | None) -> None:
        """Remember the newest step."""
        if step > self.last_step:
            self.last_step = step
            self.last_epoch = epoch if epoch is not None else self.last_epoch
