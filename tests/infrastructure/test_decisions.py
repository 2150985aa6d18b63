"""Where the state machines go from each Choice, what each function is told, and what a run's variables start with.

The Choices are evaluated on variables as the states before them leave them (Amazon States Language, "Choice State").
"""

from __future__ import annotations

import operator
from importlib import import_module
from typing import Any

import pytest

from trainflow.deployment.functions import TASKS
from trainflow.state_machines import NAMES, definition

STATES = {name: state for machine in NAMES for name, state in definition(machine)["States"].items()}
CHOICES = [name for name, state in STATES.items() if state["Type"] == "Choice"]

COMPARISONS = {
    "BooleanEquals": operator.eq,
    "StringEquals": operator.eq,
    "NumericLessThan": operator.lt,
    "NumericGreaterThan": operator.gt,
    "NumericGreaterThanEquals": operator.ge,
    "TimestampGreaterThan": operator.gt,
}
Variables = dict[str, Any]


def value(path: str, variables: Variables) -> Any:
    """What a path such as `$run.spec` means.

    Raises:
        KeyError: If it leads nowhere.
    """
    found: Any = variables
    for name in path.removeprefix("$$." if path.startswith("$$.") else "$").split("."):
        found = found[name]
    return found


def holds(rule: dict[str, Any], variables: Variables) -> bool:
    """Whether a rule holds. And and Or stop at the first operand that decides."""
    if "And" in rule:
        return all(holds(operand, variables) for operand in rule["And"])
    if "Or" in rule:
        return any(holds(operand, variables) for operand in rule["Or"])
    (comparison,) = rule.keys() - {"Variable", "Next"}
    if comparison == "IsPresent":
        try:
            value(rule["Variable"], variables)
        except KeyError:
            return not rule[comparison]
        return bool(rule[comparison])
    found = value(rule["Variable"], variables)
    if comparison == "IsNull":
        return (found is None) == rule[comparison]
    if comparison == "IsString":
        return isinstance(found, str) == rule[comparison]
    if comparison == "IsNumeric":
        return isinstance(found, int | float) == rule[comparison]
    other = rule[comparison]
    if comparison.endswith("Path"):
        comparison, other = comparison.removesuffix("Path"), value(other, variables)
    return bool(COMPARISONS[comparison](found, other))


def decided(choice: str, variables: Variables) -> str:
    """The state after a Choice."""
    state = STATES[choice]
    return next((str(rule["Next"]) for rule in state["Choices"] if holds(rule, variables)), str(state["Default"]))


def run(**spec: Any) -> Variables:
    return {"run": {"spec": spec}}


def lost(error: str, *, max_restarts: int = 3, attempt: int = 1) -> Variables:
    return {"error": {"Error": error}, "attempt": attempt, **run(limits={"max_restarts": max_restarts})}


def gone_cache(hold: str | None = "read", *, lost_cache: Any = None, attempt: int = 1) -> Variables:
    cache = {"hold": hold} if hold else None
    return {
        "outcome": "failed",
        "error": {"Error": "CompileCacheGone"},
        "attempt": attempt,
        "cache": cache,
        "lost_cache": lost_cache,
    }


def vain(
    *,
    last_step: int | None = None,
    restarted_at: int = 10,
    in_vain: int = 0,
    last_checkpoint: int | None = None,
    checkpoint_before: int = -1,
    printed_at: int | None = None,
    long_run_ends: int = 100,
    error: str = "NodeLost",
    max_restarts: int = 2,
) -> Variables:
    log = None if printed_at is None else {"since": printed_at}
    return {
        "progress": {"last_step": last_step, "last_checkpoint": last_checkpoint, "log": log},
        "restarted_at_step": restarted_at,
        "restarted_at_checkpoint": checkpoint_before,
        "long_run_ends": long_run_ends,
        "error": {"Error": error},
        "restarts_in_vain": in_vain,
        "run": {"spec": {"limits": {"max_restarts": max_restarts}}},
    }


def blind(
    now: int, *, ends_by: int = 100, blind_after: int = 60, limit: str | None = None, told: bool = False, laps: int = 1
) -> Variables:
    times = {"State": {"EnteredTime": now}, "ends_by": ends_by, "blind_after": blind_after}
    return {**times, "limit": limit, "told_blind": told, "laps": laps}


