"""Training nodes: how each type is started and bought, that none is up unasked, and what a deployment leaves alone."""

from __future__ import annotations

import base64
import email
import gzip
import json
from decimal import Decimal
from email.message import Message
from functools import cache
from importlib.resources import files
from types import SimpleNamespace
from typing import Any, cast

import aws_cdk as cdk
import pytest
import yaml
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_iam as iam

from lambdas.backends import job as indexed_job
from lambdas.logic.jobs import Job
from stacks.capacity import node_config
from stacks.capacity.stack import CapacityStack
from stacks.cluster.stack import ClusterStack
from tests.infrastructure.alone import (
    PINNED,
    Resources,
    configuration,
    make_app,
    network_and_storage,
    of_type,
    resources,
    settings,
    the_only,
)
from trainflow.configuration.deployment import Configuration
from trainflow.configuration.nodes import Nodegroup, VcpuQuotas
from trainflow.nodes.instances import INSTANCE_TYPES, nodegroup_name
from trainflow.workflow.run import JobRef, Stage

TEMPLATE = "AWS::EC2::LaunchTemplate"
NODEGROUP = "AWS::EKS::Nodegroup"
PLACEMENT = "AWS::EC2::PlacementGroup"
CALL = "Custom::AWS"

SEVEN = ["trn1.2xlarge", "trn1.32xlarge", "trn1n.32xlarge", "trn2.48xlarge", "m5.large", "c7i.xlarge", "c7i.4xlarge"]
TYPES = [*SEVEN, "inf2.xlarge", "g5.xlarge", "p4d.24xlarge", "p5.48xlarge", "p6-b300.48xlarge"]
"""Every kind of node: with Neuron, GPUs or neither, with and without EFA and disks. A synthesis takes seconds, so not
all types of a family are synthesized."""

ACCELERATED = [name for name in TYPES if INSTANCE_TYPES[name].accelerated]
WITH_EFA = [name for name in TYPES if INSTANCE_TYPES[name].efa_interfaces]
MODES = ["on-demand", "spot", "capacity-block", "reservation"]


def _configuration(instance_type: str, *, mode: str = "on-demand", max_nodes: int = 2, **rest: Any) -> Configuration:
    """One node group, in the one zone that has nearly every type."""
    reservation = {"reservation_id": "cr-0123456789abcdef0"} if mode in ("capacity-block", "reservation") else {}
    group = {"instance_type": instance_type, "max_nodes": max_nodes, "mode": mode, **reservation}
    group["zone_confirmed"] = instance_type == "p6-b300.48xlarge"
    enough = dict.fromkeys(VcpuQuotas.model_fields, 10_000)
    return configuration(
        region="us-east-2",
        network={"zone_id": "use2-az3", "second_zone_id": "use2-az1"},
        capacity={"nodegroups": [group], "vcpu_quotas": enough, **rest},
        images={"torchneuron_base": PINNED},
    )


def _stand_in(app: cdk.App, of: Configuration, groups: list[ec2.ISecurityGroup]) -> ClusterStack:
    """What the node groups need of a cluster, without its charts and its kubectl."""
    stack = cdk.Stack(app, "Cluster", env=cdk.Environment(region=of.region))
    role = iam.Role(stack, "NodeRole", assumed_by=iam.ServicePrincipal("ec2.amazonaws.com"))
    name = cdk.CfnParameter(stack, "Name").value_as_string
    cluster = SimpleNamespace(cluster=SimpleNamespace(cluster_name=name), node_security_groups=groups, node_role=role)
    return cast("ClusterStack", cluster)


@cache
def _capacity(instance_type: str, mode: str = "on-demand", max_nodes: int = 2, release: str | None = None) -> Resources:
    app = make_app()
    of = _configuration(instance_type, mode=mode, max_nodes=max_nodes, neuron_ami_release=release)
    network, storage = network_and_storage(app, of)
    assert network is not None and storage.shared is not None
    cluster = _stand_in(app, of, [storage.shared.client_security_group])
    CapacityStack(app, "Capacity", network=network, cluster=cluster, **settings(of))
    return resources(app, "Capacity")


