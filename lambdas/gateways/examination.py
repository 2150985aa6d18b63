"""Facts about a Kubernetes cluster for the preflight. What this function may not read is `Unknown`, never an error."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, TypeVar

from trainflow.deployment.backends import KUBERNETES_KINDS, KubernetesKind
from trainflow.deployment.kubernetes_names import JOB_LABEL, TRAINING_NODES
from trainflow.deployment.network_policies import enforces_policies
from trainflow.errors import ClusterAccessDenied
from trainflow.kubernetes.api import KubernetesApi
from trainflow.kubernetes.faults import NotFound, RequestRefused
from trainflow.nodes.instances import INSTANCE_TYPE_LABEL
from trainflow.observed.containers import program_image
from trainflow.observed.daemon_pods import read_daemon_pods
from trainflow.observed.node import Node, read_node
from trainflow.spec.run_spec import Compute
from trainflow.workflow.preflight import ClusterFacts, PluginNodes, Refused, Unknown, VolumeClaim

SETTLED_AFTER = timedelta(minutes=5)
"""A ready node counts as settled after this time: its device plugins start a minute or two after it."""

ZONE_LABELS = ("topology.kubernetes.io/zone", "topology.k8s.aws/zone-id", "failure-domain.beta.kubernetes.io/zone")
"""Labels that name the zones in a volume's node affinity, as zone names or zone ids."""

PRIORITY_CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"
DAEMON_SETS = "/apis/apps/v1/daemonsets"

DIGEST = re.compile(r"sha256:[0-9a-f]{64}$")

Answer = TypeVar("Answer")

DaemonSets = list[Any] | Unknown
"""All daemon sets of the cluster, as the API serves them."""