def lap(
    *,
    stage: str = "training",
    warning: Any = None,
    warned: bool = False,
    laps: int = 1,
    warn_from: int = 0,
    unread_for: int | None = None,
    told_unread: bool = False,
    phase: str = "running",
) -> Variables:
    return {
        "State": {"EnteredTime": unread_for},
        "unread_after": 60,
        "unread_error": None if unread_for is None else {},
        "told_unread": told_unread,
        "phase": phase,
        "job": {"stage": stage},
        "warning": warning,
        "warned": warned,
        "laps": laps,
        "warn_from_lap": warn_from,
    }


def seen(
    phase: str,
    *,
    unpublished: bool = False,
    caught_up: bool = True,
    late_reads: int = 0,
    laps: int = 1,
    stage: str = "training",
    progress: Variables | None = None,
    on_non_finite: Any = None,
) -> Variables:
    counts = {"unpublished": unpublished, "caught_up": caught_up, "late_reads": late_reads, "laps": laps}
    limits = {} if on_non_finite is None else {"on_non_finite": on_non_finite}  # an earlier version wrote none
    spec = {"spec": {"limits": limits}}
    return {"phase": phase, **counts, "job": {"stage": stage}, "progress": progress or {}, "run": spec}


NAN_AT_END: Variables = {"progress": {"non_finite_in_a_row": 1}}

