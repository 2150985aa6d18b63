"""Claims, volumes, quotas, budgets, bindings, nodes and secrets that the server refuses, with its words."""

from __future__ import annotations

from typing import Any

import pytest
from kubetwin.controllers.quotas import QuotaController
from kubetwin.model.errors import ApiError
from kubetwin.resources import load_registry
from kubetwin.state.cluster import Cluster
from kubetwin.store import Store

Object = dict[str, Any]

RBAC = "rbac.authorization.k8s.io"
ROLE = {"kind": "Role", "name": "r", "apiGroup": RBAC}


@pytest.fixture(scope="module")
def cluster() -> Cluster:
    made = Cluster(Store(), load_registry())
    made.create(made.registry.by_key("namespaces"), "", {"metadata": {"name": "ns"}})
    made.create(made.registry.by_key("serviceaccounts"), "ns", {"metadata": {"name": "default"}})
    return made


def claim(**spec: Any) -> Object:
    return {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}, **spec}


def volume(**spec: Any) -> Object:
    return {"accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}, "hostPath": {"path": "/"}, **spec}


@pytest.mark.parametrize(
    ("key", "body", "refusal"),
    [
        (
            "persistentvolumeclaims",
            {"spec": claim(resources={"requests": {"storage": "0"}})},
            "must be greater than zero",
        ),
        ("persistentvolumeclaims", {"spec": claim(volumeMode="X")}, 'supported values: "Block", "Filesystem"'),
        (
            "persistentvolumeclaims",
            {"spec": claim(storageClassName="A")},
            'spec.storageClassName: Invalid value: "A": a ',
        ),
        (
            "persistentvolumeclaims",
            {"spec": claim(accessModes=["ReadWriteOncePod", "ReadWriteOnce"])},
            "spec.accessModes: Forbidden: may not use ReadWriteOncePod with other access modes",
        ),
        (
            "persistentvolumeclaims",
            {"spec": claim(selector={"matchExpressions": [{"key": "a", "operator": "In"}]})},
            "spec.selector.matchExpressions[0].values: Required value: must be specified when `operator` is 'In'",
        ),
        (
            "persistentvolumeclaims",
            {"spec": claim(dataSource={"kind": "X", "name": "x"})},
            "spec.dataSource: Invalid value: \"X\": must be 'PersistentVolumeClaim' when referencing the default api",
        ),
        (
            "persistentvolumes",
            {"spec": volume(nfs={"server": "a"})},
            "spec.nfs: Forbidden: may not specify more than 1 vol",
        ),
        ("persistentvolumes", {"spec": volume(capacity=None)}, 'Unsupported value: null: supported values: "storage"'),
        ("persistentvolumes", {"spec": volume(persistentVolumeReclaimPolicy="X")}, '"Delete", "Recycle", "Retain"'),
        (
            "persistentvolumes",
            {"spec": {"accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1"}}},
            "spec: Required value: must specify a volume type",
        ),
        (
            "resourcequotas",
            {"spec": {"hard": {"pods": "-1"}}},
            'spec.hard[pods]: Invalid value: "-1": must be greater than',
        ),
        ("resourcequotas", {"spec": {"hard": {"pods": "1500m"}}}, "must be an integer"),
        ("resourcequotas", {"spec": {"hard": {"odd": "1"}}}, "must be a standard resource for quota"),
        ("resourcequotas", {"spec": {"scopes": ["X"]}}, 'spec.scopes: Invalid value: ["X"]: unsupported scope'),
        (
            "poddisruptionbudgets.policy",
            {"spec": {"minAvailable": "x%"}},
            "a valid percent string must be a numeric strin",
        ),
        ("poddisruptionbudgets.policy", {"spec": {"minAvailable": "101%"}}, "must not be greater than 100%"),
        ("poddisruptionbudgets.policy", {"spec": {"maxUnavailable": -1}}, "must be greater than or equal to 0"),
        (f"rolebindings.{RBAC}", {"roleRef": {"kind": "X", "name": "r"}}, 'supported values: "Role", "ClusterRole"'),
        (
            f"clusterrolebindings.{RBAC}",
            {"roleRef": ROLE},
            'Unsupported value: "Role": supported values: "ClusterRole"',
        ),
        (f"rolebindings.{RBAC}", {"roleRef": ROLE, "subjects": [{"kind": "X"}]}, "subjects[0].name: Required value"),
        (
            f"rolebindings.{RBAC}",
            {"roleRef": ROLE, "subjects": [{"kind": "X", "name": "x"}]},
            'subjects[0].kind: Unsupported value: "X": supported values: "ServiceAccount", "User", "Group"',
        ),
        (
            f"clusterrolebindings.{RBAC}",
            {"roleRef": {**ROLE, "kind": "ClusterRole"}, "subjects": [{"kind": "ServiceAccount", "name": "x"}]},
            "subjects[0].namespace: Required value",
        ),
        ("nodes", {"spec": {"taints": [{"key": "a", "effect": "X"}]}}, 'spec.taints[0].effect: Unsupported value: "X"'),
        ("nodes", {"spec": {"taints": [{"key": "a"}]}}, "spec.taints[0].effect: Required value"),
        (
            "nodes",
            {"spec": {"taints": [{"key": "a", "effect": "NoSchedule"}] * 2}},
            '{"Key":"a","Value":"","Effect":"NoSchedule","TimeAdded":null}: taints must be unique by key and effect',
        ),
        (
            "nodes",
            {"spec": {"podCIDR": "1.2.3.4"}},
            'Invalid value: "1.2.3.4": must be a valid CIDR value, (e.g. 10.9.8.0',
        ),
        ("secrets", {"type": "kubernetes.io/basic-auth"}, "data[username]: Required value"),
        (
            "secrets",
            {"type": "kubernetes.io/service-account-token"},
            "metadata.annotations[kubernetes.io/service-account.name]: Required value",
        ),
    ],
)
def test_an_object_that_kubernetes_refuses(cluster: Cluster, key: str, body: Object, refusal: str) -> None:
    resource = cluster.registry.by_key(key)
    with pytest.raises(ApiError) as refused:
        cluster.create(resource, "ns" if resource.namespaced else "", {"metadata": {"name": "x"}, **body}, dry_run=True)
    assert refused.value.code == 422
    assert refusal in str(refused.value)


