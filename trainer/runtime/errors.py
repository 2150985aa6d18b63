"""Errors of programs in pods, by name.

The name goes into the pod's result and from there to the state machine. Each class that is a cause has an entry with
`named_by_programs` in `trainflow/failures/errors.toml`; a test compares the two.
Every message is one sentence that names the file or field and says what to do.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

BAD_INPUT = 2
"""Exit code for bad input, which the user has to correct."""

LOSS_NOT_FINITE = 3
"""Exit code when the loss or the gradients became NaN or infinite: another attempt would end in the same way."""

STOPPED_BY_SIGTERM = 143
"""128 + SIGTERM, as a shell reports it."""


class TrainerError(Exception):
    """Base of all named errors."""

    exit_code: int = BAD_INPUT
    is_common: bool = False
    """Whether every rank of the gang meets the error, so that rank 0 reports it for all."""
    is_cause: bool = True
    """Whether the error ended the run; False if it follows from the end of another process."""


class ConfigInvalid(TrainerError):
    """An argument or environment variable is missing, unknown or out of range."""

    is_common = True


class DatasetNotFound(TrainerError):
    """The archive's URL or the data folder names nothing that can be read."""


class DatasetInvalid(TrainerError):
    """The archive is damaged or unsafe to unpack, or a shard cannot be trained on."""


class DestinationNotEmpty(TrainerError):
    """The folder to unpack into holds another data set, or files that the stager did not put there."""


class CodeInvalid(TrainerError):
    """The packed code is gone, damaged or unsafe to unpack, or what it requires cannot be installed."""


class SecretUnavailable(TrainerError):
    """A secret of the spec does not exist, may not be read, or lacks the named value."""


class CheckpointInvalid(TrainerError):
    """The checkpoint was made by another training than this run asks for, or all there are were damaged."""

    is_common = True


class CheckpointNotFound(TrainerError):
    """A verified checkpoint is needed and missing."""


def none_to_continue_from(folders: Sequence[Path]) -> CheckpointNotFound:
    """The error of a run that continues others if all of those lack a complete checkpoint."""
    named = ", ".join(map(str, folders))
    return CheckpointNotFound(
        f"The run continues others, but there is no complete checkpoint in {named} that it may resume from; start a "
        "run that continues none."
    )


def all_checkpoints_unusable(folder: Path) -> CheckpointNotFound:
    """The error of a run whose programs could open none of its checkpoints."""
    return CheckpointNotFound(
        f"There is no other complete checkpoint in {folder} than those that earlier attempts could not open; read the "
        "logs of these attempts, or start a new run to begin at step 0."
    )


class WorldSizeMismatch(TrainerError):
    """The process group is not as large as the launcher said: every rank would train by itself.

    Every rank reports it: the first rank that detects it ends, and its launcher ends the others, perhaps rank 0.
    """


class LockedMemoryTooSmall(TrainerError):
    """The container may not lock the memory that EFA has to register."""


class NodeUnhealthy(TrainerError):
    """A device or the network of this node failed its test, or is much slower than those of the gang's other nodes."""

    exit_code = 1


class StorageFailed(TrainerError):
    """A file system or object store refused a write or a read: full, read-only, access denied."""

    exit_code = 1


class LossNotFinite(TrainerError):
    """The loss or the gradients became NaN or infinite; the checkpoints before that stay."""

    is_common = True
    exit_code = LOSS_NOT_FINITE


class GraphCompilationFailed(TrainerError):
    """At least one graph of the model did not compile."""

    is_common = True
    exit_code = 1


class CompileCacheGone(TrainerError):
    """The compile cache that the training needs does not exist any more, or is damaged."""

    exit_code = 1


class PeerLost(TrainerError):
    """Another process of the gang ended while this one communicated with it."""

    exit_code = 1
    is_cause = False


class Terminated(TrainerError):
    """SIGTERM asked the program to stop, and it stopped after it had saved its state."""

    is_common = True
    exit_code = STOPPED_BY_SIGTERM
