"""The whole app: the same templates every time, no lookups, a bill that is known."""

from __future__ import annotations

import json
import re
import subprocess
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import yaml

from stacks.checks.templates import Templates
from stacks.shared.acknowledgements import Reason
from stacks.tools.idle_cost import as_table, idle_cost
from stacks.tools.manifests import manifests
from tests.infrastructure.assembly import EXAMPLE, example, synthesize
from tests.infrastructure.serverless import text
from trainflow.cli.deployed.images import PROJECT_PREFIX, REPOSITORY_OUTPUT, TAG_PREFIX
from trainflow.cli.deployed.rest import STATE_MACHINE_OUTPUT
from trainflow.configuration.deployment import Configuration, load_configuration

IDLE_TARGET_USD_PER_HOUR = 0.60

MOST_ACKNOWLEDGEMENTS = 25
"""Fifteen for AwsSolutions and Serverless, ten for NIST 800-53 R5 and HIPAA."""


def test_the_same_configuration_gives_the_same_templates() -> None:
    assert synthesize(load_configuration(EXAMPLE)) == example()


def test_nothing_is_looked_up() -> None:
    assert not Path("cdk.context.json").exists()


def test_with_a_cluster_that_is_there_only_what_works_on_it_is_deployed() -> None:
    document = yaml.safe_load(EXAMPLE.read_text())
    document |= {"network": None, "existing_cluster": {"name": "theirs"}, "storage": {"lustre": None}}
    stacks = {name.removeprefix("trainflow-") for name in synthesize(Configuration.model_validate(document))}
    assert stacks == {"storage", "images", "orchestration", "triggers", "observability"}


def kept(templates: dict[str, Any]) -> set[str]:
    """Types of what outlives `cdk destroy`."""
    return {
        resource["Type"]
        for template in templates.values()
        for resource in template["Resources"].values()
        if resource.get("DeletionPolicy") in ("Retain", "Snapshot")
    }


def configured(**changes: Any) -> dict[str, Any]:
    return synthesize(Configuration.model_validate({**yaml.safe_load(EXAMPLE.read_text()), **changes}))


def test_the_example_keeps_data_and_nothing_that_costs_by_the_hour() -> None:
    assert kept(example()) == {"AWS::S3::Bucket", "AWS::S3::BucketPolicy", "AWS::KMS::Key"}


def test_what_is_told_to_go_goes_wholly() -> None:
    assert kept(configured(storage={"buckets_on_destroy": "delete", "lustre": {"on_destroy": "delete"}})) == set()


def test_a_file_system_that_stays_keeps_the_ground_that_it_stands_on() -> None:
    """Its interface holds the subnet, the VPC and both security groups: deleting them would fail."""
    stays = kept(configured(storage={"lustre": {"on_destroy": "retain"}}))
    assert {"AWS::FSx::FileSystem", "AWS::EC2::SecurityGroup", "AWS::EC2::Subnet", "AWS::EC2::VPC"} <= stays
    assert "AWS::EC2::NatGateway" not in stays


def test_idle_costs_are_known_and_below_the_target() -> None:
    items = idle_cost(example().values())
    assert 0.4 < sum(item.usd_per_hour for item in items) < IDLE_TARGET_USD_PER_HOUR
    assert {"EKS control plane, standard support", "NAT gateway", "public IPv4 address"} <= {
        item.what for item in items
    }


def test_the_documented_costs_are_the_templates() -> None:
    text = Path("docs/deploy.md").read_text()
    documented = re.search(r"<!-- idle cost: begin -->\n(.*)\n<!-- idle cost: end -->", text, re.DOTALL)
    assert documented is not None
    assert documented[1] == as_table(idle_cost(example().values())), (
        "print the table with `python -m stacks.tools.idle_cost cdk.out`"
    )


def test_the_readme_has_the_same_sum() -> None:
    cost = sum(item.usd_per_hour for item in idle_cost(example().values()))
    assert f"about {cost:.2f} USD an hour while nothing trains" in Path("README.md").read_text()


def test_the_readme_says_what_every_folder_is_for() -> None:
    tracked = subprocess.run(["git", "ls-files"], capture_output=True, text=True, check=True).stdout.splitlines()
    folders = {path.split("/")[0] for path in tracked if "/" in path and not path.startswith(".")}
    _, _, table = Path("README.md").read_text().partition("## Where things are")
    assert folders == set(re.findall(r"^\| .*?`([a-z]+)/`", table, re.MULTILINE))


def test_the_commands_find_what_they_need_in_the_outputs() -> None:
    assert STATE_MACHINE_OUTPUT in example()["trainflow-orchestration"]["Outputs"]
    outputs = example()["trainflow-images"]["Outputs"]
    for prefix in (PROJECT_PREFIX, TAG_PREFIX):
        found = [name.removeprefix(prefix) for name in outputs if name.startswith(prefix)]
        assert found == ["Neuron", "Cpu", "Tools"]
    assert REPOSITORY_OUTPUT in outputs


def test_few_findings_stand_and_each_for_a_reason() -> None:
    assert len(Reason) <= MOST_ACKNOWLEDGEMENTS
    sources = "".join(path.read_text() for path in Path("stacks").rglob("*.py"))
    assert sources.count("cdk.Acknowledgment(") == 1, "only acknowledge() lets a finding stand"
    for reason in Reason:
        assert f"Reason.{reason.name}" in sources, "a reason that nothing needs"


def test_every_log_group_has_a_key_that_takes_its_name() -> None:
    """CloudFormation begins the name of what it names itself with the stack's."""
    templates = Templates(example())
    groups = list(templates.resources("AWS::Logs::LogGroup"))
    assert {group.stack.removeprefix("trainflow-") for group in groups} >= {"network", "storage", "cluster", "capacity"}
    for group in groups:
        key = templates.find(templates.origin(group.stack, group.properties["KmsKeyId"]))
        assert key is not None, group.logical_id
        [statement] = [found for found in key.properties["KeyPolicy"]["Statement"] if found.get("Sid") == "Logs"]
        patterns = statement["Condition"]["ArnLike"]["kms:EncryptionContext:aws:logs:arn"]
        name = text(group.properties.get("LogGroupName", f"{group.stack}-{group.logical_id}-0123456789AB"))
        arn = f"arn:aws:logs:us-west-2:<AWS::AccountId>:log-group:{name}"
        listed = patterns if isinstance(patterns, list) else [patterns]
        assert any(fnmatchcase(arn, text(pattern)) for pattern in listed), name


def test_a_cluster_of_ones_own_gets_what_ours_gets() -> None:
    """All of it but the volume and its folders, which are the cluster's own."""
    resources = example()["trainflow-cluster"]["Resources"]
    applied = {
        (manifest["kind"], manifest["metadata"]["name"])
        for part in ("Namespace", "Bounds", "Access", "Queue")
        for logical_id, resource in resources.items()
        if logical_id.startswith(f"Clustermanifest{part}")
        for manifest in json.loads(resource["Properties"]["Manifest"])
    }
    printed = {(manifest["kind"], manifest["metadata"]["name"]) for manifest in manifests(load_configuration(EXAMPLE))}
    assert printed == applied
