"""Our own rules for what is deployed, beside cdk-nag's: pure functions over the synthesized templates.

`cdk synth` fails on what they find: `Validations.of(app).add_plugins(TrainflowChecks())`.
"""

from __future__ import annotations

from stacks.checks.accepted import ACCEPTED, Accepted
from stacks.checks.plugin import TrainflowChecks
from stacks.checks.rules import CHECKS, findings
from stacks.checks.templates import Finding, Template

__all__ = ["ACCEPTED", "CHECKS", "Accepted", "Finding", "Template", "TrainflowChecks", "findings"]
