"""The verdict on a failed job: its named error, and the evidence. Pure and total: any text is accepted."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum, auto

from trainflow.failures.error_table import NamedError, error_table
from trainflow.failures.excerpt import Excerpt, excerpt
from trainflow.failures.log_lines import (
    LAST_SIGNAL_EXIT_CODE,
    Line,
    error_file_lines,
    evidence_lines,
    rank_exit_code,
)
from trainflow.failures.table import Kind, Rule, Table, failure_table
from trainflow.protocol.launcher_report import FIRST_SIGNAL_EXIT_CODE, SIGNALS_FROM_OUTSIDE
from trainflow.protocol.result import read_result

MAX_QUOTATION = 500
"""Longest line that a verdict quotes: a sentence, not a log."""

LOG_KINDS = (Kind.CAUSE, Kind.LINK, Kind.CONSEQUENCE)


class Strength(IntEnum):
    """Strength of the evidence for a verdict, the strongest first: it compares the pods of one job."""

    CONDITION = auto()
    NAMED = auto()
    CAUSE = auto()
    EXCEPTION = auto()
    UNCAUGHT = auto()
    """An exception that no rule explains: the program's own. The other pods waited for it."""
    LINK = auto()
    SIGNAL = auto()
    PASSING = auto()
    """An exception that no rule explains and that says that it may pass; an error that the program only logged."""
    UNKNOWN = auto()
    """No evidence: a pod that ended for an unknown reason is still a better cause than a pod that lost it."""
    CONSEQUENCE = auto()
    WEAK = auto()


_NOT_IN_A_REASON = re.compile(r"(?:\bby \d.{0,40}|[\s_-])")
"""Parts of reasons that comparisons ignore: spelling, and the user in Slurm's `CANCELLED by 1001`."""

EXIT_CODES_OF_THE_PROGRAM = frozenset({126, 127, 132, 136, 159})
"""Exit codes of a shell that cannot execute a command, and by SIGILL, SIGFPE and SIGSYS: nobody sends these."""

WRAPPERS = frozenset({"DatasetGenerationError"})
"""Exceptions of libraries that say nothing but that something failed: another exception is named before them."""

LAST_LINES = 3
"""Number of lines at the end of a log that may explain why a program ends by itself."""
_NAMED = re.compile(r"^(?:\w{1,60}\.){0,8}(?P<name>[A-Z]\w{2,60}): ")


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """Evidence about a failed job."""

    lines: Sequence[str] = ()
    """Last lines of the failed pod's log."""
    message: str | None = None
    """The container's termination message."""
    exit_code: int | None = None
    """Exit code of the pod's container: torchrun's, where torchrun starts the ranks."""
    pod_reason: str | None = None
    """Reason of the pod or its container: OOMKilled, Evicted, Error, …"""
    job_reason: str | None = None
    """Reason of the job as a whole: DeadlineExceeded, NodeLost, …, or Slurm's state."""
    pending_reason: str | None = None
    """Reason why a pod is pending, of a gang that did not start in time."""
    has_steps: bool = False
    """Whether the run has logged a step, or may have taken some."""


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """The class of a failure, and the evidence for it."""

    error: NamedError
    rule: str
    """Name of the rule of the table, or `default`."""
    strength: Strength = Strength.UNKNOWN
    quotation: str = ""
    """The line of the log that decided; empty if another evidence did."""
    advice: str = ""
    """Advice, if it is more than the error's own; else empty."""
    rank_exit_code: int | None = None
    """Exit code of the rank that failed first, where torchrun reports it."""
    excerpt: Excerpt = field(default_factory=Excerpt)
    """The lines around the one that decided; the last ones if none did."""

    @property
    def restart(self) -> bool:
        """Whether the same job may succeed at another attempt."""
        return self.error.restart


def judge(evidence: Evidence) -> Verdict:
    """The verdict on a failed job.

    The cluster's own reason comes first, then the error that the program named, then the log: its causes, its broken
    connections, the exit code of the rank that failed first, and what follows from the end of another process. An
    exception that the table does not contain is the program's own, unless its words show that it may pass. Lines that a
    program usually survives, such as warnings, decide only if nothing else does.
    """
    table = failure_table()
    found = ((strength, verdict) for strength, verdict in _candidates(table, evidence) if verdict is not None)
    strength, verdict = next(found)
    lines = _all_lines(evidence)
    return replace(
        verdict,
        strength=strength,
        rank_exit_code=rank_exit_code(lines),
        excerpt=excerpt(lines, verdict.quotation),
    )


