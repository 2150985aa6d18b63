from __future__ import annotations

import base64
from typing import Any

import pytest
from kubetwin.node.environment import ContainerConfigError, container_environment


class FakeSource:
    """One ConfigMap `cfg` and one Secret `keys`, in any namespace."""

    def config_map(self, namespace: str, name: str) -> dict[str, Any] | None:
        return {"data": {"k": "from-cm", "not a name": "x"}} if name == "cfg" else None

    def secret(self, namespace: str, name: str) -> dict[str, Any] | None:
        return {"data": {"token": base64.b64encode(b"s3cret").decode()}} if name == "keys" else None


POD: dict[str, Any] = {
    "metadata": {
        "name": "p",
        "namespace": "ns",
        "uid": "u-1",
        "labels": {"idx": "7"},
        "annotations": {"batch.kubernetes.io/job-completion-index": "1"},
    },
    "spec": {"nodeName": "node-a", "serviceAccountName": "default"},
}


def environment(**container: Any) -> dict[str, str]:
    return container_environment({"name": "c", **container}, POD, FakeSource(), {"cpu": "8", "memory": "30Gi"})


def field(path: str) -> dict[str, Any]:
    return {"name": "X", "valueFrom": {"fieldRef": {"fieldPath": path}}}


def test_later_variables_may_refer_to_earlier_ones() -> None:
    env = [{"name": "A", "value": "1"}, {"name": "B", "value": "$(A)2$(C)"}, {"name": "C", "value": "3"}]
    assert environment(env=env) == {"A": "1", "B": "12$(C)", "C": "3"}


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("metadata.name", "p"),
        ("metadata.namespace", "ns"),
        ("metadata.uid", "u-1"),
        ("metadata.labels['idx']", "7"),
        ("metadata.labels['none']", ""),
        ("metadata.annotations['batch.kubernetes.io/job-completion-index']", "1"),
        ("spec.nodeName", "node-a"),
        ("spec.serviceAccountName", "default"),
        ("status.podIP", "127.0.0.1"),
    ],
)
def test_fields_of_the_pod(path: str, value: str) -> None:
    assert environment(env=[field(path)]) == {"X": value}


def test_keys_of_config_maps_and_secrets() -> None:
    env = [
        {"name": "C", "valueFrom": {"configMapKeyRef": {"name": "cfg", "key": "k"}}},
        {"name": "S", "valueFrom": {"secretKeyRef": {"name": "keys", "key": "token"}}},
        {"name": "O", "valueFrom": {"configMapKeyRef": {"name": "nope", "key": "k", "optional": True}}},
    ]
    assert environment(env=env) == {"C": "from-cm", "S": "s3cret"}


def test_env_from_takes_valid_names_and_env_wins() -> None:
    env_from = [{"configMapRef": {"name": "cfg"}}, {"prefix": "P_", "secretRef": {"name": "keys"}}]
    env = [{"name": "k", "value": "mine $(P_token)"}]
    assert environment(envFrom=env_from, env=env) == {"k": "mine s3cret", "P_token": "s3cret"}


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ({"configMapKeyRef": {"name": "nope", "key": "k"}}, 'configmap "nope" not found'),
        ({"configMapKeyRef": {"name": "cfg", "key": "z"}}, "couldn't find key z in ConfigMap ns/cfg"),
        ({"secretKeyRef": {"name": "nope", "key": "k"}}, 'secret "nope" not found'),
        ({"fieldRef": {"fieldPath": "spec.nope"}}, "unsupported fieldPath: spec.nope"),
    ],
)
def test_a_missing_object_is_named(reference: dict[str, Any], message: str) -> None:
    with pytest.raises(ContainerConfigError) as error:
        environment(env=[{"name": "X", "valueFrom": reference}])
    assert str(error.value) == message


def test_limits_default_to_the_nodes_resources() -> None:
    env = [
        {"name": "CPU", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu"}}},
        {"name": "MEM", "valueFrom": {"resourceFieldRef": {"resource": "limits.memory", "divisor": "1Mi"}}},
    ]
    assert environment(env=env, resources={"limits": {"memory": "64Mi"}}) == {"CPU": "8", "MEM": "64"}
