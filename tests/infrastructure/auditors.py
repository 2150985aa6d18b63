"""What cdk-nag's packs of rules find in an app, as `make synth` asks them: by CDK's validation and its report."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aws_cdk as cdk

from stacks.checks.packs import PACKS, packs

ACKNOWLEDGED = cdk.Validations.ACKNOWLEDGED_RULES_METADATA_KEY


@dataclass(frozen=True, order=True)
class Acknowledgement:
    """A rule that may be broken below a construct."""

    rule: str
    path: str


def audit(app: cdk.App) -> dict[str, Any]:
    """The validation report of an app, which has been synthesized before or not.

    Raises:
        Exception: CDK's, with the findings, if one of them is not acknowledged.
    """
    cdk.Validations.of(app).add_plugins(*packs(app))
    assembly = app.synth(force=True)
    return read_report(Path(assembly.directory))


def read_report(assembly: Path) -> dict[str, Any]:
    """What CDK wrote beside the templates about the packs, by name; not the warnings of CDK's own constructs."""
    report = json.loads((assembly / "validation-report.json").read_text())
    return {plugin["pluginName"]: plugin for plugin in report["pluginReports"] if plugin["pluginName"] in PACKS}


def unacknowledged(report: dict[str, Any]) -> list[str]:
    """Names of the broken rules for which there is no reason."""
    return [violation["ruleName"] for plugin in report.values() for violation in plugin["violations"]]


def in_use(report: dict[str, Any]) -> set[Acknowledgement]:
    """The acknowledgements that a finding was matched with."""
    return {
        Acknowledgement(violation["acknowledgedId"], violation["acknowledgedAt"])
        for plugin in report.values()
        for violation in plugin.get("suppressedViolations", [])
    }


def written(assembly: Path) -> set[Acknowledgement]:
    """Every acknowledgement of a pack's rule beside a construct, as the cloud assembly keeps them."""
    return {each for each in _written(assembly) if each.rule.partition("::")[0] in PACKS}


def _written(assembly: Path) -> Iterator[Acknowledgement]:
    for file in assembly.glob("*.metadata.json"):
        for path, entries in json.loads(file.read_text()).items():
            for entry in entries:
                if entry["type"] == ACKNOWLEDGED:
                    yield from (Acknowledgement(rule, path.removeprefix("/")) for rule in entry["data"])
