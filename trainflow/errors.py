"""The named errors as exceptions. `trainflow/failures/errors.toml` holds everything about them, one entry for each.

Step Functions matches errors by exact class name, so a class has the name of its entry. Code raises or catches the
classes below by name; `named_errors` has one for every entry.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from trainflow.failures.error_table import error_table
from trainflow.failures.judgement import Judgement

NEXT_STEP = "Read the run's report for the state that failed."
"""Advice for an error without its own."""


class TrainflowError(Exception):
    """Base of all errors with a message for the person who started the run: one sentence."""

    judgement: Judgement | None = None
    """Decision behind the error of a failed job; None for an error that was not judged."""

    @property
    def what_to_do(self) -> str:
        """The next step, which the command and the report print beside the message."""
        named = error_table().get(type(self).__name__)
        return named.what_to_do if named is not None else NEXT_STEP

    @property
    def input_at_fault(self) -> bool:
        """Whether the user's input has to be corrected: the spec, the data set, the program."""
        named = error_table().get(type(self).__name__)
        return named is not None and named.input_at_fault


class InvalidRunSpec(TrainflowError): ...


class RunRequestInvalid(TrainflowError): ...


class PreflightFailed(TrainflowError): ...


class DatasetNotFound(TrainflowError): ...


class SecretUnavailable(TrainflowError): ...


class StagingStalled(TrainflowError): ...


class StorageFailed(TrainflowError): ...


class LossNotFinite(TrainflowError): ...


class CheckpointUnusable(TrainflowError): ...


class CapacityTimeout(TrainflowError): ...


class GangTooLarge(TrainflowError): ...


class AvoidedNodesNotReplaced(TrainflowError): ...


class GangIncomplete(TrainflowError): ...


class BackendNotInstalled(TrainflowError): ...


class NodegroupNotFound(TrainflowError): ...


class JobConflict(TrainflowError): ...


class JobNotFound(TrainflowError): ...


class ScriptFailed(TrainflowError): ...


class WorkerFailed(TrainflowError): ...


class OutOfMemory(TrainflowError): ...


class AccessDenied(TrainflowError): ...


class ContainerNotStarted(TrainflowError): ...


class NodeUnhealthy(TrainflowError): ...


class JobRefused(TrainflowError): ...


class JobDeadlineExceeded(TrainflowError): ...


class BudgetReached(TrainflowError): ...


class DeadlineReached(TrainflowError): ...


class JobStalled(TrainflowError): ...


class GraphCompilationFailed(TrainflowError): ...


class CompilationNotReported(TrainflowError): ...


class ClusterUnavailable(TrainflowError): ...


class ClusterAccessDenied(TrainflowError): ...


class ServiceUnavailable(TrainflowError): ...


def named_error(name: str, message: str, judgement: Judgement | None = None) -> TrainflowError:
    """The error of an entry of the table."""
    error = named_errors()[name](message)
    error.judgement = judgement
    return error


@cache
def named_errors() -> Mapping[str, type[TrainflowError]]:
    """The class of every entry of the table, by its name."""
    written = {error.__name__: error for error in TrainflowError.__subclasses__() if error.__module__ == __name__}
    return {name: written.get(name) or type(name, (TrainflowError,), {}) for name in error_table()}