DECISIONS: list[tuple[str, Variables, str]] = [
    ("IsPreflightDone", {"preflight_done": True}, "NeedsDataset"),
    ("IsPreflightDone", {"preflight_done": False}, "WaitForPreflight"),
    ("NeedsDataset", run(dataset={"source": "s3://b/a.tar"}), "StageData"),
    ("NeedsDataset", run(dataset=None), "NeedsCache"),
    ("IsDataStaged", {"data_staged": True}, "NeedsCache"),
    ("IsDataStaged", {"data_staged": False}, "WaitForStaging"),
    ("NeedsCache", {**run(precompile={"enabled": True}), "compilation": None}, "AcquireCache"),
    ("NeedsCache", {**run(precompile={"enabled": True}), "compilation": {}}, "BeginToAskForNodes"),
    ("NeedsCache", {**run(precompile={"enabled": False}), "compilation": None}, "BeginToAskForNodes"),
    ("IsCacheAcquired", {"cache_acquired": True}, "BeginToAskForNodes"),
    ("IsCacheAcquired", {"cache_acquired": False}, "WaitForCache"),
    ("AreNodesReady", {"nodes_ready": True, "next_run": None}, "NeedsPrecompile"),
    ("AreNodesReady", {"nodes_ready": False, "next_run": {}}, "ReleaseNodes"),
    ("AreNodesReady", {"nodes_ready": False, "next_run": None, "restart": {}}, "NotifyRestart"),
    ("AreNodesReady", {"nodes_ready": False, "next_run": None, "restart": None}, "WaitForNodes"),
    ("IsRestartAnnounced", {"restart": {}}, "NotifyRestart"),
    ("IsRestartAnnounced", {"restart": None}, "WatchTraining"),
    ("IsJobSubmitted", {"submitted": True}, "WatchTraining"),
    ("IsJobSubmitted", {"submitted": False}, "WaitForNodes"),
    (
        "NeedsPrecompile",
        {**run(precompile={"enabled": True}), "compilation": None, "restart": None},
        "SubmitPrecompile",
    ),
    ("NeedsPrecompile", {**run(precompile={"enabled": True}), "compilation": {}}, "SubmitTraining"),
    ("NeedsPrecompile", {**run(precompile={"enabled": False}), "compilation": None}, "SubmitTraining"),
    ("IsPrecompileFinished", {"outcome": "succeeded"}, "CheckCompilation"),
    ("IsPrecompileFinished", {"outcome": "running"}, "WatchPrecompile"),
    *(
        (
            "IsPrecompileFinished",
            {"outcome": "failed", "error": {"Error": error}, "failed_graphs_retried": retried},
            after,
        )
        for error, retried, after in (
            ("GraphCompilationFailed", False, "RetryFailedGraphs"),
            ("GraphCompilationFailed", True, "ShouldSubmitAgain"),
            ("WorkerFailed", False, "ShouldSubmitAgain"),
        )
    ),
    ("IsTrainingFinished", {"outcome": "succeeded"}, "ShouldTearDown"),
    ("IsTrainingFinished", {"outcome": "running"}, "WatchTraining"),
    ("MayWatchOn", {"lost_windows": 9, "job": {"stage": "training"}}, "WatchTraining"),
    ("MayWatchOn", {"lost_windows": 9, "job": {"stage": "precompile"}}, "WatchPrecompile"),
    ("MayWatchOn", {"lost_windows": 10, "job": {"stage": "training"}}, "CollectDiagnostics"),
    ("IsTrainingFinished", gone_cache(), "ForgetCache"),
    ("IsTrainingFinished", gone_cache("write"), "ForgetCache"),
    ("IsTrainingFinished", gone_cache(lost_cache={}), "ForgetCache"),
    ("IsTrainingFinished", gone_cache("write", lost_cache={}), "ShouldSubmitAgain"),
    ("IsTrainingFinished", gone_cache(None), "ShouldSubmitAgain"),
    ("IsTrainingFinished", gone_cache(attempt=100), "ShouldSubmitAgain"),
    ("IsTrainingFinished", {**gone_cache(), "error": {"Error": "NodeLost"}}, "ShouldSubmitAgain"),
    ("ShouldSubmitAgain", lost("NodeLost"), "HasProgressed"),
    ("ShouldSubmitAgain", lost("NodeLost", max_restarts=0), "CollectDiagnostics"),
    ("ShouldSubmitAgain", lost("NodeLost", attempt=100), "CollectDiagnostics"),
    ("ShouldSubmitAgain", lost("LossNotFinite"), "CollectDiagnostics"),
    ("HasProgressed", vain(last_step=11, in_vain=2), "CountAnew"),
    ("HasProgressed", vain(last_step=10, in_vain=1), "CountRestart"),
    ("HasProgressed", vain(last_step=None, in_vain=1), "CountRestart"),
    ("HasProgressed", vain(last_step=10, in_vain=2), "CollectDiagnostics"),
    ("HasProgressed", vain(error="NodeUnhealthy", in_vain=1), "CountRestart"),
    ("HasProgressed", vain(error="NodeUnhealthy", last_step=10, in_vain=2), "CollectDiagnostics"),
    ("HasProgressed", vain(error="GraphCompilationFailed", in_vain=2), "CollectDiagnostics"),
    ("HasProgressed", vain(error="CompileCacheGone", last_step=11, max_restarts=0), "CollectDiagnostics"),
    ("HasProgressed", vain(error="CheckpointUnusable", last_step=10, in_vain=3), "CountAnew"),
    ("HasProgressed", vain(error="CheckpointUnusable", in_vain=1, max_restarts=0), "CollectDiagnostics"),
    ("HasProgressed", vain(last_checkpoint=40, in_vain=2), "CountAnew"),
    ("HasProgressed", vain(last_checkpoint=41, checkpoint_before=40, in_vain=2), "CountAnew"),
    ("HasProgressed", vain(last_checkpoint=40, checkpoint_before=40, in_vain=2), "CollectDiagnostics"),
    ("HasProgressed", vain(last_step=10, last_checkpoint=40, in_vain=2), "CollectDiagnostics"),
    ("HasProgressed", vain(printed_at=101, in_vain=2), "CountAnew"),
    ("HasProgressed", vain(printed_at=100, in_vain=2), "CollectDiagnostics"),
    ("HasProgressed", vain(printed_at=None, in_vain=2), "CollectDiagnostics"),
    ("HasProgressed", vain(last_step=10, printed_at=101, in_vain=2), "CollectDiagnostics"),
    ("HasProgressed", vain(last_checkpoint=40, checkpoint_before=40, printed_at=101, in_vain=2), "CollectDiagnostics"),
    ("AreArtifactsPublished", {"published": True}, "WriteRecord"),
    ("AreArtifactsPublished", {"published": False}, "WaitForArtifacts"),
    ("ShouldTearDown", run(teardown={"on_success": True}), "TearDown"),
    ("ShouldTearDown", run(teardown={"on_success": False}), "PublishArtifacts"),
    *(
        ("ShouldTearDownAfterFailure", {"error": {"Error": error}, **run(teardown={"on_failure": tears_down})}, after)
        for error, tears_down, after in (
            ("BudgetReached", False, "BeginToStop"),
            ("DeadlineReached", True, "BeginToStop"),
            ("WorkerFailed", True, "TearDownAfterFailure"),
            ("WorkerFailed", False, "WriteFailureRecord"),
        )
    ),
    ("IsStopped", {"stopped": True}, "HasTrained"),
    ("IsStopped", {"stopped": False}, "WaitForStop"),
    ("HasTrained", {"training": {}}, "PublishAtLimit"),
    ("HasTrained", {"training": None}, "TearDownAfterFailure"),
    ("IsPublishedAtLimit", {"published": True}, "TearDownAfterFailure"),
    ("IsPublishedAtLimit", {"published": False}, "WaitForPublisher"),
    ("IsBlindForLong", blind(101, limit="budget"), "ReportLimit"),
    ("IsBlindForLong", blind(101), "ReportFailure"),
    ("IsBlindForLong", blind(61), "TellOwner"),
    ("IsBlindForLong", blind(61, told=True), "WaitForSight"),
    ("IsBlindForLong", blind(61, told=True, laps=500), "ReportRunning"),
    ("IsBlindForLong", blind(1), "WaitForSight"),
    ("HasMetrics", lap(warning={}), "WarnOwner"),
    ("HasMetrics", lap(warning={}, warned=True), "IsRank0Known"),
    ("HasMetrics", lap(warning={}, laps=19, warn_from=20), "IsRank0Known"),
    ("HasMetrics", lap(warning={}, laps=20, warn_from=20), "WarnOwner"),
    ("HasMetrics", lap(stage="precompile"), "IsJobFinished"),
    ("HasMetrics", lap(unread_for=61), "TellOwnerOfLog"),
    ("HasMetrics", lap(unread_for=59), "IsRank0Known"),
    ("HasMetrics", lap(unread_for=61, told_unread=True), "IsRank0Known"),
    ("HasMetrics", lap(unread_for=61, phase="succeeded"), "IsRank0Known"),
    ("HasMetrics", lap(unread_for=61, laps=19, warn_from=20), "IsRank0Known"),
    ("IsRank0Known", {"rank0": {}, "job": {"min_nodes": None}}, "PublishMetrics"),
    ("IsRank0Known", {"rank0": {}, "job": {"min_nodes": 2}}, "LocateRank0"),
    ("IsRank0Known", {"rank0": None, "job": {"min_nodes": None}}, "LocateRank0"),
    ("IsRank0Located", {"rank0": {}}, "PublishMetrics"),
    ("IsRank0Located", {"rank0": None}, "IsJobFinished"),
    ("IsJobFinished", seen("succeeded", unpublished=True, caught_up=False), "WaitForLog"),
    ("IsJobFinished", seen("succeeded", unpublished=True, late_reads=15), "ReportSuccess"),
    ("IsJobFinished", seen("succeeded", caught_up=False), "PublishMetrics"),
    ("IsJobFinished", seen("succeeded", progress={"non_finite_in_a_row": 1}), "ReportDivergence"),
    ("IsJobFinished", seen("succeeded", on_non_finite={"stop_after": 10}, **NAN_AT_END), "ReportDivergence"),
    ("IsJobFinished", seen("succeeded", on_non_finite="continue", **NAN_AT_END), "ReportSuccess"),
    ("IsJobFinished", seen("running", on_non_finite="continue", **NAN_AT_END), "Wait"),
    ("IsJobFinished", seen("succeeded", progress={"non_finite_in_a_row": 0}), "ReportSuccess"),
    ("IsJobFinished", seen("succeeded", stage="precompile", progress={"non_finite_in_a_row": 1}), "ReportSuccess"),
    ("IsJobFinished", seen("succeeded"), "ReportSuccess"),
    ("IsJobFinished", seen("running", laps=500), "ReportRunning"),
    ("IsJobFinished", seen("running", unpublished=True, caught_up=False), "Wait"),
    ("HasLastMetrics", {"rank0": {}}, "PublishLastMetrics"),
    ("HasLastMetrics", {"rank0": None}, "ReportFailure"),
    ("IsLastLogRead", seen("failed", caught_up=False), "PublishLastMetrics"),
    ("IsLastLogRead", seen("failed"), "ReportFailure"),
    ("IsLastLogRead", seen("failed", unpublished=True, caught_up=False), "ReportFailure"),
    ("IsLastLogRead", seen("failed", caught_up=False, laps=580), "ReportFailure"),
]