def _template(found: Resources) -> dict[str, Any]:
    data: dict[str, Any] = the_only(found, TEMPLATE)["LaunchTemplateData"]
    return data


def _parameters(found: Resources, action: str) -> dict[str, Any]:
    """What a call sends, with a word in place of what is known only while deploying."""
    for call in of_type(found, CALL).values():
        text = "".join(part if isinstance(part, str) else "…" for part in call["Update"]["Fn::Join"][1])
        decoded = json.loads(text)
        if decoded["action"] == action:
            assert call["Create"] == call["Update"]
            return cast("dict[str, Any]", decoded["parameters"])
    raise AssertionError(f"nothing calls {action}")


def _security_groups(data: dict[str, Any]) -> list[list[str]]:
    """Names of the imported groups, by interface."""
    of_interfaces = [interface["Groups"] for interface in data.get("NetworkInterfaces", [])]
    return [[group["Fn::ImportValue"] for group in groups] for groups in of_interfaces or [data["SecurityGroupIds"]]]


@pytest.mark.parametrize("instance_type", TYPES)
def test_every_network_card_of_a_type_has_one_efa_interface(instance_type: str) -> None:
    interfaces = _template(_capacity(instance_type)).get("NetworkInterfaces", [])
    # The first card of a p6-b300 has no EFA (EC2 DescribeInstanceTypes).
    without_efa = 1 if instance_type == "p6-b300.48xlarge" else 0
    count = without_efa + INSTANCE_TYPES[instance_type].efa_interfaces
    places = [(interface["NetworkCardIndex"], interface["DeviceIndex"]) for interface in interfaces]
    assert places == [(card, 0 if card == 0 else 1) for card in range(count)]
    kinds = [interface["InterfaceType"] for interface in interfaces]
    assert kinds == ["interface"] * without_efa + ["efa"] * (count - without_efa)


def _node_config(instance_type: str) -> Any:
    document = email.message_from_bytes(base64.b64decode(_template(_capacity(instance_type))["UserData"]))
    (part,) = cast("list[Message]", document.get_payload())
    assert part.get_content_type() == "application/node.eks.aws"
    config = yaml.safe_load(str(part.get_payload()))
    assert (config["apiVersion"], config["kind"]) == ("node.eks.aws/v1alpha1", "NodeConfig")
    return config["spec"]


def test_a_log_is_not_rotated_away_between_two_polls() -> None:
    """A log that grows by 10 MiB/s and is polled every 10 seconds, or every 30 in a run of 15 days."""
    kept = _node_config("trn1.32xlarge")["kubelet"]["config"]
    assert (kept["containerLogMaxSize"], kept["containerLogMaxFiles"]) == ("1Gi", 2)


@pytest.mark.parametrize("instance_type", WITH_EFA)
def test_containers_of_an_efa_node_may_lock_memory_and_keep_their_open_files(instance_type: str) -> None:
    """Merge as nodeadm does: a list replaces the default's list, and numbers pass through float64 (mergo over JSON
    maps)."""
    given = _node_config(instance_type)["containerd"]["baseRuntimeSpec"]
    merged = json.loads(json.dumps(given), parse_int=float)["process"]["rlimits"]
    limits = {each["type"]: (each["soft"], each["hard"]) for each in merged}
    assert limits["RLIMIT_NOFILE"] == (65536, 1048576)
    soft, hard = (int(_as_go_prints(value)) for value in limits["RLIMIT_MEMLOCK"])
    assert INSTANCE_TYPES[instance_type].memory_gib * 2**30 < soft == hard < 2**64


def test_the_words_of_linux_for_unlimited_would_not_survive_nodeadm() -> None:
    assert int(_as_go_prints(float(2**64 - 1))) >= 2**64


