"""Checks of a Task's resource and of the names of its parameters, by botocore's models."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from local.aws.request_limits import operation_model

RESOURCE = re.compile(
    r"arn:aws[\w-]*:states:[\w-]*:\d*:(?P<sdk>aws-sdk:)?(?P<service>\w+):(?P<action>\w+)"
    r"(?P<pattern>\.sync(:2)?|\.waitForTaskToken)?"
)
FUNCTION = re.compile(r"arn:aws[\w-]*:(lambda:[\w-]*:\d+:function|states:[\w-]*:\d+:activity):.+")

OPTIMIZED: Mapping[str, tuple[str, ...]] = {
    "lambda": ("invoke",),
    "dynamodb": ("getItem", "putItem", "updateItem", "deleteItem"),
    "events": ("putEvents",),
    "sns": ("publish",),
    "sqs": ("sendMessage",),
    "states": ("startExecution",),
}
"""Actions of optimized integrations that the twin can execute (Step Functions developer guide, 'Integrating optimized
services'). Those of other services are not checked."""

NAMES_IN_BOTOCORE = {"states": "stepfunctions", "sfn": "stepfunctions", "cloudwatchlogs": "logs"}


def faults_of_task(state: Mapping[str, Any], place: str) -> Iterator[str]:
    """The reasons why the service would refuse a Task's resource and parameters."""
    resource = state.get("Resource")
    found = RESOURCE.fullmatch(resource) if isinstance(resource, str) else None
    actions = OPTIMIZED.get(found["service"]) if found and not found["sdk"] else None
    is_unknown = found is None and not (isinstance(resource, str) and FUNCTION.fullmatch(resource))
    if is_unknown or (found and actions is not None and found["action"] not in actions):
        yield (
            f"SCHEMA_VALIDATION_FAILED: The resource provided {resource} is not recognized. The value is not a valid "
            f"resource ARN, or the resource is not available in this region. at {place}/Resource"
        )
    elif found and (actions is not None or found["sdk"]):
        yield from _faults_of_parameters(found, state.get("Parameters", {}), f"{place}/Parameters")
    credentials = state.get("Credentials")
    if credentials is not None and not {"RoleArn", "RoleArn.$"} & set(credentials):
        yield f"SCHEMA_VALIDATION_FAILED: The field 'RoleArn' is required but was missing at {place}/Credentials"


def _faults_of_parameters(resource: re.Match[str], parameters: Any, place: str) -> Iterator[str]:
    service = resource["service"]
    model = operation_model(NAMES_IN_BOTOCORE.get(service, service), resource["action"])
    if model is None or model.input_shape is None or not isinstance(parameters, Mapping):
        return
    known = {_capitalized(name): name for name in model.input_shape.members}
    given = {key.removesuffix(".$") for key in parameters}
    for name in sorted(given - known.keys()):
        yield f"SCHEMA_VALIDATION_FAILED: The field '{name}' is not supported by Step Functions at {place}"
    for name in sorted(_capitalized(each) for each in model.input_shape.required_members):
        if name not in given:
            yield f"SCHEMA_VALIDATION_FAILED: The field '{name}' is required but was missing at {place}"


def _capitalized(name: str) -> str:
    return name[:1].upper() + name[1:]
