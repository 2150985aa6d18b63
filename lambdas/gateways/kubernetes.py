"""The Kubernetes API of an EKS cluster: endpoint and CA from EKS, a presigned STS request as the token."""

from __future__ import annotations

import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import lru_cache
from threading import Timer
from typing import Any

from lambdas.gateways import eks
from lambdas.gateways.examination import Examination
from lambdas.gateways.held_objects import HeldObjects
from lambdas.gateways.kubernetes_objects import (
    DISRUPTIONS,
    grants_name,
    is_disrupted,
    last_warning,
    log_lines,
    lost_pod,
    parse_claim,
    peer_pods,
    pending_reason,
    troubled_pods,
)
from trainflow.deployment import network_policies
from trainflow.deployment.backends import KUBERNETES_KINDS, Companion, KubernetesKind
from trainflow.deployment.kubernetes_names import (
    BACKEND_LABEL,
    CLAIM_LABEL,
    CORDONED_ANNOTATION,
    ELASTIC_LABEL,
    GRANTED_ANNOTATION,
    JOB_LABEL,
    MANAGED_BY,
    PLACEHOLDER_LABEL,
    RELEASED_ANNOTATION,
    REPLACED_ANNOTATION,
    RUN_LABEL,
    SPEC_HASH_ANNOTATION,
    STAGE_LABEL,
)
from trainflow.errors import BackendNotInstalled, ClusterUnavailable, InvalidRunSpec, JobConflict, JobNotFound
from trainflow.kubernetes.api import LineStream
from trainflow.kubernetes.connection import from_endpoint
from trainflow.kubernetes.faults import AlreadyExists, NotFound, RequestRefused
from trainflow.kubernetes.renewable import RenewableApi
from trainflow.nodes.instances import INSTANCE_TYPE_LABEL
from trainflow.nodes.training_nodes import Claim, Grants
from trainflow.observed.containers import is_shared, program_exit_code, workload
from trainflow.observed.node import Node, read_node
from trainflow.observed.pod import Pod, read_pod
from trainflow.workflow.log_line import LogLine
from trainflow.workflow.run import JobRef, Stage

TOKEN_LIFETIME_SECONDS = 600
"""EKS accepts a token for 15 minutes; it is renewed well before."""

NOT_ENDED = "status.phase!=Succeeded,status.phase!=Failed"
"""Field selector of pods that run or are to run."""

GANG_STAGES = (Stage.PRECOMPILE.value, Stage.TRAINING.value)
"""Stages whose pods occupy the nodes of a gang."""

MAX_FAILED_PODS = 5
"""Failed pods that are read: the first one is the cause, the others mostly failed because of it."""

MAX_RUNNING_PEERS = 16
"""Running pods of a failed gang that are read, in search of one whose ranks have ended before the others."""

MAX_PENDING_PODS = 20
"""Pending pods that are read: mostly all have the same reason."""

MAX_RUNNING_PODS = 20
"""Running pods of a run that failed that are read, in search of programs that ended beside a running container."""

MAX_EVENTS = 500
"""Events that are read. Kubernetes keeps them for an hour."""

MAX_PODS_TO_DIAGNOSE = 8
"""Pods to diagnose for each kind of job: a run has one job per stage, and one more per restart."""

NO_LOG = (400, 404)
"""Answers to a request for a log that is not there: the container has not started, or the pod is gone."""

CORE = "/api/v1"
COLLECTIONS = {
    **{
        (kind.api_version, each.kind): f"{kind.api} {each.plural}"
        for kind in KUBERNETES_KINDS.values()
        for each in (kind, kind.companion)
        if each is not None
    },
    (network_policies.API_VERSION, network_policies.KIND): f"{network_policies.API} {network_policies.PLURAL}",
    ("v1", "Service"): f"{CORE} services",
}
"""API and plural of the kinds of objects that we submit."""


@lru_cache
def _ca_file(cluster: str) -> str:
    """The CA certificate as a file, as the TLS library requires; /tmp is the only folder a Lambda may write to."""
    with tempfile.NamedTemporaryFile("w", suffix=".pem", delete=False) as file:
        file.write(eks.describe_cluster(cluster).ca_pem)
    return file.name


