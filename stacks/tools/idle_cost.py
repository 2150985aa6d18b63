"""Cost of a deployment per hour while nothing trains, from its templates.

    python -m stacks.tools.idle_cost cdk.out

Prices in USD, on demand, us-west-2, November 2026, from the price page of each service. Costs that depend only on use
(requests, log lines of runs, stored objects, image layers, data through the NAT gateway) are left out.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stacks.observability.metrics import LOG_USD_PER_GB
from trainflow.nodes.prices import prices
from trainflow.workflow.metric_names import ClusterMetric

HOURS_PER_MONTH = 730

INSTANCE_USD_PER_HOUR = {
    "t3a.medium": 0.0376,
    "t3a.large": 0.0752,
    "m7i-flex.large": 0.09576,
    **{instance_type: usd for (region, instance_type), usd in prices().items() if region == "us-west-2"},
}
"""Amazon EC2 on-demand prices."""

GP3_USD_PER_GIB_MONTH = 0.08
"""Amazon EBS."""

LUSTRE_USD_PER_GB_MONTH = {125: 0.145, 250: 0.21, 500: 0.34, 1000: 0.60}
"""Amazon FSx for Lustre, persistent SSD, by MB/s for each TiB."""

SNAPSHOT_USD_PER_GB_SECOND = 0.0000015046
"""AWS Lambda SnapStart for Python: each GB of memory of a published version, while it is cached."""

FIXED_USD_PER_HOUR = {
    "AWS::EKS::Cluster": ("EKS control plane, standard support", 0.10),
    "AWS::EC2::NatGateway": ("NAT gateway", 0.045),
    "AWS::EC2::EIP": ("public IPv4 address", 0.005),
    "AWS::KMS::Key": ("KMS key", 1.00 / HOURS_PER_MONTH),
    "AWS::CloudWatch::CompositeAlarm": ("CloudWatch composite alarm", 0.50 / HOURS_PER_MONTH),
    "AWS::CloudWatch::Dashboard": ("CloudWatch dashboard", 3.00 / HOURS_PER_MONTH),
}
"""One each, whatever its properties."""

ALARM_METRIC_USD_PER_MONTH = 0.10
"""Amazon CloudWatch, for each metric that an alarm of standard resolution watches; one may compute with several."""

CUSTOM_METRIC_USD_PER_MONTH = 0.30
"""Amazon CloudWatch, the first 10,000."""

OBSERVATIONS_PER_MINUTE = 2000
"""Observations of Container Insights, an estimate: some 25 metrics of each of 28 pods, their 45 containers, and the
node."""

OBSERVATION_USD = 0.21e-6
"""Amazon CloudWatch Container Insights with enhanced observability, the first billion."""

IDLE_LOG_GB_PER_DAY = {"control plane": 0.5, "Container Insights and flow logs": 0.25}
"""Assumed, not measured: all five control-plane logs of a cluster that runs only add-ons and controllers,
performance events of one or two nodes, and flow logs of their few connections, whose first tier costs the same a GB.
Read IncomingBytes of the log groups after a day."""

PCS_CONTROLLER_USD_PER_HOUR = {"SMALL": 0.60}
"""AWS Parallel Computing Service, an estimate: its price list could not be read when this was written. The other sizes
cost several times as much, and are in the table without a price."""

Template = Mapping[str, Any]


@dataclass(frozen=True)
class Item:
    """One line of the bill."""

    what: str
    count: int
    usd_per_hour: float
    """Cost of all items together."""


def idle_cost(templates: Iterable[Template]) -> list[Item]:
    """The items of a deployment with every training node group at zero, dearest first."""
    costs: dict[str, float] = {}
    counts: Counter[str] = Counter()
    for template in templates:
        resources = template.get("Resources", {})
        for resource in resources.values():
            for what, usd in _costs(resource, resources):
                costs[what] = costs.get(what, 0.0) + usd
                counts[what] += 1
    items = [Item(what, counts[what], usd) for what, usd in costs.items()]
    metrics = len(ClusterMetric)
    items.append(
        Item("CloudWatch metric of the cluster", metrics, metrics * CUSTOM_METRIC_USD_PER_MONTH / HOURS_PER_MONTH)
    )
    return sorted(items, key=lambda item: -item.usd_per_hour)


def _costs(resource: Template, resources: Mapping[str, Template]) -> Iterator[tuple[str, float]]:
    kind, properties = resource["Type"], resource.get("Properties", {})
    if kind == "AWS::EKS::Cluster":
        yield "log ingestion, an estimate", sum(IDLE_LOG_GB_PER_DAY.values()) / 24 * LOG_USD_PER_GB
    if kind in FIXED_USD_PER_HOUR:
        yield FIXED_USD_PER_HOUR[kind]
    elif kind == "AWS::CloudWatch::Alarm":
        watched = sum("MetricStat" in each for each in properties.get("Metrics", ())) or 1
        for _ in range(watched):
            yield "metric of a CloudWatch alarm", ALARM_METRIC_USD_PER_MONTH / HOURS_PER_MONTH
    elif kind == "AWS::FSx::FileSystem":
        size, throughput = _lustre(properties)
        usd = size * LUSTRE_USD_PER_GB_MONTH[throughput] / HOURS_PER_MONTH
        yield f"FSx for Lustre, {size} GiB at {throughput} MB/s for each TiB", usd
    elif kind == "AWS::EKS::Nodegroup":
        yield from _nodegroup(properties, resources)
    elif kind == "AWS::Lambda::Function" and "SnapStart" in properties:
        memory_gb = properties["MemorySize"] / 1024
        yield "Lambda SnapStart snapshot", memory_gb * 3600 * SNAPSHOT_USD_PER_GB_SECOND
    elif kind == "AWS::EKS::Addon" and properties["AddonName"] == "amazon-cloudwatch-observability":
        yield "Container Insights, an estimate", OBSERVATIONS_PER_MINUTE * 60 * OBSERVATION_USD
    elif kind == "AWS::PCS::Cluster":
        price = PCS_CONTROLLER_USD_PER_HOUR.get(properties["Size"])
        how = "an estimate" if price else "NOT IN THE SUM: see AWS's price list"
        yield f"Slurm controller, {properties['Size']}, {how}", price or 0.0
    elif kind == "AWS::PCS::ComputeNodeGroup":
        yield from _login_node(properties, resources)
    elif kind == "AWS::EC2::VPCEndpoint" and properties.get("VpcEndpointType") == "Interface":
        yield "interface endpoint", 0.01 * len(properties["SubnetIds"])


def _lustre(properties: Template) -> tuple[int, int]:
    configuration = properties["LustreConfiguration"]
    return int(properties["StorageCapacity"]), int(configuration["PerUnitStorageThroughput"])


def _nodegroup(properties: Template, resources: Mapping[str, Template]) -> Iterator[tuple[str, float]]:
    always_up = int(properties["ScalingConfig"]["MinSize"])
    if not always_up:
        return
    template = resources[properties["LaunchTemplate"]["Id"]["Ref"]]["Properties"]["LaunchTemplateData"]
    instance_type = template.get("InstanceType") or properties["InstanceTypes"][0]
    disk = template["BlockDeviceMappings"][0]["Ebs"]
    usd = INSTANCE_USD_PER_HOUR[instance_type] + disk["VolumeSize"] * GP3_USD_PER_GIB_MONTH / HOURS_PER_MONTH
    for _ in range(always_up):
        yield f"permanent node, {instance_type} with {disk['VolumeSize']} GiB of disk", usd


def _login_node(properties: Template, resources: Mapping[str, Template]) -> Iterator[tuple[str, float]]:
    """Price of an hour, without PCS's additional fee for a node."""
    if not int(properties["ScalingConfiguration"]["MinInstanceCount"]):
        return
    template = resources[properties["CustomLaunchTemplate"]["TemplateId"]["Ref"]]["Properties"]["LaunchTemplateData"]
    instance_type = properties["InstanceConfigs"][0]["InstanceType"]
    disk = template["BlockDeviceMappings"][0]["Ebs"]
    usd = INSTANCE_USD_PER_HOUR[instance_type] + disk["VolumeSize"] * GP3_USD_PER_GIB_MONTH / HOURS_PER_MONTH
    yield f"Slurm login node, {instance_type} with {disk['VolumeSize']} GiB of disk", usd


def as_table(items: Iterable[Item]) -> str:
    """A Markdown table, with its sum."""
    items = list(items)
    lines = ["| what | how many | USD an hour |", "|---|---|---|"]
    lines += [f"| {item.what} | {item.count} | {item.usd_per_hour:.4f} |" for item in items]
    lines.append(f"| **in all** | | **{sum(item.usd_per_hour for item in items):.4f}** |")
    return "\n".join(lines)


def read_templates(folder: Path) -> list[Template]:
    """The templates of a cloud assembly."""
    return [json.loads(path.read_text()) for path in sorted(folder.glob("*.template.json"))]


if __name__ == "__main__":
    print(as_table(idle_cost(read_templates(Path(sys.argv[1])))))
