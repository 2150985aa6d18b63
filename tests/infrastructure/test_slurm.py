"""Slurm: no resources unless configured; a cluster of AWS PCS or an existing one; and the access to it."""

from __future__ import annotations

import configparser
import json
import os
import re
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from stacks.checks import findings
from stacks.checks.packs import PACKS
from stacks.checks.templates import Templates
from stacks.slurm.controller import API_PORT
from stacks.slurm.nodes import LOCKED_MEMORY_SCRIPT, SCRATCH_SCRIPT, queue_name
from stacks.slurm.stack import SlurmStack
from stacks.tools.checkov_findings import parse, read_accepted
from stacks.tools.idle_cost import idle_cost
from tests.infrastructure import alone
from tests.infrastructure.assembly import EXAMPLE, example, synthesize
from tests.infrastructure.auditors import in_use, read_report, unacknowledged, written
from tests.infrastructure.serverless import IN_NETWORK, text
from tests.infrastructure.serverless import configuration as on_their_cluster
from tests.infrastructure.slurm import API, ENOUGH, HEAD_NODE, HEAD_NODE_GROUP, KEY, PCS, SSM, with_slurm
from trainflow.client.spec_file import read_spec
from trainflow.deployment.functions import FUNCTIONS, SLURM

Template = dict[str, Any]

SLURM_STACK, ORCHESTRATION = "trainflow-slurm", "trainflow-orchestration"
CHECKOV = Path(".venv-checkov/bin/checkov")
TALKING = {function.name for function in FUNCTIONS if function.access}


@cache
def _own() -> dict[str, Template]:
    return synthesize(with_slurm({"pcs": PCS}))


@cache
def _without() -> dict[str, Template]:
    return synthesize(with_slurm(None))


@cache
def _theirs(way: str) -> dict[str, Template]:
    return synthesize(with_slurm({"existing": API if way == "api" else SSM}))


def _with(way: str) -> dict[str, Template]:
    return _own() if way == "pcs" else _theirs(way)


each_way = pytest.mark.parametrize("way", ["pcs", "api", "ssm"])


def _alone(**changes: Any) -> dict[str, Template]:
    """The Slurm stack with one queue that is a little different."""
    queue = {"instance_type": "trn1.32xlarge", "max_nodes": 2, **changes}
    of = with_slurm({"pcs": {**PCS, "queues": [queue]}})
    app = alone.make_app()
    network, storage = alone.network_and_storage(app, of)
    assert network is not None and of.pcs is not None
    SlurmStack(app, "Slurm", network=network, storage=storage, settings=of.pcs, **alone.settings(of))
    return {"Slurm": {"Resources": dict(alone.resources(app, "Slurm"))}}


def _of_type(templates: dict[str, Template], kind: str) -> list[dict[str, Any]]:
    return [resource.properties for resource in Templates(templates).resources(kind)]  # type: ignore[misc]


def _functions(templates: dict[str, Template]) -> dict[str, dict[str, Any]]:
    """Our own functions, by name."""
    found = _of_type(templates, "AWS::Lambda::Function")
    return {
        each["FunctionName"].removeprefix("trainflow-"): each
        for each in found
        if str(each.get("FunctionName", "")).startswith("trainflow-")
    }


def _variables(templates: dict[str, Template]) -> dict[str, Any]:
    variables = _functions(templates)["SubmitJob"]["Environment"]["Variables"]
    return {name: variables[name] for name in SLURM}


def _use_slurm(templates: dict[str, Template]) -> dict[str, Any]:
    """Statements of the policy that the functions share, by action."""
    (policy,) = (
        resource.properties
        for resource in Templates(templates).resources("AWS::IAM::ManagedPolicy")
        if "UseSlurm" in resource.logical_id
    )
    statements = policy["PolicyDocument"]["Statement"]
    return {statement["Action"]: statement for statement in statements}


def _doors(templates: dict[str, Template], group: str) -> set[tuple[str, Any, Any]]:
    """Who is let into a security group, by the other's description or id, and on which ports."""
    read = Templates(templates)
    doors = set()
    for rule in read.resources("AWS::EC2::SecurityGroupIngress"):
        if _called(read, rule.stack, rule.properties["GroupId"]) == group:
            source = _called(read, rule.stack, rule.properties.get("SourceSecurityGroupId"))
            doors.add((source, rule.properties.get("FromPort"), rule.properties.get("ToPort")))
    for found in read.resources("AWS::EC2::SecurityGroup"):
        if found.properties["GroupDescription"] == group:
            assert not found.properties.get("SecurityGroupIngress")
    return doors


