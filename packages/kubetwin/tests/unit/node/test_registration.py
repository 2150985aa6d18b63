from __future__ import annotations

from datetime import UTC, datetime

import pytest
from kubetwin.node.registration import (
    NodeSpec,
    UnknownInstanceType,
    instance_type_named,
    lease,
    node_object,
    node_status,
    parse_taint,
)

NOW = datetime(2026, 11, 21, 3, 35, 17, 5, tzinfo=UTC)
SPEC = NodeSpec(
    name="node-a",
    instance_type=instance_type_named("trn1.32xlarge"),
    labels={"zone": "b"},
    taints=[parse_taint("aws.amazon.com/neuron=present:NoSchedule")],
)


def test_a_node_carries_the_well_known_labels_and_its_own() -> None:
    node = node_object(SPEC)
    labels = node["metadata"]["labels"]
    assert labels["kubernetes.io/hostname"] == "node-a"
    assert labels["node.kubernetes.io/instance-type"] == "trn1.32xlarge"
    assert labels["zone"] == "b"
    assert {"kubernetes.io/arch", "kubernetes.io/os"} <= labels.keys()
    assert node["spec"]["taints"] == [{"key": "aws.amazon.com/neuron", "value": "present", "effect": "NoSchedule"}]


def test_a_ready_node_advertises_the_devices_of_its_instance_type() -> None:
    status = node_status(SPEC, 10250, "boot", NOW, NOW)
    assert status["capacity"] == {
        "cpu": "128",
        "memory": "512Gi",
        "pods": "247",
        "aws.amazon.com/neuron": "16",
        "aws.amazon.com/neuroncore": "32",
        "vpc.amazonaws.com/efa": "8",
        "hugepages-2Mi": str(5128 * 2 * 1024 * 1024),
    }
    assert status["allocatable"] == status["capacity"] | {"cpu": "126834m", "memory": "470973Mi", "pods": "236"}
    ready = next(condition for condition in status["conditions"] if condition["type"] == "Ready")
    assert (ready["status"], ready["reason"]) == ("True", "KubeletReady")
    assert status["daemonEndpoints"] == {"kubeletEndpoint": {"Port": 10250}}


def test_the_heartbeat_is_a_lease_with_microseconds() -> None:
    assert lease("node-a", NOW)["spec"]["renewTime"] == "2026-11-21T03:35:17.000005Z"


def test_an_unknown_instance_type_is_answered_with_the_known_ones() -> None:
    with pytest.raises(UnknownInstanceType, match=r"'p5.48xlarge' is not known; choose one of .*trn1.32xlarge"):
        instance_type_named("p5.48xlarge")


@pytest.mark.parametrize("text", ["", "key", "key:Never", ":NoSchedule"])
def test_a_taint_of_another_form_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not of the form"):
        parse_taint(text)
