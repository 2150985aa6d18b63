"""The twin deploys what the stacks synthesize."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

from local.aws import template
from local.aws.resource_types import TYPES
from local.aws.template import Template
from stacks.orchestration.bundling import PYTHON
from stacks.tools import twin_template
from tests.infrastructure.assembly import synthesize
from trainflow.configuration.deployment import Configuration
from trainflow.deployment.functions import EVENT_HANDLERS, TASKS

STACKS = {"orchestration": TASKS, "triggers": EVENT_HANDLERS}


@cache
def synthesized() -> dict[str, Any]:
    """The templates of the generator's configuration, by the last part of the stack's name."""
    configured = synthesize(Configuration.model_validate(twin_template.configured()))
    return {name.rpartition("-")[2]: found for name, found in configured.items()}


def filled(document: Any, **values: list[str]) -> Any:
    def no_client(service: str) -> Any:
        raise AssertionError(f"{service} was called")

    return Template(no_client, {name.replace("_", " "): texts for name, texts in values.items()}, region="x").filled(
        document
    )


def test_the_file_is_what_the_templates_say() -> None:
    assert template.FILE.read_text() == twin_template.text(synthesized()), (
        f"Run: python -m stacks.tools.twin_template > local/aws/{template.FILE.name}"
    )


@pytest.mark.parametrize("stack", ["orchestration", "triggers"])
def test_every_resource_of_functions_workflows_and_triggers_is_in_the_file(stack: str) -> None:
    types = {name: found["Type"] for name, found in synthesized()[stack]["Resources"].items()}
    taken = {
        f"{stack}.{twin_template.plain(name)}"
        for name, type_ in types.items()
        if type_ not in twin_template.WITHOUT_EFFECT
    }
    assert taken == {name for name in template.resources() if name.startswith(f"{stack}.")}
    assert {type_ for type_ in types.values() if type_.startswith("AWS::EC2::")} <= twin_template.WITHOUT_EFFECT


def test_every_function_has_a_role_in_the_file() -> None:
    resources = template.resources()
    for stack, function in ((stack, function) for stack, functions in STACKS.items() for function in functions):
        properties = resources[f"{stack}.{function.name}Function"]["Properties"]
        assert properties["Role"] == f"${{{stack}.{function.name}Role.Arn}}"
        assert properties["Runtime"] == f"python{PYTHON}"
        role = resources[f"{stack}.{function.name}Role"]["Properties"]
        assert role["AssumeRolePolicyDocument"]["Statement"]
        assert role["Policies"][0]["PolicyDocument"]["Statement"]


def test_the_twin_can_make_every_type_of_the_file() -> None:
    types = {resource["Type"] for resource in template.resources().values()}
    assert types <= {*TYPES, *template.MODELS, "AWS::S3::Bucket"}
    assert template.NAMES.keys() <= template.resources().keys()


def test_names_of_resources_are_filled_in_and_those_of_no_resource_are_left_out() -> None:
    statements: list[dict[str, Any]] = [
        {"Action": "a", "Resource": "arn:aws:s3:::${granted bucket}/*"},
        {
            "Action": "b",
            "Resource": ["${one}", "${missing.Arn}"],
            "Condition": {"ArnEquals": {"aws:SourceArn": "${one}"}},
        },
        {"Action": "c", "Principal": "*"},
    ]
    assert filled(statements, granted_bucket=["x", "y"], one=["arn:1"]) == [
        {"Action": "a", "Resource": ["arn:aws:s3:::x/*", "arn:aws:s3:::y/*"]},
        {
            "Action": "b",
            "Resource": ["arn:1", "arn:aws:twin:::missing.Arn"],
            "Condition": {"ArnEquals": {"aws:SourceArn": "arn:1"}},
        },
        {"Action": "c", "Principal": "*"},
    ]
    assert filled(statements[:1], granted_bucket=[]) == []


def test_a_resource_that_differs_makes_another_file() -> None:
    key = {"Type": "AWS::KMS::Key", "Properties": {"KeyPolicy": {"Statement": []}}}
    empty: dict[str, Any] = {"Resources": {}}
    made = twin_template.document(
        {**dict.fromkeys(twin_template.TAKEN, empty), "storage": {"Resources": {"Key1234ABCD": key}}}
    )
    assert made == {"storage.Key": key}
    assert template.resources()["storage.Key"]["Properties"]["KeyPolicy"]["Statement"]


def test_another_definition_than_that_of_the_repository_is_refused() -> None:
    machine = {
        "Type": "AWS::StepFunctions::StateMachine",
        "Properties": {"StateMachineName": "trainflow-watch-job", "DefinitionString": "{}"},
    }
    empty: dict[str, Any] = {"Resources": {}}
    with pytest.raises(ValueError, match=r"watch_job\.asl\.yaml"):
        twin_template.document(
            {**dict.fromkeys(twin_template.TAKEN, empty), "orchestration": {"Resources": {"WatchJob": machine}}}
        )
