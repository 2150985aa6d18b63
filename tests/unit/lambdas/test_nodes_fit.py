"""Every pod of every backend fits the node it is for, beside what the kubelet keeps and daemon sets request."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

import pytest
from kubetwin.controllers.scheduling import place, pod_requests
from kubetwin.node.registration import NodeSpec, node_object
from kubetwin.node.shape import extended

from lambdas.backends.registry import KINDS
from lambdas.logic.jobs import job_of
from local.node_shapes import instance_shape
from stacks.cluster.training_operator import operator_manifests
from tests.every import hold_for_every
from tests.fakes.runs import run_of, spec_with
from tests.installed_charts import as_pod, recorded_pods
from trainflow.deployment.backends import KUBERNETES_KINDS, BackendName
from trainflow.deployment.kubernetes_names import CONTROLLER_NODES, NODES_LABEL, SMALL_JOB_NODES, TRAINING_NODES
from trainflow.nodes.daemon_sets import DAEMON_SETS, on_node
from trainflow.nodes.instances import HUGE_PAGES, INSTANCE_TYPES, SYSTEM_INSTANCE, InstanceType
from trainflow.nodes.node_room import Room, allocatable, daemon_set_requests, kubelet_reserved, room_for_pods
from trainflow.workflow.run import Stage


def cluster_pods() -> Room:
    """Requests of the Deployments on a cluster's only system node, the training operator's among them."""
    deployed = [(pod["replicas"], as_pod(pod)) for _, pod in recorded_pods("Deployment", "StatefulSet")]
    operators = [each for each in operator_manifests() if each["kind"] == "Deployment"]
    deployed += [(each["spec"]["replicas"], each["spec"]["template"]) for each in operators]
    asked = [(count, pod_requests(pod)) for count, pod in deployed]
    return Room(
        millicpu=math.ceil(sum(count * each.get("cpu", 0) for count, each in asked) * 1000),
        memory_mib=math.ceil(sum(count * each.get("memory", 0) for count, each in asked) / 2**20),
    )


def pods_of(manifests: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Every pod template of the objects, as a pod."""
    for manifest in manifests:
        yield from _templates(manifest)


def _templates(document: object) -> Iterator[dict[str, Any]]:
    if isinstance(document, Mapping):
        if "containers" in document:
            yield {"spec": dict(document)}
            return
        for value in document.values():
            yield from _templates(value)
    elif isinstance(document, list):
        for value in document:
            yield from _templates(value)


def gang(instance_type: str, backend: BackendName, stage: Stage) -> list[dict[str, Any]]:
    instance = INSTANCE_TYPES[instance_type]
    compute = {
        "instance_type": instance_type,
        "num_nodes": 2 if instance.spans_nodes and backend != "pod" else 1,
        "processes_per_node": instance.max_processes,
        "backend": backend,
    }
    return KINDS[backend].render(job_of(run_of(spec_with(compute=compute)), stage, 1, artifacts_url="s3://a/"))


@pytest.mark.parametrize("stage", [Stage.PRECOMPILE, Stage.TRAINING])
@pytest.mark.parametrize("backend", KUBERNETES_KINDS)
def test_a_pod_of_a_gang_fits_its_node(backend: BackendName, stage: Stage) -> None:
    hold_for_every(_fits_its_node, ((name, backend, stage) for name in INSTANCE_TYPES))


def _fits_its_node(name: str, backend: BackendName, stage: Stage) -> None:
    instance = INSTANCE_TYPES[name]
    room, pods = room_for_pods(instance), list(pods_of(gang(name, backend, stage)))
    assert pods
    for pod in pods:
        asked = pod_requests(pod)
        print(
            f"{name} {backend} {stage}: {asked['cpu'] * 1000} of {room.millicpu} m CPU, "
            f"{asked['memory'] / 2**20} of {room.memory_mib} MiB"
        )
        assert asked["cpu"] * 1000 <= room.millicpu
        assert asked["memory"] <= room.memory_mib * 2**20
        assert asked.get(HUGE_PAGES, 0) <= instance.huge_pages_mib * 2**20


@pytest.mark.parametrize("stage", [Stage.PREFLIGHT, Stage.STAGE, Stage.PUBLISH])
def test_a_small_pod_of_each_of_two_runs_fits_the_only_system_node(stage: Stage) -> None:
    room = room_for_pods(SYSTEM_INSTANCE) - cluster_pods()
    (pod,) = pods_of(KINDS["job"].render(job_of(run_of(spec_with()), stage, 1, artifacts_url="s3://a/")))
    asked = pod_requests(pod)
    assert 2 * asked["cpu"] * 1000 <= room.millicpu
    assert 2 * asked["memory"] <= room.memory_mib * 2**20