@lru_cache(maxsize=2)
def _api_client(cluster: str, _token_period: int) -> Any:
    return from_endpoint(eks.describe_cluster(cluster).url, ca_file=_ca_file(cluster), token=eks.bearer_token(cluster))


def _forget_connection() -> None:
    eks.describe_cluster.cache_clear()
    _ca_file.cache_clear()
    _api_client.cache_clear()


def api_client(cluster: str) -> Any:
    """A client of the cluster's API; invocations of a warm Lambda share it and its token."""
    return _api_client(cluster, int(time.time() // TOKEN_LIFETIME_SECONDS))


def connect(cluster: str, *, namespace: str) -> KubernetesCluster:
    """A connection to the cluster, with the shared client."""
    return KubernetesCluster(api_client(cluster), namespace=namespace)


def examine(cluster: str, *, namespace: str) -> Examination:
    """A connection to the cluster for the preflight, with the same client and token."""
    api = RenewableApi(api_client(cluster), forget=_forget_connection)
    return Examination(api, namespace=namespace)


def held_objects(cluster: str, *, namespace: str) -> HeldObjects:
    """A connection to the cluster for the survey, with the same client and token."""
    api = RenewableApi(api_client(cluster), forget=_forget_connection)
    return HeldObjects(api, namespace=namespace)


class KubernetesCluster:
    """One namespace of the cluster, with jobs of every kind in `KUBERNETES_KINDS`."""

    def __init__(self, api: Any, *, namespace: str) -> None:
        self._api = RenewableApi(api, forget=_forget_connection)
        self._namespace = namespace

    def create(self, objects: Sequence[dict[str, Any]]) -> None:
        """Create the objects in their order.

        Raises:
            JobConflict: If one of them exists and was made from another specification.
            InvalidRunSpec: If the cluster refuses one of them, as Volcano's webhook does for an unknown queue.
        """
        for manifest in objects:
            try:
                self._api.call("POST", self._collection_path(manifest), body=manifest)
            except AlreadyExists:
                self._expect_same(manifest)
            except RequestRefused as error:
                _require_installed(manifest, error)
                _require_accepted(manifest, error)
                raise

    def job(self, job: JobRef) -> Any:
        """The job's object as the API serves it: one call, whatever the number of nodes.

        Raises:
            JobNotFound: If the job is not in the cluster (any more).
        """
        found = self._api.find(f"{self._jobs(KUBERNETES_KINDS[job.backend])}/{job.name}")
        if found is None:
            raise JobNotFound(f"The job '{job.name}' is not in the cluster (any more).")
        return found

    def failed_pods(self, job: JobRef) -> list[Pod]:
        """A few pods that failed, that the cluster ends or ended, or whose nodes are lost; the first to fail first."""
        pods = self._pods(f"{JOB_LABEL}={job.name}")
        troubled = troubled_pods(pods, self._all_nodes())
        if len(pods) < job.num_nodes and not any(map(is_disrupted, pods)):
            troubled += self._lost_pods(job)
        failed = [pod for pod in troubled if pod.exit_code is not None]
        return [*failed[:MAX_FAILED_PODS], *[pod for pod in troubled if pod.exit_code is None][:MAX_FAILED_PODS]]

    def peer_pods(self, job: JobRef) -> list[Pod]:
        """Pods of the job that `failed_pods` leaves out: a few whose program ended with exit code 0, the first to end
        first, and a few that run."""
        peers = peer_pods(self._pods(f"{JOB_LABEL}={job.name}"), self._all_nodes())
        ended = [pod for pod in peers if pod.exit_code is not None]
        return [
            *ended[:MAX_FAILED_PODS],
            *[pod for pod in peers if pod.has_log and pod.exit_code is None][:MAX_RUNNING_PEERS],
        ]

    def disrupted_pods(self, job: JobRef) -> list[Pod]:
        """The job's pods that the cluster ends or has ended, before their job is reported as failed."""
        pods = [pod for pod in self._pods(f"{JOB_LABEL}={job.name}") if is_disrupted(pod)]
        return troubled_pods(pods, self._all_nodes()) if pods else []

    def running_pods(self, job: JobRef) -> list[str]:
        """Names of the job's running pods, that of the highest index first."""
        pods = [read_pod(pod) for pod in self._pods(f"{JOB_LABEL}={job.name}", field_selector="status.phase=Running")]
        return [pod.name for pod in sorted(pods, key=lambda pod: pod.index, reverse=True)]

    def shared_pods(self, job: JobRef) -> list[Any]:
        """All pods of a job whose pods have containers beside the program's; empty for other jobs, after one pod."""
        selector = f"{JOB_LABEL}={job.name}"
        first = self._pods(selector, limit=1)
        return self._pods(selector) if first and is_shared(first[0]) else []

    def failed_pods_of_run(self, run_id: str) -> list[Pod]:
        """Pods of any stage of the run that failed, or whose program did while another container runs; five at most."""
        selector = f"{RUN_LABEL}={run_id}"
        pods = self._pods(selector, field_selector="status.phase=Failed", limit=MAX_FAILED_PODS)
        running = self._pods(selector, field_selector="status.phase=Running", limit=MAX_RUNNING_PODS)
        pods += [pod for pod in running if is_shared(pod) and program_exit_code(pod)]
        return [read_pod(pod) for pod in pods[:MAX_FAILED_PODS]]

    def pods_to_diagnose(self, run_id: str) -> list[str]:
        """Names of the failed pods and of each existing job's pod of index 0. One call per kind of job."""
        names = [pod.name for pod in self.failed_pods_of_run(run_id)]
        for backend in KUBERNETES_KINDS.values():
            labels = {RUN_LABEL: run_id, BACKEND_LABEL: backend.name, **backend.rank0}
            names += [str(pod["metadata"]["name"]) for pod in self._pods(_selector(labels), limit=MAX_PODS_TO_DIAGNOSE)]
        return list(dict.fromkeys(names))

    def pods_of_stage(self, run_id: str, stage: Stage) -> list[Pod]:
        """Pods of the run's jobs of a stage."""
        return [read_pod(pod) for pod in self._pods(_selector({RUN_LABEL: run_id, STAGE_LABEL: stage.value}))]

    def elastic_jobs(self, run_id: str) -> list[str]:
        """Names of the run's elastic jobs. One call per kind of job."""
        labels = {RUN_LABEL: run_id, ELASTIC_LABEL: "true"}
        return [name for kind in KUBERNETES_KINDS.values() for name in self._names_of_jobs(kind, labels)]

    def pending_reason(self, job: JobRef) -> str | None:
        """Reason why one of the job's pods is pending, or why its pods cannot be created; None if unknown.

        A kubelet's reason comes before the scheduler's: a placed pod that does not start delays the others. Other
        reasons are in events, such as a volume that cannot be mounted, or a quota that forbids the pod.
        """
        pods = self._pods(f"{JOB_LABEL}={job.name}", field_selector="status.phase=Pending", limit=MAX_PENDING_PODS)
        pods.sort(key=lambda pod: not pod["spec"].get("nodeName"))
        reason = next(filter(None, map(pending_reason, pods)), None)
        return reason or last_warning(self._events(), job.name)

    def rank0(self, job: JobRef) -> str | None:
        """Name of the pod of index 0, which has rank 0 in a static rendezvous. One call."""
        pod = self._pod_of_index_0(job)
        return str(pod["metadata"]["name"]) if pod else None

    def newest_rank0(self, run_id: str, pod: str, rank0: Mapping[str, str]) -> str | None:
        """Name of the newest pod of rank 0 of a training; None while its job is suspended. One call.

        Args:
            run_id: The run.
            pod: An earlier pod of rank 0, which names the job.
            rank0: Labels of a job's pod of rank 0.
        """
        found = self._pods(_selector({RUN_LABEL: run_id, STAGE_LABEL: Stage.TRAINING.value, **rank0}))
        of_job = [each["metadata"] for each in found if pod.startswith(f"{each['metadata']['labels'][JOB_LABEL]}-")]
        newest = max(of_job, key=lambda metadata: str(metadata.get("creationTimestamp")), default=None)
        return str(newest["name"]) if newest else None

    def result(self, job: JobRef, *, pod: str | None = None) -> str | None:
        """The termination message of a pod's container; None while it runs or when it left none."""
        found = self._pod_of_index_0(job) if pod is None else self._pod(pod)
        return read_pod(found).termination_message if found else None

    def read_log(self, pod: str, *, since: datetime | None = None, tail_lines: int | None = None) -> Iterator[LogLine]:
        """Complete lines, oldest first. They are streamed, so that a large log needs little memory."""
        path, second = f"{self._core('pods')}/{pod}", _to_second(since)
        container = self._log_container(pod)
        if container is None:
            return
        try:
            lines = self._api.log(path, container=container, since=second, tail_lines=tail_lines)
            yield from log_lines(lines.complete())
        except RequestRefused as error:
            if error.status not in NO_LOG:
                raise

    def follow_log(self, pod: str, *, since: datetime | None, longest_seconds: float) -> Iterator[LogLine]:
        """Complete lines, with those that are written until the container ends.

        The request is sent at once, so that the kubelet has opened the log before the pod is deleted: it then sends the
        log to its end. A stream that breaks off ends the lines.
        """
        container = self._log_container(pod)
        if container is None:
            return iter(())
        try:
            stream = self._api.log(
                f"{self._core('pods')}/{pod}",
                container=container,
                since=_to_second(since),
                follow=True,
                silence_seconds=longest_seconds,
            ).open()
        except RequestRefused as error:
            if error.status not in NO_LOG:
                raise
            return iter(())
        return _followed(stream, longest_seconds)

    def _log_container(self, pod: str) -> str | None:
        """Name of the container whose log is the pod's: the program's, or an init container's that failed before it.

        None if the pod is gone, and its log with it.
        """
        found = self._pod(pod)
        return workload(found).container if found else None

    def cancel(self, run_id: str) -> list[str]:
        """Delete the run's jobs with their pods and their companions, its services and network policies, and its claim
        on nodes."""
        names = [name for backend in KUBERNETES_KINDS.values() for name in self._delete_jobs(backend, run_id)]
        for kind in KUBERNETES_KINDS.values():
            self._delete_companions(kind, run_id)
        for collection in (self._core("services"), self._core("configmaps"), self._policies()):
            for found in self._api.list(collection, f"{RUN_LABEL}={run_id}"):
                self._api.delete(f"{collection}/{found['metadata']['name']}")
        return names

    def is_stopped(self, run_id: str) -> bool:
        """Whether no pod of the run is left that has not ended."""
        return not self._pods(f"{RUN_LABEL}={run_id}", field_selector=NOT_ENDED, limit=1)

    def delete(self, job: JobRef, *, grace_seconds: int | None = None) -> None:
        """Delete one job with its pods, its service and its network policy, and nothing else of the run. Safe to
        repeat.

        Args:
            job: The job.
            grace_seconds: Time between SIGTERM and SIGKILL; None for the pods' own.
        """
        kind = KUBERNETES_KINDS[job.backend]
        self._api.delete(f"{self._jobs(kind)}/{job.name}")
        if grace_seconds is not None:
            # After the job, which would replace them. The pods' own deletion, which follows, makes no grace longer.
            pods = self._core("pods")
            self._api.delete_all(pods, f"{JOB_LABEL}={job.name}", grace_period_seconds=grace_seconds)
        if kind.companion is not None:
            self._api.delete(f"{self._companions(kind, kind.companion)}/{job.name}")
        if kind.makes_service:
            self._api.delete(f"{self._core('services')}/{job.name}")
        if job.num_nodes > 1:
            self._api.delete(f"{self._policies()}/{job.name}")

    # Decision 104: on a cluster that makes nodes by itself, pods of low priority hold those of a gang.
    def placeholders(self, run_id: str) -> list[Any]:
        """The run's pods that hold nodes for its gang."""
        return self._pods(f"{RUN_LABEL}={run_id},{PLACEHOLDER_LABEL}")

    def create_placeholder(self, manifest: dict[str, Any]) -> None:
        """Create a pod that holds a node. One of the same name counts as created, also while it is being deleted.

        Raises:
            InvalidRunSpec: If the cluster refuses its content.
        """
        try:
            self._api.call("POST", self._core("pods"), body=manifest)
        except AlreadyExists:
            return
        except RequestRefused as error:
            _require_accepted(manifest, error)
            raise

    def delete_placeholder(self, name: str) -> None:
        """Delete a pod that holds a node. Safe to repeat."""
        self._api.delete(f"{self._core('pods')}/{name}")

    def delete_placeholders(self, run_id: str, *, grace_seconds: int) -> None:
        """Delete all of the run's pods that hold nodes. Safe to repeat."""
        selector = f"{RUN_LABEL}={run_id},{PLACEHOLDER_LABEL}"
        self._api.delete_all(self._core("pods"), selector, grace_period_seconds=grace_seconds)

    def gang_pods_since(self, run_id: str, ended_before: datetime) -> bool:
        """Whether pods of the run's gangs have not ended; those that had to end before that time do not count."""
        pods = self._pods(f"{RUN_LABEL}={run_id},{STAGE_LABEL}", field_selector=NOT_ENDED)
        of_gangs = (pod["metadata"] for pod in pods if pod["metadata"]["labels"][STAGE_LABEL] in GANG_STAGES)
        ends = [metadata.get("deletionTimestamp") for metadata in of_gangs]
        return any(end is None or datetime.fromisoformat(end) >= ended_before for end in ends)

    def events_of_pod(self, name: str) -> list[Any]:
        """Events about a pod."""
        return self._events(f"involvedObject.kind=Pod,involvedObject.name={name}")

    def nodes(self, instance_type: str) -> list[Node]:
        """Every node of an instance type."""
        return [read_node(found) for found in self._api.list("/api/v1/nodes", f"{INSTANCE_TYPE_LABEL}={instance_type}")]

    def _lost_pods(self, job: JobRef) -> list[Pod]:
        """The first pod that the cluster ended and deleted, by its events, which outlive it."""
        for reason in DISRUPTIONS:
            for event in self._events(f"involvedObject.kind=Pod,reason={reason}"):
                name = str(event["involvedObject"]["name"])
                if name.startswith(f"{job.name}-") and (lost := lost_pod(self._events(f"involvedObject.name={name}"))):
                    return [lost]
        return []

    def _events(self, field_selector: str = "type=Warning") -> list[Any]:
        return self._api.list(self._core("events"), "", field_selector=field_selector, limit=MAX_EVENTS)

    def _all_nodes(self) -> dict[str, Node]:
        nodes = map(read_node, self._api.list("/api/v1/nodes", ""))
        return {node.name: node for node in nodes}

    # Decisions 7 and 42: claims and grants are objects in the cluster, changed only in the version that was read.
    def claim_nodes(
        self, run_id: str, instance_type: str, num_nodes: int, *, avoided_nodes: Sequence[str] = ()
    ) -> None:
        """Create the run's claim on nodes, or change it; it lasts until the run is cancelled. Safe to repeat.

        Args:
            run_id: The run.
            instance_type: Type of the nodes.
            num_nodes: Their number.
            avoided_nodes: Nodes that the run does not use.
        """
        labels = {**MANAGED_BY, RUN_LABEL: run_id, CLAIM_LABEL: instance_type}
        claim = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": f"{run_id}-nodes", "labels": labels},
            "data": {"num_nodes": str(num_nodes), "avoided_nodes": " ".join(avoided_nodes)},
        }
        path = f"{self._core('configmaps')}/{run_id}-nodes"
        try:
            self._api.call("POST", self._core("configmaps"), body=claim)
        except AlreadyExists:
            found = self._api.find(path)
            if found is not None and (found["data"], found["metadata"]["labels"]) != (claim["data"], labels):
                self._api.call("PUT", path, body=claim)

    def cordon(self, node: Node, *, run_id: str) -> None:
        """Let no further pods onto a node whose instance is terminated. Safe to repeat.

        Args:
            node: The node.
            run_id: Run whose jobs failed there.
        """
        if node.cordoned:
            self._change_node(node, {REPLACED_ANNOTATION: run_id}, {})
        else:
            marks = {REPLACED_ANNOTATION: run_id, CORDONED_ANNOTATION: run_id}
            self._change_node(node, marks, {"unschedulable": True})

    def uncordon(self, node: Node) -> None:
        """Let pods onto a node again whose instance is not terminated after all, unless a person has cordoned it. Safe
        to repeat."""
        spec = {"unschedulable": None} if node.cordoned_by_run else {}
        self._change_node(node, {REPLACED_ANNOTATION: None, CORDONED_ANNOTATION: None}, spec)

    def withdraw(self, node: Node) -> None:
        """Let no further pods onto a node that no run needs, and mark it. Safe to repeat."""
        self._change_node(node, {RELEASED_ANNOTATION: "true"}, {"unschedulable": True})

    def give_back(self, node: Node) -> None:
        """Let pods onto a node again that was withdrawn. Safe to repeat."""
        self._change_node(node, {RELEASED_ANNOTATION: None}, {"unschedulable": None})

    def withdrawn_types(self) -> set[str]:
        """Instance types of nodes that are withdrawn."""
        return {node.instance_type for node in self._all_nodes().values() if node.released and node.instance_type}

    def _change_node(self, node: Node, annotations: Mapping[str, str | None], spec: Mapping[str, Any]) -> None:
        """Change both in one call. A merge patch removes what is null (RFC 7396)."""
        change = {"metadata": {"annotations": dict(annotations)}, "spec": dict(spec)}
        with suppress(NotFound):
            self._api.call("PATCH", f"/api/v1/nodes/{node.name}", body=change)

    def claimed_nodes(self, instance_type: str) -> int:
        """Number of nodes that all runs together claim."""
        return sum(claim.num_nodes for claim in self.claims(instance_type))

    def claims(self, instance_type: str | None = None) -> list[Claim]:
        """Every claim on nodes, or on those of one type."""
        return self._claims(f"{CLAIM_LABEL}={instance_type}" if instance_type else CLAIM_LABEL)

    def grants(self, instance_type: str) -> Grants:
        """The nodes of a type that runs have been granted."""
        found = self._api.find(f"{self._core('configmaps')}/{grants_name(instance_type)}")
        if found is None:
            return Grants(by_run={})
        by_run = {run_id: int(num_nodes) for run_id, num_nodes in (found.get("data") or {}).items()}
        return Grants(by_run=by_run, version=found["metadata"]["resourceVersion"])

    def store_grants(self, instance_type: str, grants: Grants) -> bool:
        """Store the grants that were made from those of `version`. The object has another version afterwards.

        Returns:
            Whether they were stored; False if another run has stored its own meanwhile.
        """
        path, name = self._core("configmaps"), grants_name(instance_type)
        # Kubernetes gives an object that is replaced by an equal one no new version.
        annotations = {GRANTED_ANNOTATION: datetime.now(UTC).isoformat()}
        metadata: dict[str, Any] = {"name": name, "labels": dict(MANAGED_BY), "annotations": annotations}
        if grants.version is not None:
            metadata["resourceVersion"] = grants.version
        data = {run_id: str(num_nodes) for run_id, num_nodes in grants.by_run.items()}
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}
        try:
            if grants.version is None:
                self._api.call("POST", path, body=body)
            else:
                self._api.call("PUT", f"{path}/{name}", body=body)
        except (AlreadyExists, NotFound):
            return False
        return True

    def pods_by_phase(self) -> Counter[str]:
        """Number of pods of all runs by phase."""
        return Counter(str(pod["status"].get("phase")) for pod in self._pods(_selector(MANAGED_BY)))

    def nodes_in_use(self) -> dict[str, set[str]]:
        """Nodes that hold unfinished pods, with the runs of these."""
        used = defaultdict[str, set[str]](set)
        for pod in self._pods(RUN_LABEL, field_selector=NOT_ENDED):
            if pod["spec"].get("nodeName"):
                used[pod["spec"]["nodeName"]].add(pod["metadata"]["labels"][RUN_LABEL])
        return dict(used)

    def _claims(self, selector: str) -> list[Claim]:
        return [parse_claim(found) for found in self._api.list(self._core("configmaps"), selector)]

    def _expect_same(self, manifest: dict[str, Any]) -> None:
        name = manifest["metadata"]["name"]
        existing = self._api.call("GET", f"{self._collection_path(manifest)}/{name}")
        wanted = manifest["metadata"]["annotations"][SPEC_HASH_ANNOTATION]
        if (existing["metadata"].get("annotations") or {}).get(SPEC_HASH_ANNOTATION) != wanted:
            raise JobConflict(f"A {manifest['kind']} named '{name}' exists and was made from another specification.")

    def _delete_jobs(self, backend: KubernetesKind, run_id: str) -> list[str]:
        names = self._names_of_jobs(backend, {RUN_LABEL: run_id})
        for name in names:
            self._api.delete(f"{self._jobs(backend)}/{name}")
        return names

    def _delete_companions(self, backend: KubernetesKind, run_id: str) -> None:
        """Delete the objects that the run's jobs of one kind refer to; none for a kind that the cluster does not
        know."""
        if backend.companion is None:
            return
        path = self._companions(backend, backend.companion)
        with suppress(NotFound):
            for found in self._api.list(path, f"{RUN_LABEL}={run_id}"):
                self._api.delete(f"{path}/{found['metadata']['name']}")

    def _names_of_jobs(self, backend: KubernetesKind, labels: Mapping[str, str]) -> list[str]:
        """Names of the jobs of one kind; none for a kind that the cluster does not know."""
        try:
            # Pods of other kinds are deleted with their jobs; a JobSet's own Job does not have these labels.
            found = self._api.list(self._jobs(backend), _selector({**labels, BACKEND_LABEL: backend.name}))
        except NotFound:
            if backend.software:
                return []
            raise
        return [str(job["metadata"]["name"]) for job in found]

    def _jobs(self, backend: KubernetesKind) -> str:
        return f"{backend.api}/namespaces/{self._namespace}/{backend.plural}"

    def _companions(self, backend: KubernetesKind, companion: Companion) -> str:
        return f"{backend.api}/namespaces/{self._namespace}/{companion.plural}"

    def _core(self, plural: str) -> str:
        return f"{CORE}/namespaces/{self._namespace}/{plural}"

    def _collection_path(self, manifest: dict[str, Any]) -> str:
        api, plural = COLLECTIONS[manifest["apiVersion"], manifest["kind"]].split()
        return f"{api}/namespaces/{self._namespace}/{plural}"

    def _policies(self) -> str:
        return f"{network_policies.API}/namespaces/{self._namespace}/{network_policies.PLURAL}"

    def _pod_of_index_0(self, job: JobRef) -> Any:
        labels = {JOB_LABEL: job.name, **KUBERNETES_KINDS[job.backend].rank0}
        pods = self._pods(_selector(labels), limit=1)
        return pods[0] if pods else None

    def _pod(self, name: str) -> Any:
        return self._api.find(f"{self._core('pods')}/{name}")

    def _pods(self, label_selector: str, *, field_selector: str = "", limit: int = 0) -> list[Any]:
        return self._api.list(self._core("pods"), label_selector, field_selector=field_selector, limit=limit)


