"""Task state `Preflight`: checks whether the run can start, and reports every problem before anything is billed.

This function asks AWS and the cluster; a small pod in the workload's image, the probe, examines what only pods can see.
`trainflow plan` invokes it too: for the same checks without the probe, and for the objects that the run would create.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from pydantic import BaseModel

from lambdas.backends.backend import Backend
from lambdas.handlers import backends
from lambdas.handlers.environment import read
from lambdas.handlers.examining import cache_findings, dataset_facts
from lambdas.handlers.planning import planned
from lambdas.handlers.program import next_attempt, outcome_of_program
from lambdas.handlers.task import task
from lambdas.logic.jobs import Job, job_of
from lambdas.logic.preflight.dataset import dataset_findings
from lambdas.logic.preflight.findings import Finding, Note, Problem, notes, require_no_problem
from lambdas.logic.preflight.probe import (
    FAILURES,
    image_out_of_reach,
    probe_failure,
    probe_findings,
    probe_timeout,
    probed,
    secret_out_of_reach,
)
from lambdas.logic.watching import gang_is_overdue
from trainflow.deployment.environment import ArtifactEnvironment
from trainflow.errors import SecretUnavailable, TrainflowError
from trainflow.workflow.pauses import pause_seconds
from trainflow.workflow.planned_run import RunRequest
from trainflow.workflow.preflight import Probed
from trainflow.workflow.run import Run, Stage

UNFINISHED: dict[str, Any] = {"finished": False, "image_digest": None, "versions": {}, "notes": []}
"""The answer while the probe has not ended."""

NO_PROBE = Note("workload: no pod can start, so image, program and free space were not checked.")


class Event(BaseModel):
    run: Run
    waited_seconds: int = 0
    """Seconds waited before this poll."""
    attempt: int = 1
    """Attempt of the probe."""


class Question(BaseModel):
    """The input from `trainflow plan`."""

    plan: RunRequest


def lambda_handler(event: dict[str, Any], context: Any) -> dict[str, Any]:
    """The next poll of a run's checks, or the plan of one that has not started."""
    return _plan(event, context) if "plan" in event else _check(event, context)


@task(Question)
def _plan(event: Question) -> dict[str, Any]:
    """Objects that the run would create, and reasons that would prevent its start."""
    return planned(event.plan).model_dump(mode="json")


@task(Event)
def _check(event: Event) -> dict[str, Any]:
    """Whether all checks are finished; if so, the digest of the workload's image, versions of its packages, and notes
    on what was not checked.

    Raises:
        PreflightFailed: If the run cannot start. The message names every reason.
    """
    run, now = event.run, datetime.now(UTC)
    job = job_of(run, Stage.PREFLIGHT, event.attempt, artifacts_url=read(ArtifactEnvironment).url_of(run.run_id))
    answer = {"attempt": event.attempt, **_examined(run, job, now=now)}
    pause = pause_seconds(event.waited_seconds, shortest=run.spec.limits.poll_seconds)
    return {**answer, "wait_seconds": 0 if answer["finished"] else pause}


def _examined(run: Run, probe: Job, *, now: datetime) -> dict[str, Any]:
    backend, probing = backends.connect(run.spec.compute.backend), backends.connect(probe.ref.backend)
    examined = backend.examine(run, start_probe=lambda: probing.submit(probe), now=now)
    if not examined.probe_started:
        return _concluded(run, [*examined.findings], NO_PROBE, digest=None)
    seen = _seen_by_probe(probing, probe, run, now=now)
    if seen is None:
        return UNFINISHED
    if isinstance(seen, int):
        return {**UNFINISHED, "attempt": seen}
    digest = backend.program_digest(probe.ref, seen)
    return _concluded(run, [*examined.findings], seen, digest=digest)


def _concluded(run: Run, found: list[Finding], seen: Probed | Finding, *, digest: str | None) -> dict[str, Any]:
    dataset, data = run.spec.dataset, dataset_facts(run.spec.dataset)
    if dataset is not None:
        found += dataset_findings(dataset, data)
    found += probe_findings(run, seen, data) if isinstance(seen, Probed) else [seen]
    found += cache_findings(run.spec, digest)
    require_no_problem(found)
    versions = dict(seen.versions) if isinstance(seen, Probed) else {}
    return {"finished": True, "image_digest": digest, "versions": versions, "notes": notes(found)}


def _seen_by_probe(backend: Backend, job: Job, run: Run, *, now: datetime) -> Probed | Problem | int | None:
    """The probe's result, or the problem that prevented it; None while the probe may still run, and the number of the
    next attempt where another one is to be made."""
    try:
        result = outcome_of_program(backend, job)
    except TrainflowError as failed:
        return _after_failure(job, run, failed)
    if result is not None:
        return probed(result)
    pending_reason = backend.pending_reason(job.ref)
    out_of_reach = image_out_of_reach(run, pending_reason) or secret_out_of_reach(run.spec, pending_reason)
    if out_of_reach is not None:
        return out_of_reach
    if gang_is_overdue(backend.status(job.ref), limits=run.spec.limits, now=now):
        return probe_timeout(run.spec, pending_reason)
    return None


def _after_failure(job: Job, run: Run, failed: TrainflowError) -> Problem | int:
    """The next attempt of the probe, or what is wrong with the run."""
    try:
        return next_attempt(job, failed)
    except SecretUnavailable:
        return Problem(str(failed))
    except FAILURES:
        return probe_failure(run.spec, failed)
