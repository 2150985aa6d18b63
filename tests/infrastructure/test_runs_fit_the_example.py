"""Every spec in `runs/` finds its nodes and its queue in `config/example.yaml`, or says in its head what to add."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from stacks.slurm.nodes import queue_name
from tests.infrastructure.assembly import EXAMPLE
from tests.infrastructure.slurm import ENOUGH, PCS
from trainflow.client.spec_file import read_spec
from trainflow.configuration.deployment import Configuration, load_configuration
from trainflow.configuration.nodes import Nodegroup
from trainflow.deployment.volcano_queues import DEFAULT_QUEUE, TUTORIAL_QUEUE
from trainflow.spec.run_spec import RunSpec

RUNS = sorted(Path("runs").glob("*.yaml"))
PUBLIC = "s3://neuron-s3/training_datasets/bert_pretrain_wikicorpus_tokenized_hdf5/"
NEEDS = re.compile(r"# Needs in (?P<field>[\w.]+): - (?P<group>\{[^}]*\})")


def added(path: Path) -> dict[str, Nodegroup]:
    """What the head of a spec says to add, by the field that it belongs to."""
    head = "".join(line for line in path.read_text().splitlines(keepends=True) if line.startswith("#"))
    return {found["field"]: Nodegroup.model_validate(yaml.safe_load(found["group"])) for found in NEEDS.finditer(head)}


def nodegroups(spec: RunSpec, path: Path) -> list[Nodegroup]:
    """Those that a user who follows the head of the spec has."""
    more = added(path)
    if spec.compute.backend == "slurm":
        return [more["slurm.pcs.queues"]]
    example = load_configuration(EXAMPLE).capacity.nodegroups
    return [more["capacity.nodegroups"]] if more else list(example)


@pytest.mark.parametrize("path", RUNS, ids=lambda path: path.stem)
def test_a_spec_finds_its_nodes(path: Path) -> None:
    spec = read_spec(path, [])
    (group,) = (g for g in nodegroups(spec, path) if g.instance_type == spec.compute.instance_type)
    assert spec.compute.num_nodes <= group.max_nodes


@pytest.mark.parametrize("path", [path for path in RUNS if added(path)], ids=lambda path: path.stem)
def test_what_the_head_of_a_spec_says_to_add_can_be_configured(path: Path) -> None:
    document = yaml.safe_load(EXAMPLE.read_text())
    document["capacity"]["vcpu_quotas"] = ENOUGH
    for field, group in added(path).items():
        wanted = group.model_dump(exclude_defaults=True)
        if field == "slurm.pcs.queues":
            document["slurm"] = {"pcs": {**PCS, "queues": [wanted]}}
        else:
            others = [g for g in document["capacity"]["nodegroups"] if g["instance_type"] != group.instance_type]
            document["capacity"]["nodegroups"] = [*others, wanted]
    Configuration.model_validate(document)


@pytest.mark.parametrize("path", RUNS, ids=lambda path: path.stem)
def test_a_spec_finds_its_queue(path: Path) -> None:
    compute = read_spec(path, []).compute
    if compute.backend == "slurm":
        assert compute.queue == queue_name(compute.instance_type)
    elif compute.queue is not None:
        configured = {queue.name for queue in load_configuration(EXAMPLE).cluster.volcano_queues}
        assert compute.queue in {DEFAULT_QUEUE, *configured}


def test_the_example_has_the_queue_that_the_twin_opens() -> None:
    assert [queue.name for queue in load_configuration(EXAMPLE).cluster.volcano_queues] == [TUTORIAL_QUEUE]


@pytest.mark.parametrize("path", [path for path in RUNS if path.stem.startswith("bert-")], ids=lambda path: path.stem)
def test_the_tutorials_data_sets_are_read_from_the_public_bucket_without_credentials(path: Path) -> None:
    dataset = read_spec(path, []).dataset
    assert dataset is not None
    assert (dataset.url.startswith(PUBLIC), dataset.public, dataset.region) == (True, True, "us-east-1")
