"""Single stacks of the app, synthesized without the rest: a test of one stack waits for no other."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import aws_cdk as cdk
import yaml

from stacks.network.stack import NetworkStack
from stacks.storage.stack import StorageStack
from tests.infrastructure.assembly import EXAMPLE
from trainflow.configuration.deployment import Configuration

Resources = Mapping[str, dict[str, Any]]
"""Resources by logical id, in the form that CloudFormation reads."""

PINNED = "public.ecr.aws/neuron/base@sha256:" + "0" * 64


def configuration(**changes: Any) -> Configuration:
    """The example with other sections; what production asks for, pinned images and nothing deleted, is met."""
    document = yaml.safe_load(EXAMPLE.read_text()) | changes
    if document["environment"] == "production":
        document |= {"storage": {}} | changes
        document.setdefault("images", {"neuron_base": PINNED, "cpu_base": PINNED})
    return Configuration.model_validate(document)


def settings(of: Configuration) -> dict[str, Any]:
    """What every stack is given."""
    return {"configuration": of, "env": cdk.Environment(region=of.region)}


def make_app() -> cdk.App:
    """An app with the feature flags of the deployment."""
    return cdk.App(context=json.loads(Path("cdk.json").read_text())["context"], outdir=tempfile.mkdtemp())


def network_and_storage(app: cdk.App, of: Configuration) -> tuple[NetworkStack | None, StorageStack]:
    """What the other stacks stand on."""
    network = NetworkStack(app, "Network", **settings(of)) if of.network else None
    return network, StorageStack(app, "Storage", network=network, **settings(of))


def resources(app: cdk.App, stack: str) -> Resources:
    """The resources of one stack's template."""
    found: Resources = app.synth().get_stack_by_name(stack).template["Resources"]
    return found


def of_type(found: Resources, kind: str) -> dict[str, dict[str, Any]]:
    """The properties of the resources of a type, by logical id."""
    return {name: resource["Properties"] for name, resource in found.items() if resource["Type"] == kind}


def the_only(found: Resources, kind: str) -> dict[str, Any]:
    """The properties of the one resource of a type."""
    (properties,) = of_type(found, kind).values()
    return properties
