"""What the charts and add-ons make of our values: nothing that we did not choose, on the nodes that it is for.

Decision 112: tests read a record of what the charts render.

`tests/assets/charts` holds the facts; `make charts` renews them. Slow tests render the charts themselves, from a folder
of checkouts or from the repositories that the deployment uses.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubetwin.controllers.scheduling import host_ports, place, pod_requests
from kubetwin.model.selectors import label_selector_of
from kubetwin.node.registration import NodeSpec, node_object
from kubetwin.node.shape import extended
from kubetwin_testing.kubernetes_cli import program

from local.node_shapes import instance_shape
from stacks.cluster.stack import KUBERNETES_VERSIONS
from stacks.cluster.training_operator import operator_manifests
from tests import chart_facts
from tests.installed_charts import CHARTS as RECORDED
from tests.installed_charts import as_pod, recorded_pods
from trainflow.configuration.cluster_software import CHARTS, Chart
from trainflow.deployment.kubernetes_names import CONTROLLER_NODES, SMALL_JOB_NODES, TRAINING_NODES
from trainflow.nodes.daemon_sets import DAEMON_SETS
from trainflow.nodes.instances import INSTANCE_TYPES, SYSTEM_INSTANCE, InstanceType
from trainflow.observed.daemon_pods import read_daemon_pods

OURS = {name: values for name, (_, values) in chart_facts.ours().items()}
"""Values that we set, by chart or add-on."""

SYSTEM_NAMESPACES = {"default", "kube-system"}
"""Namespaces that every cluster has from the beginning."""

NEAREST = {"volcano": "1.15.1"}
"""Versions that were rendered in place of the installed one, whose sources are not public yet."""

OPERATOR = [pod for each in operator_manifests() for pod in chart_facts.pods(each, "")]
"""Pods of the training operator, which is not a chart."""


def test_everything_that_is_installed_has_facts_and_nothing_else() -> None:
    assert set(RECORDED) == set(OURS)


@pytest.mark.parametrize("chart", CHARTS, ids=lambda chart: chart.name)
def test_a_charts_facts_are_of_the_version_that_is_installed(chart: Chart) -> None:
    assert RECORDED[chart.name]["version"] == NEAREST.get(chart.name, chart.version)


@pytest.mark.parametrize("name", OURS)
def test_a_charts_facts_are_of_the_values_that_we_set(name: str) -> None:
    """If not, `make charts` renews them, and refuses a value that the chart does not know."""
    assert RECORDED[name]["values"] == OURS[name]


@pytest.mark.parametrize("name", OURS)
def test_a_value_that_we_set_exists_in_the_chart(name: str) -> None:
    assert set(RECORDED[name]["defaults"]) == set(chart_facts.values_set(OURS[name]))


@pytest.mark.parametrize("name", OURS)
def test_every_namespace_of_a_chart_exists(name: str) -> None:
    assert set(RECORDED[name]["namespaces"]) <= SYSTEM_NAMESPACES


def test_the_neuron_charts_own_namespace_would_be_missing() -> None:
    neuron = RECORDED["neuron-helm-chart"]
    assert neuron["defaults"]["npd.namespaceOverride"] not in SYSTEM_NAMESPACES
    assert OURS["neuron-helm-chart"]["npd"]["namespaceOverride"] in SYSTEM_NAMESPACES


def node_of(instance: InstanceType, labels: Mapping[str, str], taints: Mapping[str, str]) -> dict[str, Any]:
    """A node of our node groups, empty and large enough for any pod."""
    named = {**labels, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64"}
    shape = extended(instance_shape(instance), labels={**named, "node.kubernetes.io/instance-type": instance.name})
    listed = [{"key": key, "value": value, "effect": "NoSchedule"} for key, value in taints.items()]
    allocatable = {**shape.allocatable, "cpu": "1000", "memory": "1000Gi"}
    node = node_object(NodeSpec(name=instance.name, shape=shape))
    return {**node, "spec": {"taints": listed}, "status": {"allocatable": allocatable}}


def training_nodes(pod: Mapping[str, Any]) -> set[str]:
    """Instance types whose training nodes run a pod of this daemon set."""
    return {
        name
        for name, instance in INSTANCE_TYPES.items()
        if place(
            as_pod(dict(pod)), [node_of(instance, {**TRAINING_NODES, **instance.node_labels}, instance.taints)], {}
        ).node
    }


NOT_THERE = {
    # Its list of instance types lacks it: a node without GPU metrics.
    "dcgm-exporter": {"p5.4xlarge"},
    # For nodes with the label `nvidia.com/mps.capable`, which ours do not have.
    "nvidia-device-plugin-mps-control-daemon": {name for name, each in INSTANCE_TYPES.items() if each.gpus},
}
"""Nodes that the table counts a daemon set on, which does not run there."""


def _named(each: object) -> str:
    return str(each["name"]) if isinstance(each, dict) else ""


@pytest.mark.parametrize(("chart", "pod"), recorded_pods("DaemonSet"), ids=_named)
def test_a_daemon_set_runs_on_the_nodes_that_the_table_counts_it_on(chart: str, pod: dict[str, Any]) -> None:
    row = next(row for row in DAEMON_SETS if row.name == pod["name"])
    counted = {name for name, instance in INSTANCE_TYPES.items() if row.runs_on(instance)}
    assert (row.part_of, training_nodes(pod)) == (chart, counted - NOT_THERE.get(row.name, set()))


@pytest.mark.parametrize(("chart", "pod"), recorded_pods("DaemonSet"), ids=_named)
def test_the_preflight_reads_from_a_daemon_set_what_the_table_says(chart: str, pod: dict[str, Any]) -> None:
    """It finds each on the nodes where the scheduler places it, except for GPU plugins, which go by a label of ours."""
    found = read_daemon_pods({"metadata": {"name": pod["name"]}, "spec": {"template": {"spec": pod["spec"]}}})
    row = next(row for row in DAEMON_SETS if row.name == pod["name"])
    assert (found.cpu * 1000, found.memory) == (row.millicpu, row.memory_mib * 2**20)
    there = {name for name, instance in INSTANCE_TYPES.items() if found.certainly_on(instance)}
    assert there == (set() if chart == "nvidia-device-plugin" else training_nodes(pod))


def test_daemon_sets_request_what_the_table_says() -> None:
    found = {pod["name"]: pod_requests(as_pod(pod)) for _, pod in recorded_pods("DaemonSet")}
    rows = {row.name: (Fraction(row.millicpu, 1000), Fraction(row.memory_mib * 2**20)) for row in DAEMON_SETS}
    assert {name: (each.get("cpu", 0), each.get("memory", 0)) for name, each in found.items()} == rows


def test_permanent_nodes_have_the_daemon_sets_of_every_node_and_controllers_run_on_system_nodes_alone() -> None:
    small = node_of(SYSTEM_INSTANCE, SMALL_JOB_NODES, SMALL_JOB_NODES)
    system = node_of(SYSTEM_INSTANCE, CONTROLLER_NODES, {})
    every = {row.name for row in DAEMON_SETS if row.nodes == "every"}
    for node in (small, system):
        assert {pod["name"] for _, pod in recorded_pods("DaemonSet") if place(as_pod(pod), [node], {}).node} == every
    for pod in [*(pod for _, pod in recorded_pods("Deployment", "StatefulSet", "Job")), *OPERATOR]:
        assert (place(as_pod(pod), [system], {}).node, place(as_pod(pod), [small], {}).node) == (
            system["metadata"]["name"],
            "",
        )


def test_no_pod_of_a_chart_asks_for_disk_by_itself() -> None:
    """So images are all that the table of disks has to count (`trainflow.nodes.image_disk`)."""
    pods = [as_pod(pod) for _, pod in recorded_pods("DaemonSet", "Deployment", "StatefulSet", "Job")]
    assert {name for pod in pods for name in pod_requests(pod)} <= {"cpu", "memory"}


def test_no_two_daemon_sets_want_the_same_port_of_a_node() -> None:
    ports = Counter(port for _, pod in recorded_pods("DaemonSet") for port in host_ports(as_pod(pod)))
    assert [port for port, count in ports.items() if count > 1] == []


MAY_BE_PREEMPTED = {
    # Their charts have no value for it.
    "jobset-controller",
    "amazon-cloudwatch-observability-controller-manager",
    "dcgm-exporter",
    "neuron-monitor",
    # Reports faulty devices; without it the node still trains.
    "node-problem-detector",
}


def test_pods_of_a_node_and_controllers_are_not_preempted_on_a_full_node() -> None:
    pods = [*(pod for _, pod in recorded_pods("DaemonSet", "Deployment", "StatefulSet", "Job")), *OPERATOR]
    without = {pod["name"] for pod in pods if "priorityClassName" not in pod["spec"]}
    named = {pod["spec"]["priorityClassName"] for pod in pods if "priorityClassName" in pod["spec"]}
    assert without == MAY_BE_PREEMPTED
    assert named == {"system-node-critical", "system-cluster-critical"}, "every cluster has these two"


REGISTRIES = {"docker.io", "ghcr.io", "nvcr.io", "public.ecr.aws", "registry.k8s.io"}
"""Public registries that need no login; private subnets reach them through the NAT gateway."""

AWS_REGISTRY = "602401143452.dkr.ecr.us-west-2.amazonaws.com"
"""AWS's own. EKS names the cluster's Region for an add-on, and the EFA plugin's chart names this one everywhere; a role
of our nodes may pull from each."""


def test_images_come_from_registries_that_a_private_subnet_reaches_without_a_login() -> None:
    pods = [*(pod for _, pod in recorded_pods("DaemonSet", "Deployment", "StatefulSet", "Job")), *OPERATOR]
    images = {
        one["image"] for pod in pods for key in ("initContainers", "containers") for one in pod["spec"].get(key, ())
    }
    assert {image.partition("/")[0] for image in images} == REGISTRIES | {AWS_REGISTRY}
    assert all(":" in image.rpartition("/")[2] and not image.endswith((":latest", ":main")) for image in images)


def test_flags_that_decide_about_the_pods_of_others_are_those_that_we_chose() -> None:
    flags = {
        (pod["name"], flag.partition("={")[0]): flag
        for _, pod in recorded_pods("DaemonSet", "Deployment")
        for one in pod["spec"]["containers"]
        for flag in one.get("args", ())
    }
    operator = ("amazon-cloudwatch-observability-controller-manager", "--auto-monitor-config")
    assert set(flags) == {operator, ("aws-node", "--enable-network-policy=true")}
    instrumented = yaml.safe_load(flags[operator].partition("=")[2])
    assert (instrumented["monitorAllServices"], instrumented["restartPods"]) == (False, False)


PODS_OF_RUNS = (
    yaml.safe_load(Path("tests/assets/manifests/digits-mlp-training.yaml").read_text())["metadata"]["labels"],
    {"jobset.sigs.k8s.io/jobset-name": "bert", "trainflow/run": "bert"},
)
"""Labels of a pod that we make, and of one that JobSet's controller makes."""

