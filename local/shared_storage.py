"""The cluster's shared file system in the twin: a folder, offered as the claim that FSx for Lustre serves on EKS.

And the other objects that a deployment makes in the cluster: the namespace, the pods' service account, a queue of
Volcano's, the functions' rights.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kubetwin.client import ApiClient, RequestRefused
from kubetwin.resources.daemonsets import NOWHERE

from trainflow.deployment.kubernetes_access import access_manifests
from trainflow.deployment.network_policies import AGENT_SETTING, VPC_CNI
from trainflow.deployment.volcano_queues import TUTORIAL_QUEUE, queue_manifest
from trainflow.nodes.instances import DEVICE_PLUGINS
from trainflow.protocol.pods import CLAIM, FOLDERS, SERVICE_ACCOUNT

NAMESPACE_LABELS = {"pod-security.kubernetes.io/enforce": "baseline", "pod-security.kubernetes.io/warn": "restricted"}
"""The level that the deployed namespace enforces."""


def offer(api: ApiClient, folder: Path, *, namespace: str) -> None:
    """Make `folder` the file system of the pods in `namespace`; safe to repeat."""
    for name in FOLDERS:
        (folder / name).mkdir(parents=True, exist_ok=True)
    metadata = {"name": namespace, "labels": NAMESPACE_LABELS}
    _ensure(api, "/api/v1/namespaces", {"kind": "Namespace", "metadata": metadata})
    _ensure(
        api,
        f"/api/v1/namespaces/{namespace}/serviceaccounts",
        {"kind": "ServiceAccount", "metadata": {"name": SERVICE_ACCOUNT}},
    )
    volume = f"trainflow-{namespace}"
    access = {"accessModes": ["ReadWriteMany"], "storageClassName": ""}
    _ensure(
        api,
        "/api/v1/persistentvolumes",
        {
            "kind": "PersistentVolume",
            "metadata": {"name": volume},
            "spec": {
                **access,
                "capacity": {"storage": "1200Gi"},
                "persistentVolumeReclaimPolicy": "Retain",
                "hostPath": {"path": str(folder.absolute())},
            },
        },
    )
    _ensure(
        api,
        f"/api/v1/namespaces/{namespace}/persistentvolumeclaims",
        {
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": CLAIM},
            "spec": {**access, "volumeName": volume, "resources": {"requests": {"storage": "1200Gi"}}},
        },
    )


def open_queue(api: ApiClient) -> None:
    """Make the queue that `config/example.yaml` has; safe to repeat."""
    _ensure(api, "/apis/scheduling.volcano.sh/v1beta1/queues", queue_manifest(TUTORIAL_QUEUE))


def announce_plugins(api: ApiClient, *, namespace: str) -> None:
    """Make the DaemonSets that advertise devices on EKS. Here the process node does so, so they run on no node."""
    for name in dict.fromkeys(DEVICE_PLUGINS.values()):
        _make_daemon_set(api, name, namespace=namespace)


def announce_network_plugin(api: ApiClient, *, namespace: str) -> None:
    """Make the DaemonSet that enforces network policies on EKS. Here nothing enforces them; it runs on no node."""
    _make_daemon_set(api, VPC_CNI, namespace=namespace, args=[f"{AGENT_SETTING}true"])


def _make_daemon_set(api: ApiClient, name: str, *, namespace: str, args: Sequence[str] = ()) -> None:
    labels = {"name": name}
    container = {"name": "process-node", "image": "trainflow/process-node", "args": list(args)}
    template = {"metadata": {"labels": labels}, "spec": {"nodeSelector": NOWHERE, "containers": [container]}}
    manifest = {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": name},
        "spec": {"selector": {"matchLabels": labels}, "template": template},
    }
    _ensure(api, f"/apis/apps/v1/namespaces/{namespace}/daemonsets", manifest)


def grant(api: ApiClient, *, namespace: str, holds_nodes: bool = False) -> None:
    """Grant the functions' groups the permissions that they need, and no others; safe to repeat.

    A cluster that stays may have the roles of an earlier version: their rules are replaced.
    """
    for manifest in access_manifests(namespace, holds_nodes=holds_nodes):
        place = f"/namespaces/{namespace}" if manifest["metadata"].get("namespace") else ""
        plural = "priorityclasses" if manifest["kind"] == "PriorityClass" else f"{manifest['kind'].lower()}s"
        collection = f"/apis/{manifest['apiVersion']}{place}/{plural}"
        _ensure(api, collection, manifest)
        if "rules" in manifest:
            api.patch(f"{collection}/{manifest['metadata']['name']}", {"rules": manifest["rules"]})


def _ensure(api: ApiClient, collection: str, manifest: dict[str, Any]) -> None:
    try:
        api.create(collection, {"apiVersion": "v1", **manifest})
    except RequestRefused as error:
        if error.status != 409:
            raise