@pytest.mark.parametrize("name", ["requests.hugepages-2Mi", "hugepages-1Gi", "limits.memory", "count/jobs.batch"])
def test_a_quota_may_name_what_is_standard(cluster: Cluster, name: str) -> None:
    quotas = cluster.registry.by_key("resourcequotas")
    made = cluster.create(quotas, "ns", {"metadata": {"name": "x"}, "spec": {"hard": {name: "0"}}}, dry_run=True)
    assert made["spec"]["hard"] == {name: "0"}


def test_a_node_keeps_its_provider_id(cluster: Cluster) -> None:
    nodes = cluster.registry.by_key("nodes")
    made = cluster.create(nodes, "", {"metadata": {"name": "n"}, "spec": {"providerID": "a"}})
    with pytest.raises(ApiError, match='node updates may not change providerID except from "" to valid'):
        cluster.update(nodes, "", {**made, "spec": {"providerID": "b"}})


def test_finalizers_of_a_namespace_change_through_their_subresource_only(cluster: Cluster) -> None:
    namespaces = cluster.registry.by_key("namespaces")
    old = cluster.get(namespaces, "", "ns")
    assert cluster.update(namespaces, "", {**old, "spec": {}})["spec"] == {"finalizers": ["kubernetes"]}


def test_a_claim_that_is_bound_cannot_grow_because_no_storage_class_lets_it(cluster: Cluster) -> None:
    claims = cluster.registry.by_key("persistentvolumeclaims")
    made = cluster.create(claims, "ns", {"metadata": {"name": "c"}, "spec": claim()})
    larger = {**made, "spec": claim(volumeMode="Filesystem", resources={"requests": {"storage": "2Gi"}})}
    with pytest.raises(ApiError, match="spec is immutable after creation except"):
        cluster.update(claims, "ns", larger)
    bound = cluster.modify(claims, "ns", "c", lambda stored: stored["status"].update(phase="Bound")) or {}
    larger["metadata"] = bound["metadata"]
    with pytest.raises(ApiError, match="only dynamically provisioned pvc can be resized") as refused:
        cluster.update(claims, "ns", larger)
    assert refused.value.code == 403
    larger["spec"]["resources"] = {}
    with pytest.raises(ApiError, match="Required value"):
        cluster.update(claims, "ns", larger)


def test_a_quota_on_amounts_needs_pods_that_name_them_and_counts_storage(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(Store(), load_registry())
    monkeypatch.setattr(QuotaController, "_changed", lambda _self, _change: None)  # keeps the status; needs a loop
    QuotaController(cluster)
    by_key = cluster.registry.by_key
    cluster.create(by_key("namespaces"), "", {"metadata": {"name": "ns"}})
    cluster.create(by_key("serviceaccounts"), "ns", {"metadata": {"name": "default"}})
    hard = {"limits.cpu": "4", "memory": "1Gi", "requests.storage": "1Gi", "services.nodeports": "1"}
    cluster.create(by_key("resourcequotas"), "ns", {"metadata": {"name": "q"}, "spec": {"hard": hard}})

    def refusal(key: str, spec: Object) -> str:
        with pytest.raises(ApiError) as refused:
            cluster.create(by_key(key), "ns", {"metadata": {"name": "x"}, "spec": spec})
        return str(refused.value)

    containers = [{"name": "c", "image": "i"}]
    assert refusal("pods", {"containers": containers}) == (
        'pods "x" is forbidden: failed quota: q: must specify limits.cpu for: c; memory for: c'
    )
    larger = claim(resources={"requests": {"storage": "2Gi"}})
    assert "requested: requests.storage=2Gi, used: requests.storage=0" in refusal("persistentvolumeclaims", larger)
    ports = [{"name": "a", "port": 1}, {"name": "b", "port": 2}]
    assert "requested: services.nodeports=2" in refusal("services", {"type": "NodePort", "ports": ports})
