"""The rules as a validation plugin of the CDK, like cdk-nag's packs."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path

import aws_cdk as cdk
import jsii

from stacks.checks.rules import findings
from stacks.checks.templates import Finding


@jsii.implements(cdk.IPolicyValidationPlugin)
class TrainflowChecks:
    """Makes `cdk synth` fail on the findings of our own rules."""

    @property
    def name(self) -> str:
        """Name of the plugin in the validation report."""
        return "Trainflow"

    @property
    def version(self) -> str | None:
        """None: the rules are part of the repository and have the same version."""
        return None

    @property
    def rule_ids(self) -> list[str] | None:
        """Ids of the rules; the framework does not use them."""
        return None

    def validate(self, context: cdk.IPolicyValidationContext) -> cdk.PolicyValidationPluginReport:
        """Check all stacks at once, since references lead from one stack to another."""
        paths = {path.name.split(".")[0]: path for path in _with_nested(map(Path, context.template_paths))}
        found = findings({stack: json.loads(path.read_text()) for stack, path in paths.items()})
        return cdk.PolicyValidationPluginReport(
            success=not found, violations=[_violation(finding, paths[finding.stack]) for finding in found]
        )


def _with_nested(paths: Iterable[Path]) -> Iterator[Path]:
    """Templates of nested stacks, which the framework does not name; their parents upload them as files."""
    for path in paths:
        yield path
        assets = path.with_name(path.name.replace(".template.json", ".assets.json"))
        files = json.loads(assets.read_text()).get("files", {}) if assets.exists() else {}
        for file in files.values():
            source = str(file.get("source", {}).get("path", ""))
            if source.endswith(".nested.template.json"):
                yield path.with_name(source)


def _violation(finding: Finding, path: Path) -> cdk.PolicyViolation:
    return cdk.PolicyViolation(
        rule_name=finding.rule,
        description=finding.sentence,
        severity="error",
        violating_resources=[
            cdk.PolicyViolatingResource(
                resource_logical_id=finding.logical_id, template_path=str(path), locations=["Properties"]
            )
        ],
    )
