"""Paths of the Kubernetes API for rendered manifests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trainflow.deployment import network_policies

PLURALS = {"NetworkPolicy": network_policies.PLURAL}
"""Resources whose name is not the kind's with an `s`."""


def collection(manifest: Mapping[str, Any], namespace: str) -> str:
    """Path that an object is created at."""
    group, kind = manifest["apiVersion"], manifest["kind"]
    root = f"/apis/{group}" if "/" in group else f"/api/{group}"
    return f"{root}/namespaces/{namespace}/{PLURALS.get(kind, f'{kind.lower()}s')}"
