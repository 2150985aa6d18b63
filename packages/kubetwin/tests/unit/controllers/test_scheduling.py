from __future__ import annotations

from fractions import Fraction
from typing import Any

from kubetwin.controllers.nodes import wanted_taints
from kubetwin.controllers.scheduling import Usage, place, pod_requests

NEURON = "aws.amazon.com/neuron"


def node(name: str = "n", *, labels: dict[str, str] | None = None, **spec: Any) -> dict[str, Any]:
    room = {"cpu": "8", "memory": "16Gi", "pods": "10", NEURON: "16"}
    return {"metadata": {"name": name, "labels": labels or {}}, "spec": spec, "status": {"allocatable": room}}


def pod(requests: dict[str, str] | None = None, **spec: Any) -> dict[str, Any]:
    return {"spec": {"containers": [{"resources": {"requests": requests or {}}}], **spec}}


def test_a_pod_is_placed_on_the_least_used_node() -> None:
    usage = {"a": Usage({"cpu": Fraction(4)}, 1), "b": Usage({"cpu": Fraction(2)}, 1)}
    assert place(pod({"cpu": "1"}), [node("a"), node("b")], usage).node == "b"


def test_a_pod_that_requests_more_than_a_node_has_is_refused_with_the_missing_resources() -> None:
    assert place(pod({NEURON: "64"}), [node()], {}).message == (
        "0/1 nodes are available: 1 Insufficient aws.amazon.com/neuron. no new claims to deallocate, "
        "preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling."
    )


def test_room_that_others_hold_could_be_won_by_preemption() -> None:
    message = place(pod({"cpu": "4"}), [node()], {"n": Usage({"cpu": Fraction(6)}, 1)}).message
    assert message.endswith("1 No preemption victims found for incoming pod.")


def test_a_node_takes_no_more_pods_than_it_allows() -> None:
    assert "Too many pods" in place(pod(), [node()], {"n": Usage({}, 10)}).message


def test_a_cluster_without_nodes_has_a_message_of_its_own() -> None:
    assert place(pod(), [], {}).message == "no nodes available to schedule pods"


def test_a_node_selector_has_to_match() -> None:
    wanted = pod(nodeSelector={"disk": "ssd"})
    assert "didn't match Pod's node affinity/selector" in place(wanted, [node()], {}).message
    assert place(wanted, [node(labels={"disk": "ssd"})], {}).node == "n"


def test_required_node_affinity_has_to_match_one_term() -> None:
    expression = {"key": "zone", "operator": "In", "values": ["a", "b"]}
    terms = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    assert (
        place(pod(affinity=affinity), [node("x", labels={"zone": "c"}), node("y", labels={"zone": "b"})], {}).node
        == "y"
    )


def test_a_taint_repels_pods_that_do_not_tolerate_it() -> None:
    tainted = node(taints=[{"key": NEURON, "value": "true", "effect": "NoSchedule"}])
    assert f"untolerated taint {{{NEURON}: true}}" in place(pod(), [tainted], {}).message
    tolerant = pod(tolerations=[{"key": NEURON, "operator": "Exists", "effect": "NoSchedule"}])
    assert place(tolerant, [tainted], {}).node == "n"


def test_a_cordoned_node_takes_no_pod() -> None:
    assert "node(s) were unschedulable" in place(pod(), [node(unschedulable=True)], {}).message


def test_an_init_container_counts_by_its_peak() -> None:
    wanted = pod({"cpu": "1"}, initContainers=[{"resources": {"requests": {"cpu": "3", "memory": "1Gi"}}}])
    assert pod_requests(wanted) == {"cpu": 3, "memory": 2**30}


def test_a_node_is_tainted_while_it_is_not_ready_and_keeps_its_own_taints() -> None:
    own = {"key": NEURON, "effect": "NoSchedule"}
    sick = {"spec": {"taints": [own]}, "status": {"conditions": [{"type": "Ready", "status": "False"}]}}
    not_ready = [{"key": "node.kubernetes.io/not-ready", "effect": each} for each in ("NoSchedule", "NoExecute")]
    assert wanted_taints(sick) == [own, *not_ready]
    sick["status"]["conditions"][0]["status"] = "True"
    assert wanted_taints(sick) == [own]


def test_a_sidecar_counts_beside_the_containers_and_the_init_containers_after_it() -> None:
    def container(cpu: str, **fields: str) -> dict[str, Any]:
        return {"resources": {"requests": {"cpu": cpu}}, **fields}

    sidecar = container("2", restartPolicy="Always")
    assert pod_requests(pod({"cpu": "1"}, initContainers=[sidecar, container("5")]))["cpu"] == 7
    assert pod_requests(pod({"cpu": "1"}, initContainers=[container("2"), sidecar]))["cpu"] == 3


def test_two_pods_of_one_node_cannot_have_the_same_host_port() -> None:
    def listening(address: str = "", number: int = 80) -> dict[str, Any]:
        port = {"containerPort": 80, "hostPort": number, "hostIP": address, "protocol": "TCP"}
        return {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i", "ports": [port]}]}}

    taken = {"n": Usage().with_pod(listening())}
    assert place(listening(), [node("n")], taken).message == (
        "0/1 nodes are available: 1 node(s) didn't have free ports for the requested pod ports. no new claims to "
        "deallocate, preemption: 0/1 nodes are available: 1 No preemption victims found for incoming pod."
    )
    assert not place(listening("127.0.0.1"), [node("n")], taken).node
    assert place(listening(number=81), [node("n")], taken).node == "n"
    assert Usage().with_pod(listening()).without_pod(listening()).ports == ()
    one = {"n": Usage().with_pod(listening("10.0.0.1"))}
    assert place(listening("10.0.0.2"), [node("n")], one).node == "n"
