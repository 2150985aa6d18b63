"""Makes `trainflow/nodes/instance_types.json` from EC2's own description of its instance types.

    python -m stacks.tools.instance_types
    python -m stacks.tools.instance_types --prices zz_generated.pricing_aws.go

The first prints the file. Its input is the snapshot of EC2's DescribeInstanceTypes and DescribeInstanceTypeOfferings
that moto carries, which is pinned in `requirements/twin.in`. The second prints on-demand prices of us-east-1 for
`prices.json`, from the file of this name in github.com/aws/karpenter-provider-aws (pkg/providers/pricing).

What EC2 does not say is in this module: the processes per node that Neuron supports, the size of a logical NeuronCore
and the peak of a device.
"""

from __future__ import annotations

import gzip
import json
import re
import sys
from collections.abc import Iterator, Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

SOURCE = (
    "EC2 DescribeInstanceTypes and DescribeInstanceTypeOfferings (availability-zone-id), as moto 5.2.5 carries them in "
    "moto/ec2/resources; processes, logical NeuronCores and peaks from stacks/tools/instance_types.py"
)
READ = "2026-11-22"

REGIONS = ("us-east-1", "us-east-2", "us-west-2")
"""Regions that a deployment may be in: `REGIONS` of `trainflow/configuration/deployment.py`."""

ACCELERATED = r"(trn1|trn1n|trn2|inf2|p4d|p4de|p5|p5e|p5en|p6-b200|p6-b300|g5|g6|g6e)\.\w+"
GENERAL = r"(m5|m6i|m7i|c6i|c7i|r6i)\.(large|(|2|4|8|12|16|24)xlarge)"
"""Families with x86-64 CPUs: Trainflow's images are built for these. g6f has fractions of a GPU, which the device
plugin does not advertise; the snapshot lists no chips of trn2u, which is sold as whole UltraServers."""

ORDER = ("trn", "inf", "p", "g", "m", "c", "r")
"""Categories in the order of the file."""

LOGICAL_CORE = {"Trainium2": 2}
"""Physical NeuronCores of a logical one, where it is not 1: Neuron's default on Trainium2 (AWS Neuron documentation,
"Logical NeuronCore configuration")."""

PROCESSES = {"trn1.2xlarge": (1, 2), "trn1": (1, 2, 8, 32), "trn1n": (1, 2, 8, 32), "trn2": (1, 4, 16, 64)}
"""Workers per node that the Neuron runtime supports, by type or family (AWS Neuron documentation, tutorials "BERT
pretraining" and "Multi-layer perceptron training", SDK 2.29 to 2.32). A trn1n has the chips of a trn1; a
smaller node has those that fit its cores. AWS has published none for inf2."""

TFLOPS = {"Trainium": 190, "Trainium2": 667, "A100": 312, "H100": 989, "H200": 989}
"""Dense bfloat16 of one device, in 10^12 operations a second: Neuron documentation, "Trainium Architecture" and
"Trainium2 Architecture"; NVIDIA's data sheets of A100, H100 SXM and H200 SXM (half of the figure with sparsity). Others
are left out: utilisation is not measured on them."""


def document() -> dict[str, Any]:
    """The content of `instance_types.json`."""
    described: dict[str, Any] = _moto("instance_types")
    wanted = re.compile(f"{ACCELERATED}|{GENERAL}")
    names = sorted(filter(wanted.fullmatch, described), key=_order(described))
    zones = _zones(names)
    types = {name: _fields(name, described[name]) for name in names}
    for name, fields in types.items():
        # Every zone that has EKS offers the general types.
        if "neuron_devices" in fields or "gpus" in fields:
            fields["zone_ids"] = zones[name]
    return {"source": SOURCE, "read": READ, "instance_types": types}


def prices(table: str) -> dict[str, float]:
    """Prices in USD an hour, by the names of the types, from Karpenter's table of prices.

    Args:
        table: Text of `zz_generated.pricing_aws.go`, which holds us-east-1.
    """
    found = {name: float(usd) for name, usd in re.findall(r'"([a-z0-9-]+\.\w+)": ([0-9.]+)', table)}
    return {name: found[name] for name in document()["instance_types"] if name in found}


