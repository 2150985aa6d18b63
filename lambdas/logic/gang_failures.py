"""The named error of a failed gang, by the evidence of its pods."""

from __future__ import annotations

from collections.abc import Sequence

from lambdas.logic.departures import (
    NOTICED,
    SAID_BY_THE_PROGRAM,
    Departure,
    JudgedPod,
    PodEvidence,
    departures,
    first_end,
    first_to_say_why,
    judged_pods,
)
from lambdas.logic.program_output import last_line
from trainflow.errors import JobDeadlineExceeded, TrainflowError, WorkerFailed, named_error
from trainflow.failures.judgement import Judgement
from trainflow.failures.judging import Evidence, Strength, Verdict, judge
from trainflow.observed.job import JobStatus
from trainflow.observed.pod import Pod
from trainflow.protocol.result import read_result
from trainflow.workflow.run import JobRef

MAX_MESSAGE_LENGTH = 500
"""Longest quotation of a pod's output in an error message: a sentence, not a log."""

RANK_0_HAS_ENDED = (
    "Rank 0 is among them: if it had taken its last step, the training is complete, and what it saved is in the run's "
    "folder."
)


# Decisions 19, 56 and 65: evidence decides about a restart; an exception that no rule explains is the program's own.
# Decision 93: every pod of a gang is evidence, those that ended well too.
def failure(
    job: JobRef,
    status: JobStatus,
    pods: Sequence[PodEvidence],
    *,
    peers: Sequence[PodEvidence] = (),
    last_step: int | None,
    may_resume: bool = False,
) -> TrainflowError:
    """The named error of a failed job: that of the pod with the strongest evidence, the first to fail among equals.

    Args:
        job: The job that failed.
        status: Its status, with the reason.
        pods: Some of its failed pods, the first to fail first; may be empty.
        peers: Some of its other pods: those that ended with exit code 0, and those that run.
        last_step: Newest step that rank 0 logged; None if it never logged one.
        may_resume: Whether a program that logged no step may have taken some: it reports none and has checkpoints.
    """
    has_steps = last_step is not None or may_resume
    of_job = judge(Evidence(job_reason=status.failure_reason, has_steps=has_steps))
    cause = min(judged_pods(pods, has_steps=has_steps), key=lambda judged: judged.verdict.strength, default=None)
    verdict = of_job if cause is None else cause.verdict
    # What the cluster says of a pod names its node; what it says of the job is less exact.
    if _is(of_job, JobDeadlineExceeded) or _is(verdict, JobDeadlineExceeded):
        return JobDeadlineExceeded(f"The job '{job.name}' ran longer than limits.max_duration_hours allows.")
    if of_job.strength is Strength.CONDITION and (cause is None or verdict.strength is not Strength.CONDITION):
        sentence = f"The job '{job.name}' {status.failure_message}."
        return named_error(of_job.error.name, sentence, Judgement(rule=of_job.rule))
    if cause is None:
        return WorkerFailed(f"The job '{job.name}' failed: {status.failure_message or status.failure_reason}.")
    sentence = _sentence(cause, last_step=last_step)
    if cause.only_noticed:
        left = departures([*peers, *pods], first_failure=first_end(pods), has_steps=has_steps)
        if left:
            return _departed(left, sentence, last_step=last_step)
        if (ending := first_to_say_why(peers, has_steps=has_steps)) is not None:
            verdict, cause, sentence = ending.verdict, ending, _sentence(ending, last_step=last_step)
    return named_error(verdict.error.name, _advised(sentence, verdict), _judgement(verdict, cause.evidence.pod))


def waiting_failure(
    job: JobRef, peers: Sequence[PodEvidence], hang: TrainflowError, *, last_step: int | None
) -> TrainflowError:
    """The error of a job that hangs: that of a pod which ended before the others, else the hang itself.

    Args:
        job: The job.
        peers: Some of its pods.
        hang: The error of the hang.
        last_step: Newest step that rank 0 logged.
    """
    left = departures(peers, first_failure=None, has_steps=last_step is not None)
    return _departed(left, str(hang), last_step=last_step) if 0 < len(left) < job.num_nodes else hang


