"""The twin's nodes are as busy as the processes of their pods keep this machine."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import psutil
import pytest

from local.node_utilization import NodeUtilization

BUSY = "while True: pass"
IDLE = "import time\ntime.sleep(600)"


class CloudWatch:
    """Takes what is published."""

    def __init__(self) -> None:
        self.percent: dict[str, float] = {}

    def put_metric_data(self, *, Namespace: str, MetricData: list[dict[str, Any]]) -> None:
        assert Namespace == "ContainerInsights"
        for datum in MetricData:
            given = {each["Name"]: each["Value"] for each in datum["Dimensions"]}
            assert (given["ClusterName"], sorted(given)) == ("blue", ["ClusterName", "InstanceId", "NodeName"])
            self.percent[given["NodeName"]] = datum["Value"]


@pytest.fixture
def pods() -> Iterator[None]:
    """A busy and an idle process, as those of pods are."""
    begun = [
        subprocess.Popen([sys.executable, "-c", program], env={**os.environ, "HOSTNAME": host})
        for host, program in (("busy-0", BUSY), ("idle-0", IDLE))
    ]
    yield
    for process in begun:
        process.kill()
        process.wait()


@pytest.mark.usefixtures("pods")
def test_the_processor_time_of_a_nodes_pods_is_published_and_no_other() -> None:
    cloudwatch = CloudWatch()
    published = NodeUtilization(
        cluster="blue",
        cloudwatch=lambda: cloudwatch,
        roots=lambda: [os.getpid()],
        nodes=lambda: {"busy-0": "n1", "idle-0": "n2"},
    )
    published.publish()
    time.sleep(1.0)
    published.publish()
    whole = 100 / (psutil.cpu_count() or 1)  # one program keeps one processor busy, less what others take of it
    assert whole / 20 < cloudwatch.percent["n1"] <= 1.5 * whole
    assert cloudwatch.percent["n2"] < whole / 20


def test_without_pods_nothing_is_published() -> None:
    cloudwatch = CloudWatch()
    published = NodeUtilization(cluster="blue", cloudwatch=lambda: cloudwatch, roots=lambda: [os.getpid()], nodes=dict)
    published.publish()
    assert cloudwatch.percent == {}
