"""Nodes are granted to runs whole, in the order of their claims, and never to two runs."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from kubetwin.server import ApiServer

from lambdas.backends.kubernetes import node_groups
from lambdas.gateways.eks import Nodegroups
from lambdas.gateways.kubernetes import KubernetesCluster
from lambdas.logic.capacity import Capacity, unclaimed_nodes
from tests.fakes.claims import TYPE, claim
from tests.fakes.kubernetes_api import FakeKubernetesApi
from tests.fakes.runs import run_of, spec_with
from tests.unit.lambdas.conftest import CLUSTER, NAMESPACE, Aws
from trainflow.errors import GangTooLarge
from trainflow.kubernetes.connection import from_endpoint
from trainflow.nodes.failed_nodes import FailedNodes
from trainflow.nodes.instances import INSTANCE_TYPE_LABEL, nodegroup_name
from trainflow.nodes.training_nodes import Grants
from trainflow.workflow.run import Run


def test_nodes_of_a_run_that_has_ended_are_not_free_before_its_pods_are_gone() -> None:
    in_use = {"a": {"ended"}, "b": {"mine"}, "c": {"mine", "ended"}}
    assert unclaimed_nodes(in_use, [claim("mine", 2, 1)]) == {"a", "c"}


def test_grants_that_another_run_has_replaced_are_not_stored(cluster: FakeKubernetesApi) -> None:
    backend = KubernetesCluster(cluster, namespace=NAMESPACE)
    first = backend.grants(TYPE)
    assert backend.store_grants(TYPE, Grants(by_run={"a": 1}, version=first.version))
    assert not backend.store_grants(TYPE, Grants(by_run={"b": 1}, version=first.version)), "there is one by now"
    second = backend.grants(TYPE)
    assert second.by_run == {"a": 1}
    assert backend.store_grants(TYPE, Grants(by_run={"a": 1, "b": 1}, version=second.version))
    assert not backend.store_grants(TYPE, Grants(by_run={"c": 1}, version=second.version))
    assert backend.grants(TYPE).by_run == {"a": 1, "b": 1}


@pytest.fixture
def server() -> Iterator[ApiServer]:
    server = ApiServer()
    server.start()
    yield server
    server.stop()


Connect = Callable[[], KubernetesCluster]


@pytest.fixture
def connect(server: ApiServer, tmp_path: Path) -> Connect:
    """Connections to a real API server, which alone decides between two writes."""
    ca_file = tmp_path / "ca.pem"
    ca_file.write_text(server.ca_pem)

    def connection() -> KubernetesCluster:
        api = from_endpoint(server.endpoint, ca_file=str(ca_file), token=server.admin_token)
        return KubernetesCluster(api, namespace=NAMESPACE)

    return connection


def add_nodes(admin: KubernetesCluster, aws: Aws, count: int) -> None:
    admin._api.call("POST", "/api/v1/namespaces", body={"kind": "Namespace", "metadata": {"name": NAMESPACE}})
    for number in range(count):
        add_node(admin, number)
    aws.add_nodegroup(TYPE, desired=count)


def add_node(admin: KubernetesCluster, number: int) -> None:
    metadata = {"name": f"node-{number}", "labels": {INSTANCE_TYPE_LABEL: TYPE}}
    resources = {"aws.amazon.com/neuron": "1", "aws.amazon.com/neuroncore": "2"}
    status = {"conditions": [{"type": "Ready", "status": "True"}], "allocatable": resources}
    node = {"kind": "Node", "metadata": metadata, "status": status}
    admin._api.call("POST", "/api/v1/nodes", body=node)
    admin._api.call("PUT", f"/api/v1/nodes/node-{number}/status", body=node)


def run_of_one_node(number: int) -> Run:
    return run_of(spec_with(compute={"instance_type": TYPE, "num_nodes": 1}), run_id=f"run-{number:016}")


def capacity_of(cluster: KubernetesCluster, run: Run) -> Capacity:
    return node_groups.ensure_nodes(
        cluster, Nodegroups(CLUSTER), run, waiting_since=datetime.now(UTC), replaces_bad_nodes=False
    )


def is_ready(cluster: KubernetesCluster, run: Run) -> bool:
    return capacity_of(cluster, run).ready


def figures(capacity: Capacity) -> tuple[bool, int, int]:
    """Whether the gang can be placed, its ready nodes, and those that it holds in all."""
    return capacity.ready, capacity.nodes_ready, capacity.nodes_wanted


def desired() -> int:
    return Nodegroups(CLUSTER).size(nodegroup_name(TYPE)).desired


@pytest.fixture
def spared() -> Run:
    """A run of one node and a spare."""
    spec = spec_with(compute={"instance_type": TYPE, "num_nodes": 1, "spares": 1})
    return run_of(spec, run_id="run-with-a-spare")


def test_a_run_waits_for_its_spares_once_and_then_loses_a_node_without_a_wait(
    aws: Aws, connect: Connect, spared: Run
) -> None:
    cluster, other = connect(), run_of_one_node(2)
    add_nodes(cluster, aws, 1)
    assert figures(capacity_of(cluster, spared)) == (False, 1, 2)
    assert desired() == 2, "the spare is requested with the gang"
    add_node(cluster, 1)
    assert figures(capacity_of(cluster, spared)) == (True, 2, 2)
    assert not is_ready(cluster, other), "a spare is the run's"
    cluster.cancel(other.run_id)

    cluster._api.call("DELETE", "/api/v1/nodes/node-0")
    assert figures(capacity_of(cluster, spared)) == (True, 1, 2)
    assert cluster.grants(TYPE).by_run == {spared.run_id: 2}
    cluster._api.call("DELETE", "/api/v1/nodes/node-1")
    assert figures(capacity_of(cluster, spared)) == (False, 0, 2)


def test_a_bad_node_that_stays_is_made_up_for_by_another_spare(aws: Aws, connect: Connect, spared: Run) -> None:
    cluster = connect()
    add_nodes(cluster, aws, 2)
    assert is_ready(cluster, spared)
    avoiding = spared.model_copy(update={"failed_nodes": FailedNodes(avoided=("node-0",))})
    assert figures(capacity_of(cluster, avoiding)) == (True, 1, 2)
    assert desired() == 3


def test_a_gang_that_fits_only_without_its_spares_is_refused(aws: Aws, connect: Connect) -> None:
    cluster = connect()
    add_nodes(cluster, aws, 1)
    spec = spec_with(compute={"instance_type": TYPE, "num_nodes": 1, "spares": 16})
    sentence = r"compute\.num_nodes is 1 and compute\.spares is 16, but the node group '.+' may have at most 16 nodes\."
    with pytest.raises(GangTooLarge, match=sentence):
        capacity_of(cluster, run_of(spec, run_id="run-with-spares"))


def test_of_runs_that_poll_at_once_only_as_many_are_granted_as_there_are_nodes(aws: Aws, connect: Connect) -> None:
    admin = connect()
    add_nodes(admin, aws, 3)
    runs = [run_of_one_node(number) for number in range(8)]
    ready: list[str] = []

    def poll(index: int) -> None:
        if is_ready(connect(), runs[index]):
            ready.append(runs[index].run_id)

    for _ in range(5):
        callers = [threading.Thread(target=poll, args=(index,)) for index in range(8)]
        for caller in callers:
            caller.start()
        for caller in callers:
            caller.join()
        assert len(set(ready)) <= 3
    assert len(set(ready)) == 3
    granted = set(ready)
    assert admin.grants(TYPE).by_run == dict.fromkeys(granted, 1)
    admin.cancel(ready[0])
    ready.clear()
    for index in range(8):
        if runs[index].run_id not in granted:
            poll(index)
    assert len(ready) == 1, "the next one, and no more"


def test_a_run_that_was_stopped_and_goes_on_is_not_granted_what_another_run_is_about_to_be(
    aws: Aws, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its grant is still there when the other run reads the grants; its claim is not when that run reads the claims."""
    add_nodes(connect(), aws, 1)
    stopped, other = run_of_one_node(1), run_of_one_node(2)
    assert is_ready(connect(), stopped)
    connect().cancel(stopped.run_id)
    slow, read = connect(), KubernetesCluster.nodes_in_use
    meanwhile: list[bool] = []

    def read_while_the_other_polls(cluster: KubernetesCluster) -> dict[str, set[str]]:
        if cluster is slow and not meanwhile:
            meanwhile.append(is_ready(connect(), stopped))
        return read(cluster)

    monkeypatch.setattr(KubernetesCluster, "nodes_in_use", read_while_the_other_polls)
    assert (is_ready(slow, other), meanwhile) == (False, [True])
