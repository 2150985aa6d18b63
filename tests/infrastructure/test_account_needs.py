"""What `trainflow check-account` believes of the stacks is what the templates say."""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path
from typing import Any

from stacks.cluster import addons, permanent_nodes
from tests.infrastructure.assembly import EXAMPLE, example
from trainflow.cli.account import needs
from trainflow.configuration.deployment import Configuration, load_configuration

Template = dict[str, Any]


@cache
def _configuration() -> Configuration:
    return load_configuration(EXAMPLE)


def _resources(kind: str) -> list[dict[str, Any]]:
    """Properties of every resource of a type, whatever the stack."""
    return [
        resource.get("Properties", {})
        for template in example().values()
        for resource in template["Resources"].values()
        if resource["Type"] == kind
    ]


def test_the_stacks_have_the_names_that_are_looked_for() -> None:
    assert set(needs.stack_names(_configuration()).values()) == set(example())


def test_every_log_group_with_a_fixed_name_is_looked_for() -> None:
    """Calls make sure of them; a group that CloudFormation makes has a part of the stack's id in its name, or none."""
    assert not [group for group in _resources("AWS::Logs::LogGroup") if isinstance(group.get("LogGroupName"), str)]
    calls = [call["Create"] for call in _resources("Custom::AWS") if isinstance(call.get("Create"), str)]
    made = [json.loads(call) for call in calls if '"CreateLogGroup"' in call]
    assert {call["parameters"]["logGroupName"] for call in made} == set(needs.log_groups(_configuration()))


def test_one_vpc_one_address_one_cluster_and_the_file_systems_size_are_taken() -> None:
    taken = {
        "L-F678F1CE": len(_resources("AWS::EC2::VPC")),
        "L-0263D0A3": len(_resources("AWS::EC2::EIP")),
        "L-1194D53C": len(_resources("AWS::EKS::Cluster")),
        "L-8F1B9C74": sum(system["StorageCapacity"] for system in _resources("AWS::FSx::FileSystem")),
    }
    assert {need.code: need.needed for need in needs.counted_quotas(_configuration())} == taken


def test_each_counted_thing_is_in_the_stack_that_is_said_to_take_it() -> None:
    kinds = {
        "vpc": "AWS::EC2::VPC",
        "ec2": "AWS::EC2::EIP",
        "eks": "AWS::EKS::Cluster",
        "fsx": "AWS::FSx::FileSystem",
    }
    for need in needs.counted_quotas(_configuration()):
        template = example()[needs.stack_names(_configuration())[need.stack]]
        assert kinds[need.service] in {resource["Type"] for resource in template["Resources"].values()}


def test_all_builds_are_counted_and_are_of_the_quotas_kind() -> None:
    projects = _resources("AWS::CodeBuild::Project")
    assert len(projects) == needs.builds_at_once(_configuration())
    assert {project["Environment"]["ComputeType"] for project in projects} == {"BUILD_GENERAL1_MEDIUM"}
    assert {project["Environment"]["Type"] for project in projects} == {"LINUX_CONTAINER"}


def test_the_add_ons_and_the_permanent_nodes_are_those_that_are_asked_about() -> None:
    assert {add_on["AddonName"] for add_on in _resources("AWS::EKS::Addon")} == set(needs.ADD_ONS)
    assert needs.SYSTEM_INSTANCE_TYPES == permanent_nodes.INSTANCE_TYPES
    assert needs.CONTAINER_LOGS == addons.CONTAINER_LOGS


def test_the_oldest_bootstrap_is_the_one_that_the_templates_ask_for() -> None:
    for template in example().values():
        refused = json.dumps(template["Rules"]["CheckBootstrapVersion"])
        assert max(map(int, re.findall(r'"(\d+)"', refused))) + 1 == needs.OLDEST_BOOTSTRAP
        assert template["Parameters"]["BootstrapVersion"]["Default"] == needs.BOOTSTRAP_PARAMETER


def test_every_chart_and_its_version_are_looked_up() -> None:
    wanted = {(one.chart or one.reference, one.version) for one in _artifacts()}
    charts = _resources("Custom::AWSCDK-EKS-HelmChart")
    assert charts, "the templates install no chart any more"
    for chart in charts:
        repository, version = chart["Repository"], chart["Version"]
        oci = (f"{repository.removeprefix('oci://')}:{version}", "")
        assert ((chart["Chart"], version) if not repository.startswith("oci://") else oci) in wanted


def test_every_image_that_the_templates_name_in_a_registry_is_looked_up() -> None:
    text = json.dumps(example())
    named = set(re.findall(r"(?:ghcr\.io|public\.ecr\.aws|registry\.k8s\.io|quay\.io)/[\w./-]+:[\w.-]+", text))
    assert named, "the templates name no image any more"
    assert named <= {one.reference for one in _artifacts()}


def test_permanent_nodes_count_with_one_more_while_they_are_replaced() -> None:
    (group,) = [group for group in _resources("AWS::EKS::Nodegroup") if "InstanceTypes" in group]
    most = group["ScalingConfig"]["MaxSize"] * permanent_nodes.CPUS
    others = sum(
        group.max_nodes * group.instance.vcpus
        for group in _configuration().capacity.nodegroups
        if group.quota == "standard_on_demand"
    )
    assert needs.vcpus_wanted(_configuration())["standard_on_demand"].everything == others + most
    cluster = _configuration().cluster.model_copy(update={"small_job_nodes": 2})
    with_small_jobs = _configuration().model_copy(update={"cluster": cluster})
    assert (
        needs.vcpus_wanted(with_small_jobs)["standard_on_demand"].everything == others + most + 3 * permanent_nodes.CPUS
    )


def test_every_service_that_the_stacks_make_something_in_is_among_the_simulated_actions() -> None:
    services = {"stepfunctions": "states", "fsx": "fsx", "autoscaling": ""}
    made = {
        services.get(name, name)
        for template in example().values()
        for resource in template["Resources"].values()
        if (name := resource["Type"].split("::")[1].lower()) and resource["Type"].startswith("AWS::")
    }
    simulated = {action.partition(":")[0] for action in needs.creating_actions(_configuration())}
    assert made - {"", "cdk", "ssm"} <= simulated


def _artifacts() -> list[needs.Artifact]:
    return list(needs.artifacts(_configuration(), repository=Path()))
