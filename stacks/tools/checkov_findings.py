"""checkov's findings over a cloud assembly, but for those that are accepted with a reason.

python -m stacks.tools.checkov_findings cdk.out .venv-checkov/bin/checkov
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

ACCEPTED = Path("config/checkov-accepted.yaml")


@dataclass(frozen=True)
class CheckovFinding:
    """One rule that one resource breaks."""

    check: str
    rule: str
    template: str
    resource: str
    """Logical id."""

    def __str__(self) -> str:
        return f"{self.check} {self.template} {self.resource}: {self.rule}"


@dataclass(frozen=True, kw_only=True)
class Acceptance:
    """Findings that stand."""

    checks: tuple[str, ...]
    resources: tuple[str, ...]
    reason: str

    def covers(self, finding: CheckovFinding) -> bool:
        """Whether the finding is one of them."""
        named = any(re.fullmatch(pattern, finding.resource) for pattern in self.resources)
        return finding.check in self.checks and named


def read_accepted(path: Path = ACCEPTED) -> list[Acceptance]:
    """The list of accepted findings."""
    return [
        Acceptance(checks=tuple(entry["checks"]), resources=tuple(entry["resources"]), reason=entry["reason"])
        for entry in yaml.safe_load(path.read_text())
    ]


def complaints(findings: Sequence[CheckovFinding], accepted: Iterable[Acceptance]) -> list[str]:
    """Findings that are not accepted, and accepted findings, pattern by pattern, that no longer occur."""
    accepted = list(accepted)
    wrong = [str(finding) for finding in findings if not any(entry.covers(finding) for entry in accepted)]
    for entry in accepted:
        for check in entry.checks:
            for pattern in entry.resources:
                alone = Acceptance(checks=(check,), resources=(pattern,), reason=entry.reason)
                if not any(alone.covers(finding) for finding in findings):
                    wrong.append(f"{ACCEPTED}: nothing needs {check} for {pattern} any more; remove it")
    return wrong


def parse(report: Any) -> list[CheckovFinding]:
    """The failed checks of checkov's JSON report."""
    reports = report if isinstance(report, list) else [report]
    return [
        CheckovFinding(
            check=failed["check_id"],
            rule=failed["check_name"],
            template=failed["file_path"].lstrip("/"),
            resource=failed["resource"].rpartition(".")[2],
        )
        for part in reports
        for failed in part.get("results", {}).get("failed_checks", ())
    ]


def main(folder: str, checkov: str) -> int:
    """Run checkov; 0 if nothing is wrong."""
    command = [checkov, "--framework", "cloudformation", "--skip-download", "--directory", folder, "--output", "json"]
    run = subprocess.run([*command, "--soft-fail"], capture_output=True, text=True, check=True)
    found = parse(json.loads(run.stdout))
    wrong = complaints(found, read_accepted())
    print("\n".join(wrong) or f"checkov: {len(found)} findings, each accepted with a reason")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