def _candidates(table: Table, evidence: Evidence) -> Iterator[tuple[Strength, Verdict | None]]:
    """The verdicts by each kind of evidence, the strongest first; each is sought only if none before it was found."""
    yield Strength.CONDITION, _by_condition(table, evidence)
    lines = evidence_lines(_all_lines(evidence))
    strong = [line for line in lines if not line.weak]
    yield Strength.NAMED, _by_name(table, evidence, lines)
    yield Strength.CAUSE, _by_rules(table, Kind.CAUSE, evidence, strong)
    yield Strength.EXCEPTION, _by_exception(table, evidence, strong)
    yield Strength.EXCEPTION, _by_yielding_rules(table, Kind.CAUSE, evidence, strong)
    yield Strength.EXCEPTION, _by_certain_exit_code(table, evidence)
    yield Strength.EXCEPTION, _by_rules(table, Kind.LINK, evidence, strong)
    yield Strength.UNCAUGHT, _by_error_of_a_rank(table, evidence, strong)
    yield Strength.LINK, _by_yielding_rules(table, Kind.LINK, evidence, strong)
    yield Strength.SIGNAL, _by_exit_code(table, evidence)
    yield Strength.CONSEQUENCE, _by_lines(table, Kind.CONSEQUENCE, evidence, strong)
    yield Strength.PASSING, _by_uncaught_exception(table, evidence, strong)
    yield Strength.PASSING, _by_last_error(table, evidence, lines)
    for kind in LOG_KINDS:
        yield Strength.WEAK, _by_weak_lines(table, kind, evidence, lines)
    yield Strength.UNKNOWN, _by_default(evidence)


def _all_lines(evidence: Evidence) -> list[str]:
    """The log's lines, and those of the termination message: torchrun's error file, a sentence, or the log again."""
    document = read_result(evidence.message)
    if "error" in document or "result" in document:
        return [*evidence.lines, str(document.get("message") or "")]
    return [*evidence.lines, *error_file_lines(evidence.message)]


def _by_condition(table: Table, evidence: Evidence) -> Verdict | None:
    job_reason, pod_reason = _word(evidence.job_reason), _word(evidence.pod_reason)
    told = (evidence.message or "").lower() + "\n" + "\n".join(evidence.lines).lower()[-20_000:]
    pending = " ".join((evidence.pending_reason or "").lower().split())[:4000]
    if evidence.exit_code is not None:
        pending = ""  # the pod has run
    elif pending:
        pending += "\n" + told[-4000:]  # a pod that never ran has no log: these are the cluster's words
    for rule in table.of_kind(Kind.CONDITION):
        by_pod = pod_reason in rule.pod_reasons and (not rule.message or any(x.search(told) for x in rule.message))
        by_pending = bool(pending) and any(expression.search(pending) for expression in rule.pending)
        if by_pod or by_pending or job_reason in rule.job_reasons:
            return _verdict(rule, evidence)
    return None


def _word(reason: str | None) -> str:
    return _NOT_IN_A_REASON.sub("", (reason or "").lower())


def _by_name(table: Table, evidence: Evidence, lines: Sequence[Line]) -> Verdict | None:
    """The error that the program named, in its result or in a line such as `DatasetInvalid: …`.

    What it names is what it could not do. If its message says that the reason passes, the reason decides.
    """
    document = read_result(evidence.message)
    named = [(str(document.get("error")), str(document.get("message") or ""))]
    named += [(found["name"], line.text) for line in lines if (found := _NAMED.match(line.text))]
    for name, message in named:
        error = error_table().get(name)
        if error is not None and error.named_by_programs:
            reason = _by_lines(table, Kind.CAUSE, evidence, evidence_lines([message.partition(": ")[2] or message]))
            if reason is not None and reason.restart and not error.restart:
                return reason
            return Verdict(error=error, rule="named by the program", quotation=message[:MAX_QUOTATION])
    return None


def _by_rules(table: Table, kind: Kind, evidence: Evidence, lines: Sequence[Line]) -> Verdict | None:
    """The verdict by the rules of a kind that do not yield to the final exception of a rank.

    A cause that yields may be that exception. If it matches another line, later rules ignore that line.
    """
    for rule in table.of_kind(kind):
        found = [line for line in lines if _finds(rule, line)]
        if rule.yields:
            lines = [line for line in lines if line.last_words or line not in found]
            found = [line for line in found if line.last_words and kind is Kind.CAUSE]
        if found:
            return _verdict(rule, evidence, found[0])
    return None


def _by_yielding_rules(table: Table, kind: Kind, evidence: Evidence, lines: Sequence[Line]) -> Verdict | None:
    """The verdict by the other rules of a kind, after `_by_rules` has found none."""
    return _first(evidence, [rule for rule in table.of_kind(kind) if rule.yields], lines)


def _by_lines(table: Table, kind: Kind, evidence: Evidence, lines: Sequence[Line]) -> Verdict | None:
    return _first(evidence, table.of_kind(kind), lines)


def _by_weak_lines(table: Table, kind: Kind, evidence: Evidence, lines: Sequence[Line]) -> Verdict | None:
    """The verdict by lines that a program usually survives.

    A program that ended by itself and printed more after such a line did continue: the line does not justify a restart.
    """
    verdict = _by_lines(table, kind, evidence, [line for line in lines if line.weak])
    if verdict is None or not (verdict.restart and _ended_by_itself(evidence)):
        return verdict
    own = [line for line in lines if not line.from_launcher]
    last = next((number for number, line in enumerate(reversed(own)) if not line.weak), len(own))
    return _by_lines(table, kind, evidence, own[len(own) - last :])


