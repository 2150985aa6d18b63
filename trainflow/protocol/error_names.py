"""Names of the errors that programs in pods report: one list for both sides.

The trainer's classes refuse a name that is not here (`trainer.runtime.errors`); each name but those of `NO_CAUSE` is a
class of `trainflow.errors` as well, which Step Functions knows by it.
"""

from __future__ import annotations

CAUSES = frozenset(
    {
        "CheckpointInvalid",
        "CheckpointNotFound",
        "CodeInvalid",
        "CompileCacheGone",
        "ConfigInvalid",
        "DatasetInvalid",
        "DatasetNotFound",
        "DestinationNotEmpty",
        "GraphCompilationFailed",
        "LockedMemoryTooSmall",
        "LossNotFinite",
        "NodeUnhealthy",
        "SecretUnavailable",
        "StorageFailed",
        "WorldSizeMismatch",
    }
)
"""Errors that end a run."""

PEER_LOST = "PeerLost"
"""Another process of the gang went away: this one is its victim, and its pod is not the cause."""

TERMINATED = "Terminated"
"""SIGTERM asked the program to stop."""

NO_CAUSE = frozenset({PEER_LOST, TERMINATED})
"""Errors that programs report as a consequence of an event elsewhere."""
