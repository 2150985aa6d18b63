from __future__ import annotations

import pytest
from kubetwin.node.shape import NodeShape

from local.node_shapes import SMALL_JOBS_NODEGROUP, UnknownInstanceType, instance_shape, instance_type_named

CAPACITY = {
    "cpu": "128",
    "memory": "512Gi",
    "pods": "247",
    "aws.amazon.com/neuron": "16",
    "aws.amazon.com/neuroncore": "32",
    "vpc.amazonaws.com/efa": "8",
    "hugepages-2Mi": str(7041 * 2 * 1024 * 1024),
}
ALLOCATABLE = CAPACITY | {"cpu": "126834m", "memory": "467147Mi", "pods": "236"}
TYPE_LABEL = {"node.kubernetes.io/instance-type": "trn1.32xlarge"}


def test_a_node_has_the_resources_of_its_instance_type() -> None:
    assert instance_shape(instance_type_named("trn1.32xlarge")) == NodeShape(
        capacity=CAPACITY, allocatable=ALLOCATABLE, labels=TYPE_LABEL
    )


def test_a_node_of_a_training_node_group_is_labelled_and_tainted_as_deployed() -> None:
    shape = instance_shape(instance_type_named("trn1.32xlarge"), nodegroup="trainflow-trn1-32xlarge")
    assert shape == NodeShape(
        capacity=CAPACITY,
        allocatable=ALLOCATABLE,
        labels=TYPE_LABEL | {"eks.amazonaws.com/nodegroup": "trainflow-trn1-32xlarge", "trainflow/nodes": "training"},
        taints=[{"key": "aws.amazon.com/neuron", "value": "true", "effect": "NoSchedule"}],
    )


def test_a_node_for_small_jobs_is_labelled_and_tainted_as_deployed() -> None:
    shape = instance_shape(instance_type_named("t3a.large"), nodegroup=SMALL_JOBS_NODEGROUP)
    assert shape.labels == {
        "node.kubernetes.io/instance-type": "t3a.large",
        "eks.amazonaws.com/nodegroup": "small-jobs",
        "trainflow/nodes": "small-jobs",
    }
    assert shape.taints == [{"key": "trainflow/nodes", "value": "small-jobs", "effect": "NoSchedule"}]


def test_an_unknown_instance_type_is_answered_with_the_nearest_ones() -> None:
    with pytest.raises(UnknownInstanceType, match=r"'trn1\.31xlarge' .*known.*trn1.32xlarge"):
        instance_type_named("trn1.31xlarge")


def test_a_node_with_gpus_advertises_them_and_carries_the_label_that_brings_the_device_plugin() -> None:
    shape = instance_shape(instance_type_named("g5.12xlarge"), nodegroup="trainflow-g5-12xlarge")
    assert shape.capacity["nvidia.com/gpu"] == shape.allocatable["nvidia.com/gpu"] == "4"
    assert shape.labels["nvidia.com/gpu.present"] == "true"
    assert shape.taints == [{"key": "nvidia.com/gpu", "value": "true", "effect": "NoSchedule"}]