def node(name: str, *, labels: Mapping[str, str], taints: Mapping[str, str] = MappingProxyType({})) -> dict[str, Any]:
    """A ready c7i.4xlarge, as the scheduler reads it."""
    shape = extended(instance_shape(INSTANCE_TYPES["c7i.4xlarge"]), labels=labels)
    metadata = node_object(NodeSpec(name=name, shape=shape))
    listed = [{"key": key, "value": value, "effect": "NoSchedule"} for key, value in taints.items()]
    return {**metadata, "spec": {"taints": listed}, "status": {"allocatable": shape.allocatable}}


@pytest.mark.parametrize("stage", [Stage.PREFLIGHT, Stage.STAGE, Stage.PUBLISH])
def test_small_pods_stay_off_nodes_that_are_released_and_need_no_label_on_others(stage: Stage) -> None:
    (small,) = pods_of(KINDS["job"].render(job_of(run_of(spec_with()), stage, 1, artifacts_url="s3://a/")))
    released, theirs = node("released", labels=TRAINING_NODES), node("theirs", labels={})
    assert place(small, [released], {}).node == ""
    assert place(small, [released, theirs], {}).node == "theirs"


@pytest.mark.parametrize("stage", [Stage.PREFLIGHT, Stage.STAGE, Stage.PUBLISH])
def test_small_pods_have_nodes_of_their_own_away_from_controllers(stage: Stage) -> None:
    (small,) = pods_of(KINDS["job"].render(job_of(run_of(spec_with()), stage, 1, artifacts_url="s3://a/")))
    controllers = node("controllers", labels=CONTROLLER_NODES)
    own = node("own", labels=SMALL_JOB_NODES, taints=SMALL_JOB_NODES)
    other = node("other", labels={}, taints={NODES_LABEL: "another"})
    assert place(small, [controllers, other], {}).node == ""
    assert place(small, [controllers, other, own], {}).node == "own"
    controller = {"metadata": {"name": "controller"}, "spec": {"containers": []}}
    assert place(controller, [own], {}).node == ""
    assert place(controller, [own, controllers], {}).node == "controllers"


@pytest.mark.parametrize(
    ("instance", "reserved"),
    [
        (INSTANCE_TYPES["m5.large"], Room(millicpu=70, memory_mib=255 + 11 * 29)),
        (INSTANCE_TYPES["c7i.xlarge"], Room(millicpu=80, memory_mib=255 + 11 * 58)),
        (INSTANCE_TYPES["trn1.2xlarge"], Room(millicpu=90, memory_mib=255 + 11 * 58)),
        (INSTANCE_TYPES["trn1.32xlarge"], Room(millicpu=390, memory_mib=255 + 11 * 247)),
        (SYSTEM_INSTANCE, Room(millicpu=70, memory_mib=255 + 11 * 35)),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_the_kubelet_reserves_what_nodeadm_configures(instance: InstanceType, reserved: Room) -> None:
    assert kubelet_reserved(instance) == reserved


def test_daemon_sets_of_neuron_gpu_and_efa_nodes_run_there_alone() -> None:
    names = {row.name for row in DAEMON_SETS}
    efa_alone, neuron_alone = {"aws-efa-k8s-device-plugin"}, {"neuron-monitor", "neuron-device-plugin"}
    neuron_alone |= {"node-problem-detector"}
    nvidia_alone = {"nvidia-device-plugin", "nvidia-device-plugin-mps-control-daemon", "dcgm-exporter", "dcgm-server"}
    everywhere = names - efa_alone - neuron_alone - nvidia_alone
    assert {row.name for row in on_node(INSTANCE_TYPES["trn1.32xlarge"])} == everywhere | neuron_alone | efa_alone
    assert {row.name for row in on_node(INSTANCE_TYPES["trn1.2xlarge"])} == everywhere | neuron_alone
    assert {row.name for row in on_node(INSTANCE_TYPES["p5.48xlarge"])} == everywhere | nvidia_alone | efa_alone
    assert {row.name for row in on_node(INSTANCE_TYPES["g5.xlarge"])} == everywhere | nvidia_alone
    assert {row.name for row in on_node(INSTANCE_TYPES["m5.large"])} == everywhere


def test_the_twins_nodes_offer_what_an_eks_node_leaves_to_pods() -> None:
    hold_for_every(_offers_what_is_left, ((each,) for each in (*INSTANCE_TYPES.values(), SYSTEM_INSTANCE)))


def _offers_what_is_left(instance: InstanceType) -> None:
    offered = instance_shape(instance).allocatable
    left = allocatable(instance) - daemon_set_requests(instance)
    assert (offered["cpu"], offered["memory"]) == (f"{left.millicpu}m", f"{left.memory_mib}Mi")
    assert int(offered["pods"]) == instance.max_pods - len(on_node(instance))
