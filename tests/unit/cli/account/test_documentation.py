"""docs/check-account.md says what the command does."""

from __future__ import annotations

import json
import re
from pathlib import Path

from tests.unit.cli.account.healthy import HEALTHY, configuration, found
from tests.unit.cli.account.test_aws import QUESTIONS
from trainflow.cli.account import document
from trainflow.cli.account.findings import Level, fails

PAGE = Path("docs/check-account.md").read_text()
BLOCKS = [json.loads(block) for block in re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)]


def test_the_policy_allows_every_question_and_nothing_else() -> None:
    (statement,) = BLOCKS[0]["Statement"]
    asked = {action for question in QUESTIONS for action in question.split(" and ")}
    asked = {action if ":" in action else f"servicequotas:{action}" for action in asked}
    by_id = {"ec2:DescribeSecurityGroups", "ec2:DescribeSubnets"}  # asked like ec2:DescribeInstances
    assert set(statement["Action"]) == asked | by_id


def test_the_example_of_the_json_is_of_the_shape_that_is_printed() -> None:
    example = BLOCKS[1]
    finding = fails("bootstrap", "…", why="…", fix="…")
    printed = document(Path("config/mine.yaml"), configuration(), [finding])
    assert example.keys() == printed.keys() and example["version"] == printed["version"]
    assert example["findings"][0].keys() == printed["findings"][0].keys()
    assert example["levels"].keys() == printed["levels"].keys()
    assert set(example["levels"]) == {level.value for level in Level}


def test_every_check_stands_in_the_table() -> None:
    listed = set(re.findall(r"^\| ([\w -]+) \|.*\|.*\|$", PAGE, re.MULTILINE))
    assert {finding.check for finding in found(configuration(), zones=frozenset())} <= listed
    assert HEALTHY.artifacts and "images and charts" in listed
