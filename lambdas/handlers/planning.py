"""Plan of a run for `trainflow plan`: its objects, and reasons that would prevent its start. Creates nothing."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

from lambdas.gateways.compile_caches import CompileCaches
from lambdas.handlers import backends
from lambdas.handlers.environment import read
from lambdas.handlers.examining import cache_findings, dataset_facts
from lambdas.handlers.requests import run_of
from lambdas.logic.compile_cache import cache_key, is_pinned
from lambdas.logic.jobs import GANGS, Job, job_of
from lambdas.logic.preflight.dataset import dataset_findings
from lambdas.logic.preflight.findings import Finding, Note, Problem, notes, problems
from lambdas.logic.run_limits import longest_job
from trainflow.deployment.environment import ArtifactEnvironment, CacheEnvironment
from trainflow.errors import BackendNotInstalled, InvalidRunSpec, TrainflowError
from trainflow.workflow.compile_cache import CacheState, CacheUse, Hold, shared_folder
from trainflow.workflow.planned_run import PlannedJob, PlannedRun, RunRequest
from trainflow.workflow.run import Run, Spending, Stage

NO_PROBE = Note("workload: image, program, arguments and free space, which the run's preflight examines in a pod.")
UNKNOWN_DIGEST = Note(
    "precompile: the name of the compile cache, which the digest of workload.image is part of; the preflight reads it "
    "from the pod."
)


def planned(request: RunRequest) -> PlannedRun:
    """The jobs of the run's first attempt, and the findings of the preflight without its probe."""
    try:
        run = run_of(request)
        found = list(_findings(run))
    except (InvalidRunSpec, BackendNotInstalled) as error:
        return PlannedRun(problems=(str(error),))
    except TrainflowError as error:
        found = [Problem(str(error))]
    cache = _cache(run)
    jobs = tuple(_planned(job) for job in _jobs(run, cache))
    return PlannedRun(jobs=jobs, problems=tuple(problems(found)), notes=tuple(notes(found)))


def _findings(run: Run) -> Iterator[Finding]:
    backend = backends.connect(run.spec.compute.backend)
    examined = backend.examine(run, start_probe=lambda: None, now=datetime.now(UTC))
    yield from examined.findings
    yield NO_PROBE
    if run.spec.dataset is not None:
        yield from dataset_findings(run.spec.dataset, dataset_facts(run.spec.dataset))
    yield from cache_findings(run.spec, None)
    if run.spec.precompiles and not is_pinned(run.spec.workload.image or ""):
        yield UNKNOWN_DIGEST


def _cache(run: Run) -> CacheUse | None:
    """The cache that the run would be given; of graphs that are compiled already, that of the run that did it."""
    if not run.spec.precompiles:
        return None
    key = cache_key(run.spec, image_digest=None)
    found = CompileCaches(read(CacheEnvironment).cache_table).find(key)
    if found is not None and found.state is CacheState.READY:
        return CacheUse(key=key, folder=found.folder, hold=Hold.READ)
    return CacheUse(key=key, folder=shared_folder(key, run.run_id), hold=Hold.LEASE)


def _jobs(run: Run, cache: CacheUse | None) -> Iterator[Job]:
    artifacts_url = read(ArtifactEnvironment).url_of(run.run_id)
    for stage in _stages(run, cache):
        longest = longest_job(run, Spending(), submitted_at=run.started_at) if stage in GANGS else None
        yield job_of(
            run, stage, 1, artifacts_url=artifacts_url, cache=cache if stage in GANGS else None, longest=longest
        )


def _stages(run: Run, cache: CacheUse | None) -> Iterator[Stage]:
    """The stages that submit a job, in their order."""
    left_out = {
        Stage.STAGE: run.spec.dataset is None,
        Stage.PRECOMPILE: cache is None or cache.hold is Hold.READ,
    }
    return (stage for stage in Stage if not left_out.get(stage))


def _planned(job: Job) -> PlannedJob:
    objects = backends.connect(job.ref.backend).render(job)
    return PlannedJob(stage=job.ref.stage, name=job.ref.name, objects=tuple(objects))
