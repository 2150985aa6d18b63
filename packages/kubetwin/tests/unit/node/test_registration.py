from __future__ import annotations

from datetime import UTC, datetime

from kubetwin.node.registration import NodeSpec, lease, node_object, node_status
from kubetwin.node.shape import NodeShape

NOW = datetime(2026, 11, 21, 3, 35, 17, 5, tzinfo=UTC)
SHAPE = NodeShape(
    capacity={"cpu": "128", "memory": "512Gi", "pods": "247", "aws.amazon.com/neuron": "16"},
    allocatable={"cpu": "126834m", "memory": "470973Mi", "pods": "236", "aws.amazon.com/neuron": "16"},
    labels={"node.kubernetes.io/instance-type": "trn1.32xlarge", "zone": "b"},
    taints=[{"key": "aws.amazon.com/neuron", "value": "present", "effect": "NoSchedule"}],
)
SPEC = NodeSpec(name="node-a", shape=SHAPE)


def test_a_node_carries_the_well_known_labels_and_its_own() -> None:
    node = node_object(SPEC)
    labels = node["metadata"]["labels"]
    assert labels["kubernetes.io/hostname"] == "node-a"
    assert labels["node.kubernetes.io/instance-type"] == "trn1.32xlarge"
    assert labels["zone"] == "b"
    assert {"kubernetes.io/arch", "kubernetes.io/os"} <= labels.keys()
    assert node["spec"]["taints"] == [{"key": "aws.amazon.com/neuron", "value": "present", "effect": "NoSchedule"}]


def test_a_ready_node_advertises_the_resources_of_its_shape() -> None:
    status = node_status(SPEC, 10250, "boot", NOW, NOW)
    assert status["capacity"] == SHAPE.capacity
    assert status["allocatable"] == SHAPE.allocatable
    ready = next(condition for condition in status["conditions"] if condition["type"] == "Ready")
    assert (ready["status"], ready["reason"]) == ("True", "KubeletReady")
    assert status["daemonEndpoints"] == {"kubeletEndpoint": {"Port": 10250}}


def test_the_heartbeat_is_a_lease_with_microseconds() -> None:
    assert lease("node-a", NOW)["spec"]["renewTime"] == "2026-11-21T03:35:17.000005Z"
