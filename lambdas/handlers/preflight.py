"""Task state `Preflight`: could this run start at all? Everything that is in its way, before anything is billed.

What AWS and the cluster say comes from here; what only a pod can see, from a small one in the workload's image.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from pydantic import BaseModel

from lambdas.backends.backend import Backend
from lambdas.backends.kubernetes.pods import CLAIM, SERVICE_ACCOUNT
from lambdas.backends.kubernetes.preflight import can_run_pods, of_cluster
from lambdas.backends.slurm.fit import of_partition
from lambdas.gateways import account, kubernetes, objects
from lambdas.gateways.compile_caches import CompileCaches
from lambdas.gateways.eks import Nodegroups
from lambdas.gateways.examination import Examination
from lambdas.handlers import backends
from lambdas.handlers.environment import ArtifactEnvironment, CacheEnvironment, ClusterEnvironment, read
from lambdas.handlers.program import outcome_of_program
from lambdas.handlers.task import task
from lambdas.logic.compile_cache import cache_key
from lambdas.logic.jobs import Job, job_of
from lambdas.logic.pauses import pause_seconds
from lambdas.logic.preflight.account import of_account, of_tools_image
from lambdas.logic.preflight.cache import of_cache
from lambdas.logic.preflight.dataset import of_dataset
from lambdas.logic.preflight.findings import Finding, Note, Problem, notes, require_no_problem
from lambdas.logic.preflight.probe import FAILURES, image_out_of_reach, never_ran, of_failure, of_probe, probed
from lambdas.logic.watching import gang_is_overdue
from trainflow.errors import NodegroupNotFound
from trainflow.models.image_names import in_private_ecr
from trainflow.models.instances import nodegroup_name
from trainflow.models.offerings import quota_of
from trainflow.models.preflight import AccountFacts, DatasetFacts, Probed, Unknown, Zone
from trainflow.models.run import Run, Stage
from trainflow.models.run_spec import Dataset, RunSpec, object_of
from trainflow.models.training_nodes import Nodegroup

UNFINISHED: dict[str, Any] = {"finished": False, "image_digest": None, "notes": []}
"""The probe is still looking."""

NO_PROBE = Note("workload: no pod can start, so image, program and free space were not looked at.")


class Event(BaseModel):
    run: Run
    waited_seconds: int = 0
    """In the looks before."""


@task(Event)
def lambda_handler(event: Event) -> dict[str, Any]:
    """Whether all checks have been made; then the digest of the workload's image, and what could not be checked.

    Raises:
        PreflightFailed: If the run cannot start; names every reason.
    """
    run, now = event.run, datetime.now(UTC)
    job = job_of(run, Stage.PREFLIGHT, 1, artifacts_url=read(ArtifactEnvironment).url_of(run.run_id))
    answer = _with_slurm(run, job, now=now) if job.ref.backend == "slurm" else _in_cluster(run, job, now=now)
    pause = pause_seconds(event.waited_seconds, shortest=run.spec.limits.poll_seconds)
    return {**answer, "wait_seconds": 0 if answer["finished"] else pause}


def _in_cluster(run: Run, job: Job, *, now: datetime) -> dict[str, Any]:
    backend, examination = backends.connect_cluster(), _examination()
    facts = examination.facts(run.spec.compute, service_account=SERVICE_ACCOUNT, claim=CLAIM, now=now)
    with_probe = can_run_pods(facts)
    if with_probe:
        backends.submit(backend, job)  # it starts while AWS is being asked
    zones, found = _account(run.spec)
    found += of_cluster(run.spec, facts, zones=zones)
    found += _tools_image(run)
    if not with_probe:
        return _concluded(run, found, NO_PROBE, digest=None)
    seen = _seen_by_probe(backend, job, run, now=now)
    if seen is None:
        return UNFINISHED
    return _concluded(run, found, seen, digest=examination.image_digest(job.ref.name))


def _with_slurm(run: Run, job: Job, *, now: datetime) -> dict[str, Any]:
    """There is no image: the digest is that of the Python packages in its place."""
    backend = backends.connect_slurm()
    # First, so that a cluster that does not answer boots no node. A gang that does not fit is probed all the same:
    # small programs have a partition of their own, and the list is to be whole.
    found = list(of_partition(run.spec, backend.partition(run.spec.compute.queue)))
    backends.submit(backend, job)
    seen = _seen_by_probe(backend, job, run, now=now)
    if seen is None:
        return UNFINISHED
    return _concluded(run, found, seen, digest=seen.packages if isinstance(seen, Probed) else None)


def _concluded(run: Run, found: list[Finding], seen: Probed | Finding, *, digest: str | None) -> dict[str, Any]:
    dataset, data = run.spec.dataset, _data(run.spec.dataset)
    if dataset is not None:
        found += of_dataset(dataset, data)
    found += of_probe(run, seen, data) if isinstance(seen, Probed) else [seen]
    found += _cache(run.spec, digest)
    require_no_problem(found)
    return {"finished": True, "image_digest": digest, "notes": notes(found)}


def _examination() -> Examination:
    cluster = read(ClusterEnvironment)
    return kubernetes.examine(cluster.cluster_name, namespace=cluster.namespace)


def _account(spec: RunSpec) -> tuple[tuple[Zone, ...] | Unknown, list[Finding]]:
    """The zones of the gang's nodes, and what is in the way of having them."""
    nodegroups = Nodegroups(read(ClusterEnvironment).cluster_name)
    try:
        nodegroup = nodegroups.size(nodegroup_name(spec.compute.instance_type))
    except NodegroupNotFound as error:
        return Unknown("there is no node group"), [Problem(str(error))]
    zones = account.zones_of(nodegroup.subnets)
    facts = AccountFacts(
        zones=zones,
        offered_in=zones
        if isinstance(zones, Unknown)
        else account.offering_zones(spec.compute.instance_type, [zone.id for zone in zones]),
        quota=_quota(spec, nodegroup),
    )
    return zones, list(of_account(spec, nodegroup, facts))


