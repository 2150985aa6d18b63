"""The rules as a validation plugin of the CDK, as cdk-nag's packs are."""

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
    """Fails `cdk synth` on what our own rules find."""

    @property
    def name(self) -> str:
        """As the report shows it."""
        return "Trainflow"

    @property
    def version(self) -> str | None:
        """The rules come with the repository and have no version of their own."""
        return None

    @property
    def rule_ids(self) -> list[str] | None:
        """Told to nobody."""
        return None

    def validate(self, context: cdk.IPolicyValidationContext) -> cdk.PolicyValidationPluginReport:
        """All findings over all stacks at once: references lead from one to another."""
        paths = {path.name.split(".")[0]: path for path in _with_nested(map(Path, context.template_paths))}
        found = findings({stack: json.loads(path.read_text()) for stack, path in paths.items()})
        return cdk.PolicyValidationPluginReport(
            success=not found, violations=[_violation(finding, paths[finding.stack]) for finding in found]
        )


def _with_nested(paths: Iterable[Path]) -> Iterator[Path]:
    """Templates of nested stacks are files that their parents upload; the framework does not name them."""
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
