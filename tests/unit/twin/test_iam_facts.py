"""IAM's documented cases, each a policy, a request and whether it is allowed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from local.aws.access.evaluation import Caller, Permission, decide
from local.aws.access.needed_permissions import request_permissions
from tests.unit.twin.test_needed_permissions import Encrypted

FILE = yaml.safe_load(Path("tests/assets/aws/iam.yaml").read_text(encoding="utf-8"))
FACTS, REQUESTS = FILE["facts"], FILE["requests"]
ACCOUNT = "123456789012"
ROLE = f"arn:aws:iam::{ACCOUNT}:role/app"
APP = Caller("role", ROLE, "s1", unique_id="AROAX:s1", tags=(("area", "west"),))
ACTION, RESOURCE = "s3:GetObject", "arn:aws:s3:::data/a"


def statement(fact: dict[str, Any]) -> dict[str, Any]:
    names = {"principal": "Principal", "not_principal": "NotPrincipal", "condition": "Condition"}
    return {
        "Effect": fact.get("effect", "Allow"),
        "Action": ACTION,
        "Resource": fact.get("resources", "*"),
        **{name: fact[key] for key, name in names.items() if key in fact},
    }


def policy(fact: dict[str, Any]) -> dict[str, Any]:
    version = fact.get("version", "2012-10-17")
    return {"Statement": [statement(fact)], **({"Version": version} if version else {})}


@pytest.mark.parametrize("fact", FACTS, ids=[fact["source"] for fact in FACTS])
def test_a_request_is_judged_as_the_guide_says(fact: dict[str, Any]) -> None:
    is_of_resource = "principal" in fact or "not_principal" in fact
    allow = {"Effect": "Allow", "Action": ACTION, "Resource": "*"}
    identity = [{"Statement": [allow]}] if fact.get("identity") else []
    context = {name.lower(): tuple(values) for name, values in fact.get("context", {}).items()}
    decision = decide(
        Caller("service", fact["service"]) if "service" in fact else APP,
        Permission(ACTION, fact.get("resource", RESOURCE), context),
        identity=identity if is_of_resource else [policy(fact)],
        resource=policy(fact) if is_of_resource else None,
        account=ACCOUNT,
    )
    assert decision.allowed is fact["allowed"]


@pytest.mark.parametrize("fact", REQUESTS, ids=[fact["operation"] for fact in REQUESTS])
def test_a_request_has_the_condition_keys_of_its_service(fact: dict[str, Any]) -> None:
    needed = request_permissions(fact["service"], fact["operation"], fact["parameters"], Encrypted())
    found = {each.action: each.context for each in needed}
    for action, context in fact["needs"].items():
        assert {name: list(found[action][name]) for name in context} == context


def test_the_facts_are_at_least_forty() -> None:
    assert len(FACTS) >= 40