def _as_go_prints(value: float) -> str:
    """Go's encoding/json: the shortest digits that read back as the same float64, without an exponent below 1e21."""
    return f"{Decimal(repr(value)):f}".removesuffix(".0")


@pytest.mark.parametrize("instance_type", sorted(set(TYPES) - set(WITH_EFA)))
def test_nodes_without_efa_keep_their_containers_limits(instance_type: str) -> None:
    assert "containerd" not in _node_config(instance_type)


@pytest.mark.parametrize("instance_type", TYPES)
def test_nvme_disks_hold_what_pods_write_outside_of_the_shared_file_system(instance_type: str) -> None:
    found = _node_config(instance_type)
    wanted = {"localStorage": {"strategy": "RAID0"}} if INSTANCE_TYPES[instance_type].has_scratch else None
    assert found.get("instance") == wanted


def test_nvme_disks_can_be_left_alone() -> None:
    group = Nodegroup(instance_type="trn1.32xlarge", max_nodes=1, local_disks=False)
    assert not group.uses_local_disks
    assert b"localStorage" not in base64.b64decode(
        node_config.user_data(group.instance, local_disks=group.uses_local_disks)
    )


def test_the_catalogue_knows_the_disks_that_ec2_describes() -> None:
    """moto carries EC2's own descriptions."""
    described = json.loads(gzip.decompress((files("moto") / "ec2/resources/instance_types.json.gz").read_bytes()))
    for name, instance in INSTANCE_TYPES.items():
        storage = described[name].get("InstanceStorageInfo") or {"TotalSizeInGB": 0}
        assert instance.instance_store_gb == storage["TotalSizeInGB"]


@pytest.mark.parametrize("instance_type", TYPES)
def test_every_interface_of_a_node_reaches_the_file_system_and_with_efa_the_other_nodes(instance_type: str) -> None:
    for groups in _security_groups(_template(_capacity(instance_type))):
        assert any("LustreClients" in group for group in groups)
        assert any("Efa" in group for group in groups) == (instance_type in WITH_EFA)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("instance_type", ["trn1.32xlarge", "trn1.2xlarge", "c7i.4xlarge"])
def test_nodes_stand_close_together_where_efa_gains_from_it_and_nothing_else_places_them(
    instance_type: str, mode: str
) -> None:
    found = _capacity(instance_type, mode)
    placed = instance_type in WITH_EFA and mode in ("on-demand", "spot")
    assert ("Placement" in _template(found)) == placed
    assert [group["Strategy"] for group in of_type(found, PLACEMENT).values()] == (["cluster"] if placed else [])


@pytest.mark.parametrize(
    ("mode", "capacity_type", "market", "reserved"),
    [
        ("on-demand", "ON_DEMAND", None, False),
        ("spot", "SPOT", None, False),  # EKS refuses market options beside its own capacity type
        ("capacity-block", "CAPACITY_BLOCK", {"MarketType": "capacity-block"}, True),
        ("reservation", "ON_DEMAND", None, True),
    ],
)
def test_nodes_are_bought_as_configured(
    mode: str, capacity_type: str, market: dict[str, str] | None, reserved: bool
) -> None:
    found = _capacity("trn1.32xlarge", mode)
    data = _template(found)
    target = {"CapacityReservationTarget": {"CapacityReservationId": "cr-0123456789abcdef0"}}
    assert the_only(found, NODEGROUP)["CapacityType"] == capacity_type
    assert data.get("InstanceMarketOptions") == market
    assert data.get("CapacityReservationSpecification") == (target if reserved else None)


@pytest.mark.parametrize("instance_type", TYPES)
def test_no_node_is_up_after_a_deployment(instance_type: str) -> None:
    scaling = the_only(_capacity(instance_type), NODEGROUP)["ScalingConfig"]
    assert (scaling["MinSize"], scaling["DesiredSize"]) == (0, 0)