def _called(read: Templates, stack: str, value: Any) -> str:
    found = read.find(read.origin(stack, value))
    return str(found.properties.get("GroupDescription", found.logical_id)) if found else str(value)


# Off


def test_without_the_section_there_is_no_slurm_and_the_functions_know_of_none() -> None:
    assert SLURM_STACK not in example()
    assert not [kind for kind in _all_types(example()) if kind.startswith("AWS::PCS::")]
    assert _variables(example()) == dict.fromkeys(SLURM, "")
    assert not [resource for resource in Templates(example()).resources() if "Slurm" in resource.logical_id]


def _all_types(templates: dict[str, Template]) -> set[str]:
    return {resource.type for resource in Templates(templates).resources()}


@each_way
def test_the_other_stacks_are_the_same_with_and_without_slurm(way: str) -> None:
    without, with_slurm = _without(), _with(way)
    for stack in ("cluster", "capacity", "images"):
        assert with_slurm[f"trainflow-{stack}"] == without[f"trainflow-{stack}"]
    for stack in ("network", "storage"):  # more of them is exported
        assert with_slurm[f"trainflow-{stack}"]["Resources"] == without[f"trainflow-{stack}"]["Resources"]


# A cluster of AWS PCS


def test_the_controller_has_its_rest_api_on_and_gives_idle_nodes_back() -> None:
    (cluster,) = _of_type(_own(), "AWS::PCS::Cluster")
    assert cluster["Scheduler"] == {"Type": "SLURM", "Version": "25.11"}
    assert cluster["SlurmConfiguration"] == {"SlurmRest": {"Mode": "STANDARD"}, "ScaleDownIdleTimeInSeconds": 600}
    assert cluster["Size"] == "SMALL"
    assert len(cluster["Networking"]["SubnetIds"]) == 1


def test_no_node_is_up_after_a_deployment_and_a_queue_is_called_after_its_type() -> None:
    nodes = {group["Name"]: group for group in _of_type(_own(), "AWS::PCS::ComputeNodeGroup")}
    assert {name: group["ScalingConfiguration"] for name, group in nodes.items()} == {
        "trn1-32xlarge": {"MinInstanceCount": 0, "MaxInstanceCount": 16},
        "trn1-2xlarge": {"MinInstanceCount": 0, "MaxInstanceCount": 2},
        "system": {"MinInstanceCount": 0, "MaxInstanceCount": 2},
    }
    assert {queue["Name"] for queue in _of_type(_own(), "AWS::PCS::Queue")} == set(nodes)
    assert all(group["AmiId"] == "ami-0123456789abcdef0" for group in nodes.values())
    read = Templates(_own())
    for queue in read.resources("AWS::PCS::Queue"):
        (behind,) = queue.properties["ComputeNodeGroupConfigurations"]
        group = read.find(read.origin(queue.stack, behind["ComputeNodeGroupId"]))
        assert group is not None and group.properties["Name"] == queue.properties["Name"]


@pytest.mark.parametrize("name", ["trn1-32xlarge", "trn2-48xlarge", "trn1n-32xlarge", "system"])
def test_names_are_such_as_pcs_takes(name: str) -> None:
    assert re.fullmatch(r"(?!pcs_)[A-Za-z][A-Za-z0-9-]{2,24}", name)


