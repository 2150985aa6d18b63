"""Judging a job that is watched: its phase, what keeps it pending, hangs and timeouts."""

from __future__ import annotations

import re
from datetime import datetime, timedelta

from lambdas.logic.gang_failures import MAX_MESSAGE_LENGTH
from trainflow.errors import GangIncomplete, JobStalled, LossNotFinite, named_error
from trainflow.failures.judgement import Judgement
from trainflow.failures.judging import Evidence, judge
from trainflow.observed.job import JobStatus
from trainflow.spec.run_spec import Limits
from trainflow.workflow.run import JobPhase, JobRef, MetricsCursor, Stage


def require_finite_loss(job: JobRef, progress: MetricsCursor, *, limits: Limits) -> None:
    """Require that the newest losses of a training are numbers: from NaN no training comes back.

    A job that succeeds with one such loss at its end fails as well; the state machine `watch_job` checks that, because
    the last steps are read after the last poll.

    Raises:
        LossNotFinite: If as many of the newest losses as `limits.on_non_finite` names were NaN or infinite.
    """
    rule = limits.on_non_finite
    if job.stage is not Stage.TRAINING or rule == "continue":
        return
    if progress.non_finite_in_a_row >= rule.stop_after:
        raise LossNotFinite(
            f"The last {progress.non_finite_in_a_row} losses that the job '{job.name}' logged were NaN or infinite; "
            f"the first such step of the run was {progress.first_non_finite_step}."
        )


def phase_since(before: JobPhase, now: JobPhase) -> JobPhase:
    """The phase after a poll. A gang that has been complete does not become pending again: its pods end one by one."""
    return JobPhase.RUNNING if now is JobPhase.PENDING and before is not JobPhase.PENDING else now


HOPELESS_AFTER = timedelta(minutes=5)
"""Time that a gang may be pending for a permanent reason. It is enough for five attempts to pull an image, for a Secret
that was created late, and for the end of pods of the previous attempt that count against a quota."""

_NO_NODE_FITS = re.compile(r"nodes are available: .{0,2000}(?:untolerated taint|node affinity/selector)", re.DOTALL)
_NODES_CHANGE = re.compile(
    r"insufficient|too many pods|unschedulable|not-ready|unreachable|uninitialized|pressure|network-unavailable|volume",
    re.IGNORECASE,
)
"""Words of the scheduler about nodes that may take the pod later: full ones, and those that are starting."""


_LIFTED_BY_A_PERSON = re.compile(r"jobheld|partitiondown|partitioninactive", re.IGNORECASE)
"""Slurm's reasons that an administrator or user set, and may take back."""


# Decision 14: the ready nodes cost money while a pod is missing, so the gang is deleted and submitted again.
def gang_is_overdue(status: JobStatus, *, limits: Limits, now: datetime) -> bool:
    """Whether a job that is still pending was submitted too long ago."""
    return pending_for(status, now=now) > timedelta(minutes=limits.gang_timeout_minutes)


def pending_for(status: JobStatus, *, now: datetime) -> timedelta:
    """Time since the submission of a pending job."""
    return timedelta(0) if status.submitted_at is None else now - status.submitted_at


def may_be_hopeless(status: JobStatus, *, limits: Limits, now: datetime) -> bool:
    """Whether a job has been pending for so long that the reason matters."""
    return pending_for(status, now=now) >= min(HOPELESS_AFTER, timedelta(minutes=limits.gang_timeout_minutes))


def require_hope(job: JobRef, pending_reason: str | None, *, waited: timedelta, limits: Limits) -> None:
    """Require that a gang that did not start completely may still do so.

    Args:
        job: The job.
        pending_reason: Reason why one of its pods is pending, as the cluster reports it.
        waited: Time since its submission.
        limits: Limits of the spec.

    Raises:
        TrainflowError: The named error of a reason that does not pass by itself.
        GangIncomplete: If no node fits although all are up, or if `limits.gang_timeout_minutes` have passed.
    """
    overdue = waited > timedelta(minutes=limits.gang_timeout_minutes)
    sentence = f"The job '{job.name}' did not have its {job.gang_size} pods running after {_minutes(waited)} minutes"
    if not pending_reason:
        if overdue:
            raise GangIncomplete(f"{sentence}.")
        return
    verdict = judge(Evidence(pending_reason=pending_reason))
    found = verdict.error
    no_node = _NO_NODE_FITS.search(pending_reason) and not _NODES_CHANGE.search(pending_reason)
    hopeless = no_node or (not found.restart and not _LIFTED_BY_A_PERSON.search(pending_reason))
    if overdue or hopeless:
        reason = pending_reason[:MAX_MESSAGE_LENGTH]
        raise named_error(found.name, f"{sentence}: {reason}", Judgement(rule=verdict.rule, line=reason))


def _minutes(time: timedelta) -> str:
    return f"{round(time / timedelta(minutes=1), 1):g}"