WORKLOADS = {"pods", "deployments.apps", "daemonsets.apps", "statefulsets.apps", "namespaces"}
"""Objects that are not those of one chart: its webhooks reach into what others have installed."""

CHOSEN = {
    # On the pods of a JobSet only, which the backend `jobset` asks for.
    ("jobset", "mutate--v1-pod.x-k8s.io"),
    ("jobset", "validate--v1-pod.x-k8s.io"),
    # Act on what has an annotation, since we switched off that the operator monitors services by itself
    # (aws/amazon-cloudwatch-agent-operator, pkg/instrumentation/auto/monitor.go). They fail open.
    ("amazon-cloudwatch-observability", "mpod.kb.io"),
    ("amazon-cloudwatch-observability", "mnamespace.kb.io"),
    ("amazon-cloudwatch-observability", "mworkload.kb.io"),
}
"""Webhooks on pods of runs, or on the workloads of others."""


def foreign_webhooks(name: str) -> Iterator[dict[str, Any]]:
    """Webhooks of a chart on the pods of runs and on the workloads of others."""
    for webhook in RECORDED[name]["webhooks"]:
        resources = set(webhook["resources"]) & WORKLOADS
        on_runs = "pods" in resources and any(map(label_selector_of(webhook.get("objects")).matches, PODS_OF_RUNS))
        if resources - {"pods"} or on_runs:
            yield webhook


