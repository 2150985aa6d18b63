"""Findings that are accepted, each with the reason."""

from __future__ import annotations

import re
from dataclasses import dataclass

from stacks.checks.templates import Finding


@dataclass(frozen=True, kw_only=True)
class Accepted:
    """An accepted finding of one rule."""

    rule: str
    resource: str
    """Pattern that the whole logical id has to match; logical ids end with hashes."""
    sentence: str = ".*"
    """Pattern of the finding's sentence, where only one of several findings is accepted."""
    reason: str

    def covers(self, finding: Finding) -> bool:
        """Whether this is the accepted finding."""
        return (
            self.rule == finding.rule
            and re.fullmatch(self.resource, finding.logical_id) is not None
            and re.fullmatch(self.sentence, finding.sentence) is not None
        )


ACCEPTED: tuple[Accepted, ...] = (
    Accepted(
        rule="nodes-off",
        resource=r".*Nodegroup(System|SmallJobs).*",
        reason="DNS, controllers and staging pods need nodes that are always there; they are a few small ones.",
    ),
)
"""Accepted findings of this app."""
