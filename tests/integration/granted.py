"""Which of the permissions that roles have were needed, by the twin's record of its requests."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

from local.aws.access.evaluation import Permission, applies, listed
from local.aws.access.guard import Call
from local.aws.server import AwsServer


def unused(aws: AwsServer, role: str) -> set[str]:
    """Actions that a role's policies allow and that no request has needed, with the service of the resource."""
    calls = [call for call in aws.guard.calls if call.caller.endswith(f"role/{role}") and call.allowed]
    return {
        f"{action} on {_short(resource)}"
        for statement in _statements(aws, role)
        for action in listed(statement["Action"])
        for resource in listed(statement["Resource"])
        if not _needed({**statement, "Action": action, "Resource": resource}, calls)
    }


def _statements(aws: AwsServer, role: str) -> Iterator[Any]:
    iam = aws.client("iam")
    for name in iam.list_role_policies(RoleName=role)["PolicyNames"]:
        yield from iam.get_role_policy(RoleName=role, PolicyName=name)["PolicyDocument"]["Statement"]
    for policy in iam.list_attached_role_policies(RoleName=role)["AttachedPolicies"]:
        arn = policy["PolicyArn"]
        version = iam.get_policy(PolicyArn=arn)["Policy"]["DefaultVersionId"]
        yield from iam.get_policy_version(PolicyArn=arn, VersionId=version)["PolicyVersion"]["Document"]["Statement"]


def _needed(statement: Any, calls: Iterable[Call]) -> bool:
    return any(applies(statement, Permission(call.action, call.resource, dict(call.context))) for call in calls)


def _short(resource: str) -> str:
    return resource.split(":", 5)[-1] if resource.startswith("arn:") else resource


def denied(aws: AwsServer) -> list[str]:
    """Requests that were refused, as sentences."""
    return sorted(
        json.dumps([call.caller, call.action, call.resource, dict(call.context)])
        for call in aws.guard.calls
        if not call.allowed
    )