def _judgement(verdict: Verdict, pod: Pod) -> Judgement:
    node = pod.node if _is_about_node(verdict) or not verdict.error.restart else None
    found = verdict.excerpt
    return Judgement(
        rule=verdict.rule,
        line=verdict.quotation,
        pod=pod.name,
        node=node,
        excerpt=found.lines,
        place=found.place,
        rank=found.rank,
    )


def _is_about_node(verdict: Verdict) -> bool:
    """Whether the evidence is a sign about the node, not only about a pod that noticed the end of another."""
    error = verdict.error
    return not error.same_node or (error.shows_node and verdict.strength not in NOTICED)


def _departed(left: Sequence[Departure], then: str, *, last_step: int | None) -> TrainflowError:
    """The error of a gang that pods left: by the reason of one of them, if one is known."""
    told = min(left, key=lambda each: min(each.verdict.strength, Strength.UNKNOWN))
    pod, verdict = told.evidence.pod, told.verdict
    sentence = f"{_who_left(left, told)} ended with exit code 0{_after(last_step)} while the others went on"
    if told.is_tied:
        sentence += " (it ended in the same second as the first pod that failed, so their order is not certain)"
    if said := verdict.quotation or told.last_words:
        sentence += f": {said[:MAX_MESSAGE_LENGTH]}"
    sentence = f"{sentence.rstrip('.')}. Then: {then}"
    if any(each.evidence.pod.index == 0 for each in left):
        sentence = f"{sentence.rstrip('.')}. {RANK_0_HAS_ENDED}"
    return named_error(verdict.error.name, _advised(sentence, verdict), _judgement(verdict, pod))


def _who_left(left: Sequence[Departure], told: Departure) -> str:
    pod = told.evidence.pod
    others = sorted({each.evidence.pod.index for each in left} - {pod.index})
    also = f", like that of {'nodes' if len(others) > 1 else 'node'} {', '.join(map(str, others))}," if others else ""
    return f"The program of node {pod.index} (pod '{pod.name}' on node '{pod.node}'){also}"


def _after(last_step: int | None) -> str:
    return "" if last_step is None else f" after step {last_step}"


def disruption(job: JobRef, pods: Sequence[Pod], *, last_step: int | None) -> TrainflowError:
    """The error of a job that has not failed yet while the cluster ends these pods of it."""
    status = JobStatus(phase=None, failure_message="lost a pod")
    return failure(job, status, [PodEvidence(pod) for pod in pods], last_step=last_step)


def _is(verdict: Verdict, error: type[TrainflowError]) -> bool:
    return verdict.strength is Strength.CONDITION and verdict.error.name == error.__name__


def _sentence(cause: JudgedPod, *, last_step: int | None) -> str:
    """The pod, how it ended, and the line that says why."""
    pod, verdict = cause.evidence.pod, cause.verdict
    document = read_result(pod.termination_message)
    if verdict.strength is Strength.NAMED and document.get("error") == verdict.error.name:
        return f"{document.get('message')} (pod '{pod.name}' on node '{pod.node}')"
    where = f"Pod '{pod.name}' on node '{pod.node}' {_how_it_ended(cause)}"
    where += _after(last_step)
    if verdict.rank_exit_code not in (None, pod.exit_code):
        where += f", its first rank to fail with {verdict.rank_exit_code}"
    explanation = verdict.quotation or str(document.get("message") or "") or last_line(cause.evidence.lines)
    explanation = explanation[:MAX_MESSAGE_LENGTH]
    return f"{where}: {explanation}{_source(verdict)}" if explanation else f"{where}."


def _how_it_ended(cause: JudgedPod) -> str:
    pod = cause.evidence.pod
    if pod.phase == "Running" and cause.verdict.strength in SAID_BY_THE_PROGRAM:
        return "failed, and had not ended yet,"
    ended = "was lost" if pod.exit_code is None else f"ended with exit code {pod.exit_code}"
    return f"{ended} ({pod.end_reason or 'Error'})"


def _source(verdict: Verdict) -> str:
    """The place in the program, and its rank, behind the line that they belong to."""
    found = verdict.excerpt
    rank = "" if found.rank is None else f"rank {found.rank}"
    known = ", ".join(filter(None, [found.place, rank])) if verdict.quotation or found.place else ""
    return f" ({known})" if known else ""


def _advised(sentence: str, verdict: Verdict) -> str:
    return f"{sentence.rstrip('.')}. {verdict.advice}" if verdict.advice else sentence