@pytest.mark.parametrize(
    ("mode", "bought", "placed", "type_in_template"),
    [
        ("on-demand", "ONDEMAND", True, None),
        ("spot", "SPOT", True, None),
        ("capacity-block", "CAPACITY_BLOCK", False, "trn1.32xlarge"),
        ("reservation", "ONDEMAND", False, None),
    ],
)
def test_nodes_are_bought_as_configured(mode: str, bought: str, placed: bool, type_in_template: str | None) -> None:
    reserved = {"reservation_id": "cr-0123456789abcdef0"} if mode in ("capacity-block", "reservation") else {}
    read = Templates(_alone(mode=mode, **reserved))
    (group,) = (
        each for each in read.resources("AWS::PCS::ComputeNodeGroup") if each.properties["Name"] == "trn1-32xlarge"
    )
    template = read.find(read.origin(group.stack, group.properties["CustomLaunchTemplate"]["TemplateId"]))
    assert template is not None
    data = template.properties["LaunchTemplateData"]
    assert group.properties["PurchaseOption"] == bought
    assert ("Placement" in data) == placed
    assert data.get("InstanceType") == type_in_template
    assert ("CapacityReservationSpecification" in data) == bool(reserved)


def test_training_nodes_have_an_efa_interface_on_every_card_in_the_subnet_of_the_file_system() -> None:
    templates = [each["LaunchTemplateData"] for each in _of_type({"": _own()[SLURM_STACK]}, "AWS::EC2::LaunchTemplate")]
    (large,) = (data for data in templates if "NetworkInterfaces" in data)
    interfaces = large["NetworkInterfaces"]
    assert [(each["NetworkCardIndex"], each["DeviceIndex"]) for each in interfaces] == [
        (card, 0 if card == 0 else 1) for card in range(8)
    ]
    read = Templates(_own())
    (system,) = read.resources("AWS::FSx::FileSystem")
    subnet = read.origin(system.stack, system.properties["SubnetIds"][0])
    assert {read.origin(SLURM_STACK, each["SubnetId"]) for each in interfaces} == {subnet}
    assert all(any("Efa" in json.dumps(group) for group in each["Groups"]) for each in interfaces)


def test_every_node_mounts_the_file_system_before_slurm_starts() -> None:
    for template in _of_type({"": _own()[SLURM_STACK]}, "AWS::EC2::LaunchTemplate"):
        data = template["LaunchTemplateData"]
        script = text(data["UserData"]["Fn::Base64"])
        assert script.startswith("MIME-Version: 1.0\nContent-Type: multipart/mixed;")
        assert "text/x-shellscript" in script  # which PCS runs before slurmd; cloud-config it runs elsewhere
        assert re.search(r"\nmount -t lustre -o noatime,flock <.*DNSName.*>@tcp:/<.*MountName.*> /fsx\n", script)
        groups = data.get("SecurityGroupIds") or data["NetworkInterfaces"][0]["Groups"]
        assert any("LustreClients" in json.dumps(group) for group in groups)
        assert data["MetadataOptions"]["HttpTokens"] == "required"


def test_every_node_lets_services_and_logins_lock_memory_before_slurm_starts() -> None:
    for template in _of_type({"": _own()[SLURM_STACK]}, "AWS::EC2::LaunchTemplate"):
        assert LOCKED_MEMORY_SCRIPT in text(template["LaunchTemplateData"]["UserData"]["Fn::Base64"])


def test_the_limit_of_locked_memory_is_written_as_systemd_and_pam_read_it(tmp_path: Path) -> None:
    (tmp_path / "systemctl").write_text('#!/bin/sh\necho "$@"\n')
    (tmp_path / "systemctl").chmod(0o755)
    script = LOCKED_MEMORY_SCRIPT.replace("/etc/", f"{tmp_path}/etc/")
    variables = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
    done = subprocess.run(["bash", "-euc", script], env=variables, text=True, capture_output=True, check=True)
    assert done.stdout == "daemon-reexec\n"
    read = configparser.ConfigParser()
    read.read(tmp_path / "etc/systemd/system.conf.d/locked-memory.conf")
    assert read["Manager"]["DefaultLimitMEMLOCK"] == "infinity"
    limits = (tmp_path / "etc/security/limits.d/locked-memory.conf").read_text()
    assert limits.split() == ["*", "-", "memlock", "unlimited"]


@cache
def _with_login() -> dict[str, Template]:
    return synthesize(with_slurm({"pcs": {**PCS, "login_node": {"instance_type": "c7i.xlarge"}}}))