def _first(evidence: Evidence, rules: Iterable[Rule], lines: Sequence[Line]) -> Verdict | None:
    for rule in rules:
        if line := next((line for line in lines if _finds(rule, line)), None):
            return _verdict(rule, evidence, line)
    return None


def _finds(rule: Rule, line: Line) -> bool:
    return failure_table().finds(rule, line.searched)


def _by_exception(table: Table, evidence: Evidence, lines: Sequence[Line]) -> Verdict | None:
    """The verdict by the last exception without a rule for its cause: by its class, else by its text.

    An exception of a class that programs raise by mistake quotes words about connections; they are not its cause.
    """
    causes = list(table.of_kind(Kind.CAUSE))
    rules = [rule for kind in LOG_KINDS for rule in table.of_kind(kind)]
    uncaused = [line for line in reversed(lines) if line.exception and not any(_finds(rule, line) for rule in causes)]
    uncaused = [line for line in uncaused if not (line.exception in WRAPPERS and _may_pass(table, line.wraps))]
    for line in uncaused:
        for rule in causes if _is_explained(table, line) else rules:
            if line.exception in rule.exceptions:
                return _verdict(rule, evidence, line)
    for line in uncaused:
        for rule in causes if line.ends_program else []:
            if any(expression.search(line.exception) for expression in rule.exception_named):
                return _verdict(rule, evidence, line)
    for line in uncaused:
        for rule in [] if _is_explained(table, line) else rules:
            if any(expression.search(line.searched) for expression in rule.exception_says):
                return _verdict(rule, evidence, line)
    return None


def _by_error_of_a_rank(table: Table, evidence: Evidence, lines: Sequence[Line]) -> Verdict | None:
    """The verdict by an exception that ended a rank and does not say that it may pass: it left the others waiting."""
    own = [line for line in lines if line.last_words and not (line.wraps and _may_pass(table, line.wraps))]
    verdict = _by_uncaught_exception(table, evidence, own)
    return verdict if verdict is not None and not verdict.restart else None


def _may_pass(table: Table, searched: str) -> bool:
    """Whether a rule says of an exception that it may pass."""
    rules = [rule for rule in table.rules if rule.error.restart]
    return any(expression.search(searched) for rule in rules for expression in (*rule.log, *rule.exception_says))


def _by_uncaught_exception(table: Table, evidence: Evidence, lines: Sequence[Line]) -> Verdict | None:
    """The verdict by the last exception that no rule explains, for a program that ended by itself."""
    if not _ended_by_itself(evidence):
        return None
    for line in reversed(lines):
        if line.ends_program and not _is_explained(table, line):
            for rule in table.of_kind(Kind.UNCAUGHT):
                if any(expression.search(line.searched) for expression in rule.exception_says):
                    return _verdict(rule, evidence, line)
    return None


def _by_last_error(table: Table, evidence: Evidence, lines: Sequence[Line]) -> Verdict | None:
    """The verdict by an error that the program logged before it ended by itself after steps, without an exception."""
    if not (evidence.has_steps and _ended_by_itself(evidence)):
        return None
    own = [line for line in lines if not line.from_launcher]
    for line in reversed(own[-LAST_LINES:]):
        if line.is_error:
            for rule in table.of_kind(Kind.UNCAUGHT):
                if any(expression.search(line.searched) for expression in rule.exception_says):
                    return _verdict(rule, evidence, line)
    return None


def _is_explained(table: Table, line: Line) -> bool:
    return any(_finds(rule, line) for rule in table.rules)


def _by_exit_code(table: Table, evidence: Evidence) -> Verdict | None:
    codes = (rank_exit_code(_all_lines(evidence)), evidence.exit_code)
    for code in codes:
        for rule in table.of_kind(Kind.SIGNAL):
            if code in rule.exit_codes:
                return _verdict(rule, evidence)
    return None


def _by_certain_exit_code(table: Table, evidence: Evidence) -> Verdict | None:
    """The verdict by an exit code that no other process brought about: what others say of connections follows."""
    rank = rank_exit_code(_all_lines(evidence))
    certain = (EXIT_CODES_OF_THE_PROGRAM & {rank, evidence.exit_code}) | (SIGNALS_FROM_OUTSIDE & {rank})
    return next((_verdict(rule, evidence) for rule in table.of_kind(Kind.SIGNAL) if certain & rule.exit_codes), None)


def _by_default(evidence: Evidence) -> Verdict:
    """A program that ends by itself before its first step is its author's to correct; a worker that dies later is
    restarted."""
    name = "ScriptFailed" if _ended_by_itself(evidence) and not evidence.has_steps else "WorkerFailed"
    return Verdict(error=error_table()[name], rule="default")


def _ended_by_itself(evidence: Evidence) -> bool:
    code = evidence.exit_code
    return code is not None and (0 < code < FIRST_SIGNAL_EXIT_CODE or code > LAST_SIGNAL_EXIT_CODE)


def _verdict(rule: Rule, evidence: Evidence, line: Line | None = None) -> Verdict:
    return Verdict(
        error=rule.error_at(has_steps=evidence.has_steps, line=line.searched if line else ""),
        rule=rule.name,
        quotation=line.text[:MAX_QUOTATION] if line else "",
        advice=rule.advice,
    )
