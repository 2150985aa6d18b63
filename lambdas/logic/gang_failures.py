"""The named error of a failed gang, by the evidence of its pods."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

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


@dataclass(frozen=True)
class FailedPod:
    """A failed pod with the last lines of its log."""

    pod: Pod
    lines: tuple[str, ...] = ()
    unread: str | None = None
    """Reason for a log that could not be read; None if it was."""


# Decisions 19, 56 and 65: evidence decides about a restart; an exception that no rule explains is the program's own.
def failure(
    job: JobRef,
    status: JobStatus,
    pods: Sequence[FailedPod],
    *,
    last_step: int | None,
    may_resume: bool = False,
) -> TrainflowError:
    """The named error of a failed job: that of the pod with the strongest evidence, the first to fail among equals.

    Args:
        job: The job that failed.
        status: Its status, with the reason.
        pods: Some of its failed pods, the first to fail first; may be empty.
        last_step: Newest step that rank 0 logged; None if it never logged one.
        may_resume: Whether a program that logged no step may have taken some: it reports none and has checkpoints.
    """
    has_steps = last_step is not None or may_resume
    of_job = judge(Evidence(job_reason=status.failure_reason, has_steps=has_steps))
    judged = [(_verdict(failed, has_steps=has_steps), failed) for failed in pods]
    verdict, cause = min(judged, key=lambda found: found[0].strength, default=(of_job, None))
    # What the cluster says of a pod names its node; what it says of the job is less exact.
    if _is(of_job, JobDeadlineExceeded) or _is(verdict, JobDeadlineExceeded):
        return JobDeadlineExceeded(f"The job '{job.name}' ran longer than limits.max_duration_hours allows.")
    if of_job.strength is Strength.CONDITION and (cause is None or verdict.strength is not Strength.CONDITION):
        sentence = f"The job '{job.name}' {status.failure_message}."
        return named_error(of_job.error.name, sentence, Judgement(rule=of_job.rule))
    if cause is None:
        return WorkerFailed(f"The job '{job.name}' failed: {status.failure_message or status.failure_reason}.")
    pod = cause.pod
    judgement = Judgement(rule=verdict.rule, line=verdict.quotation, pod=pod.name, node=pod.node)
    return named_error(verdict.error.name, _sentence(verdict, cause, last_step=last_step), judgement)


def disruption(job: JobRef, pods: Sequence[Pod], *, last_step: int | None) -> TrainflowError:
    """The error of a job that has not failed yet, but of which the cluster ends these pods."""
    status = JobStatus(phase=None, failure_message="lost a pod")
    return failure(job, status, [FailedPod(pod) for pod in pods], last_step=last_step)


def _verdict(failed: FailedPod, *, has_steps: bool) -> Verdict:
    pod = failed.pod
    return judge(
        Evidence(
            lines=failed.lines,
            message=pod.termination_message,
            exit_code=pod.exit_code,
            pod_reason=pod.end_reason,
            has_steps=has_steps,
        )
    )


def _is(verdict: Verdict, error: type[TrainflowError]) -> bool:
    return verdict.strength is Strength.CONDITION and verdict.error.name == error.__name__


def _sentence(verdict: Verdict, failed: FailedPod, *, last_step: int | None) -> str:
    """The pod, how it ended, and the line that says why."""
    pod, document = failed.pod, read_result(failed.pod.termination_message)
    if verdict.strength is Strength.NAMED and document.get("error") == verdict.error.name:
        return f"{document.get('message')} (pod '{pod.name}' on node '{pod.node}')"
    ended = "was lost" if pod.exit_code is None else f"ended with exit code {pod.exit_code}"
    where = f"Pod '{pod.name}' on node '{pod.node}' {ended} ({pod.end_reason or 'Error'})"
    where += "" if last_step is None else f" after step {last_step}"
    if verdict.rank_exit_code not in (None, pod.exit_code):
        where += f", its first rank to fail with {verdict.rank_exit_code}"
    explanation = verdict.quotation or str(document.get("message") or "") or last_line(failed.lines)
    explanation = explanation[:MAX_MESSAGE_LENGTH]
    sentence = f"{where}: {explanation}" if explanation else f"{where}."
    return f"{sentence.rstrip('.')}. {verdict.advice}" if verdict.advice else sentence
