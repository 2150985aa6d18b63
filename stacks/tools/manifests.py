"""What runs need in a cluster that somebody else looks after, as YAML.

    python -m stacks.tools.manifests config/mine.yaml | kubectl apply -f -

Namespace, quota, service account, the rights of the functions' groups, and Volcano's queues, where any are configured;
not the volume, which is the cluster's own.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import yaml

from lambdas.models.kubernetes_access import access_manifests
from lambdas.models.volcano_queues import queue_manifest
from stacks.configuration import Configuration, ConfigurationError, load_configuration
from stacks.parts.cluster.workload import namespace_manifest, quota_manifest, service_account_manifest


def manifests(configuration: Configuration) -> list[dict[str, Any]]:
    """In the order in which they have to be applied."""
    return [
        namespace_manifest(configuration),
        quota_manifest(configuration),
        service_account_manifest(configuration),
        *access_manifests(configuration.namespace),
        *(queue_manifest(**queue.model_dump()) for queue in configuration.cluster.volcano_queues),
    ]


if __name__ == "__main__":
    try:
        print(yaml.safe_dump_all(manifests(load_configuration(Path(sys.argv[1]))), sort_keys=False), end="")
    except ConfigurationError as error:
        sys.exit(f"trainflow: {error}")
