"""Objects in the namespace of the runs: limits, permissions, an identity, and the shared file system."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from aws_cdk import aws_eks_v2 as eks
from aws_cdk import aws_iam as iam
from constructs import Construct, IConstruct

from stacks.cluster import permanent_nodes
from stacks.cluster.jobs import named_after_template
from stacks.cluster.network_policies import network_policy_manifests
from stacks.cluster.pod_identity import pod_identity
from stacks.orchestration.permissions import Grant, allow
from stacks.storage.runs import let_runs_use
from trainflow.configuration.deployment import Configuration
from trainflow.configuration.grants import SecretGrant
from trainflow.deployment.kubernetes_access import access_manifests
from trainflow.deployment.kubernetes_names import MANAGED_BY
from trainflow.nodes.instances import EFA_INTERFACE, GPU_DEVICE, HUGE_PAGES, NEURON_CORE, NEURON_DEVICE
from trainflow.protocol.pods import CLAIM, FOLDERS, SERVICE_ACCOUNT, USER

if TYPE_CHECKING:
    from stacks.storage.stack import SharedFileSystem, StorageStack

SMALL_PODS_PER_NODE = 10
TRAINING_PODS_PER_NODE = 4
"""Training pods per node that the quota allows; runs of many small pods share a node, ours take whole nodes."""


def namespace_manifest(configuration: Configuration) -> dict[str, Any]:
    """The namespace of the runs.

    Pods with access to their node are refused (`baseline`). `restricted` only warns: it asks for a seccomp profile,
    which images for Trainium have not been tried with, and for no pod that runs as root, as the one does that prepares
    the file system.
    """
    levels = {"enforce": "baseline", "warn": "restricted", "audit": "restricted"}
    labels = {f"pod-security.kubernetes.io/{mode}": level for mode, level in levels.items()}
    return {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": configuration.namespace, "labels": {**MANAGED_BY, **labels}},
    }


def quota_manifest(configuration: Configuration) -> dict[str, Any]:
    """A quota of as many pods as the configured nodes can run, and of no object that reaches out of the cluster.

    Load balancers would be made outside of CloudFormation, and `cdk destroy` would leave them.
    """
    groups = [(group.instance, group.max_nodes) for group in configuration.capacity.nodegroups]
    small = configuration.cluster.small_job_nodes or configuration.cluster.system_nodes
    nodes = sum(count for _, count in groups)
    memory_gib = sum(kind.memory_gib * count for kind, count in groups) + small * permanent_nodes.MEMORY_GIB
    hard = {
        "requests.cpu": sum(kind.vcpus * count for kind, count in groups) + small * permanent_nodes.CPUS,
        "requests.memory": f"{memory_gib}Gi",
        f"requests.{NEURON_DEVICE}": sum(kind.neuron_devices * count for kind, count in groups),
        f"requests.{NEURON_CORE}": sum(kind.neuron_cores * count for kind, count in groups),
        f"requests.{GPU_DEVICE}": sum(kind.gpus * count for kind, count in groups),
        f"requests.{EFA_INTERFACE}": sum(kind.efa_interfaces * count for kind, count in groups),
        f"requests.{HUGE_PAGES}": f"{sum(kind.huge_pages_mib * count for kind, count in groups)}Mi",
        "pods": nodes * TRAINING_PODS_PER_NODE + small * SMALL_PODS_PER_NODE,
        "persistentvolumeclaims": 1,
        "services.loadbalancers": 0,
        "services.nodeports": 0,
    }
    return {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": _metadata("runs", configuration),
        "spec": {"hard": {name: str(amount) for name, amount in hard.items()}},
    }


def service_account_manifest(configuration: Configuration) -> dict[str, Any]:
    """The pods' identity. It lacks permissions in the cluster, and its pods get no token for it."""
    return {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": _metadata(SERVICE_ACCOUNT, configuration),
        "automountServiceAccountToken": False,
    }


def volume_manifests(configuration: Configuration, shared: SharedFileSystem) -> list[dict[str, Any]]:
    """The file system as a volume, and the claim to it.

    Static, both bound to each other by name: a storage class would make file systems that CloudFormation does not know,
    and delete them with the claim.
    """
    size = {"storage": f"{shared.size_gib}Gi"}
    volume = f"{configuration.name}-shared"
    return [
        {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": volume, "labels": dict(MANAGED_BY)},
            "spec": {
                "capacity": size,
                "volumeMode": "Filesystem",
                "accessModes": ["ReadWriteMany"],
                "persistentVolumeReclaimPolicy": "Retain",
                "storageClassName": "",
                "mountOptions": ["flock"],
                "claimRef": {"namespace": configuration.namespace, "name": CLAIM},
                "csi": {
                    "driver": "fsx.csi.aws.com",
                    "volumeHandle": shared.file_system_id,
                    "volumeAttributes": {"dnsname": shared.dns_name, "mountname": shared.mount_name},
                },
            },
        },
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": _metadata(CLAIM, configuration),
            "spec": {
                "accessModes": ["ReadWriteMany"],
                "storageClassName": "",
                "volumeName": volume,
                "resources": {"requests": size},
            },
        },
    ]