@pytest.mark.parametrize(("choice", "variables", "after"), DECISIONS)
def test_a_choice_goes_where_its_variables_say(choice: str, variables: Variables, after: str) -> None:
    assert decided(choice, variables) == after


def test_every_way_out_of_a_choice_is_taken_above() -> None:
    taken = {(choice, after) for choice, _, after in DECISIONS}
    assert taken == {
        (name, after)
        for name in CHOICES
        for after in (*(rule["Next"] for rule in STATES[name]["Choices"]), STATES[name]["Default"])
    }


ENDS_WELL = {
    "job",
    "blind_after",
    "ends_by",
    "error",
    "next_attempt",
    "tear_down",
    "unread_after",
    "warning",
    "refuted_test_nodes",
}
"""What Notify is told of runs that go on or that fail."""
NOT_TOLD = {
    "PublishMetrics": {"error"},
    "ReleaseNodes": {"error", "job", "progress", "restarts_in_vain", "stopping_since", "trained", "training"},
    "DeleteJob": {"stopping_since", "trained", "training"},
    "TearDown": {"error", "job", "progress", "restarts_in_vain", "stopping_since", "training"},
    "TearDownAfterFailure": {"error", "job", "restarts_in_vain", "stopping_since", "trained"},
    "StopAtLimit": {"error", "job", "restarts_in_vain", "trained"},
    "PublishAtLimit": {"training"},
    "WriteRecord": {"error"},
    "Notify": ENDS_WELL,
    "NotifyFailure": ENDS_WELL - {"error", "tear_down"},
    "NotifyRejection": {
        *(ENDS_WELL - {"error"}),
        *("artifacts", "avoided_nodes", "given_up", "instance_type", "progress", "warnings"),
    },
    "TellOwner": {
        "warnings",
        *(
            "artifacts",
            "refuted_test_nodes",
            "avoided_nodes",
            "folder",
            "given_up",
            "next_attempt",
            "progress",
            "tear_down",
            "unread_after",
            "warning",
        ),
    },
    "TellOwnerOfLog": {
        *(
            "artifacts",
            "refuted_test_nodes",
            "avoided_nodes",
            "blind_after",
            "folder",
            "given_up",
            "next_attempt",
            "progress",
            "tear_down",
        ),
        *("warning", "warnings"),
    },
    "WarnOwner": {
        *(
            "artifacts",
            "refuted_test_nodes",
            "avoided_nodes",
            "blind_after",
            "ends_by",
            "error",
            "folder",
            "given_up",
            "job",
            "next_attempt",
        ),
        *("progress", "tear_down", "unread_after", "warnings"),
    },
    "NotifyRestart": {
        "warnings",
        "artifacts",
        "blind_after",
        "ends_by",
        "given_up",
        "instance_type",
        "tear_down",
        "unread_after",
        "warning",
    },
}
"""Fields that a function knows and a state leaves at their default."""


