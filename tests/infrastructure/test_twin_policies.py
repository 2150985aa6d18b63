"""The policies of the twin's own account are those of the templates."""

from __future__ import annotations

import json
from typing import Any

from local.aws.access import granted
from local.aws.access.evaluation import listed
from stacks.tools import twin_policies
from tests.infrastructure.assembly import synthesize
from trainflow.configuration.deployment import Configuration
from trainflow.models.functions import EVENT_HANDLERS, TASKS


def test_the_file_is_what_the_templates_say() -> None:
    configured = synthesize(Configuration.model_validate(twin_policies.configured()))
    templates = {name.rpartition("-")[2]: template for name, template in configured.items()}
    assert granted.FILE.read_text() == twin_policies.text(templates), (
        f"Run: python -m stacks.tools.twin_policies > {granted.FILE.name} in {granted.FILE.parent.name}"
    )


def test_every_function_has_a_role_in_the_file() -> None:
    roles = granted.templates()["roles"]
    assert {f"orchestration.{function.name}Role" for function in TASKS} <= roles.keys()
    assert {f"triggers.{function.name}Role" for function in EVENT_HANDLERS} <= roles.keys()
    assert granted.templates()["trusts"].keys() == roles.keys()


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
    assert granted.filled(statements, {"granted bucket": ["x", "y"], "one": ["arn:1"]}) == [
        {"Action": "a", "Resource": ["arn:aws:s3:::x/*", "arn:aws:s3:::y/*"]},
        {
            "Action": "b",
            "Resource": ["arn:1", "arn:aws:twin:::missing.Arn"],
            "Condition": {"ArnEquals": {"aws:SourceArn": ["arn:1"]}},
        },
        {"Action": "c", "Principal": "*"},
    ]
    assert granted.filled(statements[:1], {"granted bucket": []}) == []


def test_a_resource_that_differs_makes_another_file() -> None:
    template = {"Resources": {"Key1234ABCD": {"Type": "AWS::KMS::Key", "Properties": {"KeyPolicy": {"Statement": []}}}}}
    empty: dict[str, Any] = {"Resources": {}}
    made = twin_policies.document({**dict.fromkeys(twin_policies.STACKS, empty), "storage": template})
    assert made == {"roles": {}, "trusts": {}, "resources": {"storage.Key": []}}
    assert listed(json.loads(granted.FILE.read_text())["resources"]["storage.Key"])
