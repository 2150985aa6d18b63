from __future__ import annotations

import json
from typing import Any

import pytest

from local.aws.event_inputs import transformed

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
