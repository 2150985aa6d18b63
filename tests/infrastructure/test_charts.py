"""Our values against the charts: they exist, name namespaces that exist, and daemon sets request what the table says.

`tests/assets/charts/defaults.yaml` holds what was read of each chart. A slow test renders the charts themselves where
their repositories can be reached.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubetwin.controllers.scheduling import pod_requests
from kubetwin.model.quantity import parse_quantity
from kubetwin.model.selectors import label_selector_of
from kubetwin_testing.kubernetes_cli import program

from stacks.cluster.addons import BEFORE_NODES, on_nodes
from trainflow.configuration.cluster_software import CHARTS, Chart
from trainflow.nodes.daemon_sets import DAEMON_SETS, daemon_set

DEFAULTS: dict[str, dict[str, Any]] = yaml.safe_load(Path("tests/assets/charts/defaults.yaml").read_text())
OURS: dict[str, Mapping[str, Any]] = {
    **{chart.name: chart.values for chart in CHARTS},
    **{add_on.name: add_on.configuration or {} for add_on in (*BEFORE_NODES, *on_nodes(pod_logs=True))},
}
"""Values that we set, by chart or add-on."""

SYSTEM_NAMESPACES = {"default", "kube-system"}
"""Namespaces that every cluster has from the beginning."""


def merged(defaults: Any, ours: Any) -> Any:
    """Merge as Helm merges values: mappings key by key, everything else is replaced."""
    if not isinstance(defaults, dict) or not isinstance(ours, Mapping):
        return ours
    return {**defaults, **{key: merged(defaults.get(key), value) for key, value in ours.items()}}


def value(values: Any, path: str) -> Any:
    for key in path.split("."):
        values = (values or {}).get(key)
    return values


def paths(values: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    for key, inner in values.items():
        if isinstance(inner, Mapping):
            yield from paths(inner, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}"


def rendered(name: str) -> Iterator[tuple[str, str, tuple[Fraction, Fraction]]]:
    """Name, kind of node, and CPU and memory requests of every daemon set that a chart renders with our values."""
    values = merged(DEFAULTS[name]["values"], OURS[name])
    for each in DEFAULTS[name]["daemon_sets"]:
        if "switch" in each and not value(values, each["switch"]):
            continue
        requests = [one.get("requests") or value(values, one.get("value", "")) or {} for one in each["containers"]]
        cpu, memory = (sum(parse_quantity(one.get(key, "0")) for one in requests) for key in ("cpu", "memory"))
        yield each["name"], each["nodes"], (Fraction(cpu), Fraction(memory))


def test_everything_that_is_installed_has_been_read() -> None:
    assert set(DEFAULTS) == set(OURS)


@pytest.mark.parametrize("chart", CHARTS, ids=lambda chart: chart.name)
def test_a_chart_has_been_read_at_the_version_that_is_installed(chart: Chart) -> None:
    assert DEFAULTS[chart.name]["version"] == chart.version


@pytest.mark.parametrize("name", OURS)
def test_a_value_that_we_set_exists_in_the_chart(name: str) -> None:
    assert set(paths(OURS[name])) - set(paths(DEFAULTS[name]["values"])) == set()


@pytest.mark.parametrize("name", OURS)
def test_daemon_sets_request_what_the_table_says(name: str) -> None:
    table = {
        row.name: (row.nodes, (Fraction(row.millicpu, 1000), Fraction(row.memory_mib * 2**20)))
        for row in DAEMON_SETS
        if row.part_of == name
    }
    assert {found: (nodes, requests) for found, nodes, requests in rendered(name)} == table


def test_the_table_has_no_daemon_set_of_anything_that_is_not_installed() -> None:
    assert {row.part_of for row in DAEMON_SETS} <= set(OURS)


def missing_namespaces(chart: Chart, values: Mapping[str, Any]) -> set[str]:
    """Namespaces that a release needs, and that neither Kubernetes nor Helm (of the release's own) makes."""
    known = merged(DEFAULTS[chart.name]["values"], values)
    needed = {value(known, path) for path in DEFAULTS[chart.name].get("namespaces", ())}
    return needed - SYSTEM_NAMESPACES - {chart.namespace}


@pytest.mark.parametrize("chart", CHARTS, ids=lambda chart: chart.name)
def test_every_namespace_of_a_chart_exists(chart: Chart) -> None:
    assert missing_namespaces(chart, chart.values) == set()


def test_the_neuron_charts_own_namespace_would_be_missing() -> None:
    (neuron,) = (chart for chart in CHARTS if chart.name == "neuron-helm-chart")
    assert missing_namespaces(neuron, {}) == {"neuron-healthcheck-system"}


PODS_OF_RUNS = (
    yaml.safe_load(Path("tests/assets/manifests/digits-mlp-training.yaml").read_text())["metadata"]["labels"],
    {"jobset.sigs.k8s.io/jobset-name": "bert", "trainflow/run": "bert"},
)
"""Labels of a pod that we make, and of one that JobSet's controller makes."""

WORKLOADS = {"pods", "deployments", "daemonsets", "statefulsets", "namespaces"}
"""Objects that are not those of one chart: its webhooks reach into what others have installed."""


def foreign_webhooks(name: str) -> Iterator[dict[str, Any]]:
    """Webhooks of a chart on the pods of runs and on the workloads of others that are not switched off."""
    values = merged(DEFAULTS[name]["values"], OURS[name])
    for webhook in DEFAULTS[name].get("webhooks", ()):
        selector = label_selector_of(webhook.get("objects"))
        on_workloads = bool({"deployments", "namespaces"} & set(webhook["resources"]))
        on_runs = "pods" in webhook["resources"] and any(map(selector.matches, PODS_OF_RUNS))
        off = "switch" in webhook and not value(values, webhook["switch"])
        if (on_workloads or on_runs) and not off:
            yield webhook


def test_the_only_webhooks_on_pods_of_runs_are_those_of_the_backend_that_the_run_asks_for() -> None:
    found = {(name, each["name"]) for name in OURS for each in foreign_webhooks(name)}
    assert found == {("jobset", "mutate--v1-pod.x-k8s.io"), ("jobset", "validate--v1-pod.x-k8s.io")}


def test_what_an_add_on_changes_of_other_objects_by_default_is_off() -> None:
    switches = {
        (name, each["switch"]) for name in OURS for each in DEFAULTS[name].get("webhooks", ()) if "switch" in each
    }
    assert {name for name, _ in switches} == {"amazon-cloudwatch-observability"}
    for name, switch in switches:
        assert value(DEFAULTS[name]["values"], switch) is True
        assert value(OURS[name], switch) is False


def test_a_chart_that_declares_what_a_controller_writes_keeps_its_values() -> None:
    """Helm 4 refuses each of its upgrades ("Apply failed with 4 conflicts"), so change its values with a version that
    no longer declares these fields."""
    sharing = {name: DEFAULTS[name]["installed_values"] for name in OURS if "shared_fields" in DEFAULTS[name]}
    assert sharing == {name: OURS[name] for name in sharing}
    assert set(sharing) == {"jobset"}


@pytest.mark.parametrize("name", OURS)
def test_a_webhook_on_foreign_objects_says_when_it_acts_and_none_of_them_holds_up_pods_of_others(name: str) -> None:
    for webhook in DEFAULTS[name].get("webhooks", ()):
        if WORKLOADS & set(webhook["resources"]):
            assert webhook["acts"]
            assert webhook["on_failure"] == "Ignore" or "objects" in webhook


@pytest.mark.slow
@pytest.mark.parametrize("chart", CHARTS, ids=lambda chart: chart.name)
def test_the_chart_itself_renders_as_read(chart: Chart, tmp_path: Path, pytestconfig: pytest.Config) -> None:
    """Needs the chart's repository."""
    helm = program("helm", pytestconfig.cache.mkdir("kubernetes-cli"))
    (tmp_path / "values.yaml").write_text(yaml.safe_dump(dict(chart.values)))
    where = [chart.repository] if chart.repository.startswith("oci://") else [chart.name, "--repo", chart.repository]
    command = [str(helm), "template", chart.name, *where, "--version", chart.version, "--namespace", chart.namespace]
    home = {"HOME": str(tmp_path), "PATH": "/usr/bin:/bin"}
    done = subprocess.run(
        [*command, "--values", str(tmp_path / "values.yaml")],
        capture_output=True,
        text=True,
        env=home,
        timeout=60,
        check=False,
    )
    if done.returncode and any(word in done.stderr for word in ("dial tcp", "lookup", "timeout", "looks like", "403")):
        pytest.skip(f"the repository of {chart.name} cannot be reached: {done.stderr.strip()[-200:]}")
    assert done.returncode == 0, done.stderr
    objects = [each for each in yaml.safe_load_all(done.stdout) if each]
    used = {each["metadata"].get("namespace", chart.namespace) for each in objects}
    made = {each["metadata"]["name"] for each in objects if each["kind"] == "Namespace"}
    assert used <= SYSTEM_NAMESPACES | {chart.namespace} | made
    found = {
        each["metadata"]["name"]: pod_requests({"spec": each["spec"]["template"]["spec"]})
        for each in objects
        if each["kind"] == "DaemonSet"
    }
    assert set(found) == {row.name for row in DAEMON_SETS if row.part_of == chart.name}
    for name, requests in found.items():
        row = daemon_set(name)
        assert requests.get("cpu", 0) * 1000 == row.millicpu
        assert requests.get("memory", 0) == row.memory_mib * 2**20
