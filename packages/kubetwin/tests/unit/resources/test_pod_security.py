"""What the Pod Security Standards forbid, in the words of the real server."""

from __future__ import annotations

from typing import Any

import pytest
from kubetwin.controllers.pod_security import start
from kubetwin.model.errors import ApiError
from kubetwin.resources import load_registry
from kubetwin.resources.pod_security import violations
from kubetwin.state.cluster import Cluster
from kubetwin.store import Store

SAFE = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "runAsNonRoot": True,
    "seccompProfile": {"type": "RuntimeDefault"},
}


def pod(context: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    containers = [{"name": "c", "image": "i", **({"securityContext": context} if context is not None else {})}]
    return {"metadata": {"name": "p"}, "spec": {"containers": containers, **spec}}


def test_a_plain_pod_meets_the_baseline_and_not_the_restricted_level() -> None:
    assert violations(pod(), "baseline") == ""
    assert violations(pod(), "restricted") == (
        'allowPrivilegeEscalation != false (container "c" must set securityContext.allowPrivilegeEscalation=false), '
        'unrestricted capabilities (container "c" must set securityContext.capabilities.drop=["ALL"]), '
        'runAsNonRoot != true (pod or container "c" must set securityContext.runAsNonRoot=true), '
        'seccompProfile (pod or container "c" must set securityContext.seccompProfile.type to "RuntimeDefault" or '
        '"Localhost")'
    )


def test_a_safe_pod_meets_every_level() -> None:
    assert violations(pod(SAFE), "restricted") == ""
    mine = {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
    container = {key: SAFE[key] for key in ("allowPrivilegeEscalation", "capabilities")}
    assert violations(pod(container, securityContext=mine), "restricted") == ""


@pytest.mark.parametrize(
    ("bad", "text"),
    [
        (pod({"privileged": True}), 'privileged (container "c" must not set securityContext.privileged=true)'),
        (pod(hostNetwork=True, hostPID=True), "host namespaces (hostNetwork=true, hostPID=true)"),
        (pod(volumes=[{"name": "v", "hostPath": {"path": "/"}}]), 'hostPath volumes (volume "v")'),
        (
            pod({"capabilities": {"add": ["SYS_ADMIN", "CHOWN"]}}),
            'non-default capabilities (container "c" must not include "SYS_ADMIN" in securityContext.capabilities.add)',
        ),
        (pod(securityContext={"sysctls": [{"name": "kernel.x", "value": "1"}]}), "forbidden sysctls (kernel.x)"),
        (
            pod(securityContext={"seccompProfile": {"type": "Unconfined"}}),
            'seccompProfile (pod must not set securityContext.seccompProfile.type to "Unconfined")',
        ),
    ],
)
def test_the_baseline_forbids_known_ways_out_of_a_container(bad: dict[str, Any], text: str) -> None:
    assert violations(bad, "baseline") == text
    assert violations(bad, "privileged") == ""


@pytest.mark.parametrize(
    ("bad", "text"),
    [
        (pod({**SAFE, "runAsUser": 0}), 'runAsUser=0 (container "c" must not set runAsUser=0)'),
        (
            pod(SAFE, volumes=[{"name": "v", "hostPath": {"path": "/"}}]),
            'restricted volume types (volume "v" uses restricted volume type "hostPath")',
        ),
        (
            pod({**SAFE, "runAsNonRoot": False}),
            'runAsNonRoot != true (container "c" must not set securityContext.runAsNonRoot=false)',
        ),
    ],
)
def test_the_restricted_level_forbids_root_and_other_volumes(bad: dict[str, Any], text: str) -> None:
    assert violations(bad, "restricted") == text


def test_the_labels_of_a_namespace_decide() -> None:
    cluster = Cluster(Store(), load_registry())
    namespaces, pods = cluster.registry.by_key("namespaces"), cluster.registry.by_key("pods")
    label = "pod-security.kubernetes.io/enforce"
    with pytest.raises(ApiError, match="must be one of privileged, baseline, restricted"):
        cluster.create(namespaces, "", {"metadata": {"name": "ns", "labels": {label: "strict"}}})
    cluster.create(namespaces, "", {"metadata": {"name": "ns", "labels": {label: "baseline"}}})
    cluster.create(cluster.registry.by_key("serviceaccounts"), "ns", {"metadata": {"name": "default"}})
    start(cluster, None)  # type: ignore[arg-type]
    body = pod({"privileged": True}, restartPolicy="Never")
    with pytest.raises(ApiError) as refused:
        cluster.create(pods, "ns", body)
    assert refused.value.code == 403
    assert refused.value.message.startswith('pods "p" is forbidden: violates PodSecurity "baseline:latest": privileged')
    assert cluster.create(pods, "ns", pod({}, restartPolicy="Never"))
