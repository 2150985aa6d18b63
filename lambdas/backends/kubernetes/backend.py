"""Jobs in the deployment's Kubernetes cluster. Backends differ only by the `JobKind` of their objects."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from lambdas.backends.backend import Examined
from lambdas.backends.deployment import Deployment
from lambdas.backends.kubernetes import cluster_nodes, node_groups
from lambdas.backends.kubernetes.kind import JobKind
from lambdas.backends.kubernetes.placeholders import GRACE_SECONDS, placeholder
from lambdas.backends.kubernetes.preflight import can_run_pods, cluster_findings
from lambdas.backends.kubernetes.status import of_programs
from lambdas.gateways import account, kubernetes, objects
from lambdas.gateways.eks import Nodegroups
from lambdas.gateways.examination import Examination
from lambdas.gateways.held_objects import HeldObjects
from lambdas.gateways.kubernetes import KubernetesCluster
from lambdas.logic.capacity import Capacity
from lambdas.logic.jobs import Job, job_of
from lambdas.logic.preflight.account import (
    account_findings,
    image_room_findings,
    spares_findings,
    tools_image_findings,
)
from lambdas.logic.preflight.admission import Admission, admission_findings, distinct_pods, placeholder_refused
from lambdas.logic.preflight.findings import Finding, Problem, problems
from trainflow.deployment.image_names import in_private_ecr
from trainflow.errors import NodegroupNotFound
from trainflow.nodes.instances import nodegroup_name
from trainflow.nodes.offerings import node_quota
from trainflow.nodes.training_nodes import Nodegroup
from trainflow.observed.job import JobStatus
from trainflow.protocol import announcement
from trainflow.protocol.pods import CLAIM, SERVICE_ACCOUNT
from trainflow.record.placement import Placement, placement_of
from trainflow.spec.run_spec import RunSpec
from trainflow.workflow.preflight import AccountFacts, ClusterFacts, Probed, Refused, Unknown, Zone
from trainflow.workflow.run import JobPhase, JobRef, Run, Stage


class KubernetesBackend(KubernetesCluster):
    """Runs jobs of one kind. Implements `lambdas.backends.backend.Backend`, most of it by the cluster's methods."""

    def __init__(self, kind: JobKind, deployment: Deployment) -> None:
        self._kind, self._deployment = kind, deployment
        super().__init__(kubernetes.api_client(deployment.cluster_name), namespace=deployment.namespace)

    def render(self, job: Job) -> list[dict[str, Any]]:
        """The job's objects."""
        return self._kind.render(self._placed(job))

    def submit(self, job: Job) -> None:
        """Create the job's objects. A gang's pods take the places of the pods that hold its nodes."""
        self.create(self.render(job))
        if self._gets_cluster_nodes(job):
            # After the job: its pods are of a higher priority than those of any run that waits for these nodes.
            self.delete_placeholders(job.run_id, grace_seconds=GRACE_SECONDS)

    def _placed(self, job: Job) -> Job:
        """The job with the origin of its nodes."""
        return replace(job, cluster_makes_nodes=True) if self._gets_cluster_nodes(job) else job

    def _gets_cluster_nodes(self, job: Job) -> bool:
        return job.instance is not None and self._deployment.cluster_makes_nodes

    def status(self, job: JobRef) -> JobStatus:
        """Status of the job. One call for its object and one for one pod, whatever the number of nodes.

        All pods are read only if the cluster has injected containers that may outlive the programs, or fail them.
        """
        status = self._kind.status(job, self.job(job))
        if status.phase is JobPhase.SUCCEEDED:
            return status
        return of_programs(job, status, self.shared_pods(job))

    def rank0(self, job: JobRef) -> str | None:
        """The pod of rank 0. In a static rendezvous that is the pod of index 0.

        An elastic job assigns its ranks at run time, so its rank 0 announces its pod itself: in an object among the
        run's artifacts, because the pods may write there and cannot access the cluster's API.
        """
        return self._announced(job.run_id, job.name) if job.elastic else super().rank0(job)

    def present_rank0(self, run_id: str, pod: str) -> str:
        """The pod of rank 0, or the one that has taken its place. One call, for kinds that others suspend."""
        kind = self._kind.description
        return (self.newest_rank0(run_id, pod, kind.rank0) if kind.may_be_suspended else None) or pod

    def pods_to_diagnose(self, run_id: str) -> list[str]:
        """Announced pods of rank 0 of elastic jobs, then failed pods and those of index 0."""
        announced = [self._announced(run_id, job) for job in self.elastic_jobs(run_id)]
        return list(dict.fromkeys([*filter(None, announced), *super().pods_to_diagnose(run_id)]))

    def placement(self, run_id: str) -> Placement | None:
        """Nodes and time of the newest training job, from its pods."""
        return placement_of(self.pods_of_stage(run_id, Stage.TRAINING), now=datetime.now(UTC))

    def ensure_nodes(self, run: Run, *, waiting_since: datetime) -> Capacity:
        """Capacity of the instance type's node group, which grows by the missing nodes; or of a cluster that makes
        nodes by itself for the run's placeholders."""
        if self._deployment.cluster_makes_nodes:
            job = self._placed(self._gang(run))
            return cluster_nodes.ensure_nodes(self, run, job, waiting_since=waiting_since, now=datetime.now(UTC))
        replaces = self._deployment.replaces_bad_nodes
        refused = replaces and not node_groups.replace_bad_nodes(self, self._nodegroups, run)
        capacity = node_groups.ensure_nodes(
            self, self._nodegroups, run, waiting_since=waiting_since, replaces_bad_nodes=replaces
        )
        return replace(capacity, termination_refused=refused)

    def release_nodes(self, instance_type: str) -> int:
        """Release the nodes of the type's node group, unless a run claims some; returns their number.

        A cluster that makes nodes by itself ends them when no pod of the run is left, which `cancel` sees to.
        """
        if self._deployment.cluster_makes_nodes:
            return 0
        return node_groups.release_nodes(self, self._nodegroups, instance_type)

    def examine(self, run: Run, *, start_probe: Callable[[], None], now: datetime) -> Examined:
        """Findings about the cluster, the AWS account and the registry."""
        compute = run.spec.compute
        facts = self._examination.facts(compute, service_account=SERVICE_ACCOUNT, claim=CLAIM, now=now)
        with_probe = can_run_pods(facts)
        if with_probe:
            start_probe()  # it starts while AWS is being asked
        zones, in_account = self._account(run.spec)
        in_cluster = [*self._in_cluster(run, facts, zones), *_images(run, facts)]
        admission = self._admission(run) if with_probe else []
        others = [*in_account, *in_cluster]
        # A missing priority class, or too many nodes, would be refused once more in the words of admission.
        return Examined((*others, *(() if problems(others) else admission)), probe_started=with_probe)

    def _admission(self, run: Run) -> list[Finding]:
        """Findings about what the cluster would make of the pods of the training."""
        job = self._gang(run)
        examination = self._examination
        if self._gets_cluster_nodes(job):
            held = examination.admitted(placeholder(self._placed(job), 0, wait_seconds=0))
            if isinstance(held, Refused):
                return [placeholder_refused(held)]
        admissions = [
            Admission(sent=pod, answer=examination.admitted(pod), number=number)
            for pod, number in distinct_pods(self.render(job), job=job.ref.name)
        ]
        return list(admission_findings(admissions, examination.quotas(), run.spec.compute.instance))

    def _gang(self, run: Run) -> Job:
        return job_of(run, Stage.TRAINING, 1, artifacts_url=self._deployment.artifacts.url_of(run.run_id))

    def _in_cluster(self, run: Run, facts: ClusterFacts, zones: tuple[Zone, ...] | Unknown) -> Iterator[Finding]:
        makes_nodes = self._deployment.cluster_makes_nodes
        return cluster_findings(self._kind, run.spec, facts, zones=zones, may_have_plugins=makes_nodes)

    def program_digest(self, probe: JobRef, _seen: Probed | Finding) -> str | None:
        """Digest of the image, from the node that runs the probe."""
        return self._examination.image_digest(probe.name)

    @property
    def _nodegroups(self) -> Nodegroups:
        return Nodegroups(self._deployment.cluster_name)

    @property
    def _examination(self) -> Examination:
        return kubernetes.examine(self._deployment.cluster_name, namespace=self._deployment.namespace)

    def _announced(self, run_id: str, job_name: str) -> str | None:
        """The pod of an elastic job's rank 0, from its announcement; None before the announcement."""
        artifacts = self._deployment.artifacts
        key = artifacts.key_of(run_id, announcement.object_name(job_name))
        announced = objects.read(
            artifacts.artifact_bucket, key, version_id=None, limit_bytes=announcement.MAX_BYTES + 1
        )
        return announcement.announced_pod(announced)

    def _account(self, spec: RunSpec) -> tuple[tuple[Zone, ...] | Unknown, list[Finding]]:
        """The zones of the gang's nodes, and findings about their number, zones and quota."""
        if self._deployment.cluster_makes_nodes:
            return Unknown("the cluster makes the nodes by itself"), list(spares_findings(spec.compute))
        others = [finding for other in spec.on_other_types() for finding in self._fallback(other)]
        try:
            nodegroup = self._nodegroups.size(nodegroup_name(spec.compute.instance_type))
        except NodegroupNotFound as error:
            return Unknown("there is no node group"), [Problem(str(error)), *others]
        facts = _account_facts(spec, nodegroup)
        return facts.zones, [*account_findings(spec, nodegroup, facts), *others]

    def _fallback(self, spec: RunSpec) -> Iterator[Finding]:
        """Findings about the nodes of a type that the run may use instead; the spec names it as its own."""
        instance_type = spec.compute.instance_type
        name = nodegroup_name(instance_type)
        try:
            nodegroup = self._nodegroups.size(name)
        except NodegroupNotFound:
            yield Problem(
                f"compute.fallback names {instance_type}, but the cluster '{self._deployment.cluster_name}' has no "
                f"node group '{name}'; remove it from fallback, or deploy a node group for it."
            )
            return
        yield from account_findings(spec, nodegroup, _account_facts(spec, nodegroup), named="compute.fallback names")