@pytest.mark.parametrize("name", [name for name, state in STATES.items() if "Payload" in state.get("Parameters", {})])
def test_a_state_tells_its_function_all_that_the_function_knows(name: str) -> None:
    modules = {f"${{{function.name}}}": function.module for function in TASKS}
    parameters = STATES[name]["Parameters"]
    known = import_module(f"lambdas.handlers.{modules[parameters['FunctionName']]}").Event.model_fields
    told = {key.removesuffix(".$") for key in parameters["Payload"]}
    assert known.keys() - told == NOT_TOLD.get(name, set())
    assert told <= known.keys()


@pytest.mark.parametrize("machine", NAMES)
def test_every_variable_with_a_first_value_is_given_another_by_a_state(machine: str) -> None:
    """A state that forgot to keep its answer would let the run wait, or count, without end."""
    states = definition(machine)["States"]
    first = states[definition(machine)["StartAt"]].get("Assign", {})
    later = {
        key.removesuffix(".$")
        for name, state in states.items()
        for assigned in (state.get("Assign", {}), *(catcher.get("Assign", {}) for catcher in state.get("Catch", ())))
        if name != definition(machine)["StartAt"]
        for key in assigned
    }
    assert {key.removesuffix(".$") for key, given in first.items() if not key.endswith(".$")} <= later