def test_a_login_node_is_one_node_without_a_queue_that_people_reach_by_session_manager() -> None:
    groups = _of_type(_with_login(), "AWS::PCS::ComputeNodeGroup")
    (login,) = (group for group in groups if group["Name"] == "login")
    assert login["ScalingConfiguration"] == {"MinInstanceCount": 1, "MaxInstanceCount": 1}
    assert login["InstanceConfigs"] == [{"InstanceType": "c7i.xlarge"}]
    assert "login" not in {queue["Name"] for queue in _of_type(_with_login(), "AWS::PCS::Queue")}
    offering = [
        resource.logical_id
        for resource in Templates(_with_login()).resources("AWS::IAM::Policy")
        if resource.stack == SLURM_STACK and "ssmmessages" in json.dumps(resource.properties)
    ]
    assert len(offering) == 1 and offering[0].startswith("LoginProfile")
    assert "login" not in {group["Name"] for group in _of_type(_own(), "AWS::PCS::ComputeNodeGroup")}


def test_a_login_node_is_in_the_idle_cost_and_in_the_quota() -> None:
    items = {item.what for item in idle_cost(_with_login().values())}
    assert "Slurm login node, c7i.xlarge with 100 GiB of disk" in items
    with_login = with_slurm({"pcs": {**PCS, "login_node": {}}})
    assert with_login.pcs is not None and with_slurm({"pcs": PCS}).pcs is not None
    more = with_login.pcs.vcpus_by_quota["standard_on_demand"]
    assert more - with_slurm({"pcs": PCS}).pcs.vcpus_by_quota["standard_on_demand"] == 2  # type: ignore[union-attr]


def test_nvme_disks_are_mounted_as_scratch_after_the_shared_file_system() -> None:
    for template in _of_type({"": _own()[SLURM_STACK]}, "AWS::EC2::LaunchTemplate"):
        script = text(template["LaunchTemplateData"]["UserData"]["Fn::Base64"])
        named = json.dumps(template["LaunchTemplateData"]["TagSpecifications"])
        assert (SCRATCH_SCRIPT in script) == ("slurm-trn1" in named)
        assert script.find("mount -t lustre") < (script.find(SCRATCH_SCRIPT) if "slurm-trn1" in named else len(script))


@pytest.mark.parametrize(
    ("disks", "calls"),
    [
        (0, []),
        (1, ["mkfs.xfs -f -K DISKS/nvme1n1", "mount -o noatime DISKS/nvme1n1 SCRATCH"]),
        (
            2,
            [
                "mdadm --create /dev/md/scratch --force --run --level=0 --raid-devices=2 DISKS/nvme1n1 DISKS/nvme2n1",
                "mkfs.xfs -f -K /dev/md/scratch",
                "mount -o noatime /dev/md/scratch SCRATCH",
            ],
        ),
    ],
)
def test_one_disk_is_mounted_as_it_is_and_several_as_one(tmp_path: Path, disks: int, calls: list[str]) -> None:
    """The links as udev makes them: two for each disk, one of them with the namespace's number."""
    for folder in ("dev/by-id", "bin"):
        (tmp_path / folder).mkdir(parents=True)
    for number in range(1, disks + 1):
        (tmp_path / f"dev/nvme{number}n1").touch()
        for ending in ("", "_1"):
            link = tmp_path / f"dev/by-id/nvme-Amazon_EC2_NVMe_Instance_Storage_AWS{number}{ending}"
            link.symlink_to(tmp_path / f"dev/nvme{number}n1")
    for program in ("mdadm", "mkfs.xfs", "mount"):
        (tmp_path / "bin" / program).write_text(f'#!/bin/sh\necho {program} "$@"\n')
        (tmp_path / "bin" / program).chmod(0o755)
    script = SCRATCH_SCRIPT.replace("/dev/disk/by-id", str(tmp_path / "dev/by-id"))
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script.replace(" /scratch\n", f" {tmp_path}/scratch\n")],
        env={"PATH": f"{tmp_path / 'bin'}:/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=True,
    )
    expected = [call.replace("DISKS", f"{tmp_path}/dev").replace("SCRATCH", f"{tmp_path}/scratch") for call in calls]
    assert [line for line in done.stdout.splitlines() if not line.endswith("bin/mdadm")] == expected


