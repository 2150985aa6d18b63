"""Facts of the charts and add-ons, rendered with our values by the Helm of the kubectl layer.

    make charts-commands FOLDER=/tmp/charts   # prints the commands that check the sources out
    make charts FOLDER=/tmp/charts            # writes tests/assets/charts/rendered.yaml anew

The folder holds a checkout of each source, `<owner>/<name>`. Facts are renewed when a version, a source or our values
change; `git diff` then shows what the cluster gets. A chart stops the program if it refuses our values, does not know
one of them, or makes an object that a supported version of Kubernetes refuses.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import yaml
from kubetwin_testing.kubernetes_cli import program

from stacks.cluster.addons import BEFORE_NODES, on_nodes
from stacks.cluster.stack import KUBERNETES_VERSIONS
from trainflow.configuration.cluster_software import CHARTS
from trainflow.nodes.instances import INSTANCE_TYPES

RECORD = Path("tests/assets/charts/rendered.yaml")

Facts = dict[str, Any]


class ChartError(Exception):
    """A chart that does not take our values, or whose objects Kubernetes does not take."""


@dataclass(frozen=True, kw_only=True)
class Source:
    """Place of a chart in a public repository on GitHub."""

    repository: str
    ref: str
    """Tag or commit."""
    path: str
    schema: str = ""
    """File with the schema of an add-on's configuration, where its repository has one."""
    published: Mapping[str, Any] = field(default_factory=dict)
    """Values that the publisher or EKS sets, which the repository does not have."""
    computed: Mapping[str, Any] = field(default_factory=dict)
    """Defaults of values that only the chart's templates have."""


ADD_ON_VALUES = {"clusterName": "trainflow", "region": "us-west-2"}
"""EKS gives them to the add-on of CloudWatch."""

# Decision 112: facts are rendered from public sources. Not here are the Neuron chart, whose repository has its chart
# 1.0.0, and kube-proxy and CoreDNS, which are not charts: what was read of these three is in read.yaml.
SOURCES = {
    "nvidia-device-plugin": Source(
        repository="NVIDIA/k8s-device-plugin", ref="v0.20.0", path="deployments/helm/nvidia-device-plugin"
    ),
    "aws-efa-k8s-device-plugin": Source(
        repository="aws/eks-charts",
        ref="5239609242f3430be50fb0b714a24d3ef2b47983",
        path="stable/aws-efa-k8s-device-plugin",
    ),
    "volcano": Source(repository="volcano-sh/volcano", ref="v1.15.1", path="installer/helm/chart/volcano"),
    "jobset": Source(
        repository="kubernetes-sigs/jobset",
        ref="v0.12.0",
        path="charts/jobset",
        # hack/helm-chart-package.sh
        published={"image": {"repository": "registry.k8s.io/jobset/jobset", "tag": "v0.12.0"}},
    ),
    "vpc-cni": Source(
        repository="aws/amazon-vpc-cni-k8s",
        ref="b52188387f2e2f10bf289ace929d6a63b176a4fa",
        path="charts/aws-vpc-cni",
    ),
    "eks-pod-identity-agent": Source(
        repository="aws/eks-pod-identity-agent", ref="v0.1.37", path="charts/eks-pod-identity-agent"
    ),
    "eks-node-monitoring-agent": Source(
        repository="aws/eks-node-monitoring-agent",
        ref="v1.7.0",
        path="charts/eks-node-monitoring-agent",
        schema="charts/configuration.schema.json",
    ),
    "aws-fsx-csi-driver": Source(
        repository="kubernetes-sigs/aws-fsx-csi-driver",
        ref="helm-chart-aws-fsx-csi-driver-1.17.0",
        path="charts/aws-fsx-csi-driver",
    ),
    "amazon-cloudwatch-observability": Source(
        repository="aws-observability/helm-charts",
        ref="71a298ffdebe9d4e13ac709d24398062a2afe8ca",
        path="charts/amazon-cloudwatch-observability",
        published=ADD_ON_VALUES,
        # templates/_helpers.tpl, in all but a few Regions
        computed={"manager.applicationSignals.autoMonitor.monitorAllServices": True},
    ),
}


def ours() -> dict[str, tuple[str, dict[str, Any]]]:
    """Namespace and values of everything that the stacks install, by chart or add-on."""
    charts = {chart.name: (chart.namespace, _plain(chart.values)) for chart in CHARTS}
    add_ons = {
        each.name: (each.identity.namespace if each.identity else "kube-system", _plain(each.configuration or {}))
        for each in (*BEFORE_NODES, *on_nodes(pod_logs=True))
    }
    return charts | add_ons