def test_webhooks_on_pods_of_runs_and_on_the_workloads_of_others_are_those_that_we_chose() -> None:
    assert {(name, each["name"]) for name in OURS for each in foreign_webhooks(name)} == CHOSEN


def test_what_an_add_on_changes_of_other_objects_by_default_is_off() -> None:
    switch = "manager.applicationSignals.autoMonitor.monitorAllServices"
    assert RECORDED["amazon-cloudwatch-observability"]["defaults"][switch] is True
    values = OURS["amazon-cloudwatch-observability"]
    assert values["manager"]["applicationSignals"]["autoMonitor"]["monitorAllServices"] is False


@pytest.mark.parametrize("name", OURS)
def test_no_webhook_holds_up_pods_of_others_while_its_own_pod_is_down(name: str) -> None:
    for webhook in foreign_webhooks(name):
        assert webhook["on_failure"] == "Ignore" or "objects" in webhook


SHARED_FIELDS = {"jobset": {"controller": {"resources": {"requests": {"cpu": "50m", "memory": "128Mi"}}}}}
"""Values of the charts that declare fields that a controller writes over: of JobSet, `data` of the Secret
jobset-webhook-server-cert (kubernetes-sigs/jobset, issue 1205; pull 1248 leaves it out, after 0.12.0)."""


