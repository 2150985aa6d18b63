"""The steps of a training as they are told: when, and what the gang agrees on at that moment."""

from __future__ import annotations

import torch

from trainer.checkpoint import Progress
from trainer.data_order import DataOrder
from trainer.metrics import MetricsLog, StepMetrics, Stopwatch
from trainer.run import Run


class Journal:
    """Tells every `--log_steps`-th step, the first and the last."""

    def __init__(self, run: Run, order: DataOrder, progress: Progress, *, last_step: int) -> None:
        """
        Args:
            run: The training.
            order: The stream of samples, which knows the epochs.
            progress: Where the training goes on from.
            last_step: Where this process stops.
        """
        self._run = run
        self._order = order
        self._last_step = last_step
        self._told_until = progress.samples_seen
        self._log = MetricsLog(run.output_dir if run.records else None, first_step=progress.step + 1)
        self._stopwatch = Stopwatch()

    def tells(self, step: int) -> bool:
        """Whether this step gets a line."""
        return step % self._run.config.log_steps == 0 or step in (1, self._last_step)

    def tell(self, progress: Progress, loss: torch.Tensor, rate: float, *, stop: bool) -> tuple[Progress, bool]:
        """Log a step that was just taken.

        Args:
            progress: After the step.
            loss: This rank's mean loss.
            rate: The step's learning rate.
            stop: Whether this process was asked to stop.

        Returns:
            The progress with the step's loss over all ranks; and whether all of them stop now, which they do when one
            was asked to.
        """
        mean_loss, share_asked = self._run.gang.means([loss.item(), float(stop)])
        throughput = self._stopwatch.lap(progress.samples_seen - self._told_until)
        self._told_until = progress.samples_seen
        epoch = self._order.epoch(progress.samples_seen - self._run.global_batch_size)
        self._log.record(StepMetrics(epoch, progress.step, mean_loss, rate, throughput))
        return progress.after_logging(mean_loss), share_asked > 0

    @property
    def sequences_per_second(self) -> float:
        """Of this process's steps but the first, in which graphs are loaded."""
        return self._stopwatch.overall()

    def close(self) -> None:
        """Write out what is buffered."""
        self._log.close()
