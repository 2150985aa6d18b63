"""The content of a checkpoint, and how a training resumes from it as if it had never stopped.

No state of random generators is saved: initial weights, the order of samples and dropout are functions of the seed, the
step and the position in the stream, and the checkpoint has all of these. So is the learning rate.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from trainer.checkpoints import checkpoint_files, fingerprint
from trainer.checkpoints.checkpoint_files import CheckpointFile, Record
from trainer.checkpoints.fingerprint import Fingerprint
from trainer.runtime.errors import CheckpointInvalid, StorageFailed
from trainflow.protocol.resume_bounds import ResumeBound

if TYPE_CHECKING:
    from torch import nn

    from trainer.optimizers.building import Optimizer


@dataclass(frozen=True)
class Progress:
    """Position of the training, and its first and last loss."""

    step: int = 0
    samples_seen: int = 0
    first_loss: float = math.nan
    """Loss of the first logged step, in nats."""
    last_loss: float = math.nan
    """Loss of the last logged step, in nats."""

    def after_step(self, num_samples: int) -> Progress:
        """The progress after one more step with its samples."""
        return replace(self, step=self.step + 1, samples_seen=self.samples_seen + num_samples)

    def after_logging(self, loss: float) -> Progress:
        """The progress with the loss of a step that was just logged."""
        return replace(self, first_loss=loss if math.isnan(self.first_loss) else self.first_loss, last_loss=loss)


def write(output_dir: Path, state: Mapping[str, Any], progress: Progress, training: Fingerprint) -> CheckpointFile:
    """Write a state in host memory into one file.

    Args:
        output_dir: The run's folder.
        state: `model`, a BERT's under Hugging Face's names, and `optimizer`.
        progress: The progress of the training.
        training: Its fingerprint; without settings for weights that any training may start from.

    Raises:
        StorageFailed: If the folder cannot be written; earlier checkpoints stay as they are.
    """
    described = {**vars(progress), **vars(training)}
    try:
        return checkpoint_files.write(output_dir, lambda file: torch.save(dict(state), file), described)
    except OSError as error:
        raise StorageFailed(
            f"The checkpoint of step {progress.step} could not be written to {output_dir} ({error}); "
            "make room or give a folder that can be written. Earlier checkpoints are intact."
        ) from error


def newest_fitting(
    output_dir: Path,
    training: Fingerprint,
    *,
    allow_changes: str = "",
    bound: ResumeBound | None = None,
    newer_than: int | None = None,
    say: Callable[[str], None],
) -> CheckpointFile | None:
    """Find the newest complete checkpoint whose tensors fit, and require that it belongs to this training.

    Args:
        output_dir: The run's folder.
        training: The fingerprint of the training that resumes from it.
        allow_changes: Names of settings that may differ, separated by commas.
        bound: Bound for the checkpoints; None for the newest one.
        newer_than: Step of a checkpoint elsewhere that can be resumed from: only later ones are read. None without one.
        say: Called with a sentence for each checkpoint that is skipped and each difference.

    Raises:
        CheckpointInvalid: If it belongs to another training, or no checkpoint is complete and fits.
        ConfigInvalid: If `allow_changes` names a setting that may not change.
    """
    allowed = fingerprint.allowed_names(allow_changes, training)

    def misfit(record: Record) -> str | None:
        if bound is not None and bound.excludes(record.step, 0.0):
            return bound.reason
        found = [difference for difference in differences(record, training) if not difference.can_be_allowed]
        return fingerprint.listed(found) or None

    found = checkpoint_files.newest_to_resume(output_dir, say=say, misfit=misfit, newer_than=newer_than)
    if found is not None:
        _require_same_training(found, training, allowed, say)
    return found


def differences(record: Record, training: Fingerprint) -> list[fingerprint.Difference]:
    """The differences between a checkpoint's training and this one; for initial weights, only the shape is compared."""
    return fingerprint.differences(record.model, record.settings if record.step > 0 else {}, training)


def load(path: Path) -> dict[str, Any]:
    """Map a checkpoint into memory: its tensors are pages of the file, which all processes of a node share until a
    process writes to its own."""
    content: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    return content


def restore(found: CheckpointFile, model: nn.Module, optimizer: Optimizer) -> Progress:
    """Restore the model and the optimizer from a verified checkpoint; one that holds only weights leaves the optimizer.

    The optimizer continues to count the steps, and keeps its own settings, such as the weight decay: those of the
    checkpoint are the same, or a change was allowed.
    """
    content = load(found.path)
    model.load_state_dict(content["model"])
    if content["optimizer"] is not None:
        groups = [{**group, "step": found.record.step} for group in optimizer.state_dict()["param_groups"]]
        optimizer.load_state_dict({"state": content["optimizer"]["state"], "param_groups": groups})
        _leave_the_file(optimizer)
    record = found.record
    return Progress(record.step, record.samples_seen, record.first_loss, record.last_loss)


def _leave_the_file(optimizer: Optimizer) -> None:
    """Copy tensors that the optimizer took over without a copy, as on the CPU: a mapped file does not free its space
    when it is deleted."""
    for values in optimizer.state_dict()["state"].values():
        for name, value in values.items():
            if isinstance(value, torch.Tensor) and value.device.type == "cpu":
                values[name] = value.clone()


def _require_same_training(
    found: CheckpointFile, training: Fingerprint, allowed: frozenset[str], say: Callable[[str], None]
) -> None:
    record = found.record
    changed = differences(record, training)
    refused = [difference for difference in changed if difference.name not in allowed]
    if refused:
        names = ",".join(difference.name for difference in refused)
        raise CheckpointInvalid(
            f"The checkpoint {found.path} is of another training: {fingerprint.listed(refused)}. Give the same; or "
            f"allow the change with --allow_changes {names} (in a run spec workload.arguments.allow_changes: {names}); "
            "or start again with another --output_dir."
        )
    if changed:
        say(f"Resuming although {fingerprint.listed(changed)}: --allow_changes allows it.")
    unknown = sorted(set(training.settings) - set(record.settings)) if record.step > 0 else []
    if unknown:
        say(f"The checkpoint {found.path.name} does not say with which {', '.join(unknown)} it was made.")
