"""Network policies of the runs' namespace: connections that pods may open and accept.

The VPC CNI enforces them on nodes of the cluster that the stacks make (`vpc-cni` in addons.py); in an existing cluster
its own network plugin does, if it enforces any. They hold for addresses of pods: the node mounts the file system, and
EFA's traffic passes no kernel, so only security groups bound both. The VPC CNI may not apply them to pods
without an owner, which those of the backend `pod` and of the doctor are, and applies them to others one to two seconds
after their start (EKS user guide, "Restrict Pod network traffic with Kubernetes network policies").
"""

from __future__ import annotations

from typing import Any

from trainflow.configuration.deployment import Configuration
from trainflow.deployment.kubernetes_names import MANAGED_BY, NETWORK_LABEL

LINK_LOCAL = "169.254.0.0/16"
"""Addresses of the node's own services, the instance metadata with the node's credentials among them."""

POD_IDENTITY_AGENT = {"cidr": "169.254.170.23/32", "port": 80}
"""Address that gives pods their role's credentials (EKS user guide, "Set up the Amazon EKS Pod Identity Agent")."""

DNS_PORT = 53
DNS = {
    "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "kube-system"}},
    "podSelector": {"matchLabels": {"k8s-app": "kube-dns"}},
}
"""CoreDNS, which keeps the label of its predecessor (chart of the EKS add-on)."""

OF_EARLIER_VERSIONS = {"matchExpressions": [{"key": NETWORK_LABEL, "operator": "DoesNotExist"}]}
"""Pods of gangs that were submitted by functions which made no policy for them. They train on while the deployment is
updated."""


def network_policy_manifests(configuration: Configuration) -> list[dict[str, Any]]:
    """Policies for the pods of the namespace; what no policy allows is refused.

    Nothing may reach a pod but the pods of its own job, which a policy lets in that is made with each gang
    (`lambdas/backends/kubernetes/network_policy.py`). The functions may make and delete policies, and so widen what
    reaches a pod, but not change these, nor what pods reach.
    """
    inside: dict[str, Any] = {"podSelector": {}}
    everywhere = {"ipBlock": {"cidr": "0.0.0.0/0", "except": [LINK_LOCAL]}}
    ports = [{"protocol": "TCP", "port": port} for port in configuration.pod_egress_ports]
    agent = {"ipBlock": {"cidr": POD_IDENTITY_AGENT["cidr"]}}
    egress = [
        {"to": [inside]},
        {"to": [DNS], "ports": [{"protocol": protocol, "port": DNS_PORT} for protocol in ("UDP", "TCP")]},
        {"to": [agent], "ports": [{"protocol": "TCP", "port": POD_IDENTITY_AGENT["port"]}]},
        {"to": [everywhere], "ports": ports},
    ]
    return [
        _policy("runs-reached-by-nobody", configuration, {"policyTypes": ["Ingress"], "ingress": []}),
        _policy(
            "runs-reached-by",
            configuration,
            {"podSelector": OF_EARLIER_VERSIONS, "policyTypes": ["Ingress"], "ingress": [{"from": [inside]}]},
        ),
        _policy("runs-reach", configuration, {"policyTypes": ["Egress"], "egress": egress}),
    ]


def _policy(name: str, configuration: Configuration, spec: dict[str, Any]) -> dict[str, Any]:
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {"name": name, "namespace": configuration.namespace, "labels": dict(MANAGED_BY)},
        "spec": {"podSelector": {}, **spec},
    }
