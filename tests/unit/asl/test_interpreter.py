"""The second engine follows the documentation of Step Functions, and refuses what AWS refuses."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from tests.asl.data import (
    MAX_PAYLOAD_BYTES,
    Missing,
    Scope,
    StatesError,
    Unsupported,
    called,
    filled,
    value_at,
    with_result,
)
from tests.asl.interpreter import MAX_EVENTS, Answer, Event, Interpreter, InvalidDefinition, Stopped, check
from trainflow.state_machines import NAMES, definition

INVOKE = "arn:aws:states:::lambda:invoke"
END = {"Type": "Succeed"}
State = dict[str, Any]


class Answers:
    """A world in which tasks answer one after the other."""

    def __init__(self, answers: Iterable[Answer] = ()) -> None:
        self._answers = iter(answers)
        self.asked: list[Any] = []

    def entered_at(self, _state: str) -> str:
        return "2026-11-23T10:00:00.000Z"

    def answer(self, _resource: str, parameters: Any) -> Answer:
        self.asked.append(parameters)
        return next(self._answers, Answer())

    def passes(self, _state: str) -> None:
        """Wait for nothing."""


def executed(states: dict[str, State], document: Any = None, *answers: Answer) -> list[Event]:
    text = {"StartAt": next(iter(states)), "States": states}
    interpreter = Interpreter(text, execution={"Name": "run", "Id": "arn:run"}, world=Answers(answers))
    interpreter.run({} if document is None else document)
    return interpreter.history


def ended(states: dict[str, State], document: Any = None, *answers: Answer) -> tuple[str, Any]:
    """The output of an execution that succeeds, or the error of one that fails."""
    last = executed(states, document, *answers)[-1]
    return last["type"], last.get("output", last.get("error"))


def task(**fields: Any) -> State:
    return {"Type": "Task", "Resource": INVOKE, "End": True, **fields}


def passing(**fields: Any) -> State:
    return {"Type": "Pass", "End": True, **fields}


def failed(name: str) -> Answer:
    return Answer(failure=(name, "The cause."))


def choosing(*rules: State, **fields: Any) -> dict[str, State]:
    return {"Choose": {"Type": "Choice", "Choices": [{**rule, "Next": "Yes"} for rule in rules], **fields}, "Yes": END}


# --- What it knows.


@pytest.mark.parametrize("name", NAMES)
def test_it_knows_everything_that_our_state_machines_use(name: str) -> None:
    check(definition(name))


@pytest.mark.parametrize(
    ("state", "told"),
    [
        ({"Type": "Parallel"}, "type Parallel"),
        (task(HeartbeatSeconds=3), "HeartbeatSeconds"),
        (task(Resource="arn:aws:states:::sqs:sendMessage"), "sqs:sendMessage"),
        (task(Retry=[{"ErrorEquals": ["a"], "Unknown": 1}]), "field Unknown in Retry"),
        (task(Catch=[{"ErrorEquals": ["a"], "Next": "A", "Output": 1}]), "field Output in Catch"),
        (passing(Output="{% 1 %}"), "Output"),
    ],
)
def test_what_it_does_not_know_is_refused_by_name(state: State, told: str) -> None:
    with pytest.raises(Unsupported, match=told):
        check({"StartAt": "A", "States": {"A": state}})


@pytest.mark.parametrize(
    "expression", ["States.UUID()", "States.Format('{}', States.UUID())", "$.a[*]", "$..a", "1 + 1"]
)
def test_an_expression_that_our_texts_do_not_use_is_refused(expression: str) -> None:
    with pytest.raises(Unsupported):
        filled({"x.$": expression}, Scope({"a": [1]}, {}))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ({"States": {"A": END}}, "StartAt names no state"),
        ({"StartAt": "B", "States": {"A": END}}, "StartAt names no state: B"),
        ({"StartAt": "A"}, "no States"),
        ({"StartAt": "A", "States": {"A": {"Type": "Pass", "Next": "B"}}}, "A leads to B"),
        ({"StartAt": "A", "States": {"A": {"Type": "Choice", "Choices": [], "Default": "B"}}}, "A leads to B"),
        ({"StartAt": "A", "States": {"A": task(Catch=[{"ErrorEquals": ["x"], "Next": "B"}])}}, "A leads to B"),
        ({"StartAt": "A", "States": {"A": {"Type": "Pass"}}}, "either Next or End"),
        ({"StartAt": "A", "States": {"A": task(Retry=[{"ErrorEquals": ["States.ALL", "x"]}])}}, "alone, and last"),
    ],
)
def test_a_definition_that_create_state_machine_refuses_is_refused(text: dict[str, Any], told: str) -> None:
    with pytest.raises(InvalidDefinition, match=told):
        check(text)


# --- Data.

SCOPE = Scope({"a": {"b": [1, {"c": None}]}, "x y": 2}, {"State": {"Name": "A"}}, {"v": {"n": 3}})


@pytest.mark.parametrize(
    ("path", "value"),
    [("$.a.b[0]", 1), ("$.a.b[1].c", None), ("$['x y']", 2), ("$$.State.Name", "A"), ("$v.n", 3), ("$v", {"n": 3})],
)
def test_a_path_leads_to_a_value(path: str, value: Any) -> None:
    assert value_at(path, SCOPE) == value


@pytest.mark.parametrize("path", ["$.z", "$.a.b[2]", "$.a.b.c", "$.a[0]", "$$.Task", "$w", "$v.n.m"])
def test_a_path_that_leads_nowhere_is_missing(path: str) -> None:
    with pytest.raises(Missing):
        value_at(path, SCOPE)


def test_a_template_is_filled_at_any_depth_and_keeps_the_rest() -> None:
    template = {"a.$": "$.a.b[0]", "deep": [{"n.$": "$v.n"}, "$.a"], "text": "$.a", "none": None}
    assert filled(template, SCOPE) == {"a": 1, "deep": [{"n": 3}, "$.a"], "text": "$.a", "none": None}


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("States.Format('{}-{}', $v.n, 'x')", "3-x"),
        (r"States.Format('it\'s \{\} {}', true)", None),
        (r"States.Format('it\'s \{\} {}', $.a.b[0])", "it's {} 1"),
        ("States.Format('{}', $.a.b[1].c)", "null"),
        ("States.MathAdd($v.n, -4)", -1),
    ],
)
def test_an_intrinsic_function_has_its_value(expression: str, value: Any) -> None:
    if value is None:
        with pytest.raises(Unsupported):
            called(expression, SCOPE)
    else:
        assert called(expression, SCOPE) == value


@pytest.mark.parametrize("expression", ["States.Format('{}')", "States.Format('', $.a)", "States.MathAdd($v, 1)"])
def test_an_intrinsic_function_that_cannot_be_evaluated_is_an_intrinsic_failure(expression: str) -> None:
    with pytest.raises(StatesError, match="IntrinsicFailure"):
        called(expression, SCOPE)


@pytest.mark.parametrize(
    ("path", "output"),
    [(None, {"i": 1}), ("$", "r"), ("$.r", {"i": 1, "r": "r"}), ("$.x.y", {"i": 1, "x": {"y": "r"}})],
)
def test_the_result_is_put_where_its_path_says(path: str | None, output: Any) -> None:
    assert with_result({"i": 1}, "r", path) == output


def test_a_result_path_that_does_not_fit_the_input_is_a_match_failure_which_is_caught() -> None:
    with pytest.raises(StatesError, match="ResultPathMatchFailure"):
        with_result({"i": 1}, "r", "$.i.r")
    caught = task(ResultPath="$.i.r", Catch=[{"ErrorEquals": ["States.ALL"], "Next": "Caught"}])
    states = {"A": caught, "Caught": END}
    assert ended(states, {"i": 1}, Answer(result=1))[0] == "ExecutionSucceeded"


def test_data_pass_through_a_task_in_the_documented_order() -> None:
    state = task(
        InputPath="$.in",
        Parameters={"given.$": "$.n"},
        ResultSelector={"kept.$": "$.answer"},
        ResultPath="$.result",
        OutputPath="$.result.kept",
    )
    history = executed({"A": state}, {"in": {"n": 1}}, Answer(result={"answer": 2}))
    assert [event["parameters"] for event in history if event["type"] == "TaskScheduled"] == [{"given": 1}]
    assert history[-1] == {"type": "ExecutionSucceeded", "output": 2}


def test_assignments_see_the_result_and_the_variables_of_before() -> None:
    first = {"Type": "Pass", "Result": {"n": 1}, "Assign": {"n.$": "$.n", "old": 0}, "Next": "B"}
    second = {"Type": "Pass", "Assign": {"n": 7, "old.$": "$n"}, "Next": "C"}
    states = {"A": first, "B": second, "C": passing(Parameters={"n.$": "$n", "old.$": "$old"})}
    assert ended(states) == ("ExecutionSucceeded", {"n": 7, "old": 1})


# --- What ends an execution.


def test_a_choice_on_a_missing_path_is_a_runtime_error_although_there_is_a_default() -> None:
    rule = {"Variable": "$.missing", "BooleanEquals": True}
    history = executed(choosing(rule, Default="Yes"))
    assert [event["type"] for event in history] == ["ExecutionStarted", "ChoiceStateEntered", "ExecutionFailed"]
    assert history[-1]["error"] == "States.Runtime"
    assert history[-1]["cause"] == (
        "An error occurred while executing the state 'Choose' (entered at the event id #2). Invalid path '$.missing': "
        "The choice state's condition path references an invalid value."
    )


@pytest.mark.parametrize(
    "rule",
    [
        {"Variable": "$.missing", "IsNull": True},
        {"Variable": "$.n", "NumericLessThanPath": "$.missing"},
        {"And": [{"Variable": "$.n", "IsNull": False}, {"Variable": "$.missing", "IsNull": True}]},
    ],
)
def test_no_comparison_may_ask_for_a_missing_path(rule: State) -> None:
    assert ended(choosing(rule, Default="Yes"), {"n": 1}) == ("ExecutionFailed", "States.Runtime")


def test_whether_a_path_is_present_may_be_asked() -> None:
    rule = {"And": [{"Variable": "$.missing", "IsPresent": True}, {"Variable": "$.missing", "IsNull": False}]}
    assert ended(choosing(rule, Default="Yes"))[0] == "ExecutionSucceeded"


def test_values_of_another_type_do_not_match() -> None:
    rule = {"Variable": "$.n", "NumericLessThan": 3}
    for n, error in ((1, None), ("1", "States.Runtime"), (True, "States.Runtime")):
        assert ended(choosing(rule), {"n": n})[1] == ({"n": n} if error is None else error)


def test_a_choice_without_a_matching_rule_ends_the_execution() -> None:
    last = executed(choosing({"Variable": "$.n", "IsNull": True}), {"n": 1})[-1]
    assert last["error"] == "States.Runtime"
    assert last["cause"].endswith("Failed to transition out of the state. The state does not point to a next state.")


CATCH_ALL = {
    "Retry": [{"ErrorEquals": ["States.ALL"]}],
    "Catch": [{"ErrorEquals": ["States.ALL"], "Next": "Caught"}],
}


def test_a_missing_path_in_parameters_is_caught_by_nothing_and_calls_nothing() -> None:
    history = executed({"A": task(Parameters={"x.$": "$.missing"}, **CATCH_ALL), "Caught": END})
    assert [event["type"] for event in history] == ["ExecutionStarted", "TaskStateEntered", "ExecutionFailed"]
    assert history[-1]["error"] == "States.Runtime"
    assert "The JSONPath '$.missing' specified for the field 'x.$' could not be found" in history[-1]["cause"]


def test_a_result_beyond_256_kib_is_caught_by_its_name_and_by_wildcards() -> None:
    fits, large = (Answer(result="x" * (MAX_PAYLOAD_BYTES - quotes)) for quotes in (2, 1))
    states = {"A": task(), "Caught": passing(Result="caught")}
    assert ended(states, None, fits)[0] == "ExecutionSucceeded"
    assert ended(states, None, large) == ("ExecutionFailed", "States.DataLimitExceeded")
    for name in ("States.DataLimitExceeded", "States.TaskFailed", "States.ALL"):
        catcher = {"ErrorEquals": [name], "Next": "Caught"}
        assert ended({**states, "A": task(Catch=[catcher])}, None, large) == ("ExecutionSucceeded", "caught")


def test_no_wildcard_is_for_parameters_beyond_256_kib() -> None:
    half, twice = "x" * (MAX_PAYLOAD_BYTES // 2), {"a.$": "$", "b.$": "$"}
    states = {"A": task(Parameters=twice, **CATCH_ALL), "Caught": passing(Result="caught")}
    assert ended(states, half, Answer(result=1)) == ("ExecutionFailed", "States.DataLimitExceeded")


def test_bytes_count_and_not_characters() -> None:
    assert ended({"A": task()}, None, Answer(result="ä" * (MAX_PAYLOAD_BYTES // 2)))[1] == "States.DataLimitExceeded"


def test_parameters_and_outputs_are_limited_as_well() -> None:
    half = "x" * (MAX_PAYLOAD_BYTES // 2)
    twice = {"a.$": "$", "b.$": "$"}
    for state in (task(Parameters=twice), passing(Parameters=twice)):
        assert ended({"A": state}, half, Answer(result=1)) == ("ExecutionFailed", "States.DataLimitExceeded")


def test_a_larger_input_starts_nothing() -> None:
    with pytest.raises(ValueError, match="262144 bytes"):
        executed({"A": passing()}, "x" * MAX_PAYLOAD_BYTES)


def test_event_25000_is_the_failure_of_an_execution_that_goes_on() -> None:
    loop = {"Type": "Pass", "Next": "Loop"}
    history = executed({"Loop": loop})
    assert len(history) == MAX_EVENTS
    assert history[-2]["type"] == "PassStateExited"
    assert history[-1] == {
        "type": "ExecutionFailed",
        "error": "States.Runtime",
        "cause": "The execution reached the maximum number of history events (25000).",
    }


def test_event_25000_may_be_the_success() -> None:
    counted = {"Type": "Pass", "Assign": {"n.$": "States.MathAdd($n, 1)"}, "Next": "Choose"}
    states = {
        "Start": {"Type": "Pass", "Assign": {"n": 0}, "Next": "Count"},
        "Count": counted,
        "Choose": {
            "Type": "Choice",
            "Choices": [{"Variable": "$n", "NumericGreaterThanEquals": 6248, "Next": "Last"}],
            "Default": "Count",
        },
        "Last": passing(),
    }
    made = executed(states)
    assert (len(made), made[-1]["type"]) == (1 + 2 + 4 * 6248 + 2 + 1, "ExecutionSucceeded")
    assert len(made) < MAX_EVENTS
    states["Last"]["Next"] = "Further"
    del states["Last"]["End"]
    assert len(executed({**states, "Further": passing()})) == MAX_EVENTS
    assert executed({**states, "Further": passing()})[-1]["type"] == "ExecutionSucceeded"


# --- Retry and Catch.


@pytest.mark.parametrize(
    ("names", "error", "does"),
    [
        (["States.ALL"], "Anything", True),
        (["States.ALL"], "States.Timeout", True),
        (["States.TaskFailed"], "Anything", True),
        (["States.TaskFailed"], "States.Timeout", False),
        (["States.Timeout"], "States.Timeout", True),
        (["Other"], "Anything", False),
    ],
)
def test_an_error_is_caught_by_its_name_or_by_a_wildcard(names: list[str], error: str, does: bool) -> None:
    states = {"A": task(Catch=[{"ErrorEquals": names, "Next": "Caught"}]), "Caught": END}
    assert ended(states, None, failed(error))[0] == ("ExecutionSucceeded" if does else "ExecutionFailed")


def test_the_first_retrier_of_an_error_decides_and_counts_for_itself() -> None:
    retry = [
        {"ErrorEquals": ["Never"], "MaxAttempts": 0},
        {"ErrorEquals": ["Twice"], "MaxAttempts": 2},
        {"ErrorEquals": ["States.ALL"]},
    ]
    for errors, tries in (
        (["Never"], 1),
        (["Twice"] * 3, 3),
        (["Twice", "Other", "Twice", "Other"], 5),
        (["Other"] * 4, 4),
    ):
        world = [*map(failed, errors), Answer(result="done")]
        history = executed({"A": task(Retry=retry)}, None, *world)
        assert sum(event["type"] == "TaskScheduled" for event in history) == tries
        assert (history[-1]["type"] == "ExecutionSucceeded") == (tries > len(errors))


def test_what_was_caught_is_the_output_and_what_is_assigned() -> None:
    catcher = {"ErrorEquals": ["States.ALL"], "Assign": {"error.$": "$"}, "Next": "Caught"}
    states = {"A": task(Catch=[catcher]), "Caught": passing(Parameters={"same.$": "$error", "in.$": "$"})}
    told = {"Error": "Broken", "Cause": "The cause."}
    assert ended(states, None, failed("Broken")) == ("ExecutionSucceeded", {"same": told, "in": told})


def test_a_fail_state_tells_error_and_cause() -> None:
    state = {"Type": "Fail", "ErrorPath": "$.e", "CausePath": "$.c"}
    assert executed({"A": state}, {"e": "Name", "c": "Why"})[-1] == {
        "type": "ExecutionFailed",
        "error": "Name",
        "cause": "Why",
    }
    assert ended({"A": state}, {"e": "Name"}) == ("ExecutionFailed", "States.Runtime")


def test_what_is_ended_from_outside_has_no_event_of_its_end() -> None:
    assert executed({"A": task()})[-1]["type"] == "TaskStarted"

    class Gone(Answers):
        def passes(self, _state: str) -> None:
            raise Stopped

    text = {"StartAt": "A", "States": {"A": {"Type": "Wait", "Seconds": 1, "End": True}}}
    interpreter = Interpreter(text, execution={}, world=Gone())
    interpreter.run({})
    assert interpreter.history[-1]["type"] == "WaitStateEntered"
