"""What decided the error of a failed job reaches record and message as fields."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from lambdas.handlers.task import task
from tests.unit.lambdas.conftest import CONTEXT
from trainflow.errors import named_error
from trainflow.failures.judgement import Judgement, from_text, to_text
from trainflow.record.failure import caught_error
from trainflow.workflow.run_record import RunError

JUDGED = Judgement(rule="node lost", line='RuntimeError: "no" × \\', pod="a-1", node="n_7")


class Event(BaseModel):
    pass


def caught(error: Exception) -> RunError:
    """What the workflow knows of an error of a function, as Lambda reports it."""

    @task(Event)
    def fail(_event: Event) -> dict[str, Any]:
        raise error

    with pytest.raises(type(error)) as raised:
        fail({}, CONTEXT)
    name = type(raised.value).__name__
    return caught_error({"Error": name, "Cause": json.dumps({"errorMessage": str(raised.value), "errorType": name})})


def test_the_rule_line_pod_and_node_of_a_failure_are_fields_of_the_runs_error() -> None:
    error = caught(named_error("NodeLost", "Pod 'a-1' was lost.", JUDGED))
    assert (error.name, error.message) == ("NodeLost", "Pod 'a-1' was lost.")
    assert (error.rule, error.line, error.pod, error.node) == (JUDGED.rule, JUDGED.line, "a-1", "n_7")


def test_an_error_that_was_not_judged_has_its_message_only() -> None:
    error = caught(named_error("JobStalled", "No step for 5 minutes."))
    assert (error.message, error.rule, error.line, error.pod, error.node) == (
        "No step for 5 minutes.",
        "",
        "",
        None,
        None,
    )


@given(st.text(), st.builds(Judgement, rule=st.text(), line=st.text(), pod=st.none() | st.text(), node=st.none()))
def test_any_message_and_judgement_are_read_as_they_were_written(message: str, judgement: Judgement) -> None:
    assert from_text(to_text(message, judgement)) == (message, judgement)


@pytest.mark.parametrize(
    "text", ["", "Pod 'x' died.", "[1]", '{"message": "x"}', '{"rule": "x"}', "[" * 100_000, "1e999"]
)
def test_another_text_is_the_message_itself(text: str) -> None:
    assert from_text(text) == (text, None)


def test_a_later_versions_fields_are_left_out() -> None:
    text = json.dumps({"message": "It ended.", "rule": "node lost", "certainty": 0.5})
    assert from_text(text) == ("It ended.", Judgement(rule="node lost"))