def folders_manifest(configuration: Configuration, shared: SharedFileSystem) -> dict[str, Any]:
    """A job that makes the pods' user the owner of the file system's folders, once for each file system.

    They belong to root: `data` and `runs` are made by FSx when it links them, `cache` by the kubelet when a pod first
    mounts it. A pod's fsGroup changes nothing, because the driver leaves volumes of many writers as they are.
    """
    folders = " ".join(f"/shared/{folder}" for folder in FOLDERS)
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": _metadata(f"prepare-{shared.file_system_id}", configuration),
        "spec": {
            "backoffLimit": 10,
            "template": {
                "spec": {
                    "restartPolicy": "OnFailure",
                    "automountServiceAccountToken": False,
                    "containers": [
                        {
                            "name": "prepare",
                            "image": configuration.images.cpu_base,
                            "command": ["sh", "-c", f"mkdir -p {folders} && chown {USER}:{USER} {folders}"],
                            "securityContext": {"allowPrivilegeEscalation": False, "runAsUser": 0},
                            "resources": {"requests": {"cpu": "50m", "memory": "64Mi"}, "limits": {"memory": "128Mi"}},
                            "volumeMounts": [{"name": "shared", "mountPath": "/shared"}],
                        }
                    ],
                    "volumes": [{"name": "shared", "persistentVolumeClaim": {"claimName": CLAIM}}],
                }
            },
        },
    }
    return named_after_template(job)


def secret_grants(secrets: Iterable[SecretGrant]) -> Iterator[Grant]:
    """Permission to read the values of the configured secrets, and none to list or change any."""
    for secret in secrets:
        yield allow("secretsmanager:GetSecretValue", on=secret.secret_arn)
        if secret.kms_key_arn is not None:
            through = {"StringEquals": {"kms:ViaService": f"secretsmanager.{secret.region}.amazonaws.com"}}
            yield allow("kms:Decrypt", on=secret.kms_key_arn, when=through)


def _metadata(name: str, configuration: Configuration) -> dict[str, Any]:
    return {"name": name, "namespace": configuration.namespace, "labels": dict(MANAGED_BY)}


class Workload(Construct):
    """The runs' namespace in a cluster, and the role of its pods."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        configuration: Configuration,
        cluster: eks.Cluster,
        storage: StorageStack,
        after: IConstruct,
    ) -> None:
        super().__init__(scope, construct_id)
        self._configuration = configuration
        self._cluster = cluster
        self.pod_role = self._make_pod_role(storage)
        self._apply_manifests(storage.shared, after)

    def _apply_manifests(self, shared: SharedFileSystem | None, after: IConstruct) -> None:
        """The namespace is created first and, since deletion runs in reverse order, deleted last, with what is left in
        it.

        It is deleted while there are still nodes: a node has to confirm that a pod ended, and a claim ends with its
        pods.
        """
        namespace = self._apply("Namespace", namespace_manifest(self._configuration))
        namespace.node.add_dependency(after)
        bounds = self._apply(
            "Bounds",
            quota_manifest(self._configuration),
            service_account_manifest(self._configuration),
            *network_policy_manifests(self._configuration),
        )
        settings = self._configuration
        manifests = access_manifests(settings.namespace, replaces_nodes=settings.capacity.replace_bad_nodes)
        access = self._apply("Access", *manifests)
        for manifest in (bounds, access):
            manifest.node.add_dependency(namespace)
        if shared is not None:
            volume = self._apply("Volume", *volume_manifests(self._configuration, shared))
            folders = self._apply("Folders", folders_manifest(self._configuration, shared))
            volume.node.add_dependency(namespace)
            folders.node.add_dependency(volume, bounds)

    def _apply(self, construct_id: str, *manifests: dict[str, Any]) -> eks.KubernetesManifest:
        return self._cluster.add_manifest(construct_id, *manifests)

    def _make_pod_role(self, storage: StorageStack) -> iam.Role:
        role = iam.Role(
            self,
            "PodRole",
            description="Trainflow: pods of runs",
            assumed_by=pod_identity(
                cluster_name=self._cluster.cluster_name,
                namespace=self._configuration.namespace,
                service_account=SERVICE_ACCOUNT,
            ),
        )
        let_runs_use(storage, role)
        for grant in secret_grants(self._configuration.run_secrets):
            role.add_to_policy(grant.statement)
        eks.CfnPodIdentityAssociation(
            self,
            "Association",
            cluster_name=self._cluster.cluster_name,
            namespace=self._configuration.namespace,
            service_account=SERVICE_ACCOUNT,
            role_arn=role.role_arn,
        )
        return role
