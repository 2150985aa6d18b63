"""What is read of a cluster, from its API's answers to plain facts."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from kubernetes import client

from lambdas.gateways.examination import Examination
from tests.fakes.kubernetes_api import FakeKubernetesApi, not_found
from tests.fakes.runs import run_of, spec_with
from trainflow.deployment.kubernetes_names import TRAINING_NODES
from trainflow.kubernetes.api import KubernetesApi
from trainflow.nodes.instances import EFA_INTERFACE, INSTANCE_TYPE_LABEL, NEURON_CORE, NEURON_DEVICE
from trainflow.observed.node import read_node
from trainflow.workflow.preflight import ClusterFacts, PluginNodes, Unknown, VolumeClaim

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)


@pytest.fixture
def api() -> FakeKubernetesApi:
    return FakeKubernetesApi()


def facts(api: FakeKubernetesApi, **compute: Any) -> ClusterFacts:
    spec = run_of(spec_with(**{f"compute__{name}": value for name, value in compute.items()})).spec
    examination = Examination(KubernetesApi(api), namespace="training")  # type: ignore[arg-type]
    return examination.facts(spec.compute, service_account="training", claim="fsx-claim", now=NOW)


def node(name: str, *, ready_for: timedelta, ready: str = "True", **allocatable: int) -> dict[str, Any]:
    condition = {"type": "Ready", "status": ready, "lastTransitionTime": (NOW - ready_for).isoformat()}
    devices = {NEURON_DEVICE: "16", NEURON_CORE: "32", EFA_INTERFACE: "8"}
    return {
        "metadata": {"name": name, "labels": {INSTANCE_TYPE_LABEL: "trn1.32xlarge"}},
        "status": {
            "conditions": [condition],
            "allocatable": devices
            | {EFA_INTERFACE: str(allocatable.get("efa", 8)), "hugepages-2Mi": f"{allocatable.get('huge', 0)}Mi"},
        },
    }


def test_an_empty_cluster_has_nothing(api: FakeKubernetesApi) -> None:
    assert facts(api, backend="volcano", queue="research", priority_class="urgent") == ClusterFacts(
        service_account=False,
        claim=None,
        plugins=PluginNodes(),
        queue=None,
        priority_class=False,
        policies_enforced=Unknown("no daemon set is known to do so"),
        kind_installed=True,
    )


def test_what_the_spec_does_not_ask_for_is_not_read(api: FakeKubernetesApi) -> None:
    facts(api)
    asked = {use.resource for use in api.used_in_cluster | api.used_in_namespace}
    assert asked == {"serviceaccounts", "persistentvolumeclaims", "nodes", "daemonsets"}


@pytest.mark.parametrize(("backend", "group"), [("volcano", "batch.volcano.sh"), ("jobset", "jobset.x-k8s.io")])
def test_a_kind_of_job_is_installed_if_its_group_answers(api: FakeKubernetesApi, backend: str, group: str) -> None:
    assert facts(api, backend=backend).kind_installed is True
    api.missing.add(group)
    assert facts(api, backend=backend).kind_installed is False


@pytest.mark.parametrize(
    ("status", "state"), [({}, "Open"), ({"state": "Open"}, "Open"), ({"state": "Closing"}, "Closing")]
)
def test_a_queue_that_volcano_has_not_processed_yet_is_open(
    api: FakeKubernetesApi, status: dict[str, str], state: str
) -> None:
    api.add("queues.scheduling.volcano.sh", {"metadata": {"name": "research"}, "status": status})
    assert facts(api, backend="volcano", queue="research").queue == state


def test_the_zones_of_a_volume_are_read(api: FakeKubernetesApi) -> None:
    claim = {"metadata": {"name": "fsx-claim"}, "spec": {"volumeName": "v"}, "status": {"phase": "Bound"}}
    api.add("persistentvolumeclaims", claim)
    expressions = [
        {"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["us-west-2a", "us-west-2b"]},
        {"key": "kubernetes.io/os", "operator": "In", "values": ["linux"]},
    ]
    required = {"nodeSelectorTerms": [{"matchExpressions": expressions}]}
    api.add("persistentvolumes", {"metadata": {"name": "v"}, "spec": {"nodeAffinity": {"required": required}}})
    assert facts(api).claim == VolumeClaim(phase="Bound", zones=frozenset({"us-west-2a", "us-west-2b"}))


def test_only_nodes_that_have_been_ready_for_a_while_tell_of_their_plugins(api: FakeKubernetesApi) -> None:
    hour, minute = timedelta(hours=1), timedelta(minutes=1)
    for each in (
        node("whole", ready_for=hour, huge=10256),
        node("part", ready_for=hour, efa=4),
        node("new", ready_for=minute, efa=0, huge=20000),
        node("down", ready_for=hour, ready="False", efa=0),
    ):
        api.add("nodes", each)
    all_devices = frozenset({NEURON_DEVICE, EFA_INTERFACE})
    assert facts(api).plugins == PluginNodes(settled=(all_devices, all_devices - {EFA_INTERFACE}), huge_pages_mib=10256)


@pytest.mark.parametrize(
    ("amount", "mebibytes"),
    [("10256Mi", 10256), ("10Gi", 10240), ("10502144Ki", 10256), ("10754195456", 10256), ("0", 0)],
)
def test_huge_pages_are_read_however_the_kubelet_writes_them(amount: str, mebibytes: int) -> None:
    status = {"allocatable": {"hugepages-2Mi": amount}}
    assert read_node({"metadata": {"name": "n"}, "status": status}).huge_pages_mib == mebibytes


@pytest.mark.parametrize(
    ("addresses", "ipv4"),
    [
        ([], True),
        (["10.0.1.7"], True),
        (["10.0.1.7", "fd00::7"], True),
        (["2600:1f14:ab:cd00::7"], False),
    ],
)
def test_a_clusters_ip_family_is_read_of_its_nodes(api: FakeKubernetesApi, addresses: list[str], ipv4: bool) -> None:
    """Of a node with addresses of both families too, pods have one of each."""
    there = node("system", ready_for=timedelta(hours=1))
    named = {"type": "Hostname", "address": "ip-10-0-1-7.us-west-2.compute.internal"}
    there["status"]["addresses"] = [named, *({"type": "InternalIP", "address": each} for each in addresses)]
    api.add("nodes", there)
    assert facts(api).ipv4 is ipv4


def test_the_operating_system_of_settled_nodes_is_read(api: FakeKubernetesApi) -> None:
    image = "Bottlerocket OS 1.53.0 (aws-k8s-1.36)"
    for name, ready_for in (("settled", timedelta(hours=1)), ("new", timedelta(minutes=1))):
        there = node(name, ready_for=ready_for)
        there["status"]["nodeInfo"] = {"osImage": image if name == "settled" else "Amazon Linux 2023"}
        api.add("nodes", there)
    plugins = facts(api).plugins
    assert isinstance(plugins, PluginNodes)
    assert plugins.os_images == {image}


def test_a_cluster_that_serves_no_daemon_sets_is_no_cluster_without_plugins(api: FakeKubernetesApi) -> None:
    api.missing.add("apps")
    assert facts(api).plugins == PluginNodes(daemon_sets=Unknown("the cluster does not serve daemon sets"))


def test_what_may_not_be_read_is_unknown(api: FakeKubernetesApi, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_arguments: Any, **_options: Any) -> Any:
        refused = client.ApiException(status=403, reason="Forbidden")
        refused.body = not_found('{"kind": "Status", "message": "nodes is forbidden"}').body
        raise refused

    monkeypatch.setattr(FakeKubernetesApi, "call_api", refuse)
    unknown = Unknown("The Kubernetes API refused: nodes is forbidden")
    found = facts(api, backend="volcano", queue="research", priority_class="urgent")
    assert {getattr(found, name) for name in ClusterFacts.__dataclass_fields__} == {unknown}


@pytest.mark.parametrize(
    ("image_id", "digest"),
    [
        (f"registry.example/t@sha256:{'0' * 64}", f"sha256:{'0' * 64}"),
        (f"docker-pullable://t@sha256:{'a' * 64}", f"sha256:{'a' * 64}"),
        ("process://trainer:test", None),
        ("", None),
    ],
)
def test_an_images_digest_comes_from_the_pods_status(api: FakeKubernetesApi, image_id: str, digest: str | None) -> None:
    examination = Examination(KubernetesApi(api), namespace="training")  # type: ignore[arg-type]
    assert examination.image_digest("j") is None
    pod = {"metadata": {"name": "p", "labels": {"trainflow/job": "j"}}}
    api.add("pods", pod | {"status": {"containerStatuses": [{"imageID": image_id}]}})
    assert examination.image_digest("j") == digest


def daemon_set(name: str, *args: str) -> dict[str, Any]:
    containers = [{"name": name}, {"name": "aws-eks-nodeagent", "args": ["--enable-ipv6=false", *args]}]
    return {"metadata": {"name": name}, "spec": {"template": {"spec": {"containers": containers}}}}


@pytest.mark.parametrize(
    ("daemon_sets", "enforced"),
    [
        ((daemon_set("aws-node", "--enable-network-policy=true"),), True),
        ((daemon_set("aws-node", "--enable-network-policy=false"),), False),
        ((daemon_set("aws-node"),), False),
        ((daemon_set("aws-node"), daemon_set("calico-node")), True),
        ((daemon_set("kindnet"),), Unknown("no daemon set is known to do so")),
    ],
)
def test_daemon_sets_show_whether_network_policies_are_enforced(
    api: FakeKubernetesApi, daemon_sets: tuple[dict[str, Any], ...], enforced: bool | Unknown
) -> None:
    for each in daemon_sets:
        api.add("daemonsets.apps", each)
    assert facts(api).policies_enforced == enforced


def test_the_disks_of_nodes_for_small_programs_are_read(api: FakeKubernetesApi) -> None:
    sizes = {"a": "48Gi", "b": "47233297124", "c": None, "training": "512Gi"}
    for name, amount in sizes.items():
        labels = TRAINING_NODES if name == "training" else {}
        allocatable = {"ephemeral-storage": amount} if amount else {}
        api.add("nodes", {"metadata": {"name": name, "labels": labels}, "status": {"allocatable": allocatable}})
    assert facts(api).disks == (48 * 2**30, 47233297124)