def _tools_image(run: Run) -> Iterator[Finding]:
    """ECR alone can be asked; whether other registries have an image, the nodes find out."""
    image = in_private_ecr(run.tools_image) if run.tools_image else None
    if run.tools_image and image:
        yield from of_tools_image(run.tools_image, account.has_image(image))


def _quota(spec: RunSpec, nodegroup: Nodegroup) -> Any:
    quota = quota_of(spec.compute.instance, capacity_type=nodegroup.capacity_type)
    return account.vcpu_quota(quota) if quota else None


def _seen_by_probe(backend: Backend, job: Job, run: Run, *, now: datetime) -> Probed | Problem | None:
    """What the probe saw, or what kept it from looking; None while it may yet look."""
    try:
        result = outcome_of_program(backend, job)
    except FAILURES as failed:
        return of_failure(run.spec, failed)
    if result is not None:
        return probed(result)
    obstacle = backend.obstacle(job.ref)
    if (out_of_reach := image_out_of_reach(run.spec, obstacle)) is not None:
        return out_of_reach
    if gang_is_overdue(backend.status(job.ref), limits=run.spec.limits, now=now):
        return never_ran(run.spec, obstacle)
    return None


def _data(dataset: Dataset | None) -> DatasetFacts:
    """The data set where it comes from."""
    if dataset is None:
        return DatasetFacts()
    where: dict[str, Any] = {"region": dataset.region, "signed": not dataset.public}
    manifest = dataset.manifest_url is None or objects.head(*object_of(dataset.manifest_url), **where) is not None
    if not dataset.in_s3:
        unknown = Unknown("the size of what is behind https:// is known when it is fetched")
        return DatasetFacts(manifest_is_there=manifest, num_bytes=unknown, etag=f"sha256:{dataset.sha256}")
    untold = Unknown(f"the size of {dataset.url} could not be told")
    if not dataset.is_prefix:
        found = objects.head(dataset.bucket, dataset.key, **where)
        if found is None:
            return DatasetFacts(is_there=False, manifest_is_there=manifest, num_bytes=untold)
        return DatasetFacts(manifest_is_there=manifest, num_bytes=found.num_bytes, etag=found.etag)
    listing = objects.list_below(dataset.bucket, dataset.key, **where)
    return DatasetFacts(
        is_there=listing is not None and not listing.is_empty,
        manifest_is_there=manifest,
        num_bytes=untold if listing is None or listing.num_bytes is None else listing.num_bytes,
    )


def _cache(spec: RunSpec, digest: str | None) -> Iterator[Finding]:
    if spec.precompile.enabled:
        key = cache_key(spec, image_digest=digest)
        yield from of_cache(CompileCaches(read(CacheEnvironment).cache_table).find(key))