def _moto(name: str) -> Any:
    return json.loads(gzip.decompress((files("moto.ec2") / "resources" / f"{name}.json.gz").read_bytes()))


def _zones(names: list[str]) -> Mapping[str, list[str]]:
    offered = [
        (each["InstanceType"], each["Location"])
        for region in REGIONS
        for each in _moto(f"instance_type_offerings/availability-zone-id/{region}")
    ]
    return {name: sorted(zone for offered_type, zone in offered if offered_type == name) for name in names}


def _order(described: Mapping[str, Any]) -> Any:
    """Key that sorts instance types by category, family and size."""

    def key(name: str) -> tuple[int, str, int, int]:
        category = re.match(r"[a-z]+", name)
        assert category is not None, "names begin with letters"  # noqa: S101
        vcpus, memory = described[name]["VCpuInfo"]["DefaultVCpus"], described[name]["MemoryInfo"]["SizeInMiB"]
        return ORDER.index(category[0]), name.split(".")[0], vcpus, memory

    return key


def _fields(name: str, described: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of `trainflow.nodes.instances.InstanceType`; those with the default's value are left out."""
    network = described["NetworkInfo"]
    fields: dict[str, Any] = {
        "vcpus": described["VCpuInfo"]["DefaultVCpus"],
        "memory_gib": described["MemoryInfo"]["SizeInMiB"] // 1024,
        "network_interfaces": network["NetworkCards"][0]["MaximumNetworkInterfaces"],
        "addresses_per_interface": network["Ipv4AddressesPerInterface"],
        **dict(_devices(name, described)),
    }
    if (disks := described.get("InstanceStorageInfo")) is not None:
        fields["instance_store_gb"] = disks["TotalSizeInGB"]
    return fields


def _devices(name: str, described: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    chips = (described.get("NeuronInfo") or {}).get("NeuronDevices") or ()
    gpus = (described.get("GpuInfo") or {}).get("Gpus") or ()
    for chip in chips:
        cores = chip["Count"] * chip["CoreInfo"]["Count"] // LOGICAL_CORE.get(chip["Name"], 1)
        yield from (("neuron_devices", chip["Count"]), ("neuron_cores", cores), ("device", chip["Name"]))
        family = name.split(".")[0]
        if processes := PROCESSES.get(name) or PROCESSES.get(family):
            yield "processes", [count for count in processes if count <= cores]
    for gpu in gpus:
        yield from (("gpus", gpu["Count"]), ("device", gpu["Name"]))
    if not chips and not gpus:
        return  # EKS's standard image has no software for EFA, so CPU types do without
    if (efa := (described["NetworkInfo"].get("EfaInfo") or {}).get("MaximumEfaInterfaces")) is not None:
        yield "efa_interfaces", efa
        first = next(
            card["NetworkCardIndex"]
            for card in described["NetworkInfo"]["NetworkCards"]
            if "efa" in card["InterfaceTypes"]
        )
        if first:
            yield "first_efa_card", first
    for device in (*chips, *gpus):
        if (tflops := TFLOPS.get(device["Name"])) is not None:
            yield "tflops_per_device", tflops


def text() -> str:
    """The file itself, with a line for each type."""
    content = document()
    rows = ",\n".join(f"    {json.dumps(name)}: {json.dumps(row)}" for name, row in content["instance_types"].items())
    head = ",\n".join(f"  {json.dumps(key)}: {json.dumps(content[key])}" for key in ("source", "read"))
    return f'{{\n{head},\n  "instance_types": {{\n{rows}\n  }}\n}}\n'


if __name__ == "__main__":
    arguments = sys.argv[1:]
    if arguments[:1] == ["--prices"]:
        print(json.dumps(prices(Path(arguments[1]).read_text()), indent=2))
    else:
        print(text(), end="")
