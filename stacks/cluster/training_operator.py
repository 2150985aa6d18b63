"""The Kubeflow training operator (v1), which runs PyTorchJobs.

It lacks a Helm chart: the project publishes a kustomization, and its chart is for Trainer v2, which knows PyTorchJobs
no more. The kustomization brings definitions of six kinds, 600 KB each, more than a CloudFormation template may hold;
of them one is needed. So the objects are written here for that one kind: a flag makes the operator serve no other, and
its own webhook checks every PyTorchJob, so the definition leaves the schema open.

Names and ports are those that the operator's flags and certificate rotation expect (github.com/kubeflow/trainer, branch
release-1.9, `cmd/training-operator.v1/main.go` and `pkg/webhooks/pytorch`).
"""

from __future__ import annotations

from typing import Any

from trainflow.configuration.cluster_software import TRAINING_OPERATOR_IMAGE

NAME = "training-operator"
NAMESPACE = "kubeflow"

WEBHOOK_PORT = 9443
PROBE_PORT = 8081

SECRET = "training-operator-webhook-cert"  # noqa: S105  (a name)
"""Name of a secret that is made empty; the operator writes its certificate into it."""

LABELS = {"app.kubernetes.io/name": NAME}

WATCHED = ("get", "list", "watch")
OWNED = ("create", "delete", "get", "list", "patch", "update", "watch")


def operator_manifests() -> list[dict[str, Any]]:
    """Objects of the operator, in the order of their creation."""
    return [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE, "labels": dict(LABELS)}},
        _definition(),
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": _metadata(NAME)},
        {"apiVersion": "v1", "kind": "Secret", "metadata": _metadata(SECRET)},
        *_permissions(),
        _service(),
        _deployment(),
        _webhook(),
    ]


def _metadata(name: str, *, namespaced: bool = True) -> dict[str, Any]:
    return {"name": name, "labels": dict(LABELS), **({"namespace": NAMESPACE} if namespaced else {})}


def _definition() -> dict[str, Any]:
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": _metadata("pytorchjobs.kubeflow.org", namespaced=False),
        "spec": {
            "group": "kubeflow.org",
            "scope": "Namespaced",
            "names": {"kind": "PyTorchJob", "plural": "pytorchjobs", "singular": "pytorchjob"},
            "versions": [
                {
                    "name": "v1",
                    "served": True,
                    "storage": True,
                    "subresources": {"status": {}},
                    "schema": {
                        "openAPIV3Schema": {
                            "type": "object",
                            "properties": {"spec": dict(anything), "status": dict(anything)},
                        }
                    },
                }
            ],
        },
    }


def _permissions() -> list[dict[str, Any]]:
    """Permissions of the operator in every namespace; for secrets, in its own namespace only."""
    cluster = [
        _rule("kubeflow.org", ("pytorchjobs", "pytorchjobs/status", "pytorchjobs/finalizers"), OWNED),
        _rule("", ("pods", "services"), OWNED),
        _rule("", ("events",), ("create", "patch", "update")),
        _rule("scheduling.volcano.sh", ("podgroups",), OWNED),
        _rule("autoscaling", ("horizontalpodautoscalers",), OWNED),
        _rule("admissionregistration.k8s.io", ("validatingwebhookconfigurations",), (*WATCHED, "update")),
    ]
    own = [_rule("", ("secrets",), (*WATCHED, "update"))]
    return [
        *_granted("ClusterRole", cluster, namespaced=False),
        *_granted("Role", own, namespaced=True),
    ]


def _rule(group: str, resources: tuple[str, ...], verbs: tuple[str, ...]) -> dict[str, list[str]]:
    return {"apiGroups": [group], "resources": list(resources), "verbs": list(verbs)}


def _granted(kind: str, rules: list[dict[str, list[str]]], *, namespaced: bool) -> list[dict[str, Any]]:
    api = "rbac.authorization.k8s.io"
    return [
        {
            "apiVersion": f"{api}/v1",
            "kind": kind,
            "metadata": _metadata(NAME, namespaced=namespaced),
            "rules": rules,
        },
        {
            "apiVersion": f"{api}/v1",
            "kind": f"{kind}Binding",
            "metadata": _metadata(NAME, namespaced=namespaced),
            "roleRef": {"apiGroup": api, "kind": kind, "name": NAME},
            "subjects": [{"kind": "ServiceAccount", "name": NAME, "namespace": NAMESPACE}],
        },
    ]


def _service() -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": _metadata(NAME),
        "spec": {"selector": dict(LABELS), "ports": [{"name": "webhook", "port": 443, "targetPort": WEBHOOK_PORT}]},
    }


def _deployment() -> dict[str, Any]:
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": _metadata(NAME),
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": dict(LABELS)},
            "template": {"metadata": {"labels": dict(LABELS)}, "spec": _pod()},
        },
    }


def _pod() -> dict[str, Any]:
    return {
        "serviceAccountName": NAME,
        # As Volcano's: a node that is full of small jobs does not lose the controller of all PyTorchJobs.
        "priorityClassName": "system-cluster-critical",
        "securityContext": {"runAsNonRoot": True, "runAsUser": 1000, "seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [
            {
                "name": NAME,
                "image": TRAINING_OPERATOR_IMAGE,
                "command": ["/manager"],
                "args": ["--enable-scheme=pytorchjob"],
                "ports": [{"name": "webhook", "containerPort": WEBHOOK_PORT}],
                "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
                "resources": {"requests": {"cpu": "50m", "memory": "128Mi"}, "limits": {"memory": "512Mi"}},
                "livenessProbe": {"httpGet": {"path": "/healthz", "port": PROBE_PORT}, "initialDelaySeconds": 15},
                "readinessProbe": {"httpGet": {"path": "/readyz", "port": PROBE_PORT}, "initialDelaySeconds": 10},
                "volumeMounts": [
                    {"name": "cert", "mountPath": "/tmp/k8s-webhook-server/serving-certs", "readOnly": True}  # noqa: S108
                ],
            }
        ],
        "volumes": [{"name": "cert", "secret": {"secretName": SECRET}}],
    }


def _webhook() -> dict[str, Any]:
    """Webhook configuration; the operator writes the authority of its certificate into it."""
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": _metadata("validator.training-operator.kubeflow.org", namespaced=False),
        "webhooks": [
            {
                "name": "validator.pytorchjob.training-operator.kubeflow.org",
                "admissionReviewVersions": ["v1"],
                "sideEffects": "None",
                "failurePolicy": "Fail",
                "clientConfig": {
                    "service": {"name": NAME, "namespace": NAMESPACE, "path": "/validate-kubeflow-org-v1-pytorchjob"}
                },
                "rules": [
                    {
                        "apiGroups": ["kubeflow.org"],
                        "apiVersions": ["v1"],
                        "operations": ["CREATE", "UPDATE"],
                        "resources": ["pytorchjobs"],
                    }
                ],
            }
        ],
    }