def held_objects(deployment: Deployment) -> HeldObjects:
    """Objects of all runs in the deployment's cluster, which implements `lambdas.backends.run_objects.RunObjects`."""
    return kubernetes.held_objects(deployment.cluster_name, namespace=deployment.namespace)


def _account_facts(spec: RunSpec, nodegroup: Nodegroup) -> AccountFacts:
    zones = account.subnet_zones(nodegroup.subnets)
    return AccountFacts(
        zones=zones,
        offered_in=zones
        if isinstance(zones, Unknown)
        else account.offering_zones(spec.compute.instance_type, [zone.id for zone in zones]),
        quota=_quota(spec, nodegroup),
    )


def _quota(spec: RunSpec, nodegroup: Nodegroup) -> Any:
    quota = node_quota(spec.compute.instance, capacity_type=nodegroup.capacity_type)
    return account.vcpu_quota(quota) if quota else None


def _images(run: Run, facts: ClusterFacts) -> Iterator[Finding]:
    """Findings about images in ECR. Images in other registries are not checked."""
    tools, program = (in_private_ecr(name) if name else None for name in (run.tools_image, run.spec.workload.image))
    if run.tools_image and tools:
        yield from tools_image_findings(run.tools_image, account.image_bytes(tools))
    if program:
        yield from image_room_findings(run.spec.workload, account.image_bytes(program), facts.disks)
