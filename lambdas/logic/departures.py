"""Pods of a gang whose program ended well while others went on: a peer that is gone looks like a broken network.

Kubernetes reports the end of a pod in whole seconds. So a pod that ended in the same second as the first one that
failed counts as a departure, and the sentence about it says that the order is unknown.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from lambdas.logic.program_output import last_line
from trainflow.failures.judging import Evidence, Strength, Verdict, judge
from trainflow.failures.log_lines import rank_exit_code
from trainflow.failures.table import Kind, Rule, failure_table
from trainflow.observed.pod import Pod
from trainflow.protocol.launcher_report import SIGNALS_FROM_OUTSIDE

_OF_LAUNCHER = re.compile(r"--- Logging error ---|torch/distributed/elastic/")
"""Lines of torchrun's own around its exit barrier: it fails there when another node has ended."""

NOTICED = frozenset(
    {Strength.LINK, Strength.SIGNAL, Strength.PASSING, Strength.UNKNOWN, Strength.CONSEQUENCE, Strength.WEAK}
)
"""Strength of evidence that a pod has lost the others, or does not know why it ended."""

SAID_BY_THE_PROGRAM = frozenset({Strength.CAUSE, Strength.EXCEPTION, Strength.UNCAUGHT})
"""Strength of evidence in a program's own words, which it has written before its pod ends."""


@dataclass(frozen=True)
class PodEvidence:
    """A pod of a job with the last lines of its log."""

    pod: Pod
    lines: tuple[str, ...] = ()
    unread: str | None = None
    """Reason for a log that could not be read; None if it was."""

    @property
    def ended_well(self) -> bool:
        """Whether its program ended with exit code 0, and no other container failed the pod."""
        return self.pod.exit_code == 0 and self.pod.phase == "Succeeded"


@dataclass(frozen=True, kw_only=True)
class Departure:
    """A pod whose ranks ended with exit code 0 before those of others."""

    evidence: PodEvidence
    verdict: Verdict
    """By what its program or the cluster says of the reason; by the rule about gangs if they say nothing."""
    last_words: str
    """The last line of its program; may be empty."""
    is_tied: bool
    """Whether it ended in the same second as the first pod that failed."""


@dataclass(frozen=True)
class JudgedPod:
    """A failed pod with the verdict on it."""

    evidence: PodEvidence
    verdict: Verdict

    @property
    def only_noticed(self) -> bool:
        """Whether the pod would have failed alike if it was well, and another one had left it."""
        return self.verdict.restart and self.verdict.strength in NOTICED


def judged_pods(pods: Sequence[PodEvidence], *, has_steps: bool) -> list[JudgedPod]:
    """The verdict on each failed pod, by its own evidence and by the time of its end.

    A signal that ended the first pod of a gang comes before what others say of their connections. One that ended a pod
    later came from the cluster, which ends the pods of a job that has failed.
    """
    first = first_end(pods)
    return [JudgedPod(each, _in_time(_verdict(each, has_steps=has_steps), each, first)) for each in pods]


def first_to_say_why(pods: Iterable[PodEvidence], *, has_steps: bool) -> JudgedPod | None:
    """The pod that still runs, and whose log has the reason of its program's end; None without such a pod.

    A launcher ends some time after its ranks: the pod whose rank failed first may be seen to fail after its peers.
    """
    running = (JudgedPod(each, _verdict(each, has_steps=has_steps)) for each in pods if each.pod.phase == "Running")
    saying = [judged for judged in running if judged.verdict.strength in SAID_BY_THE_PROGRAM]
    return min(saying, key=lambda judged: judged.verdict.strength, default=None)


def first_end(pods: Iterable[PodEvidence]) -> datetime | None:
    """Time when the first of these pods ended; None if no time is known."""
    return min((each.pod.finished_at for each in pods if each.pod.finished_at is not None), default=None)


def _verdict(evidence: PodEvidence, *, has_steps: bool) -> Verdict:
    pod = evidence.pod
    return judge(
        Evidence(
            lines=evidence.lines,
            message=pod.termination_message,
            exit_code=pod.exit_code,
            pod_reason=pod.end_reason,
            has_steps=has_steps,
        )
    )


def _in_time(verdict: Verdict, evidence: PodEvidence, first: datetime | None) -> Verdict:
    if verdict.strength is not Strength.SIGNAL:
        return verdict
    pod = evidence.pod
    is_later = _is_later(pod.finished_at, first)
    if is_later or _own_lines(_rule(), evidence.lines)[1]:
        return replace(verdict, strength=Strength.CONSEQUENCE)
    return replace(verdict, strength=Strength.UNCAUGHT) if pod.exit_code in SIGNALS_FROM_OUTSIDE else verdict


def _is_later(time: datetime | None, other: datetime | None) -> bool:
    return time is not None and other is not None and time > other


def departures(pods: Iterable[PodEvidence], *, first_failure: datetime | None, has_steps: bool) -> list[Departure]:
    """The pods that left before the others, the first to leave first.

    Args:
        pods: Pods of the gang, failed ones included: the cluster ends those whose launcher waits.
        first_failure: Time when the first pod failed; None if none did, or if it is unknown.
        has_steps: Whether the run has logged a step.
    """
    found = (_departure(each, first_failure, has_steps=has_steps) for each in pods)
    return [departure for departure in found if departure is not None]


def _departure(each: PodEvidence, first_failure: datetime | None, *, has_steps: bool) -> Departure | None:
    rule, finished_at = _rule(), each.pod.finished_at
    own, is_waiting = _own_lines(rule, each.lines)
    ended_first = each.ended_well and not _is_later(finished_at, first_failure)
    if not (ended_first or (is_waiting and rank_exit_code(each.lines) is None)):
        return None
    reason = each.pod.end_reason if each.ended_well else None
    verdict = judge(Evidence(lines=own, pod_reason=reason, has_steps=has_steps))
    if verdict.strength in (Strength.LINK, Strength.CONSEQUENCE):
        return None  # it lost the others itself, and ended with 0 all the same
    return Departure(
        evidence=each,
        verdict=verdict if verdict.strength <= Strength.UNCAUGHT else _by_rule(rule, verdict),
        last_words=last_line(own),
        is_tied=finished_at is not None and finished_at == first_failure and not is_waiting,
    )


def _own_lines(rule: Rule, lines: Sequence[str]) -> tuple[tuple[str, ...], bool]:
    """The program's lines, and whether its launcher says that all its ranks have ended."""
    is_waiting = any(expression.search(line.lower()) for line in lines for expression in rule.log)
    if not is_waiting:
        return tuple(lines), False
    own = []
    for line in lines:
        if _OF_LAUNCHER.search(line) or any(expression.search(line.lower()) for expression in rule.log):
            break
        own.append(line)
    return tuple(own), True


def _rule() -> Rule:
    return next(failure_table().of_kind(Kind.GANG))


def _by_rule(rule: Rule, judged: Verdict) -> Verdict:
    return Verdict(error=rule.error, rule=rule.name, advice=rule.advice, excerpt=judged.excerpt)
