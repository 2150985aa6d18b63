"""The catalogue of instance types: consistent, as it was for the types that were first, and as pods request it."""

from __future__ import annotations

from typing import Any

import pytest
from kubetwin.resources.pod_defaults import default_pod_spec
from kubetwin.resources.pod_validation import validate_pod_spec

from lambdas.backends import job as indexed_job
from lambdas.logic.compile_cache import cache_key
from lambdas.logic.jobs import job_of
from tests.every import hold_for_every
from tests.fakes.runs import run_of, spec_with
from trainflow.errors import InvalidRunSpec
from trainflow.nodes.instances import (
    DEVICE_PLUGINS,
    EFA_INTERFACE,
    GPU_DEVICE,
    HUGE_PAGES,
    INSTANCE_TYPES,
    NEURON_CORE,
    NEURON_DEVICE,
    InstanceType,
)
from trainflow.nodes.node_room import training_pod
from trainflow.nodes.offerings import VCPU_QUOTAS, node_quota
from trainflow.spec.run_spec import RunSpec, parse_run_spec
from trainflow.workflow.run import Stage


def seven() -> list[InstanceType]:
    """The types of the first version, as they were written down there."""
    trn1: dict[str, Any] = {"tflops_per_device": 190, "device": "Trainium"}
    large: dict[str, Any] = {
        **trn1,
        "vcpus": 128,
        "memory_gib": 512,
        "network_interfaces": 5,
        "addresses_per_interface": 50,
        "neuron_devices": 16,
        "neuron_cores": 32,
        "processes": (1, 2, 8, 32),
        "instance_store_gb": 7600,
    }
    return [
        InstanceType(
            **trn1,
            name="trn1.2xlarge",
            vcpus=8,
            memory_gib=32,
            network_interfaces=4,
            addresses_per_interface=15,
            neuron_devices=1,
            neuron_cores=2,
            processes=(1, 2),
            instance_store_gb=474,
        ),
        InstanceType(**large, name="trn1.32xlarge", efa_interfaces=8),
        InstanceType(**large, name="trn1n.32xlarge", efa_interfaces=16),
        InstanceType(
            name="trn2.48xlarge",
            vcpus=192,
            memory_gib=2048,
            network_interfaces=2,
            addresses_per_interface=50,
            neuron_devices=16,
            neuron_cores=64,
            device="Trainium2",
            processes=(1, 4, 16, 64),
            efa_interfaces=16,
            instance_store_gb=7600,
            tflops_per_device=667,
        ),
        InstanceType(name="m5.large", vcpus=2, memory_gib=8, network_interfaces=3, addresses_per_interface=10),
        InstanceType(name="c7i.xlarge", vcpus=4, memory_gib=8, network_interfaces=4, addresses_per_interface=15),
        InstanceType(name="c7i.4xlarge", vcpus=16, memory_gib=32, network_interfaces=8, addresses_per_interface=30),
    ]


@pytest.mark.parametrize("instance", seven(), ids=lambda instance: instance.name)
def test_the_first_types_are_as_they_were(instance: InstanceType) -> None:
    assert INSTANCE_TYPES[instance.name] == instance


def test_a_type_is_consistent() -> None:
    hold_for_every(_is_consistent, ((instance,) for instance in INSTANCE_TYPES.values()))


def _is_consistent(instance: InstanceType) -> None:
    assert not (instance.neuron_devices and instance.gpus)
    assert (instance.device is not None) == instance.accelerated == bool(instance.accelerators)
    assert instance.max_processes % (instance.accelerators or 1) == 0
    assert list(instance.processes) == sorted(instance.processes)
    assert all(count <= instance.max_processes for count in instance.processes)
    assert set(instance.devices) <= {*DEVICE_PLUGINS, HUGE_PAGES}
    assert set(instance.taints) <= set(instance.tolerated)
    assert instance.accelerated or not instance.efa_interfaces
    assert instance.architecture == "x86_64"
    assert training_pod(instance).memory_mib > 0 and training_pod(instance).millicpu > 0
    assert {node_quota(instance, capacity_type=kind) for kind in ("ON_DEMAND", "SPOT")} <= set(VCPU_QUOTAS.values())


