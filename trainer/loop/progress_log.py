"""Writes the log of a training's steps, and lets the gang agree at each logged step whether to save or to stop."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch

from trainer.checkpoints.checkpoint import Progress
from trainer.loop.metrics import MetricsLog, StepTimes, Stopwatch
from trainer.loop.task import Batches, TrainingProcess
from trainer.loop.utilization import utilization_percent
from trainer.runtime.errors import LossNotFinite
from trainflow.protocol.step_report import StepFigures


class GangDecision(NamedTuple):
    """Decision of all processes of the gang after a logged step."""

    stop: bool
    save: bool


class ProgressLog:
    """Logs every `--log_steps`-th step, the first and the last one, and those that write a checkpoint."""

    def __init__(self, process: TrainingProcess, batches: Batches, progress: Progress, *, last_step: int) -> None:
        """
        Args:
            process: This process and what it trains.
            batches: The stream of samples; it knows the epoch and how long the training waited for samples.
            progress: The progress at the start of this process.
            last_step: The last step that this process takes.
        """
        self._process = process
        self._batches = batches
        self._last_step = last_step
        self._began = self._last_logged = progress
        self._waited_at_first = self._waited_until = batches.seconds_waited
        self._times = StepTimes()
        self._log = MetricsLog(
            process.output_dir if process.records else None,
            first_step=progress.step + 1,
            with_norm=process.config.print_grad_norm,
        )
        self._stopwatch = Stopwatch()

    def logs(self, step: int) -> bool:
        """Whether this step is logged because of its number."""
        return step % self._process.config.log_steps == 0 or step in (1, self._last_step)

    def write(
        self,
        progress: Progress,
        losses: torch.Tensor,
        grad_norm: torch.Tensor,
        next_rate: float,
        *,
        stop: bool,
        save: bool,
    ) -> tuple[Progress, GangDecision]:
        """Log the step that was just taken. Only here the training waits for the device.

        Args:
            progress: The progress after the step.
            losses: This rank's mean of each of the task's losses over the step.
            grad_norm: 2-norm of the step's gradients before clipping.
            next_rate: The learning rate of the next step.
            stop: Whether this process was asked to stop.
            save: Whether a checkpoint is overdue on this process.

        Returns:
            The progress with the step's mean loss over all ranks, and what all ranks do now: they stop, or save, if
            any of them asks for it.

        Raises:
            LossNotFinite: On every rank, if the loss or the gradients were not finite.
        """
        read = torch.cat([losses, grad_norm.to(losses.dtype).reshape(1)]).tolist()
        means = self._process.gang.means([*read, float(stop), float(save)])
        *parts, norm, share_stop, share_save = means
        loss = sum(parts)
        epoch = self._batches.order.epoch(progress.samples_seen - self._process.global_batch_size)
        self._log.record(
            {"step": progress.step, "epoch": epoch, "loss": loss, "learning_rate": next_rate, "grad_norm": norm}
            | self._measured(progress),
            dict(zip(self._process.task.losses, parts, strict=True)) if len(parts) > 1 else {},
        )
        # After the line is written, because the alarm reads the line.
        self._require_finite(progress.step, loss, norm)
        return progress.after_logging(loss), GangDecision(stop=share_stop > 0, save=share_save > 0)

    def _measured(self, progress: Progress) -> StepFigures:
        """Rates and times since the last logged step."""
        process, samples = self._process, self._process.task.samples
        throughput = self._stopwatch.lap(progress.samples_seen - self._last_logged.samples_seen)
        seconds = self._times.lap(progress.step - self._last_logged.step)
        waited, self._waited_until = self._batches.seconds_waited - self._waited_until, self._batches.seconds_waited
        self._last_logged = progress
        memory = process.device.memory_bytes()
        return StepFigures(
            sequences_per_second=throughput,
            tokens_per_second=None if samples.tokens is None else throughput * samples.tokens,
            mfu_percent=utilization_percent(
                throughput, samples.operations, world_size=process.gang.world_size, peak_tflops=process.peak_tflops
            ),
            mfu_peak=f"{process.peak_tflops:g} TFLOP/s by {process.peak_source}" if process.peak_tflops else None,
            data_wait_percent=100 * waited / seconds,
            step_ms_p50=self._times.percentile_ms(0.5),
            step_ms_p95=self._times.percentile_ms(0.95),
            memory_mib=None if memory is None else memory / 2**20,
        )

    def _require_finite(self, step: int, loss: float, grad_norm: float) -> None:
        if self._process.graphs_only or (math.isfinite(loss) and math.isfinite(grad_norm)):
            return
        raise LossNotFinite(
            f"In step {step} the loss was {loss} and the gradients' norm {grad_norm}; the checkpoints before it are "
            "intact, so go on from one with a lower --learning_rate, more --warmup_steps or --precision float32."
        )

    @property
    def samples_per_second(self) -> float:
        """Mean rate over the steps of this process, without the first one, which loads graphs."""
        return self._stopwatch.overall()

    def summary(self, checkpoint_stops: Sequence[float]) -> str:
        """Describe what this process did in one sentence.

        Args:
            checkpoint_stops: Seconds that each checkpoint stopped the training.
        """
        last, rate, samples = self._last_logged, self.samples_per_second, self._process.task.samples
        if last.step == self._began.step:
            return f"All {last.step} steps were taken before; there was nothing left to train."
        p50, p95 = self._times.percentile_ms(0.5) or 0.0, self._times.percentile_ms(0.95) or 0.0
        waited = self._waited_until - self._waited_at_first
        tokens = "" if samples.tokens is None else f"{rate * samples.tokens:.0f} tokens/s, "
        return (
            f"Trained steps {self._began.step + 1} to {last.step}: {rate:.1f} {samples.name}/s, {tokens}"
            f"{p50:.1f} ms a step (95 % within {p95:.1f} ms), "
            f"{waited:.2f} s waited for data, {len(checkpoint_stops)} checkpoints that stopped it for "
            f"{sum(checkpoint_stops):.3f} s."
        )

    def close(self) -> None:
        """Write the buffered events to the disk."""
        self._log.close()