def test_a_raised_limit_leaves_the_nodes_of_a_running_job_alone() -> None:
    """CloudFormation sends all of ScalingConfig, so the desired size too, as soon as any of it changes."""
    small, large = _capacity("trn1.32xlarge", max_nodes=2), _capacity("trn1.32xlarge", max_nodes=5)
    assert the_only(small, NODEGROUP) == the_only(large, NODEGROUP)
    assert of_type(small, TEMPLATE) == of_type(large, TEMPLATE)
    assert _parameters(small, "UpdateNodegroupConfig")["scalingConfig"] == {"maxSize": 2}
    assert _parameters(large, "UpdateNodegroupConfig")["scalingConfig"] == {"maxSize": 5}


@pytest.mark.parametrize("instance_type", TYPES)
def test_functions_find_the_group_by_its_type_and_the_type_stands_in_the_template_alone(instance_type: str) -> None:
    found = _capacity(instance_type)
    nodegroup = the_only(found, NODEGROUP)
    assert nodegroup["NodegroupName"] == nodegroup_name(instance_type)
    assert _template(found)["InstanceType"] == instance_type
    assert "InstanceTypes" not in nodegroup


@pytest.mark.parametrize("instance_type", TYPES)
def test_without_a_pinned_release_a_group_names_the_clusters_version_alone(instance_type: str) -> None:
    """EKS then takes the newest release of that version, which exists."""
    nodegroup = the_only(_capacity(instance_type), NODEGROUP)
    images = {"trn": "NEURON", "inf": "NEURON", "p": "NVIDIA", "g": "NVIDIA", "standard": "STANDARD"}
    assert nodegroup["AmiType"] == f"AL2023_x86_64_{images[INSTANCE_TYPES[instance_type].quota_family]}"
    assert nodegroup["Version"] == "1.36"
    assert "ReleaseVersion" not in nodegroup


@pytest.mark.parametrize("instance_type", ["trn1.32xlarge", "g5.xlarge", "c7i.4xlarge"])
def test_a_pinned_release_is_that_of_the_trainium_nodes_alone(instance_type: str) -> None:
    """The release is of the Neuron image; EKS refuses a release together with another version."""
    nodegroup = the_only(_capacity(instance_type, release="1.36.2-20260827"), NODEGROUP)
    named = {key: nodegroup.get(key) for key in ("ReleaseVersion", "Version")}
    pinned = {"ReleaseVersion": "1.36.2-20260827", "Version": None}
    assert named == (pinned if instance_type == "trn1.32xlarge" else {"ReleaseVersion": None, "Version": "1.36"})


@pytest.mark.parametrize("instance_type", TYPES)
def test_a_node_s_disk_is_encrypted_and_its_metadata_wants_a_token(instance_type: str) -> None:
    data = _template(_capacity(instance_type))
    (disk,) = (mapping["Ebs"] for mapping in data["BlockDeviceMappings"])
    assert disk["Encrypted"] is True and disk["DeleteOnTermination"] is True and disk["VolumeType"] == "gp3"
    assert disk["VolumeSize"] == (512 if instance_type in ACCELERATED else 100)
    assert data["MetadataOptions"]["HttpTokens"] == "required"
    assert data["MetadataOptions"]["HttpPutResponseHopLimit"] == 1


@pytest.mark.parametrize("instance_type", TYPES)
def test_jobs_tolerate_what_keeps_others_off_the_nodes(instance_type: str) -> None:
    taints = the_only(_capacity(instance_type), NODEGROUP)["Taints"]
    assert taints, "controllers would run on nodes that are released"
    job = Job(
        ref=JobRef(name="demo-1-training-1", stage=Stage.TRAINING, attempt=1, num_nodes=2),
        run_id="demo-1",
        image="image",
        command=("true",),
        instance=INSTANCE_TYPES[instance_type],
        deadline_seconds=60,
    )
    (pod,) = (o["spec"]["template"]["spec"] for o in indexed_job.render(job) if o["kind"] == "Job")
    tolerated = {toleration["key"] for toleration in pod["tolerations"] if toleration["effect"] == "NoSchedule"}
    assert {taint["Key"] for taint in taints if taint["Effect"] == "NO_SCHEDULE"} <= tolerated