@pytest.mark.parametrize(
    ("name", "pods"),
    [
        ("trn1.32xlarge", 247),
        ("trn2.3xlarge", 30),
        ("inf2.24xlarge", 737),
        ("p4d.24xlarge", 737),
        ("p5.48xlarge", 100),
        ("p5en.48xlarge", 198),
        ("p6-b300.48xlarge", 198),
        ("g5.xlarge", 58),
        ("g5.48xlarge", 345),
        ("g6e.48xlarge", 492),
        ("m7i.large", 29),
        ("r6i.8xlarge", 234),
    ],
)
def test_a_node_runs_as_many_pods_as_eks_allows(name: str, pods: int) -> None:
    """github.com/aws/amazon-vpc-cni-k8s, misc/eni-max-pods.txt, August 2026; all types agreed with it."""
    assert INSTANCE_TYPES[name].max_pods == pods


@pytest.mark.parametrize(
    ("name", "quota"),
    [
        ("trn1n.32xlarge", "trn_on_demand"),
        ("inf2.xlarge", "inf_on_demand"),
        ("p6-b200.48xlarge", "p_on_demand"),
        ("g6e.xlarge", "g_on_demand"),
        ("r6i.large", "standard_on_demand"),
    ],
)
def test_each_family_has_its_quota(name: str, quota: str) -> None:
    assert node_quota(INSTANCE_TYPES[name], capacity_type="ON_DEMAND") == VCPU_QUOTAS[quota]


def gang(name: str, *, num_nodes: int = 1, processes: int | None = None) -> RunSpec:
    count = processes or INSTANCE_TYPES[name].max_processes
    compute = {"instance_type": name, "num_nodes": num_nodes, "processes_per_node": count, "backend": "job"}
    return parse_run_spec(spec_with(compute=compute))


def pod_of(spec: RunSpec) -> dict[str, Any]:
    job = job_of(run_of(spec.model_dump(mode="json")), Stage.TRAINING, 1, artifacts_url="s3://a/")
    (manifest,) = (each for each in indexed_job.render(job) if each["kind"] == "Job")
    pod: dict[str, Any] = manifest["spec"]["template"]["spec"]
    return pod


def test_a_pod_on_gpus_requests_one_for_each_process_and_tolerates_their_taint() -> None:
    pod = pod_of(gang("g5.12xlarge", processes=3))
    (container,) = pod["containers"]
    assert container["resources"]["limits"][GPU_DEVICE] == container["resources"]["requests"][GPU_DEVICE] == "3"
    assert not {NEURON_DEVICE, NEURON_CORE, EFA_INTERFACE, HUGE_PAGES} & set(container["resources"]["requests"])
    assert {"key": GPU_DEVICE, "operator": "Exists", "effect": "NoSchedule"} in pod["tolerations"]
    assert not [each for each in container["env"] if each["name"].startswith(("NEURON_RT", "XLA", "CCOM", "FI_"))]
    default_pod_spec(pod)
    assert list(validate_pod_spec(pod, "spec")) == []


def test_a_gang_of_gpu_nodes_communicates_over_every_efa_interface_and_without_neurons_variables() -> None:
    (container,) = pod_of(gang("p5.48xlarge", num_nodes=2))["containers"]
    requested = container["resources"]["requests"]
    assert (requested[GPU_DEVICE], requested[EFA_INTERFACE], requested[HUGE_PAGES]) == ("8", "32", "5120Mi")
    environment = {each["name"]: each.get("value") for each in container["env"]}
    assert environment["FI_PROVIDER"] == "efa"
    assert not [name for name in environment if name.startswith(("NEURON_RT", "XLA", "CCOM"))]


def test_a_gang_of_gpu_nodes_without_efa_spans_nodes_and_one_of_inf2_does_not() -> None:
    assert EFA_INTERFACE not in pod_of(gang("g5.xlarge", num_nodes=2))["containers"][0]["resources"]["requests"]
    assert not INSTANCE_TYPES["inf2.48xlarge"].spans_nodes


@pytest.mark.parametrize(
    ("name", "unit"), [("g5.xlarge", "1 GPUs"), ("inf2.xlarge", "2 NeuronCores"), ("m5.large", "2 vCPUs")]
)
def test_more_processes_than_devices_are_refused(name: str, unit: str) -> None:
    with pytest.raises(InvalidRunSpec, match=f"a {name} has {unit}; use at most"):
        gang(name, processes=3)


def test_graphs_are_those_of_the_device_and_not_of_the_size() -> None:
    def key(name: str) -> str:
        return cache_key(gang(name, processes=1), image_digest=None)

    assert key("p5e.48xlarge") == key("p5en.48xlarge")
    assert key("p5.48xlarge") != key("p5e.48xlarge")
    assert key("trn1.32xlarge") == key("trn1n.32xlarge") != key("trn2.48xlarge")