def _to_second(time: datetime | None) -> str | None:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ") if time else None


def _followed(stream: LineStream, longest_seconds: float) -> Iterator[LogLine]:
    """The lines of a stream, which is closed after a time whether lines arrive or not."""
    closing = Timer(longest_seconds, stream.close)
    closing.daemon = True
    closing.start()
    try:
        yield from log_lines(stream.complete())
    except ClusterUnavailable:
        return  # it was closed, or broke off; what has arrived counts
    finally:
        closing.cancel()


def _selector(labels: Mapping[str, str]) -> str:
    return ",".join(f"{name}={value}" for name, value in labels.items())


def _require_installed(manifest: dict[str, Any], error: RequestRefused) -> None:
    """Require that the kind of the object is installed.

    The answer for an unknown API group is plain text; a missing namespace is reported as a Status.

    Raises:
        BackendNotInstalled: If the API group is unknown.
    """
    if not isinstance(error, NotFound) or error.from_api_group:
        return
    for backend in KUBERNETES_KINDS.values():
        kinds = {each.kind for each in (backend, backend.companion) if each is not None}
        if backend.software and manifest["apiVersion"] == backend.api_version and manifest["kind"] in kinds:
            raise BackendNotInstalled(backend.not_installed) from None


def _require_accepted(manifest: dict[str, Any], error: RequestRefused) -> None:
    """Require that the cluster did not refuse the object's content: it would refuse the same content again.

    Preflight accepted it, so the cluster has changed since.

    Raises:
        InvalidRunSpec: If it refused the content.
    """
    if error.status in (400, 422):
        name = f"{manifest['kind']} '{manifest['metadata']['name']}'"
        raise InvalidRunSpec(
            f"The cluster refuses the {name}: {error} Correct what it names, in the spec or in the cluster."
        ) from None
