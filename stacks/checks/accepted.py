"""Findings that we live with, each with the reason."""

from __future__ import annotations

import re
from dataclasses import dataclass

from stacks.checks.templates import Finding


@dataclass(frozen=True, kw_only=True)
class Accepted:
    """One exception from one rule."""

    rule: str
    resource: str
    """Pattern that the logical id has to match as a whole; hashes make whole ids unreadable."""
    sentence: str = ".*"
    """Pattern of the finding, where only one of several is accepted."""
    reason: str

    def covers(self, finding: Finding) -> bool:
        """Whether this is the finding that the exception means."""
        return (
            self.rule == finding.rule
            and re.fullmatch(self.resource, finding.logical_id) is not None
            and re.fullmatch(self.sentence, finding.sentence) is not None
        )


ACCEPTED: tuple[Accepted, ...] = (
    Accepted(
        rule="nodes-off",
        resource=r".*System.*",
        reason="DNS, controllers and staging pods need nodes that are always there; they are two small ones.",
    ),
)
"""Of this app."""