def test_jobs_may_do_what_pods_may_and_the_nodes_join_this_cluster_alone() -> None:
    read = Templates(_own())

    def statements(stack: str, name: str) -> dict[str, Any]:
        (policy,) = (
            each for each in read.resources("AWS::IAM::Policy") if each.stack == stack and name in each.logical_id
        )
        return {each["Sid"]: each for each in policy.properties["PolicyDocument"]["Statement"]}

    nodes, pods = statements(SLURM_STACK, "ProfileRole"), statements("trainflow-cluster", "PodRole")
    join = nodes.pop("JoinTheCluster")
    assert nodes == pods
    assert join["Action"] == "pcs:RegisterComputeNodeGroupInstance"
    cluster = read.find(read.origin(SLURM_STACK, join["Resource"]))
    assert cluster is not None and cluster.type == "AWS::PCS::Cluster"
    (profile,) = _of_type(_own(), "AWS::IAM::InstanceProfile")
    assert profile["Path"] == "/aws-pcs/"
    (role,) = (
        each.properties for each in read.resources("AWS::IAM::Role") if each.properties.get("Path") == "/aws-pcs/"
    )
    assert role["AssumeRolePolicyDocument"]["Statement"][0]["Principal"] == {"Service": "ec2.amazonaws.com"}


def test_the_functions_reach_slurmrestd_and_no_other_client_does() -> None:
    doors = _doors(_own(), "Slurm controller")
    assert doors == {
        ("Slurm nodes", 6817, 6817),
        ("Functions that talk to the API server of the cluster", API_PORT, API_PORT),
    }


def test_the_functions_are_let_out_to_slurmrestd_and_nowhere_else_besides() -> None:
    read = Templates(_own())
    (rule,) = (
        each
        for each in read.resources("AWS::EC2::SecurityGroupEgress")
        if "Functions" in _called(read, each.stack, each.properties["GroupId"])
    )
    assert _called(read, rule.stack, rule.properties["DestinationSecurityGroupId"]) == "Slurm controller"
    assert (rule.properties["FromPort"], rule.properties["ToPort"]) == (API_PORT, API_PORT)


def test_nodes_are_reached_by_the_controller_and_by_each_other() -> None:
    assert _doors(_own(), "Slurm nodes") == {("Slurm controller", 6818, 6818), ("Slurm nodes", 0, 65535)}


def test_the_functions_are_told_where_pcs_listens_and_whose_jobs_they_submit() -> None:
    variables = _variables(_own())
    assert re.fullmatch(r"http://.*:6820|<.*>", text(variables["SLURM_API_URL"]))
    assert json.loads(variables["SLURM_CLAIMS"]) == {
        "uid": 1000,
        "gid": 1000,
        "id": {"gecos": "Trainflow", "dir": "/home/ec2-user", "shell": "/bin/bash", "gids": [1000]},
    }
    told = {name: variables[name] for name in SLURM if name not in ("SLURM_API_URL", "SLURM_CLAIMS")}
    assert told.pop("SLURM_KEY_SECRET")
    assert told == {
        "SLURM_USER": "ec2-user",
        "SLURM_SYSTEM_QUEUE": "system",
        "SLURM_SHARED_FOLDER": "/fsx",
        "SLURM_ENVIRONMENT": "/opt/trainflow",
        "SLURM_PROGRAM_FOLDER": "/fsx/data/trainflow",
        "SLURM_PROPERTIES": "{}",
    }


def test_address_and_key_are_those_that_pcs_made() -> None:
    (call,) = _of_type({"": _own()[SLURM_STACK]}, "Custom::AWS")
    sent = json.loads("".join(part if isinstance(part, str) else "…" for part in call["Create"]["Fn::Join"][1]))
    assert (sent["service"], sent["action"]) == ("pcs", "GetCluster")
    exported = {output["Export"]["Name"]: output for output in _outputs(_own()[SLURM_STACK])}
    for variable, path in (("SLURM_API_URL", "endpoints.0.privateIpAddress"), ("SLURM_KEY_SECRET", "secretArn")):
        value = json.dumps(_variables(_own())[variable])
        (name,) = (name for name in exported if name in value)
        assert path in json.dumps(exported[name]["Value"])
        assert len([output for output in sent["outputPaths"] if path in output]) == 1


def _outputs(template: Template) -> list[dict[str, Any]]:
    return [output for output in template["Outputs"].values() if "Export" in output]


