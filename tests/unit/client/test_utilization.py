"""How busy a run's nodes are is what Container Insights publishes of them."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError
from moto import mock_aws

from trainflow.client.observe.utilization import Utilization, read_mean_utilization, read_utilization
from trainflow.client.place import PlaceRefused
from trainflow.workflow.run_record import NodesBusy

NOW = datetime.now(UTC)


@pytest.fixture
def cloudwatch(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    with mock_aws():
        yield boto3.client("cloudwatch", region_name="us-west-2")


def publish(
    cloudwatch: Any, metric: str, node: str, percent: float, *, minutes_ago: float = 1.0, cluster: str = "blue"
) -> None:
    dimensions = {"ClusterName": cluster, "InstanceId": f"i-{node}", "NodeName": node}
    moment = NOW - timedelta(minutes=minutes_ago)
    for given in (dimensions, {"ClusterName": cluster}):  # the agent publishes both
        datum = {
            "MetricName": metric,
            "Dimensions": [{"Name": name, "Value": value} for name, value in given.items()],
            "Timestamp": moment,
            "Value": percent,
            "Unit": "Percent",
        }
        cloudwatch.put_metric_data(Namespace="ContainerInsights", MetricData=[datum])


def test_the_newest_value_of_each_of_the_runs_nodes_is_taken(cloudwatch: Any) -> None:
    publish(cloudwatch, "node_neuroncore_utilization", "n1", 12.0, minutes_ago=4)
    publish(cloudwatch, "node_neuroncore_utilization", "n1", 90.0)
    publish(cloudwatch, "node_neuroncore_utilization", "n2", 70.0)
    publish(cloudwatch, "node_neuroncore_utilization", "another run's", 5.0)
    publish(cloudwatch, "node_neuroncore_utilization", "n1", 1.0, cluster="green")
    publish(cloudwatch, "node_cpu_utilization", "n1", 3.0)
    found = read_utilization(cloudwatch, cluster="blue", nodes={"n1", "n2", "n3"}, now=NOW)
    assert found == Utilization(of="NeuronCores", by_node={"n1": 90.0, "n2": 70.0})


@pytest.mark.parametrize(("metric", "of"), [("node_gpu_utilization", "GPUs"), ("node_cpu_utilization", "CPUs")])
def test_nodes_without_neuron_devices_have_their_own_metric(cloudwatch: Any, metric: str, of: str) -> None:
    publish(cloudwatch, metric, "n1", 40.0)
    assert read_utilization(cloudwatch, cluster="blue", nodes={"n1"}, now=NOW) == Utilization(
        of=of, by_node={"n1": 40.0}
    )


def test_old_values_are_not_the_present(cloudwatch: Any) -> None:
    publish(cloudwatch, "node_cpu_utilization", "n1", 40.0, minutes_ago=30)
    assert read_utilization(cloudwatch, cluster="blue", nodes={"n1"}, now=NOW) is None


def test_an_ended_training_has_the_mean_of_its_own_time(cloudwatch: Any) -> None:
    for minutes_ago, percent in ((90, 1.0), (50, 80.0), (30, 90.0), (2, 3.0)):
        publish(cloudwatch, "node_neuroncore_utilization", "n1", percent, minutes_ago=minutes_ago)
    publish(cloudwatch, "node_neuroncore_utilization", "n2", 60.0, minutes_ago=40)
    times = {"start": NOW - timedelta(hours=1), "end": NOW - timedelta(minutes=10)}
    found = read_mean_utilization(cloudwatch, cluster="blue", nodes={"n1", "n2", "n3"}, **times)
    assert found == NodesBusy(of="NeuronCores", by_node={"n1": 85.0, "n2": 60.0})
    assert read_mean_utilization(cloudwatch, cluster="blue", nodes={"n3"}, **times) is None


@pytest.mark.parametrize("operation", ["ListMetrics", "GetMetricData"])
def test_a_missing_permission_is_named(cloudwatch: Any, operation: str) -> None:
    def refused(**_: object) -> None:
        raise ClientError({"Error": {"Code": "AccessDenied", "Message": "no"}}, operation)

    publish(cloudwatch, "node_cpu_utilization", "n1", 40.0)
    cloudwatch.meta.events.register(f"before-call.cloudwatch.{operation}", refused)
    with pytest.raises(PlaceRefused, match=rf"cloudwatch:{operation}: no\.$"):
        read_utilization(cloudwatch, cluster="blue", nodes={"n1"}, now=NOW)
