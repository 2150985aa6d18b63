"""Nodes are granted to runs whole, in the order of their claims, and never to two runs."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kubetwin.server import ApiServer

from lambdas.backends.kubernetes import node_groups
from lambdas.gateways.eks import Nodegroups
from lambdas.gateways.kubernetes import KubernetesCluster
from lambdas.logic.capacity import available, unclaimed_nodes
from tests.fakes.kubernetes_api import FakeKubernetesApi
from tests.fakes.runs import run_of, spec_with
from tests.unit.lambdas.conftest import CLUSTER, NAMESPACE, Aws
from trainflow.kubernetes.connection import from_endpoint
from trainflow.nodes.instances import INSTANCE_TYPE_LABEL
from trainflow.nodes.training_nodes import Claim, Grants
from trainflow.workflow.run import Run

TYPE = "trn1.2xlarge"


def claim(run_id: str, num_nodes: int, created_at: int) -> Claim:
    return Claim(
        name=f"{run_id}-nodes",
        run_id=run_id,
        instance_type=TYPE,
        num_nodes=num_nodes,
        created_at=f"2026-11-23T12:00:{created_at:02}Z",
    )


def test_a_run_waits_behind_those_that_came_before_it_and_holds_nothing_meanwhile() -> None:
    claims = [claim("small", 1, 3), claim("large", 4, 2), claim("first", 2, 1)]
    assert available("first", nodes_ready=3, claims=claims, granted=()) == (3, {})
    assert available("large", nodes_ready=3, claims=claims, granted=["first"]) == (1, {"first": 2})
    assert available("small", nodes_ready=3, claims=claims, granted=["first"]) == (0, {"first": 2}), "no overtaking"
    assert available("large", nodes_ready=6, claims=claims, granted=["first"]) == (4, {"first": 2})


@pytest.mark.parametrize("names", [("alpha", "omega"), ("omega", "alpha")])
def test_nodes_are_granted_in_the_order_of_time_and_not_of_names(names: tuple[str, str]) -> None:
    first, second = names
    claims = [claim(second, 3, 2), claim(first, 3, 1)]
    assert available(first, nodes_ready=3, claims=claims, granted=()) == (3, {})
    assert available(second, nodes_ready=3, claims=claims, granted=()) == (0, {})


def test_claims_of_one_second_are_granted_by_name_so_that_two_polls_agree() -> None:
    claims = [claim("omega", 3, 1), claim("alpha", 3, 1)]
    for order in (claims, claims[::-1]):
        assert available("alpha", nodes_ready=3, claims=order, granted=()) == (3, {})
        assert available("omega", nodes_ready=3, claims=order, granted=()) == (0, {})


def test_a_run_that_is_started_anew_keeps_its_place() -> None:
    claims = [claim("early", 4, 1), claim("mine", 2, 2)]
    assert available("mine", nodes_ready=2, claims=claims, granted=["mine"]) == (2, {})
    assert available("mine", nodes_ready=1, claims=claims, granted=["mine"]) == (1, {}), "one was lost"


def test_nodes_of_a_run_that_has_ended_are_not_free_before_its_pods_are_gone() -> None:
    in_use = {"a": {"ended"}, "b": {"mine"}, "c": {"mine", "ended"}}
    assert unclaimed_nodes(in_use, [claim("mine", 2, 1)]) == {"a", "c"}


@given(
    st.integers(0, 8),
    st.lists(st.tuples(st.integers(1, 4), st.integers(0, 3)), min_size=1, max_size=8),
    st.lists(st.tuples(st.integers(0, 7), st.booleans()), max_size=60),
)
def test_whatever_the_order_of_polls_no_node_is_granted_twice_and_all_are_served_in_the_end(
    nodes: int, gangs: list[tuple[int, int]], polls: list[tuple[int, bool]]
) -> None:
    claims = {f"run-{i}": claim(f"run-{i}", size, created) for i, (size, created) in enumerate(gangs) if size <= nodes}
    granted: dict[str, int] = {}

    def poll(run_id: str) -> None:
        nonlocal granted
        left, held = available(run_id, nodes_ready=nodes, claims=list(claims.values()), granted=granted)
        if left >= claims[run_id].num_nodes:
            granted = {**held, run_id: claims[run_id].num_nodes}

    for index, ends in polls:
        run_id = f"run-{index}"
        if run_id in claims:
            poll(run_id)
            assert sum(granted[each] for each in granted if each in claims) <= nodes
            if ends and run_id in granted:
                del claims[run_id]
    while claims:
        for run_id in list(claims):
            poll(run_id)
        served = [run_id for run_id in claims if run_id in granted]
        assert served, "nobody waits for ever"
        for run_id in served:
            del claims[run_id]


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
        metadata = {"name": f"node-{number}", "labels": {INSTANCE_TYPE_LABEL: TYPE}}
        resources = {"aws.amazon.com/neuron": "1", "aws.amazon.com/neuroncore": "2"}
        status = {"conditions": [{"type": "Ready", "status": "True"}], "allocatable": resources}
        admin._api.call("POST", "/api/v1/nodes", body={"kind": "Node", "metadata": metadata, "status": status})
        admin._api.call(
            "PUT", f"/api/v1/nodes/node-{number}/status", body={"kind": "Node", "metadata": metadata, "status": status}
        )
    aws.add_nodegroup(TYPE, desired=count)


def run_of_one_node(number: int) -> Run:
    return run_of(spec_with(compute={"instance_type": TYPE, "num_nodes": 1}), run_id=f"run-{number:016}")


def is_ready(cluster: KubernetesCluster, run: Run) -> bool:
    return node_groups.ensure_nodes(
        cluster, Nodegroups(CLUSTER), run, waiting_since=datetime.now(UTC), replaces_bad_nodes=False
    ).ready


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
