"""Every property, ARN and permission of the templates against what AWS publishes: resource schemas, and the table of
actions and resources of every service. Both are carried by cfn-lint."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from importlib import resources
from typing import Any

import jsonschema
import pytest
import regex

from stacks.checks.storage import WANT_A_STAR
from stacks.checks.templates import Resource, Templates, listed, values
from tests.infrastructure.assembly import example, synthesize
from tests.infrastructure.resolved import REGION, Resolver
from tests.infrastructure.resource_schemas import resource_schema
from tests.infrastructure.slurm import PCS, with_slurm

APPS = {"example": example, "slurm": lambda: synthesize(with_slurm({"pcs": PCS}))}
POLICIES = ("PolicyDocument", "AssumeRolePolicyDocument", "KeyPolicy", "RepositoryPolicyText")
ARN = re.compile(r"arn:aws[a-z-]*:(?P<service>[a-z0-9-]+):[a-z0-9-]*:\d*:.+", re.DOTALL)


@cache
def services() -> Mapping[str, Any]:
    """Actions and resources by service, with the formats of their ARNs."""
    folder = resources.files("cfnlint.data.AdditionalSpecs")
    found: Mapping[str, Any] = json.loads(folder.joinpath("Policies.json").read_text(encoding="utf-8"))
    return found


@cache
def resolved(app: str) -> tuple[tuple[Resource, dict[str, Any]], ...]:
    """Every resource of AWS's, with properties that have the values of a deployment."""
    templates = Templates(APPS[app]())
    resolver = Resolver(templates)
    return tuple(
        (each, _without_none(resolver.properties(each)))
        for each in templates.resources()
        if not each.type.startswith(("Custom::", "AWS::CDK::", "AWS::CloudFormation::CustomResource"))
    )


def _without_none(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_none(inner) for key, inner in value.items() if inner is not None}
    return [_without_none(inner) for inner in value if inner is not None] if isinstance(value, list) else value


def _pattern(_validator: Any, pattern: str, text: Any, _schema: Any) -> Iterator[jsonschema.ValidationError]:
    """Patterns of CloudFormation's schemas have classes of Unicode, which `re` does not know."""
    if isinstance(text, str) and not regex.search(pattern, text):
        yield jsonschema.ValidationError(f"{text!r} does not match {pattern!r}")


def _readable(schema: Any) -> Any:
    """A schema in which maps such as tags take any name where `re` does not know the pattern of names."""
    if isinstance(schema, dict):
        if any("\\p{" in name for name in schema.get("patternProperties", ())):
            return {"type": "object"}
        return {key: _readable(inner) for key, inner in schema.items()}
    return list(map(_readable, schema)) if isinstance(schema, list) else schema


Validator = jsonschema.validators.extend(jsonschema.Draft7Validator, {"pattern": _pattern})


@pytest.mark.parametrize("app", APPS)
def test_every_property_is_what_the_schema_of_its_resource_takes(app: str) -> None:
    faults = []
    for resource, properties in resolved(app):
        schema = resource_schema(REGION, resource.type)
        for error in Validator(_readable(schema)).iter_errors(properties):
            where = ".".join(map(str, error.absolute_path))
            faults.append(f"{resource.stack}/{resource.logical_id} ({resource.type}) {where}: {error.message[:300]}")
    assert faults == []


def _matches(arn: str, formats: Iterable[str]) -> bool:
    """Whether an ARN, or a pattern of ARNs, has one of the forms of a service's resources."""
    return any(re.fullmatch(re.sub(r"\$\{[^}]+\}", "[^:]*", each), arn, re.DOTALL) for each in formats)


def _formats(service: str, kinds: Iterable[str] | None = None) -> list[str]:
    """Formats of a service's ARNs, all or those of some kinds."""
    found = services()[service].get("Resources", {})
    by_name = {name.lower(): kind["ARNFormats"] for name, kind in found.items()}
    return [text for kind in (by_name if kinds is None else kinds) for text in by_name.get(kind.lower(), ())]


def _outside_policies(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for key, inner in value.items():
            if key not in POLICIES:
                yield from _outside_policies(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _outside_policies(inner)
    elif isinstance(value, str) and ARN.fullmatch(value):
        yield value


@pytest.mark.parametrize("app", APPS)
def test_every_arn_has_a_form_that_its_service_documents_and_names_one_resource(app: str) -> None:
    checked, faults = 0, []
    for resource, properties in resolved(app):
        for arn in _outside_policies(properties):
            found = ARN.fullmatch(arn)
            assert found is not None
            checked += 1
            if found["service"] in services() and not _matches(arn, _formats(found["service"])):
                faults.append(f"{resource.logical_id} ({resource.type}): {arn} has no form of {found['service']}")
            if "*" in arn and resource.type not in WANT_A_STAR:
                faults.append(f"{resource.logical_id} ({resource.type}): {arn} is a pattern")
    assert faults == []
    assert checked > 100


def _statements(app: str) -> Iterator[tuple[Resource, Mapping[str, Any]]]:
    for resource, properties in resolved(app):
        for value in values(properties):
            if isinstance(value, dict) and isinstance(value.get("Statement"), list):
                yield from ((resource, statement) for statement in value["Statement"])


@pytest.mark.parametrize("app", APPS)
def test_every_action_of_a_policy_exists(app: str) -> None:
    unknown = set()
    for resource, statement in _statements(app):
        for action in listed(statement.get("Action")):
            service, _, name = action.partition(":")
            known = services().get(service, {}).get("Actions", {})
            pattern = re.compile(re.escape(name.lower()).replace(r"\*", ".*"))
            if action != "*" and not any(pattern.fullmatch(each) for each in known):
                unknown.add(f"{resource.logical_id}: {action}")
    assert unknown == set()


@pytest.mark.parametrize("app", APPS)
def test_every_resource_of_a_policy_is_one_that_its_action_takes(app: str) -> None:
    """An action that takes no resource is allowed on all of them only, and others on ARNs of their own kinds."""
    faults = set()
    for resource, statement in _statements(app):
        named = [each for each in listed(statement.get("Resource")) if isinstance(each, str) and each != "*"]
        for action in listed(statement.get("Action")) if named else ():
            service, _, name = action.partition(":")
            known = services().get(service, {}).get("Actions", {}).get(name.lower())
            if known is None:
                continue
            kinds = known.get("Resources", ())
            if not any(_matches(each, _formats(service, kinds)) for each in named):
                faults.add(f"{resource.logical_id}: {action} takes {list(kinds)}, not {named[0]}")
    assert faults == set()


@pytest.mark.parametrize(
    ("arn", "service"),
    [
        ("arn:aws:logs:us-west-2:111122223333:loggroup:x", "logs"),
        ("arn:aws:sns:us-west-2:111122223333:topic/x", "fsx"),
        ("arn:aws:states:us-west-2:111122223333:statemachine:x", "states"),
    ],
)
def test_an_arn_of_another_form_is_found(arn: str, service: str) -> None:
    assert not _matches(arn, _formats(service))
