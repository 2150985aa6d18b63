"""The stacks of functions, state machines and triggers on a cluster that is there already, synthesized for tests."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import aws_cdk as cdk
from aws_cdk.assertions import Template

from stacks.cluster.cluster_reference import existing_cluster
from stacks.images.stack import ImagesStack
from stacks.orchestration.stack import OrchestrationStack
from stacks.storage.stack import StorageStack
from stacks.triggers.stack import TriggersStack
from trainflow.configuration.deployment import Configuration

IN_NETWORK = {
    "vpc_id": "vpc-0123456789abcdef0",
    "subnet_ids": ["subnet-0123456789abcdef0", "subnet-0123456789abcdef1"],
    "security_group_id": "sg-0123456789abcdef0",
}
WEEKLY = {
    "name": "weekly",
    "expression": "cron(0 2 ? * SAT *)",
    "time_zone": "Europe/Berlin",
    "spec": "runs/demo.yaml",
}
ASLEEP = {"name": "asleep", "expression": "rate(7 days)", "spec": "runs/demo.yaml", "enabled": False}
PIN = "@sha256:" + "0" * 64


def configuration(**changes: Any) -> Configuration:
    """A deployment on an existing cluster, which functions reach from inside its network."""
    document: dict[str, Any] = {
        "version": 1,
        "name": "blue",
        "environment": "development",
        "region": "us-west-2",
        "existing_cluster": {"name": "theirs", **IN_NETWORK},
        "capacity": {
            "nodegroups": [{"instance_type": "trn1.32xlarge", "max_nodes": 2}],
            "vcpu_quotas": {"trn_on_demand": 256},
            "idle_minutes": 25,
        },
        "storage": {"lustre": None},
        "images": {"neuron_base": f"example.org/neuron{PIN}", "cpu_base": f"example.org/cpu{PIN}"},
        "schedules": [WEEKLY, ASLEEP],
        "alarms": {"emails": ["operator@example.org"]},
    }
    return Configuration.model_validate(document | changes)


class Deployed:
    """The stacks, and their templates by name."""

    def __init__(self, settings: Configuration) -> None:
        context = json.loads(Path("cdk.json").read_text())["context"]
        self.app = cdk.App(context={**context, "aws:cdk:bundling-stacks": []})
        common: dict[str, Any] = {"configuration": settings, "env": cdk.Environment(region=settings.region)}
        storage = StorageStack(self.app, "Storage", network=None, **common)
        images = ImagesStack(self.app, "Images", **common)
        shared: dict[str, Any] = {"storage": storage, "cluster": existing_cluster(storage, settings), **common}
        self.orchestration = OrchestrationStack(self.app, "Orchestration", images=images, **shared)
        self.triggers = TriggersStack(self.app, "Triggers", orchestration=self.orchestration, **shared)
        self.templates = {
            stack.stack_name: Template.from_stack(stack).to_json()
            for stack in (storage, images, self.orchestration, self.triggers)
        }

    def resources(self, kind: str, *stacks: str) -> dict[str, dict[str, Any]]:
        """Resources of a type by logical id: of the stacks named, or of both that are tested here."""
        return {
            logical_id: resource
            for stack in stacks or ("Orchestration", "Triggers")
            for logical_id, resource in self.templates[stack]["Resources"].items()
            if resource["Type"] == kind
        }

    def properties(self, kind: str, *stacks: str) -> dict[str, dict[str, Any]]:
        """Their properties."""
        return {logical_id: resource["Properties"] for logical_id, resource in self.resources(kind, *stacks).items()}

    def find(self, reference: Any) -> str:
        """The logical id of the resource that a reference leads to, through exports, aliases and versions."""
        match reference:
            case {"Fn::ImportValue": name}:
                for template in self.templates.values():
                    for output in template.get("Outputs", {}).values():
                        if output.get("Export", {}).get("Name") == name:
                            return self.find(output["Value"])
            case {"Ref": logical_id} | {"Fn::GetAtt": [logical_id, _]}:
                for kind, of in OTHER_NAMES.items():
                    if found := self.properties(kind).get(logical_id):
                        return self.find(found[of])
                return str(logical_id)
        raise LookupError(reference)

    def functions(self) -> dict[str, dict[str, Any]]:
        """Properties of the functions by their names in the list of functions."""
        return {
            function["FunctionName"].removeprefix("blue-"): function
            for function in self.properties("AWS::Lambda::Function").values()
        }

    def name_of(self, reference: Any) -> str:
        """The function that a reference leads to."""
        found = self.properties("AWS::Lambda::Function")[self.find(reference)]
        return str(found["FunctionName"]).removeprefix("blue-")

    def grants(self) -> Iterator[tuple[str, str, str, dict[str, Any]]]:
        """Every permission: who (a function's name or a role's logical id), action, ARN as text, whole statement."""
        of_function = {self.find(function["Role"]): name for name, function in self.functions().items()}
        policies = self.properties("AWS::IAM::ManagedPolicy")
        for logical_id, role in self.properties("AWS::IAM::Role").items():
            documents = [policy["PolicyDocument"] for policy in role["Policies"]]
            documents += [policies[self.find(arn)]["PolicyDocument"] for arn in role.get("ManagedPolicyArns", ())]
            for document in documents:
                for statement in document["Statement"]:
                    assert statement["Effect"] == "Allow"
                    for action in listed(statement["Action"]):
                        for resource in listed(statement["Resource"]):
                            yield of_function.get(logical_id, logical_id), action, text(resource), statement

    def who_may(self, action: str, *, on: str = "") -> set[str]:
        """Those who hold a permission for it, on resources whose ARN has `on` in it."""
        return {who for who, granted, resource, _ in self.grants() if granted == action and on in resource}


OTHER_NAMES = {
    "AWS::Lambda::Alias": "FunctionName",
    "AWS::Lambda::Version": "FunctionName",
    "AWS::StepFunctions::StateMachineVersion": "StateMachineArn",
}
"""Types that stand for another resource, and the property that says for which."""


@cache
def deployed(*, production: bool = False, in_network: bool = True) -> Deployed:
    """The stacks in one of a few forms, each synthesized once."""
    changes: dict[str, Any] = {"environment": "production" if production else "development"}
    if production:
        changes["schedules"] = []
    if not in_network:
        changes["existing_cluster"] = {"name": "theirs"}
    return Deployed(configuration(**changes))


def listed(value: Any) -> Sequence[Any]:
    """A value where a template may have one or several."""
    return value if isinstance(value, list) else [value]


def text(value: Any) -> str:
    """A value with references in it as one string, the references by their names."""
    match value:
        case {"Fn::Join": [delimiter, parts]}:
            return str(delimiter).join(map(text, parts))
        case {"Fn::GetAtt": [logical_id, _]} | {"Ref": logical_id}:
            return f"<{logical_id}>"
        case {"Fn::ImportValue": name}:
            return f"<{name}>"
        case _:
            return str(value)
