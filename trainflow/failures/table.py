"""The table of rules that lead from evidence to an error: `table.toml`, read once per process, at the first failure."""

from __future__ import annotations

import pkgutil
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from typing import Any

from trainflow.failures.error_table import NamedError, error_table


class Kind(StrEnum):
    """Kinds of rules, the strongest first."""

    CONDITION = "condition"
    CAUSE = "cause"
    LINK = "link"
    SIGNAL = "signal"
    CONSEQUENCE = "consequence"
    UNCAUGHT = "uncaught"
    GANG = "gang"


@dataclass(frozen=True, kw_only=True)
class Rule:
    """A pattern of evidence that leads to an error."""

    name: str
    kind: Kind
    error: NamedError
    error_after_steps: NamedError
    """The class for a run that has logged a step."""
    error_by_line: tuple[tuple[re.Pattern[str], NamedError], ...]
    """More exact classes, by what else the line says; the first that is found counts."""
    advice: str
    """Advice, if it is more than that of the class; else empty."""
    speakers: frozenset[str]
    """Speakers whose lines may match `log`; empty for all."""
    not_of: frozenset[str]
    """Speakers whose lines do not match `log`: they mean something else by the same words."""
    log: tuple[re.Pattern[str], ...]
    message: tuple[re.Pattern[str], ...]
    exception_says: tuple[re.Pattern[str], ...]
    pending: tuple[re.Pattern[str], ...]
    job_reasons: frozenset[str]
    pod_reasons: frozenset[str]
    exit_codes: frozenset[int]
    exceptions: frozenset[str]
    exception_named: tuple[re.Pattern[str], ...]
    """Patterns for names of exceptions, in their own spelling."""
    yields: bool
    """Whether a final exception with a rule of its own overrides this rule: the line may describe a problem that was
    handled."""
    hang: bool
    """Whether a line that matches `log` shows that a running job hangs."""

    def error_at(self, *, has_steps: bool, line: str = "") -> NamedError:
        """The class of a job's failure.

        Args:
            has_steps: Whether the run has logged a step.
            line: The line that decides, in lower case.
        """
        exact = next((error for expression, error in self.error_by_line if expression.search(line)), None)
        return exact or (self.error_after_steps if has_steps else self.error)


@dataclass(frozen=True)
class Table:
    """The whole table."""

    rules: tuple[Rule, ...]
    speakers: Mapping[str, tuple[re.Pattern[str], ...]]

    def speaker(self, searched: str) -> str | None:
        """The speaker of a line in lower case; None if the line holds no speaker's words."""
        found = (name for name, words in self.speakers.items() if any(word.search(searched) for word in words))
        return next(found, None)

    def finds(self, rule: Rule, searched: str) -> bool:
        """Whether a line in lower case matches a rule."""
        if not any(expression.search(searched) for expression in rule.log):
            return False
        if not (rule.speakers or rule.not_of):
            return True
        speaker = self.speaker(searched)
        return speaker not in rule.not_of and (not rule.speakers or speaker in rule.speakers)

    def of_kind(self, kind: Kind) -> Iterator[Rule]:
        """The rules of one kind in their order."""
        return (rule for rule in self.rules if rule.kind is kind)


@cache
def failure_table() -> Table:
    """The table, with its expressions compiled."""
    text = pkgutil.get_data(__package__, "table.toml") or b""
    document = tomllib.loads(text.decode())
    speakers = {name: _compiled(words) for name, words in document["speakers"].items()}
    return Table(tuple(map(_rule, document["rules"])), speakers)


def _rule(row: Mapping[str, Any]) -> Rule:
    errors = error_table()
    return Rule(
        name=row["name"],
        kind=Kind(row["kind"]),
        error=errors[row["class"]],
        error_after_steps=errors[row.get("after_steps", row["class"])],
        error_by_line=tuple((re.compile(says), errors[name]) for name, says in row.get("by_line", {}).items()),
        advice=row.get("advice", ""),
        speakers=frozenset(row.get("speakers", ())),
        not_of=frozenset(row.get("not_of", ())),
        log=_compiled(row.get("log", ())),
        message=_compiled(row.get("message", ())),
        exception_says=_compiled(row.get("exception_says", ())),
        pending=_compiled(row.get("pending", ())),
        job_reasons=frozenset(row.get("job_reason", ())),
        pod_reasons=frozenset(row.get("pod_reason", ())),
        exit_codes=frozenset(row.get("exit_codes", ())),
        exceptions=frozenset(row.get("exceptions", ())),
        exception_named=_compiled(row.get("exception_named", ())),
        yields=row.get("yields", False),
        hang=row.get("hang", False),
    )


def _compiled(expressions: Sequence[str]) -> tuple[re.Pattern[str], ...]:
    return tuple(re.compile(expression) for expression in expressions)