def test_nodes_with_gpus_carry_the_label_without_which_the_device_plugin_does_not_run() -> None:
    """Default affinity of the chart nvidia-device-plugin 0.20.0, whose other labels nothing here makes."""
    assert the_only(_capacity("g5.xlarge"), NODEGROUP)["Labels"]["nvidia.com/gpu.present"] == "true"


@pytest.mark.parametrize("instance_type", TYPES)
def test_an_autoscaler_is_told_what_an_empty_group_would_have(instance_type: str) -> None:
    found = _capacity(instance_type)
    nodegroup = the_only(found, NODEGROUP)
    sent = _parameters(found, "CreateOrUpdateTags")["Tags"]
    prefix = "k8s.io/cluster-autoscaler/node-template"
    labels = {f"{prefix}/label/{key}": value for key, value in nodegroup["Labels"].items()}
    taints = {f"{prefix}/taint/{taint['Key']}": f"{taint['Value']}:NoSchedule" for taint in nodegroup["Taints"]}
    devices = {
        f"{prefix}/resources/{device}": str(count) for device, count in INSTANCE_TYPES[instance_type].devices.items()
    }
    assert {tag["Key"]: tag["Value"] for tag in sent} == {**labels, **taints, **devices}
    assert all(tag["ResourceType"] == "auto-scaling-group" for tag in sent)


def test_faulty_nodes_are_replaced_and_old_ones_go_before_new_ones_are_wanted() -> None:
    nodegroup = the_only(_capacity("trn1.32xlarge"), NODEGROUP)
    assert nodegroup["NodeRepairConfig"] == {"Enabled": True}
    assert nodegroup["UpdateConfig"]["UpdateStrategy"] == "MINIMAL"


def test_nodes_stand_in_the_training_zone_alone() -> None:
    (subnet,) = the_only(_capacity("trn1.32xlarge"), NODEGROUP)["Subnets"]
    assert "privateSubnet1" in subnet["Fn::ImportValue"]


def test_the_function_behind_the_calls_may_touch_this_cluster_s_node_groups_and_nothing_else() -> None:
    (policy,) = of_type(_capacity("trn1.32xlarge"), "AWS::IAM::Policy").values()
    allowed = {
        action: statement
        for statement in policy["PolicyDocument"]["Statement"]
        for action in ([statement["Action"]] if isinstance(statement["Action"], str) else statement["Action"])
    }
    assert set(allowed) == {
        "autoscaling:CreateOrUpdateTags",
        "eks:DescribeNodegroup",
        "eks:UpdateNodegroupConfig",
        "logs:CreateLogStream",
        "logs:PutLogEvents",
    }
    eks = allowed["eks:UpdateNodegroupConfig"]["Resource"]["Fn::Join"][1][-1]
    assert eks == ":nodegroup/trainflow/trainflow-*/*"
    tags = allowed["autoscaling:CreateOrUpdateTags"]
    assert tags["Resource"]["Fn::Join"][1][-1] == ":autoScalingGroup:*:autoScalingGroupName/eks-trainflow-*"
    assert tags["Condition"] == {"StringEquals": {"aws:ResourceTag/eks:cluster-name": "trainflow"}}


def test_nodes_of_the_real_cluster_are_in_its_security_group_and_may_join_it() -> None:
    app = make_app()
    of = _configuration("trn1.32xlarge")
    network, storage = network_and_storage(app, of)
    assert network is not None
    cluster = ClusterStack(app, "Cluster", network=network, storage=storage, **settings(of))
    CapacityStack(app, "Capacity", network=network, cluster=cluster, **settings(of))
    found = resources(app, "Capacity")
    for groups in _security_groups(_template(found)):
        assert any("ClusterSecurityGroupId" in group for group in groups)
        assert any("LustreClients" in group for group in groups)
    assert "NodeRole" in the_only(found, NODEGROUP)["NodeRole"]["Fn::ImportValue"]