def test_a_chart_that_declares_what_a_controller_writes_keeps_its_values() -> None:
    """Helm 4 refuses each of its upgrades ("Apply failed with 4 conflicts"), so change its values with a version that
    no longer declares these fields."""
    assert {name: OURS[name] for name in SHARED_FIELDS} == SHARED_FIELDS


FOLDER = "TRAINFLOW_CHARTS"
"""Variable with a folder of checkouts (`make charts-commands`)."""


@pytest.mark.slow
@pytest.mark.parametrize("name", chart_facts.SOURCES)
def test_the_sources_of_a_chart_render_as_recorded(name: str, pytestconfig: pytest.Config) -> None:
    if FOLDER not in os.environ:
        pytest.skip(f"{FOLDER} does not name a folder of checkouts")
    helm = program("helm", pytestconfig.cache.mkdir("kubernetes-cli"))
    assert chart_facts.facts(name, Path(os.environ[FOLDER]), helm) == RECORDED[name]


UNREACHABLE = ("dial tcp", "lookup", "timeout", "looks like", "403")


@pytest.mark.slow
@pytest.mark.parametrize("chart", CHARTS, ids=lambda chart: chart.name)
def test_the_chart_that_is_installed_renders_as_recorded(chart: Chart, pytestconfig: pytest.Config) -> None:
    """Needs the chart's repository."""
    helm = program("helm", pytestconfig.cache.mkdir("kubernetes-cli"))
    where = [chart.repository] if chart.repository.startswith("oci://") else [chart.name, "--repo", chart.repository]
    place_of = [*where, "--version", chart.version]
    version = KUBERNETES_VERSIONS[-1]
    try:
        objects = chart_facts.render(helm, chart.name, place_of, chart.namespace, (OURS[chart.name],), version)
    except chart_facts.ChartError as error:
        if any(word in str(error) for word in UNREACHABLE):
            pytest.skip(f"the repository of {chart.name} cannot be reached: {str(error)[-200:]}")
        raise
    found = chart_facts.rendered_facts(objects, chart.namespace, version)
    assert found == {key: RECORDED[chart.name][key] for key in found}
