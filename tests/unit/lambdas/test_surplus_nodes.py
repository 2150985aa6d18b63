"""Nodes that no run needs are released while runs use others of their type, one instance at a time."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from botocore.exceptions import ClientError

from lambdas.gateways.eks import Nodegroups
from lambdas.gateways.kubernetes import KubernetesCluster
from lambdas.handlers import ensure_capacity
from lambdas.handlers.survey_fleet import lambda_handler
from lambdas.logic.capacity import removable_nodes, replaceable_nodes
from tests.fakes.kubernetes_api import FakeKubernetesApi
from tests.fakes.runs import run_of, spec_with
from tests.unit.lambdas.conftest import CONTEXT, NAMESPACE, Aws
from trainflow.deployment.kubernetes_names import MANAGED_BY, RELEASED_ANNOTATION, RUN_LABEL
from trainflow.nodes.instances import INSTANCE_TYPE_LABEL
from trainflow.nodes.training_nodes import ScalingGroup
from trainflow.observed.node import Node, read_node
from trainflow.workflow.run_table import LastSurvey

TYPE = "trn1.32xlarge"
IDLE = timedelta(minutes=36)


def survey(aws: Aws) -> dict[str, Any]:
    """A survey whose predecessor saw idle nodes long ago."""
    now, previous = datetime.now(UTC), aws.table.last_survey()
    memory = LastSurvey(surveyed_at=now - timedelta(minutes=5), idle_since={TYPE: now - IDLE})
    assert aws.table.remember(memory, previous=previous)
    return lambda_handler({}, CONTEXT)


class Fleet:
    """Nodes with instances, of which runs claim and use some."""

    def __init__(self, aws: Aws, cluster: FakeKubernetesApi, num_nodes: int, *, minimum: int = 0) -> None:
        aws.add_nodegroup(TYPE, desired=num_nodes, minimum=minimum)
        self.instances = aws.start_instances(TYPE, num_nodes)
        self.nodes = [f"n{number}" for number in range(num_nodes)]
        self._aws, self._cluster = aws, cluster
        for name, instance in zip(self.nodes, self.instances, strict=True):
            cluster.add("nodes", _node(name, instance))

    def claim(self, num_nodes: int, *, run_id: str = "bert-0123456789ab", avoided: Sequence[str] = ()) -> None:
        cluster = KubernetesCluster(FakeKubernetesApi(self._cluster.objects), namespace=NAMESPACE)
        cluster.claim_nodes(run_id, TYPE, num_nodes, avoided_nodes=avoided)

    def place(self, *nodes: str, run_id: str = "bert-0123456789ab") -> None:
        """A pod of the run on each node."""
        for node in nodes:
            metadata = {"name": f"{run_id}-{node}", "labels": {**MANAGED_BY, RUN_LABEL: run_id}}
            self._cluster.add(
                "pods", {"metadata": metadata, "spec": {"nodeName": node}, "status": {"phase": "Running"}}
            )

    def change(self, node: str, *, ready: str | None = None, cordoned: bool | None = None) -> None:
        found = self._cluster.objects["nodes", node]
        if ready is not None:
            found["status"]["conditions"] = [{"type": "Ready", "status": ready}]
        if cordoned is not None:
            found["spec"]["unschedulable"] = cordoned

    @property
    def left(self) -> set[str]:
        """Nodes whose instances are there."""
        there = self._aws.instances(TYPE)
        return {node for node, instance in zip(self.nodes, self.instances, strict=True) if instance in there}

    @property
    def withdrawn(self) -> set[str]:
        """Nodes that are cordoned and marked."""
        return {
            name
            for name in self.nodes
            if self._cluster.objects["nodes", name]["spec"].get("unschedulable")
            and RELEASED_ANNOTATION in (self._cluster.objects["nodes", name]["metadata"].get("annotations") or {})
        }


def _node(name: str, instance: str) -> dict[str, Any]:
    devices = {"aws.amazon.com/neuron": "16", "vpc.amazonaws.com/efa": "8"}
    return {
        "metadata": {"name": name, "labels": {INSTANCE_TYPE_LABEL: TYPE}},
        "spec": {"providerID": f"aws:///us-west-2a/{instance}"},
        "status": {"conditions": [{"type": "Ready", "status": "True"}], "allocatable": devices},
    }


def test_nodes_that_no_run_needs_are_removed_although_others_of_their_type_train(
    aws: Aws, cluster: FakeKubernetesApi
) -> None:
    fleet = Fleet(aws, cluster, 4)
    fleet.claim(1)
    fleet.place("n2")
    assert survey(aws)["nodes_released"] == {TYPE: 3}
    assert (fleet.left, aws.capacity(TYPE)) == ({"n2"}, 1)
    ((subject, text),) = aws.messages
    assert subject == "Trainflow: 3 idle trn1.32xlarge released"
    assert "no run claimed them for 36 minutes" in text


def test_nodes_are_kept_for_a_run_whose_pods_have_not_been_placed(aws: Aws, cluster: FakeKubernetesApi) -> None:
    fleet = Fleet(aws, cluster, 4)
    fleet.claim(1)
    fleet.place("n2")
    fleet.claim(2, run_id="other-0123456789ab")
    assert survey(aws)["nodes_released"] == {TYPE: 1}
    assert (len(fleet.left), "n2" in fleet.left) == (3, True)


@pytest.mark.parametrize(
    ("trouble", "left"),
    [({"cordoned": True}, {"n0", "n1"}), ({"ready": "False"}, {"n0", "n1"}), ({"ready": "Unknown"}, {"n0", "n1"})],
    ids=["cordoned by a person", "not ready", "lost"],
)
def test_a_usable_node_is_not_removed_for_one_that_cannot_be_used(
    aws: Aws, cluster: FakeKubernetesApi, trouble: dict[str, Any], left: set[str]
) -> None:
    fleet = Fleet(aws, cluster, 2)
    fleet.claim(1)
    fleet.change("n0", **trouble)
    assert survey(aws)["nodes_released"] == {TYPE: 0}
    assert (fleet.left, fleet.withdrawn) == (left, set())


def test_a_node_in_the_place_of_an_avoided_one_is_kept(aws: Aws, cluster: FakeKubernetesApi) -> None:
    fleet = Fleet(aws, cluster, 3)
    fleet.claim(2, avoided=["n0"])
    assert survey(aws)["nodes_released"] == {TYPE: 0}
    assert fleet.left == {"n0", "n1", "n2"}


def test_a_group_does_not_become_smaller_than_its_minimum(aws: Aws, cluster: FakeKubernetesApi) -> None:
    fleet = Fleet(aws, cluster, 4, minimum=3)
    fleet.claim(1)
    survey(aws)
    assert (len(fleet.left), aws.capacity(TYPE)) == (3, 3)


def test_nodes_are_kept_until_they_have_been_idle_for_long(aws: Aws, cluster: FakeKubernetesApi) -> None:
    fleet = Fleet(aws, cluster, 2)
    fleet.claim(1)
    lambda_handler({}, CONTEXT)
    assert (fleet.left, fleet.withdrawn) == ({"n0", "n1"}, set())


def test_a_pod_that_is_placed_before_the_cordon_keeps_its_node(
    aws: Aws, cluster: FakeKubernetesApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    fleet = Fleet(aws, cluster, 2)
    fleet.claim(1)
    withdraw = KubernetesCluster.withdraw

    def place_and_withdraw(self: KubernetesCluster, node: Any) -> None:
        fleet.place(node.name)
        withdraw(self, node)

    monkeypatch.setattr(KubernetesCluster, "withdraw", place_and_withdraw)
    survey(aws)
    # The other node is the one too many then, for the next survey.
    assert (fleet.left, fleet.withdrawn) == ({"n0", "n1"}, set())
    monkeypatch.setattr(KubernetesCluster, "withdraw", withdraw)
    assert survey(aws)["nodes_released"] == {TYPE: 1}
    assert len(fleet.left) == 1


def test_a_run_that_claims_nodes_before_the_termination_keeps_them(
    aws: Aws, cluster: FakeKubernetesApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    fleet = Fleet(aws, cluster, 3)
    fleet.claim(1)
    fleet.place("n0")
    withdraw = KubernetesCluster.withdraw

    def claim_and_withdraw(self: KubernetesCluster, node: Any) -> None:
        fleet.claim(2, run_id="other-0123456789ab")
        withdraw(self, node)

    monkeypatch.setattr(KubernetesCluster, "withdraw", claim_and_withdraw)
    assert survey(aws)["nodes_released"] == {TYPE: 0}
    assert (fleet.left, fleet.withdrawn) == ({"n0", "n1", "n2"}, set())
    run = run_of(spec_with(compute__num_nodes=2), run_id="other-0123456789ab")
    event = {"run": run.model_dump(mode="json"), "waiting_since": datetime.now(UTC).isoformat()}
    assert ensure_capacity.lambda_handler(event, CONTEXT)["ready"]


def test_what_a_crashed_survey_has_withdrawn_is_removed_or_given_back(
    aws: Aws, cluster: FakeKubernetesApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    fleet = Fleet(aws, cluster, 3)
    fleet.claim(1)
    fleet.place("n0")

    def crash(_self: Nodegroups, _instance_id: str) -> bool:
        raise ClientError({"Error": {"Code": "InternalFailure", "Message": ""}}, "Terminate")

    with monkeypatch.context() as patch:
        patch.setattr(Nodegroups, "remove", crash)
        with pytest.raises(ClientError):
            survey(aws)
    assert fleet.withdrawn == {"n1", "n2"}
    fleet.claim(1, run_id="other-0123456789ab")
    # A survey to which nothing has been idle for long.
    lambda_handler({}, CONTEXT)
    assert (len(fleet.left), len(fleet.withdrawn & fleet.left)) == (2, 0)


def test_an_instance_that_leaves_is_not_terminated_again_nor_given_back(aws: Aws, cluster: FakeKubernetesApi) -> None:
    """Its node stays until the cloud controller deletes it, and EKS tells the old size meanwhile."""
    fleet = Fleet(aws, cluster, 2)
    fleet.claim(1)
    fleet.place("n0")
    assert survey(aws)["nodes_released"] == {TYPE: 1}
    assert aws.desired(TYPE) == 2, "EKS is told later"
    assert survey(aws)["nodes_released"] == {TYPE: 0}
    assert (fleet.left, fleet.withdrawn, aws.capacity(TYPE)) == ({"n0"}, {"n1"}, 1)


def test_a_change_of_the_group_that_is_under_way_is_waited_for(
    aws: Aws, cluster: FakeKubernetesApi, refusing: Any
) -> None:
    fleet = Fleet(aws, cluster, 2)
    fleet.claim(1)
    refusing("TerminateInstanceInAutoScalingGroup", "ScalingActivityInProgress")
    assert survey(aws)["nodes_released"] == {TYPE: 0}
    assert (len(fleet.withdrawn), fleet.left) == (1, {"n0", "n1"})
    refusing("TerminateInstanceInAutoScalingGroup", None)
    assert survey(aws)["nodes_released"] == {TYPE: 1}
    assert aws.capacity(TYPE) == 1


def test_a_node_without_an_instance_is_left_alone(aws: Aws, cluster: FakeKubernetesApi) -> None:
    fleet = Fleet(aws, cluster, 2)
    fleet.claim(1)
    for node in fleet.nodes:
        del cluster.objects["nodes", node]["spec"]["providerID"]
    assert survey(aws)["nodes_released"] == {TYPE: 0}
    assert fleet.withdrawn == set()


def test_only_a_node_with_an_instance_can_be_replaced() -> None:
    """A hybrid node is a machine that EC2 does not know: nothing starts another in its place."""
    bad, hybrid = read_node(_node("bad", "i-0123456789abcdef0")), read_node(_node("hybrid", ""))
    assert replaceable_nodes("bert-1", ["bad", "hybrid"], [bad, hybrid], in_use={}) == [bad]


@pytest.mark.parametrize("num_bad", [0, 1, 2, 3])
def test_the_substitute_of_a_bad_node_is_not_removed_while_the_run_waits_for_it(num_bad: int) -> None:
    """The group has one node more for each bad one; a claim of two keeps two usable ones."""
    nodes = [read_node(_node(f"n{number}", f"i-{number}")) for number in range(2 + num_bad)]
    unusable = {node.name for node in nodes[:num_bad]}

    def removable(desired: int) -> list[Node]:
        group = ScalingGroup(desired=desired, in_service=frozenset(str(node.instance_id) for node in further))
        return removable_nodes(further, needed=2, unusable=unusable, in_use=(), group=group, minimum=0)

    further = nodes
    assert removable(2 + num_bad) == []
    further = [*nodes, read_node(_node("surplus", "i-99"))]
    assert len(removable(2 + num_bad)) == 0, "the group is not larger than it has to be"
    assert len(removable(3 + num_bad)) == 1