def _plain(values: Mapping[str, Any]) -> dict[str, Any]:
    plain: dict[str, Any] = json.loads(json.dumps(values, default=dict))
    return plain


def values_set(values: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    """Paths of the values that are set, `controller.resources`."""
    for key, inner in values.items():
        if isinstance(inner, Mapping) and inner:
            yield from values_set(inner, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}"


def default_of(defaults: Any, path: str, computed: Mapping[str, Any]) -> Any:
    """The chart's own value.

    Raises:
        ChartError: If the chart has neither this value nor an empty one around it, which takes anything.
    """
    if path in computed:
        return computed[path]
    found = defaults
    for key in path.split("."):
        if found == {}:
            return None
        if not isinstance(found, Mapping) or key not in found:
            raise ChartError(f"the chart does not know the value {path}")
        found = found[key]
    return found


def facts(name: str, folder: Path, helm: Path) -> Facts:
    """What the chart makes of our values in the newest supported Kubernetes.

    Raises:
        ChartError: With what is wrong with the chart or with our values.
    """
    source, (namespace, values) = SOURCES[name], ours()[name]
    checkout = folder / source.repository
    chart = checkout / source.path
    definition, defaults = (yaml.safe_load((chart / file).read_text()) for file in ("Chart.yaml", "values.yaml"))
    if source.schema:
        jsonschema.validate(values, json.loads((checkout / source.schema).read_text()))
    rendered = [
        rendered_facts(
            render(helm, name, [str(chart)], namespace, (source.published, values), version), namespace, version
        )
        for version in KUBERNETES_VERSIONS
    ]
    if any(each != rendered[-1] for each in rendered):
        raise ChartError("the versions of Kubernetes get different objects: record each of them")
    return {
        "version": str(definition["version"]),
        "source": f"github.com/{source.repository} at {source.ref}, {source.path}",
        "values": values,
        "defaults": {path: default_of(defaults, path, source.computed) for path in values_set(values)},
        **rendered[-1],
    }


def render(
    helm: Path, name: str, chart: list[str], namespace: str, values: tuple[Mapping[str, Any], ...], version: str
) -> list[dict[str, Any]]:
    """Objects of a release.

    Args:
        helm: The program.
        name: Name of the release.
        chart: Arguments that name the chart.
        namespace: Namespace of the release.
        values: Values; the later ones win.
        version: Version of Kubernetes.

    Raises:
        ChartError: With Helm's words, if it refuses.
    """
    with tempfile.TemporaryDirectory() as home:
        files = []
        for number, each in enumerate(values):
            path = Path(home, f"{number}.yaml")
            path.write_text(yaml.safe_dump(dict(each)))
            files += ["--values", str(path)]
        command = [str(helm), "template", name, *chart, "--namespace", namespace, "--include-crds"]
        done = subprocess.run(
            [*command, "--kube-version", version, *files],
            capture_output=True,
            text=True,
            env={"HOME": home, "PATH": "/usr/bin:/bin"},
            timeout=120,
            check=False,
        )
    if done.returncode:
        raise ChartError(done.stderr.strip()[-2000:])
    return [each for each in yaml.safe_load_all(done.stdout) if each]


def rendered_facts(objects: list[dict[str, Any]], namespace: str, version: str) -> Facts:
    """Facts of rendered objects.

    Raises:
        ChartError: If Kubernetes refuses an object, or has a field that it does not know.
    """
    for each in objects:
        try:
            kubernetes_validate.validate(each, version, strict=True)
        except kubernetes_validate.SchemaNotFoundError:
            continue  # a custom resource
        except kubernetes_validate.ValidationError as error:
            raise ChartError(f"{each['kind']} {each['metadata']['name']} in {version}: {error}") from error
    used = {each["metadata"].get("namespace", namespace) for each in objects}
    made = {each["metadata"]["name"] for each in objects if each["kind"] == "Namespace"}
    return {
        "namespaces": sorted(used - made - {namespace}),
        "pods": [pod for each in objects for pod in pods(each, namespace)],
        "webhooks": [webhook for each in objects for webhook in webhooks(each)],
    }


WORKLOADS = {"DaemonSet", "Deployment", "Job", "StatefulSet"}
OPERATED = {"AmazonCloudWatchAgent", "DcgmExporter", "NeuronMonitor"}
"""Resources of CloudWatch's operator, which makes a daemon set of the same name of each."""
SCHEDULING = ("affinity", "hostNetwork", "nodeSelector", "priorityClassName", "tolerations")
FLAGS = ("--auto-monitor-config=", "--enable-network-policy=")
"""Arguments that decide what a program does to others' pods."""


def pods(each: Mapping[str, Any], namespace: str) -> Iterator[Facts]:
    """The pods of an object, with the fields of Kubernetes that tests need; without those of Windows."""
    kind, metadata, spec = each["kind"], each["metadata"], each.get("spec") or {}
    if kind in OPERATED:
        kind = "DaemonSet"
        inner = {**spec, "containers": [{**spec, "name": metadata["name"]}]}
    elif kind in WORKLOADS:
        inner = spec["template"]["spec"]
    else:
        return
    if (inner.get("nodeSelector") or {}).get("kubernetes.io/os") == "windows":
        return
    kept = {key: inner[key] for key in SCHEDULING if inner.get(key)}
    if "affinity" in kept:
        kept["affinity"] = _our_types(kept["affinity"])
    containers = {
        key: [_container(one) for one in inner[key]] for key in ("initContainers", "containers") if inner.get(key)
    }
    replicas = {"replicas": spec.get("replicas", 1)} if kind in ("Deployment", "StatefulSet") else {}
    yield {
        "kind": kind,
        "name": metadata["name"],
        "namespace": metadata.get("namespace", namespace),
        **replicas,
        "spec": {**kept, **containers},
    }


def _container(one: Mapping[str, Any]) -> Facts:
    ports = [port["hostPort"] for port in one.get("ports") or () if "hostPort" in port]
    flags = [arg for arg in one.get("args") or () if arg.startswith(FLAGS)]
    wanted = {"resources": one.get("resources"), "hostPorts": ports, "args": flags}
    return {"name": one["name"], "image": one["image"], **{key: value for key, value in wanted.items() if value}}


def _our_types(affinity: Any) -> Any:
    """An affinity whose lists of instance types have only those that a run may ask for."""
    if isinstance(affinity, list):
        return [_our_types(each) for each in affinity]
    if not isinstance(affinity, Mapping):
        return affinity
    if affinity.get("key") == "node.kubernetes.io/instance-type":
        return {**affinity, "values": sorted({*affinity["values"]} & {*INSTANCE_TYPES})}
    return {key: _our_types(value) for key, value in affinity.items()}


def webhooks(each: Mapping[str, Any]) -> Iterator[Facts]:
    """Webhooks of an object, with the defaults of Kubernetes."""
    for webhook in each.get("webhooks") or () if each["kind"].endswith("WebhookConfiguration") else ():
        groups = {
            f"{resource}.{group}" if group else resource
            for rule in webhook["rules"]
            for group in rule["apiGroups"]
            for resource in rule["resources"]
        }
        selectors = {"objects": webhook.get("objectSelector"), "namespaces": webhook.get("namespaceSelector")}
        yield {
            "name": webhook["name"],
            "mutates": each["kind"].startswith("Mutating"),
            "resources": sorted(groups),
            "on_failure": webhook.get("failurePolicy", "Fail"),
            **{key: selector for key, selector in selectors.items() if selector},
        }


def commands(folder: Path) -> Iterator[str]:
    """Shell commands that check the sources out."""
    for source in SOURCES.values():
        path = folder / source.repository
        yield f"git clone --filter=blob:none --no-checkout https://github.com/{source.repository} {path}"
        yield f"git -C {path} checkout {source.ref}"


class Plain(yaml.SafeDumper):
    """Writes a value that two places share twice."""

    def ignore_aliases(self, data: object) -> bool:
        return True


def main() -> None:
    """Write the facts of every chart, or print the commands for their sources."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--commands", action="store_true", help="print how to make the folder")
    options = parser.parse_args()
    if options.commands:
        print("\n".join(commands(options.folder)))
        return
    with tempfile.TemporaryDirectory() as cache:
        helm = program("helm", Path(cache))
        found = {name: facts(name, options.folder, helm) for name in SOURCES}
    head = "# Written by `make charts`; tests/chart_facts.py says what it is. Do not edit.\n"
    RECORD.write_text(head + yaml.dump(found, Dumper=Plain, sort_keys=False, width=120))


if __name__ == "__main__":
    main()
