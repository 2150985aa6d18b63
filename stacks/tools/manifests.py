"""Prints the objects that runs need in an existing cluster, as YAML.

    python -m stacks.tools.manifests config/mine.yaml | kubectl apply -f -

    python -m stacks.tools.manifests --shell config/mine.yaml | kubectl apply -f -

The first prints namespace, quota, service account, network policies, the rights of the functions' groups, and Volcano's
queues, where any are configured; not the volume, which is the cluster's own. The second prints a pod with a shell on
the shared file system, for any cluster: docs/runbooks.md.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import yaml

from stacks.cluster.network_policies import network_policy_manifests
from stacks.cluster.workload import namespace_manifest, quota_manifest, service_account_manifest
from trainflow.configuration.deployment import Configuration, ConfigurationError, load_configuration
from trainflow.deployment.kubernetes_access import access_manifests
from trainflow.deployment.kubernetes_names import MANAGED_BY
from trainflow.deployment.volcano_queues import queue_manifest
from trainflow.protocol.pods import CLAIM, MOUNTS, SERVICE_ACCOUNT, USER

SHELL_HOURS = 8
"""Life of the pod, so that a forgotten one does not stay forever."""


def manifests(configuration: Configuration) -> list[dict[str, Any]]:
    """Objects in the order to apply them.

    A cluster that makes nodes by itself limits them itself, so the quota of the configured nodes is left out.
    """
    replaces, cluster = configuration.capacity.replace_bad_nodes, configuration.capacity.cluster
    return [
        namespace_manifest(configuration),
        *([] if cluster else [quota_manifest(configuration)]),
        service_account_manifest(configuration),
        *network_policy_manifests(configuration),
        *access_manifests(configuration.namespace, replaces_nodes=replaces, holds_nodes=cluster),
        *(queue_manifest(**queue.model_dump()) for queue in configuration.cluster.volcano_queues),
    ]


def shell_manifest(configuration: Configuration) -> dict[str, Any]:
    """A pod on the shared file system with what a run's small pods have: user, account, mounts. It ends by itself."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "shell", "namespace": configuration.namespace, "labels": dict(MANAGED_BY)},
        "spec": {
            "restartPolicy": "Never",
            "activeDeadlineSeconds": SHELL_HOURS * 3600,
            "terminationGracePeriodSeconds": 1,
            "serviceAccountName": SERVICE_ACCOUNT,
            "automountServiceAccountToken": False,
            "securityContext": {
                "runAsNonRoot": True,
                "runAsUser": USER,
                "runAsGroup": USER,
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "containers": [
                {
                    "name": "shell",
                    "image": configuration.images.cpu_base,
                    # Folders are words of their own: the twin's node rewrites them.
                    "command": ["sh", "-c", 'df -h "$@"; exec sleep infinity', "shell", *MOUNTS],
                    "resources": {"requests": {"cpu": "100m", "memory": "256Mi"}, "limits": {"memory": "2Gi"}},
                    "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
                    "volumeMounts": [
                        {"name": "shared", "mountPath": mount, "subPath": mount.lstrip("/")} for mount in MOUNTS
                    ],
                }
            ],
            "volumes": [{"name": "shared", "persistentVolumeClaim": {"claimName": CLAIM}}],
        },
    }


def main(arguments: list[str]) -> None:
    """Print what the arguments ask for."""
    *flags, path = arguments
    configuration = load_configuration(Path(path))
    wanted = [shell_manifest(configuration)] if flags == ["--shell"] else manifests(configuration)
    print(yaml.safe_dump_all(wanted, sort_keys=False), end="")


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except ConfigurationError as error:
        sys.exit(f"trainflow: {error}")