def test_the_functions_read_that_one_key_and_what_jobs_say_and_nothing_may_be_written() -> None:
    granted = _use_slurm(_own())
    assert set(granted) == {"s3:GetObject", "s3:ListBucket", "kms:Decrypt", "secretsmanager:GetSecretValue"}
    assert granted["secretsmanager:GetSecretValue"]["Resource"] == _variables(_own())["SLURM_KEY_SECRET"]
    patterns = {text(arn).split("/", 1)[1] for arn in granted["s3:GetObject"]["Resource"]}
    assert patterns == {"runs/*/logs/*", "runs/*/tails/*", "runs/*/jobs/*"}
    assert granted["s3:ListBucket"]["Condition"] == {"StringLike": {"s3:prefix": "runs/*"}}


def test_functions_that_call_the_cluster_may_use_slurm_and_no_others() -> None:
    read = Templates(_own())
    using = set()
    for name, function in _functions(_own()).items():
        stack = next(each.stack for each in read.resources("AWS::Lambda::Function") if each.properties is function)
        role = read.find(read.origin(stack, function["Role"]))
        assert role is not None
        if "UseSlurm" in json.dumps(role.properties.get("ManagedPolicyArns", [])):
            using.add(name)
    assert using == TALKING


def test_what_the_controller_costs_while_nothing_runs_is_in_the_table() -> None:
    own, without = idle_cost(_own().values()), idle_cost(_without().values())
    (controller,) = (item for item in own if item.what.startswith("Slurm controller"))
    more = sum(item.usd_per_hour for item in own) - sum(item.usd_per_hour for item in without)
    assert controller.usd_per_hour > 0 and more == pytest.approx(controller.usd_per_hour)


# An existing cluster


def test_an_existing_cluster_is_used_as_it_is() -> None:
    for way in ("api", "ssm"):
        assert SLURM_STACK not in _theirs(way)
        assert not [kind for kind in _all_types(_theirs(way)) if kind.startswith("AWS::PCS::")]


def test_an_existing_slurmrestd_is_told_to_the_functions_with_its_key() -> None:
    variables = _variables(_theirs("api"))
    assert (variables["SLURM_API_URL"], variables["SLURM_KEY_SECRET"]) == ("http://10.1.2.3:6820", KEY)
    assert (variables["SLURM_CLAIMS"], variables["SLURM_SYSTEM_QUEUE"]) == ("{}", "")
    granted = _use_slurm(_theirs("api"))
    assert granted["secretsmanager:GetSecretValue"]["Resource"] == KEY
    assert not [action for action in granted if action.startswith("ssm:")]
    assert _doors(_theirs("api"), HEAD_NODE_GROUP) == {
        ("Functions that talk to the API server of the cluster", 6820, 6820)
    }


def test_small_programs_may_have_a_queue_of_their_own_on_an_existing_cluster() -> None:
    templates = synthesize(with_slurm({"existing": {**SSM, "system_queue": "small"}}))
    assert _variables(templates)["SLURM_SYSTEM_QUEUE"] == "small"


@pytest.mark.parametrize("path", sorted(Path("runs").glob("*slurm*.yaml")), ids=lambda path: path.stem)
def test_the_tutorials_specs_name_the_queue_that_pcs_has_for_their_nodes(path: Path) -> None:
    compute = read_spec(path).compute
    assert compute.queue == queue_name(compute.instance_type)


def test_on_an_existing_eks_cluster_no_egress_is_changed() -> None:
    templates = synthesize(on_their_cluster(slurm={"existing": API}, schedules=[]))
    (rule,) = _of_type(templates, "AWS::EC2::SecurityGroupIngress")
    assert (rule["GroupId"], rule["SourceSecurityGroupId"]) == (HEAD_NODE_GROUP, IN_NETWORK["security_group_id"])
    assert not _of_type(templates, "AWS::EC2::SecurityGroupEgress")