HANG_GRACE = timedelta(minutes=2)
"""Minimum time for a job to continue after a library logged that it gave up waiting for other processes."""


def require_no_hang(
    job: JobRef, status: JobStatus, progress: MetricsCursor, *, poll_seconds: float, now: datetime
) -> None:
    """Require that a training job goes on after a line about a collective operation that does not end.

    It has two minutes, two polls or the longest pause between steps so far, whichever is longest. A step, or a line of
    another kind, ends the suspicion: `step_metrics.Batch.watch_hang`. Elastic jobs are not watched, because torchrun
    restarts their processes; jobs that have ended are judged by how they ended.

    Args:
        job: The job.
        status: Its status.
        progress: What rank 0's log has shown.
        poll_seconds: Time between two polls.
        now: Time of the poll.

    Raises:
        TrainflowError: The named error of the line, as a rule CollectiveTimeout.
    """
    hang = progress.hang
    is_watched = job.stage is Stage.TRAINING and not job.elastic and status.phase is not JobPhase.SUCCEEDED
    if hang is None or not is_watched or status.started_at is None or hang.seen_at <= status.started_at:
        return  # a hang of before the job started is that of the attempt before
    pauses = timedelta(seconds=max(2 * poll_seconds, progress.longest_pause_seconds))
    if now - hang.seen_at < max(HANG_GRACE, pauses):
        return
    last_step = "no step" if progress.last_step is None else f"no step after {progress.last_step}"
    raise named_error(
        hang.error,
        f"The job '{job.name}' hangs: it has logged {last_step}, and nothing else, in the "
        f"{_minutes(now - hang.seen_at)} minutes since this line: {hang.line}",
        Judgement(rule="hang", line=hang.line),
    )


def require_progress(job: JobRef, status: JobStatus, progress: MetricsCursor, *, limits: Limits, now: datetime) -> None:
    """Require that a training job gets on: a job that hangs in a collective appears busy for ever.

    A step is a sign of life, and so is a line that differs from the newest ones: a program whose steps are not read any
    more, or never were, goes on (`lambdas.logic.signs_of_life`). A program beside it, where there is one, prints a line
    when files below the run's folder have changed (`trainer.steps.progress`). Utilization of devices proves nothing:
    ranks that wait in a collective for one that is gone keep theirs at 100 % (NVIDIA/nccl, issues 238, 306, 537).

    Raises:
        JobStalled: If no sign of life was seen for `limits.stall_minutes`.
    """
    if job.stage is not Stage.TRAINING or status.started_at is None:
        return
    signs = (progress.progressed_at, _changed_at(progress), status.started_at)
    if now - max(filter(None, signs)) <= timedelta(minutes=limits.stall_minutes):
        return
    minutes = f"for {limits.stall_minutes:g} minutes"
    if progress.last_step is not None:
        raise JobStalled(
            f"The job '{job.name}' has not logged a step after {progress.last_step} {minutes}, nor a line that differs "
            "from those before, and no file of the run was seen to change."
        )
    raise JobStalled(
        f"The job '{job.name}' has not printed a new line {minutes} that differs from those before. It has reported no "
        "step yet, so rank 0's log was watched."
    )


def _changed_at(progress: MetricsCursor) -> datetime | None:
    """Time of the newest line that is a sign of life; a position of an earlier version knows only that of any line."""
    if progress.changed_at is None and progress.last_step is None:
        return progress.printed_at
    return progress.changed_at


COMPILER_SILENCE = timedelta(hours=3)
"""Longest time without a line of a compiler, unless `limits.stall_minutes` is longer. A compiler prints only dots while
it works on a graph, which takes "up to one hour for large models" (optimum-neuron's warning, as in
aws-neuron/aws-neuron-sdk, issue 825); this is three times as much."""


def is_long_compilation(job: JobRef, status: JobStatus, *, limits: Limits, now: datetime) -> bool:
    """Whether a precompile job has run for so long that its compiler may have been silent for too long."""
    started_at = status.started_at
    return job.stage is Stage.PRECOMPILE and started_at is not None and now - started_at > _compiler_silence(limits)


def require_compiler_output(job: JobRef, printed_at: datetime | None, *, limits: Limits, now: datetime) -> None:
    """Require that the compiler of a long precompile job prints a line in a while: one that hangs would hold the gang.

    Args:
        job: The precompile job.
        printed_at: Time of the newest line in rank 0's log; None for an empty log.
        limits: Limits of the spec.
        now: Current time.

    Raises:
        JobStalled: If the log did not grow for three hours and for `limits.stall_minutes`.
    """
    silence = _compiler_silence(limits)
    if printed_at is None or now - printed_at > silence:
        raise JobStalled(
            f"The job '{job.name}' compiles graphs, and rank 0's log has no line of the last "
            f"{silence / timedelta(minutes=1):g} minutes; the compiler hangs."
        )


def _compiler_silence(limits: Limits) -> timedelta:
    return max(COMPILER_SILENCE, timedelta(minutes=limits.stall_minutes))
