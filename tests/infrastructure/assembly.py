"""The example configuration, synthesized once for all tests that read its templates."""

from __future__ import annotations

import json
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import aws_cdk as cdk

from stacks.composition import compose
from trainflow.configuration.deployment import Configuration, load_configuration

EXAMPLE = Path("config/example.yaml")


def synthesize(configuration: Configuration) -> dict[str, dict[str, Any]]:
    """Templates by stack name; functions without their bundles, which take pip half a minute."""
    context = {**json.loads(Path("cdk.json").read_text())["context"], "aws:cdk:bundling-stacks": []}
    with tempfile.TemporaryDirectory() as folder:
        app = cdk.App(context=context, outdir=folder)
        compose(app, configuration)
        assembly = app.synth()
        return {stack.stack_name: json.loads(Path(stack.template_full_path).read_text()) for stack in assembly.stacks}


@cache
def example() -> dict[str, dict[str, Any]]:
    """The templates of config/example.yaml."""
    return synthesize(load_configuration(EXAMPLE))
