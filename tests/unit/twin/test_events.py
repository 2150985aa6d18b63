from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from local.aws.event_inputs import input_text, refusal, transformed

EVENT = {"source": "aws.states", "detail": {"name": 'a "quoted" run', "status": "ABORTED", "stop": 12, "tags": ["x"]}}


@pytest.mark.parametrize(
    ("template", "result"),
    [
        ('{"name": <name>, "stop": <stop>}', {"name": 'a "quoted" run', "stop": 12}),
        ('{"said": "run <name> at <stop>"}', {"said": 'run a "quoted" run at 12'}),
        ('"<status>"', "ABORTED"),
        ('{"tags": <tags>, "none": <none>}', {"tags": ["x"], "none": ""}),
        ("<aws.events.event.json>", EVENT),
    ],
)
def test_placeholders_become_json_outside_of_strings_and_text_inside(template: str, result: Any) -> None:
    paths = {
        "name": "$.detail.name",
        "status": "$.detail.status",
        "stop": "$.detail.stop",
        "tags": "$.detail.tags",
        "none": "$.detail.none",
    }
    assert json.loads(transformed({"InputTemplate": template, "InputPathsMap": paths}, EVENT, rule={})) == result


FILE = yaml.safe_load(Path("tests/assets/aws/event_inputs.yaml").read_text(encoding="utf-8"))


@pytest.mark.parametrize("fact", FILE["texts"], ids=[fact["template"] for fact in FILE["texts"]])
def test_a_target_receives_the_recorded_text(fact: dict[str, Any]) -> None:
    transformer = {"InputTemplate": fact["template"], "InputPathsMap": FILE["paths"]}
    text = input_text({"InputTransformer": transformer}, FILE["event"], rule_name="rule", rule_arn="arn:rule")
    assert text == fact["text"]


@pytest.mark.parametrize("fact", FILE["refused"], ids=[fact["source"] for fact in FILE["refused"]])
def test_an_input_that_aws_refuses_is_refused(fact: dict[str, Any]) -> None:
    assert fact["says"] in (refusal({"Id": "1", **fact["target"]}) or "")


def test_an_event_without_its_detail_has_names_in_camel_case() -> None:
    filled = json.loads(transformed({"InputTemplate": "<aws.events.event>"}, FILE["event"], rule={}))
    assert filled.keys() == {"source", "detailType", "time"}