class Examination:
    """Read access to one namespace of a cluster and to its cluster-wide objects."""

    def __init__(self, api: KubernetesApi, *, namespace: str) -> None:
        self._api = api
        self._core = f"/api/v1/namespaces/{namespace}"
        self._namespace = namespace

    def facts(self, compute: Compute, *, service_account: str, claim: str, now: datetime) -> ClusterFacts:
        """Facts about everything that a run of this gang needs.

        Args:
            compute: Compute section of the spec.
            service_account: Service account of the run's pods.
            claim: Volume claim of the file system that they mount.
            now: Current time, which distinguishes new nodes from settled ones.
        """
        optional: dict[str, Any] = {}
        daemon_sets = _asked(self._daemon_sets)
        nodes = _asked(self._nodes_for_small_programs)
        kind = KUBERNETES_KINDS[compute.backend]
        if kind.queues is not None and compute.queue is not None:
            optional["queue"] = _asked(lambda: self._queue(f"{kind.queues}/{compute.queue}"))
        if compute.priority_class is not None:
            optional["priority_class"] = _asked(
                lambda: self._api.find(f"{PRIORITY_CLASSES}/{compute.priority_class}") is not None
            )
        if kind.software is not None:
            optional["kind_installed"] = _asked(lambda: self._knows(kind))
        return ClusterFacts(
            service_account=_asked(
                lambda: self._api.find(f"{self._core}/serviceaccounts/{service_account}") is not None
            ),
            claim=_asked(lambda: self._claim(claim)),
            plugins=_asked(lambda: self._plugins(compute, daemon_sets, now=now)),
            policies_enforced=_policies_enforced(daemon_sets),
            daemon_pods=daemon_sets
            if isinstance(daemon_sets, Unknown)
            else tuple(read_daemon_pods(each) for each in daemon_sets),
            ipv4=nodes if isinstance(nodes, Unknown) else all(node.has_ipv4 for node in nodes),
            disks=nodes if isinstance(nodes, Unknown) else _disks(nodes),
            **optional,
        )

    def admitted(self, pod: Mapping[str, Any]) -> Mapping[str, Any] | Refused | Unknown:
        """The pod as the cluster would store it. Nothing is created.

        Args:
            pod: The pod as it would be created.
        """
        try:
            answer = self._api.call("POST", f"{self._core}/pods", query=[("dryRun", "All")], body=dict(pod))
        except ClusterAccessDenied as refused:
            # Admission answers 403 as well, and names the pod.
            said = str(refused).removeprefix("The Kubernetes API refused: ").rstrip(".")
            return Unknown(str(refused).rstrip(".")) if "cannot create resource" in said else Refused(said)
        except RequestRefused as refused:
            return Refused(str(refused).rstrip("."))
        return answer if isinstance(answer, Mapping) else Unknown("the API answered with no pod")

    def quotas(self) -> list[Any] | Unknown:
        """The ResourceQuotas of the namespace."""
        return _asked(lambda: self._api.list(f"{self._core}/resourcequotas", ""))

    def image_digest(self, job: str) -> str | None:
        """Digest of the image that a job's container runs; None if the pod or the digest in its status is missing."""
        pods = self._api.list(f"{self._core}/pods", f"{JOB_LABEL}={job}", limit=1)
        found = DIGEST.search(program_image(pods[0])) if pods else None
        return found[0] if found else None

    def _claim(self, name: str) -> VolumeClaim | None:
        claim = self._api.find(f"{self._core}/persistentvolumeclaims/{name}")
        if claim is None:
            return None
        phase, volume_name = (claim.get("status") or {}).get("phase", "Pending"), claim["spec"].get("volumeName")
        volume = self._api.find(f"/api/v1/persistentvolumes/{volume_name}") if volume_name else None
        return VolumeClaim(phase=phase, zones=_zones(volume or {}))

    def _queue(self, path: str) -> str | None:
        """State of a queue; None if it does not exist. Volcano sets the state when it first processes a queue."""
        queue = self._api.find(path)
        return (queue.get("status") or {}).get("state") or "Open" if queue is not None else None

    def _knows(self, kind: KubernetesKind) -> bool:
        """Whether a kind's API group is installed: it then answers a request for a missing object with a Status."""
        try:
            self._api.call("GET", f"{kind.api}/namespaces/{self._namespace}/{kind.plural}/trainflow-preflight")
        except RequestRefused as error:
            return not isinstance(error, NotFound) or error.from_api_group
        return True

    def _nodes_for_small_programs(self) -> list[Node]:
        ((key, value),) = TRAINING_NODES.items()
        return [read_node(node) for node in self._api.list("/api/v1/nodes", f"{key}!={value}")]

    def _plugins(self, compute: Compute, daemon_sets: DaemonSets, *, now: datetime) -> PluginNodes:
        nodes = self._api.list("/api/v1/nodes", f"{INSTANCE_TYPE_LABEL}={compute.instance_type}")
        wanted = compute.instance.plugin_devices(compute.num_nodes)
        settled = [node for node in map(read_node, nodes) if _settled(node, now=now)]
        return PluginNodes(
            settled=tuple(node.advertised(wanted) for node in settled),
            huge_pages_mib=max((node.huge_pages_mib for node in settled), default=0),
            os_images=frozenset(node.os_image for node in settled if node.os_image),
            daemon_sets=_names(daemon_sets),
        )

    def _daemon_sets(self) -> DaemonSets:
        try:
            return self._api.list(DAEMON_SETS, "")
        except NotFound:
            return Unknown("the cluster does not serve daemon sets")


def _disks(nodes: Sequence[Node]) -> tuple[int, ...]:
    return tuple(node.disk_bytes for node in nodes if node.disk_bytes is not None)


def _names(daemon_sets: DaemonSets) -> frozenset[str] | Unknown:
    if isinstance(daemon_sets, Unknown):
        return daemon_sets
    return frozenset(str(each["metadata"]["name"]) for each in daemon_sets)


def _policies_enforced(daemon_sets: DaemonSets) -> bool | Unknown:
    if isinstance(daemon_sets, Unknown):
        return daemon_sets
    enforced = enforces_policies(daemon_sets)
    return Unknown("no daemon set is known to do so") if enforced is None else enforced


def _asked(ask: Callable[[], Answer]) -> Answer | Unknown:
    try:
        return ask()
    except ClusterAccessDenied as refused:
        return Unknown(str(refused).rstrip("."))


def _settled(node: Node, *, now: datetime) -> bool:
    return node.ready_status == "True" and node.ready_since is not None and now - node.ready_since > SETTLED_AFTER


def _zones(volume: Mapping[str, Any]) -> frozenset[str]:
    required = ((volume.get("spec") or {}).get("nodeAffinity") or {}).get("required") or {}
    return frozenset(
        value
        for term in required.get("nodeSelectorTerms") or ()
        for requirement in term.get("matchExpressions") or ()
        if requirement["key"] in ZONE_LABELS and requirement["operator"] == "In"
        for value in requirement["values"]
    )
