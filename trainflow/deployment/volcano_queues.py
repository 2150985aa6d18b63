"""Volcano's queues: those that it makes itself, and the manifest of one more."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trainflow.deployment.kubernetes_names import MANAGED_BY

DEFAULT_QUEUE = "default"
"""Queue of jobs that do not name one."""

MADE_BY_VOLCANO = ("root", DEFAULT_QUEUE)
"""Volcano's scheduler makes them when it starts; no job may name `root`, the parent of all others."""

TUTORIAL_QUEUE = "test"
"""Queue of the TorchX tutorial, used by its specs: `config/example.yaml` creates it, and so does the twin."""


def queue_manifest(
    name: str, *, weight: int = 1, capability: Mapping[str, str] | None = None, reclaimable: bool = True
) -> dict[str, Any]:
    """The Queue to apply; Volcano opens it.

    Args:
        name: As jobs name it.
        weight: Its share of the cluster, relative to the other queues.
        capability: Most that its jobs may hold together, by resource.
        reclaimable: Whether other queues may take back what it holds beyond its share.
    """
    limit = {"capability": dict(capability)} if capability else {}
    return {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "Queue",
        "metadata": {"name": name, "labels": dict(MANAGED_BY)},
        "spec": {"weight": weight, "reclaimable": reclaimable, **limit},
    }
