"""Network policies as the Kubernetes API serves them, and the software that enforces them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

GROUP = "networking.k8s.io"
API_VERSION = f"{GROUP}/v1"
API = f"/apis/{API_VERSION}"
KIND = "NetworkPolicy"
PLURAL = "networkpolicies"

VPC_CNI = "aws-node"
"""Daemon set of the VPC CNI."""

AGENT_SETTING = "--enable-network-policy="
"""Argument of the VPC CNI's policy agent, a further container of its daemon set (chart `aws-vpc-cni`)."""

OTHERS_THAT_ENFORCE = ("antrea-agent", "calico-node", "cilium", "kube-router")
"""Daemon sets of other software that enforces network policies, also beside the VPC CNI."""


def enforces_policies(daemon_sets: Iterable[Mapping[str, Any]]) -> bool | None:
    """Whether a cluster enforces network policies, by its daemon sets; None if they do not show it.

    Args:
        daemon_sets: All daemon sets of the cluster.
    """
    by_name = {str(each["metadata"]["name"]): each for each in daemon_sets}
    if not by_name.keys().isdisjoint(OTHERS_THAT_ENFORCE):
        return True
    if VPC_CNI not in by_name:
        return None
    containers = by_name[VPC_CNI]["spec"]["template"]["spec"].get("containers") or ()
    return any(f"{AGENT_SETTING}true" in (each.get("args") or ()) for each in containers)