def test_without_slurmrestd_one_document_is_run_on_one_instance() -> None:
    variables = _variables(_theirs("ssm"))
    assert (variables["SLURM_API_URL"], variables["SLURM_KEY_SECRET"]) == (f"ssm://{HEAD_NODE}", "")
    granted = _use_slurm(_theirs("ssm"))
    send = [text(arn) for arn in granted["ssm:SendCommand"]["Resource"]]
    assert [arn.rsplit(":", 1)[-1] for arn in send] == ["document/AWS-RunShellScript", f"instance/{HEAD_NODE}"]
    assert "secretsmanager:GetSecretValue" not in granted
    assert granted["ssm:GetCommandInvocation"]["Resource"] == "*"
    assert not [each for each in Templates(_theirs("ssm")).resources() if "ToSlurm" in each.logical_id]


# What is checked of all of them


@each_way
def test_our_own_checks_find_nothing(way: str) -> None:
    assert findings(_with(way)) == []


def test_our_checks_find_nodes_that_are_up_and_blocks_in_a_placement_group() -> None:
    nodes = {
        "Type": "AWS::PCS::ComputeNodeGroup",
        "Properties": {
            "ScalingConfiguration": {"MinInstanceCount": 1, "MaxInstanceCount": 2},
            "PurchaseOption": "CAPACITY_BLOCK",
            "CustomLaunchTemplate": {"TemplateId": {"Ref": "Template"}},
        },
    }
    data = {"LaunchTemplateData": {"Placement": {"GroupName": "close"}}}
    template = {"Type": "AWS::EC2::LaunchTemplate", "Properties": data}
    found = findings({"s": {"Resources": {"Nodes": nodes, "Template": template}}}, accepted=())
    assert {(finding.rule, finding.logical_id) for finding in found} == {
        ("nodes-off", "Nodes"),
        ("placement", "Template"),
        ("metadata", "Template"),  # pods and jobs would reach the instance's role
    }


@pytest.fixture(scope="module")
def assembly(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `make synth` makes of a configuration with Slurm, with cdk-nag's rules and ours; without the bundles."""
    folder = tmp_path_factory.mktemp("slurm")
    document = yaml.safe_load(EXAMPLE.read_text()) | {"slurm": {"pcs": PCS}}
    document["capacity"]["vcpu_quotas"] = ENOUGH
    (folder / "slurm.yaml").write_text(yaml.safe_dump(document))
    context = json.loads(Path("cdk.json").read_text())["context"]
    context |= {"config": str(folder / "slurm.yaml"), "aws:cdk:bundling-stacks": []}
    variables = {"CDK_VALIDATION": "true", "CDK_OUTDIR": str(folder / "out"), "CDK_CONTEXT_JSON": json.dumps(context)}
    synth = subprocess.run(
        [sys.executable, "app.py"], env={**os.environ, **variables}, capture_output=True, text=True, check=False
    )
    assert synth.returncode == 0, synth.stdout + synth.stderr
    return folder / "out"


@pytest.mark.slow
def test_the_auditors_rules_hold_with_slurm_too(assembly: Path) -> None:
    report = read_report(assembly)
    conclusions = {pack: plugin["conclusion"] for pack, plugin in report.items()}
    assert conclusions == dict.fromkeys(PACKS, "success")  # ours is silent when it finds nothing
    assert unacknowledged(report) == []


@pytest.mark.slow
def test_every_acknowledgement_belongs_to_a_finding(assembly: Path) -> None:
    assert written(assembly) == in_use(read_report(assembly))


@pytest.mark.slow
def test_cloudformation_would_take_the_templates(assembly: Path) -> None:
    templates = [str(assembly / f"{stack}.template.json") for stack in ("Slurm", "Orchestration", "Triggers")]
    lint = [str(Path(sys.executable).with_name("cfn-lint")), "--non-zero-exit-code", "informational", *templates]
    linted = subprocess.run(lint, capture_output=True, text=True, check=False)
    assert linted.returncode == 0, linted.stdout


@pytest.mark.slow
@pytest.mark.skipif(not CHECKOV.exists(), reason="checkov is not installed; `make check` installs it")
def test_checkov_finds_nothing_in_the_slurm_stack_that_is_not_accepted(assembly: Path) -> None:
    command = [str(CHECKOV), "--framework", "cloudformation", "--skip-download", "--output", "json", "--soft-fail"]
    command += ["--file", str(assembly / "Slurm.template.json")]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    found = parse(json.loads(run.stdout))
    assert found and not [str(each) for each in found if not any(entry.covers(each) for entry in read_accepted())]
