"""Findings about an account: one line a check, with its level and the fix."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from trainflow.cli.account.facts import Unknown


class Level(StrEnum):
    """Importance of a finding, the worst first."""

    FAILS = "fails"
    """The deployment, or what it is made for, would fail."""
    SURPRISES = "surprises"
    """It works, but with an unexpected bill, wait or limit."""
    UNCHECKED = "unchecked"
    """It could not be found out."""
    FINE = "fine"


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One line of the list."""

    check: str
    """Which check it is of; several findings may be of one check."""
    level: Level
    what: str
    why: str = ""
    """Consequence of the finding; empty if everything is fine."""
    fix: str = ""
    """The command or the change that puts it right; empty for what is fine."""


def fine(check: str, what: str) -> Finding:
    """Nothing to do."""
    return Finding(check=check, level=Level.FINE, what=what)


def fails(check: str, what: str, *, why: str, fix: str) -> Finding:
    """Something would fail."""
    return Finding(check=check, level=Level.FAILS, what=what, why=why, fix=fix)


def surprises(check: str, what: str, *, why: str, fix: str) -> Finding:
    """Something would surprise."""
    return Finding(check=check, level=Level.SURPRISES, what=what, why=why, fix=fix)


def unchecked(check: str, what: str, unknown: Unknown, *, why: str) -> Finding:
    """Something could not be found out.

    Args:
        check: Of the finding.
        what: What was to be found out, as the beginning of a sentence: "whether …".
        unknown: Why it could not.
        why: Why it matters.
    """
    return Finding(
        check=check,
        level=Level.UNCHECKED,
        what=f"{what} could not be checked: {unknown.reason}",
        why=why,
        fix=unknown.fix,
    )


def something_fails(findings: Iterable[Finding]) -> bool:
    """Whether the deployment would not do what the configuration says."""
    return any(finding.level is Level.FAILS for finding in findings)
