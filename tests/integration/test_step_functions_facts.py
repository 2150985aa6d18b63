"""Executions in the twin end as AWS was recorded to end them."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from botocore.exceptions import ClientError

from local.aws.server import AwsServer
from tests.waiting import wait_until

FILE = yaml.safe_load(Path("tests/assets/aws/step_functions.yaml").read_text(encoding="utf-8"))
CHOICES = [fact for group in FILE["choices"] for fact in group["facts"]]
EXECUTIONS = FILE["executions"]
FUNCTIONS = [fact for group in FILE["functions"] for fact in group["facts"]]
REFUSED = yaml.safe_load(Path("tests/assets/aws/definitions.yaml").read_text(encoding="utf-8"))["refused"]

names = (f"fact{number}" for number in itertools.count())


@pytest.fixture(scope="module")
def stepfunctions(aws: AwsServer) -> Iterator[Any]:
    yield aws.client("stepfunctions")


def make(stepfunctions: Any, role: str, definition: Any) -> str:
    text = definition if isinstance(definition, str) else json.dumps(definition)
    made = stepfunctions.create_state_machine(name=next(names), roleArn=role, definition=text)
    return str(made["stateMachineArn"])


def ended(stepfunctions: Any, role: str, states: dict[str, Any], document: Any) -> dict[str, Any]:
    machine = make(stepfunctions, role, {"StartAt": next(iter(states)), "States": states})
    text = json.dumps(document, separators=(",", ":"))
    arn = stepfunctions.start_execution(stateMachineArn=machine, input=text)["executionArn"]
    wait_until(lambda: stepfunctions.describe_execution(executionArn=arn)["status"] != "RUNNING")
    described: dict[str, Any] = stepfunctions.describe_execution(executionArn=arn)
    return described


@pytest.mark.parametrize(("operator", "value", "wanted", "holds"), CHOICES)
def test_a_comparison_holds_as_recorded(
    stepfunctions: Any, role: str, operator: str, value: Any, wanted: Any, holds: bool
) -> None:
    rule = {"Variable": "$.v", operator: wanted, "Next": "Yes"}
    states = {
        "Choose": {"Type": "Choice", "Choices": [rule], "Default": "No"},
        "Yes": {"Type": "Pass", "Result": True, "End": True},
        "No": {"Type": "Pass", "Result": False, "End": True},
    }
    assert json.loads(ended(stepfunctions, role, states, {"v": value})["output"]) is holds


@pytest.mark.parametrize("fact", EXECUTIONS, ids=range(len(EXECUTIONS)))
def test_an_execution_ends_as_recorded(stepfunctions: Any, role: str, fact: dict[str, Any]) -> None:
    found = ended(stepfunctions, role, fact["states"], fact.get("input", {}))
    if "output" in fact:
        assert json.loads(found["output"]) == fact["output"]
    else:
        assert (found["status"], found["error"], found["cause"]) == ("FAILED", fact["error"], fact["cause"])


def test_intrinsic_functions_have_their_recorded_results_in_an_execution(stepfunctions: Any, role: str) -> None:
    states: dict[str, Any] = {}
    for number, (call, document, _) in enumerate(FUNCTIONS):
        states[f"In{number}"] = {"Type": "Pass", "Result": document, "Next": f"Call{number}"}
        states[f"Call{number}"] = {
            "Type": "Pass",
            "Assign": {f"r{number}.$": call},
            "Next": f"In{number + 1}",
        }
    last = {f"r{number}.$": f"$r{number}" for number in range(len(FUNCTIONS))}
    states[f"In{len(FUNCTIONS)}"] = {"Type": "Pass", "Parameters": last, "End": True}
    output = json.loads(ended(stepfunctions, role, states, {})["output"])
    assert [output[f"r{number}"] for number in range(len(FUNCTIONS))] == [result for _, _, result in FUNCTIONS]


@pytest.mark.parametrize("fact", REFUSED, ids=range(len(REFUSED)))
def test_an_invalid_definition_is_refused(stepfunctions: Any, role: str, fact: dict[str, Any]) -> None:
    with pytest.raises(ClientError) as refused:
        make(stepfunctions, role, fact["definition"])
    assert refused.value.response["Error"]["Code"] == fact.get("code", "InvalidDefinition")
    assert fact["says"] in refused.value.response["Error"]["Message"]


def test_a_refused_definition_leaves_nothing_behind(stepfunctions: Any, role: str) -> None:
    choosing = {"Type": "Choice", "Choices": [{"Variable": "$.v", "IsNull": True, "Next": "B"}], "Default": "B"}
    failing = {"Type": "Fail", "ErrorPath": "$.v"}
    valid = {"StartAt": "A", "States": {"A": choosing, "B": failing}}
    for language in ("JSONata", "Other"):
        with pytest.raises(ClientError, match="InvalidDefinition"):
            make(stepfunctions, role, {"QueryLanguage": language, **valid})
        assert make(stepfunctions, role, valid)


def test_an_execution_without_a_name_gets_one(stepfunctions: Any, role: str) -> None:
    machine = make(stepfunctions, role, {"StartAt": "A", "States": {"A": {"Type": "Succeed"}}})
    started = [stepfunctions.start_execution(stateMachineArn=machine) for _ in range(2)]
    described = [stepfunctions.describe_execution(executionArn=each["executionArn"]) for each in started]
    assert len({each["name"] for each in described}) == 2
    assert all(each["executionArn"].endswith(f":{each['name']}") for each in described)
    assert all(each["inputDetails"] == {"included": True} for each in described)


def test_executions_of_a_version_are_described_and_listed_with_it(stepfunctions: Any, role: str) -> None:
    machine = make(stepfunctions, role, {"StartAt": "A", "States": {"A": {"Type": "Succeed"}}})
    version = stepfunctions.publish_state_machine_version(stateMachineArn=machine)["stateMachineVersionArn"]
    by_version, by_machine = (
        stepfunctions.start_execution(stateMachineArn=arn)["executionArn"] for arn in (version, machine)
    )
    described = stepfunctions.describe_execution(executionArn=by_version)
    assert (described["stateMachineArn"], described["stateMachineVersionArn"]) == (machine, version)
    assert "stateMachineVersionArn" not in stepfunctions.describe_execution(executionArn=by_machine)
    listed = stepfunctions.list_executions(stateMachineArn=version)["executions"]
    assert [(each["executionArn"], each["stateMachineVersionArn"]) for each in listed] == [(by_version, version)]
    assert len(stepfunctions.list_executions(stateMachineArn=machine)["executions"]) == 2
    page = stepfunctions.list_state_machine_versions(stateMachineArn=machine, maxResults=1)
    assert [each["stateMachineVersionArn"] for each in page["stateMachineVersions"]] == [version]


SIMPLE = json.dumps({"StartAt": "A", "States": {"A": {"Type": "Succeed"}}})
OTHER = json.dumps({"StartAt": "B", "States": {"B": {"Type": "Succeed"}}})
NOWHERE = "arn:aws:states:us-west-2:123456789012:stateMachine:nowhere"


@pytest.mark.parametrize(
    ("call", "arguments", "code"),
    [
        ("start_execution", {"stateMachineArn": "MACHINE", "input": "no json"}, "InvalidExecutionInput"),
        ("start_execution", {"stateMachineArn": "MACHINE", "input": ""}, "InvalidExecutionInput"),
        ("start_execution", {"stateMachineArn": NOWHERE}, "StateMachineDoesNotExist"),
        ("update_state_machine", {"stateMachineArn": "MACHINE"}, "MissingRequiredParameter"),
        ("update_state_machine", {"stateMachineArn": NOWHERE, "definition": SIMPLE}, "StateMachineDoesNotExist"),
        (
            "create_state_machine",
            {"name": "taken", "roleArn": "ROLE", "definition": OTHER},
            "StateMachineAlreadyExists",
        ),
        ("list_executions", {"stateMachineArn": "MACHINE", "statusFilter": "succeeded"}, "ValidationException"),
        ("list_executions", {"stateMachineArn": "MACHINE", "maxResults": 1001}, "ValidationException"),
        ("list_executions", {"stateMachineArn": "MACHINE", "nextToken": "x" * 3097}, "ValidationException"),
        ("describe_state_machine", {"stateMachineArn": "no_arn"}, "InvalidArn"),
        ("describe_execution", {"executionArn": "no_arn"}, "InvalidArn"),
        ("get_execution_history", {"executionArn": "no_arn"}, "InvalidArn"),
        ("validate_state_machine_definition", {"definition": SIMPLE}, "UnknownOperationException"),
    ],
)
def test_a_refused_call_has_the_recorded_code(
    stepfunctions: Any, role: str, call: str, arguments: dict[str, Any], code: str
) -> None:
    machine = stepfunctions.create_state_machine(name="taken", roleArn=role, definition=SIMPLE)["stateMachineArn"]
    given = {name: {"MACHINE": machine, "ROLE": role}.get(str(value), value) for name, value in arguments.items()}
    with pytest.raises(ClientError) as refused:
        getattr(stepfunctions, call)(**given)
    assert refused.value.response["Error"]["Code"] == code


def test_the_facts_are_at_least_150() -> None:
    assert len(FUNCTIONS) + len(CHOICES) + len(EXECUTIONS) + len(REFUSED) >= 150
