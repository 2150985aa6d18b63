"""A run whose first instance type has no capacity goes on with the next one, and says so."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from local.aws import deployment
from local.twin import Twin
from tests.integration.mails import Mails
from tests.integration.running import follow_run
from tests.integration.test_runs import assert_nothing_is_left, state_names, steps_spec
from trainflow.nodes.instances import nodegroup_name
from trainflow.spec.run_spec import parse_run_spec
from trainflow.workflow.run_record import RunRecord

Run = Callable[..., RunRecord]


@pytest.fixture(scope="module")
def twin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Twin]:
    home, logs = tmp_path_factory.mktemp("home"), tmp_path_factory.mktemp("logs")
    with Twin(home=home, log_dir=logs, time_scale=60, without_capacity=["g6.12xlarge", "g6.24xlarge"]) as running:
        yield running


@pytest.fixture
def run(twin: Twin, tmp_path: Path) -> Run:
    def start(run_id: str, **compute: Any) -> RunRecord:
        spec = {**steps_spec(), "compute": {"num_nodes": 2, "processes_per_node": 2, "check_nodes": False, **compute}}
        console = Console(file=io.StringIO())
        return follow_run(twin, parse_run_spec(spec), run_id, folder=tmp_path / run_id, console=console)

    return start


@pytest.mark.slow
def test_the_next_type_is_used_by_all_jobs_and_named_in_record_and_message(run: Run, twin: Twin) -> None:
    mails = Mails(twin)
    record = run("other-0000000000aa", instance_type="g6.12xlarge", fallback=["g6.24xlarge", "g6e.12xlarge"])
    assert (record.status, record.error) == ("SUCCEEDED", None)
    assert (record.instance_type, record.given_up) == ("g6e.12xlarge", ["g6.12xlarge", "g6.24xlarge"])
    assert record.spec["compute"]["instance_type"] == "g6.12xlarge"
    assert [visit.name for visit in record.states].count("ReleaseNodes") == 2
    nodes = {pod.node for pod in record.jobs["training"].pods}
    assert nodes == {"g6e-12xlarge-0", "g6e-12xlarge-1"}
    assert_nothing_is_left(twin, record.run_id)
    assert "Nodes: g6e.12xlarge, because there was no capacity of g6.12xlarge, g6.24xlarge" in mails.end_of(record)


def test_a_type_without_a_node_group_is_refused_before_any_node_is_requested(run: Run, twin: Twin) -> None:
    eks, name = twin.client("eks"), nodegroup_name("g6e.24xlarge")
    eks.delete_nodegroup(clusterName=deployment.CLUSTER_NAME, nodegroupName=name)
    record = run("lacks-0000000000aa", instance_type="g6e.12xlarge", fallback=["g6e.24xlarge", "g5.12xlarge"])
    assert record.error is not None
    assert record.error.name == "PreflightFailed"
    assert record.error.message.splitlines() == [
        "This run could not start for 2 reasons:",
        "1. compute.fallback names g6e.24xlarge, but the cluster 'trainflow' has no node group "
        "'trainflow-g6e-24xlarge'; remove it from fallback, or deploy a node group for it.",
        "2. compute.fallback names g5.12xlarge, which is not offered in us-west-2d (usw2-az4), where its node group "
        "is; choose another type, or deploy the node group in a zone that offers it.",
    ]
    assert "EnsureCapacity" not in state_names(record)
    assert deployment.gang_nodes() == 0
