"""Our own rules for templates: each finds what it is there for, and leaves the rest alone."""

from __future__ import annotations

import copy
import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import aws_cdk as cdk
import pytest
from aws_cdk import aws_logs as logs

from stacks.checks import ACCEPTED, CHECKS, Accepted, TrainflowChecks, findings
from stacks.checks.access import NEEDS_CONDITION, WITHOUT_RESOURCE
from stacks.cluster.jobs import named_after_template
from trainflow.deployment.kubernetes_access import access_manifests

Resources = dict[str, dict[str, Any]]


def found(resources: Resources, **others: Resources) -> list[str]:
    """Sentences about one stack, and what is wrong in others that it refers to."""
    templates = {"Stack": {"Resources": resources}} | {name: {"Resources": given} for name, given in others.items()}
    return [f"{finding.logical_id}: {finding.sentence}" for finding in findings(templates, accepted=())]


def changed(resources: Resources, path: str, value: Any) -> Resources:
    """A copy with one value replaced, or removed if it is None."""
    copied: Any = copy.deepcopy(resources)
    *way, last = path.split("/")
    place = copied
    for step in way:
        place = place[int(step)] if isinstance(place, list) else place[step]
    if value is None:
        del place[last]
    else:
        place[last] = value
    return dict(copied)


# The file system

CLIENTS = {"Fn::GetAtt": ["ClientsGroup", "GroupId"]}
SERVERS = {"Fn::GetAtt": ["LustreGroup", "GroupId"]}


def lustre_rule(source: Any, first: int, last: int, end: str = "Source") -> dict[str, Any]:
    return {"IpProtocol": "tcp", "FromPort": first, "ToPort": last, f"{end}SecurityGroupId": source}


LUSTRE: Resources = {
    "FileSystem": {
        "Type": "AWS::FSx::FileSystem",
        "Properties": {
            "KmsKeyId": {"Fn::GetAtt": ["Key", "Arn"]},
            "SubnetIds": [{"Ref": "Subnet"}],
            "SecurityGroupIds": [SERVERS],
        },
        "DependsOn": ["FromItself988", "FromItself1018"],
    },
    "LustreGroup": {
        "Type": "AWS::EC2::SecurityGroup",
        "Properties": {
            "SecurityGroupIngress": [lustre_rule(CLIENTS, 988, 988), lustre_rule(CLIENTS, 1018, 1023)],
            "SecurityGroupEgress": [{"CidrIp": "255.255.255.255/32", "IpProtocol": "icmp", "FromPort": 252}],
        },
    },
    "FromItself988": {
        "Type": "AWS::EC2::SecurityGroupIngress",
        "Properties": {"GroupId": SERVERS, **lustre_rule(SERVERS, 988, 988)},
    },
    "FromItself1018": {
        "Type": "AWS::EC2::SecurityGroupIngress",
        "Properties": {"GroupId": SERVERS, **lustre_rule(SERVERS, 1018, 1023)},
    },
}


def test_a_file_system_with_its_key_zone_and_ports_is_fine() -> None:
    assert found(LUSTRE) == []


def test_a_file_system_without_a_key_is_found() -> None:
    assert found(changed(LUSTRE, "FileSystem/Properties/KmsKeyId", None)) == [
        "FileSystem: the file system is not encrypted with a key of this deployment."
    ]


def test_a_file_system_in_two_subnets_is_found() -> None:
    assert found(changed(LUSTRE, "FileSystem/Properties/SubnetIds", [{"Ref": "A"}, {"Ref": "B"}])) == [
        "FileSystem: the file system stands in 2 subnets instead of one."
    ]


def test_ports_beside_lustres_own_are_found() -> None:
    # CDK's LustreFileSystem opens this whole range.
    wide = changed(LUSTRE, "FromItself988/Properties/ToPort", 1023)
    assert found(wide) == [
        "LustreGroup: ingress of ports 988-1023; Lustre needs 988 and 1018-1023.",
        "LustreGroup: the group does not let itself in on 988 and 1018-1023.",
    ]


def test_addresses_instead_of_security_groups_are_found() -> None:
    rule = {"IpProtocol": "tcp", "FromPort": 988, "ToPort": 988, "CidrIp": "10.40.0.0/16"}
    assert found(changed(LUSTRE, "LustreGroup/Properties/SecurityGroupIngress", [rule])) == [
        "LustreGroup: ingress by address instead of by security group."
    ]


def test_a_rule_in_another_stack_counts_as_well() -> None:
    outputs = {"GroupId": {"Value": SERVERS, "Export": {"Name": "Storage:GroupId"}}}
    rule = {"GroupId": {"Fn::ImportValue": "Storage:GroupId"}, **lustre_rule({"Ref": "Nodes"}, 22, 22)}
    elsewhere = {"Ssh": {"Type": "AWS::EC2::SecurityGroupIngress", "Properties": rule}}
    templates = {"Storage": {"Resources": LUSTRE, "Outputs": outputs}, "Cluster": {"Resources": elsewhere}}
    assert [finding.sentence for finding in findings(templates, accepted=())] == [
        "ingress of ports 22; Lustre needs 988 and 1018-1023."
    ]


def test_a_file_system_that_no_client_can_reach_is_found() -> None:
    assert found(changed(LUSTRE, "FileSystem/Properties/SecurityGroupIds", None)) == [
        "FileSystem: the file system has no security group of its own."
    ]
    assert found(changed(LUSTRE, "FileSystem/Properties/SecurityGroupIds", ["sg-0123"])) == [
        "FileSystem: the file system's security group is none of this app."
    ]


def test_a_file_system_that_is_created_beside_a_rule_of_its_group_is_found() -> None:
    assert found(changed(LUSTRE, "FileSystem/DependsOn", "FromItself988")) == [
        "FileSystem: the file system does not wait for the rule FromItself1018."
    ]


def link(**fields: Any) -> dict[str, Any]:
    return {
        "Type": "AWS::FSx::DataRepositoryAssociation",
        "Properties": {"FileSystemId": {"Ref": "FileSystem"}},
    } | fields


def test_links_in_sequence_are_fine() -> None:
    first = link()
    assert found(LUSTRE | {"A": first, "B": link(DependsOn=["A"]), "C": link(DependsOn="B")}) == []


def test_a_third_link_beside_the_others_is_found() -> None:
    assert found(LUSTRE | {"A": link(), "B": link(DependsOn=["A"]), "C": link(DependsOn=["A"])}) == [
        "C: neither this link nor B waits for the other."
    ]


# Buckets and logs

KEPT: Resources = {
    "Bucket": {
        "Type": "AWS::S3::Bucket",
        "DeletionPolicy": "Retain",
        "Properties": {"LifecycleConfiguration": {"Rules": [{"Status": "Enabled"}]}},
    },
    "Log": {"Type": "AWS::Logs::LogGroup", "DeletionPolicy": "Delete", "Properties": {"RetentionInDays": 30}},
    "Function": {"Type": "AWS::Lambda::Function", "Properties": {"LoggingConfig": {"LogGroup": {"Ref": "Log"}}}},
}


def test_buckets_and_logs_with_a_decision_are_fine() -> None:
    assert found(KEPT) == []


@pytest.mark.parametrize(
    ("path", "sentence"),
    [
        ("Bucket/Properties/LifecycleConfiguration", "Bucket: the bucket has no lifecycle rule."),
        ("Bucket/DeletionPolicy", "Bucket: nothing says whether the bucket is deleted with its stack."),
        ("Log/Properties/RetentionInDays", "Log: the log group keeps its events for ever."),
        ("Log/DeletionPolicy", "Log: nothing says whether the log group is deleted with its stack."),
        (
            "Function/Properties/LoggingConfig",
            "Function: the function has no log group of its own, and Lambda's keeps events for ever.",
        ),
    ],
)
def test_a_missing_decision_is_found(path: str, sentence: str) -> None:
    assert found(changed(KEPT, path, None)) == [sentence]


def test_a_log_group_whose_name_may_be_taken_is_found() -> None:
    name = "Log/Properties/LogGroupName"
    assert found(changed(KEPT, name, {"Fn::Join": ["", ["/aws/fsx/", {"Ref": "AWS::StackId"}]]})) == []
    for fixed in ("/aws/eks/blue/cluster", {"Fn::Join": ["", ["/aws/eks/", "blue/cluster"]]}):
        assert found(changed(KEPT, name, fixed)) == [
            "Log: the log group's name /aws/eks/blue/cluster is fixed: a group that is there stops the deployment."
        ]


SENTENCE = "FileSystem: names a log group by an ARN that ends with ':*'; leave that out."


def named_log(destination: Any, type_: str = "AWS::FSx::FileSystem") -> Resources:
    """What names a log group somewhere in its properties, beside the group."""
    system = {
        "KmsKeyId": "key",
        "SubnetIds": ["subnet"],
        "SecurityGroupIds": [],
        "LustreConfiguration": {"LogConfiguration": [{"Destination": destination}]},
    }
    return {"Log": KEPT["Log"], "FileSystem": {"Type": type_, "Properties": system}}


@pytest.mark.parametrize(
    "destination",
    [
        {"Fn::GetAtt": ["Log", "Arn"]},
        "arn:aws:logs:us-west-2:111111111111:log-group:/aws/fsx/mine:*",
        {"Fn::Join": ["", ["arn:", {"Ref": "AWS::Partition"}, ":logs:r:1:log-group:", {"Ref": "Log"}, ":*"]]},
    ],
)
def test_a_destination_that_ends_with_a_star_is_found(destination: Any) -> None:
    assert SENTENCE in found(named_log(destination))
    for type_ in ("AWS::IAM::Policy", "AWS::IAM::Role", "AWS::StepFunctions::StateMachine"):
        assert SENTENCE not in found(named_log(destination, type_))


def test_a_log_group_of_another_stack_is_found_too() -> None:
    output = {"Value": {"Fn::GetAtt": ["Log", "Arn"]}, "Export": {"Name": "log"}}
    other = {"Resources": {"Log": KEPT["Log"]}, "Outputs": {"Log": output}}
    templates = {"Stack": {"Resources": named_log({"Fn::ImportValue": "log"})}, "Other": other}
    assert "log-group-arn" in {finding.rule for finding in findings(templates, accepted=())}


@pytest.mark.parametrize(
    "destination",
    [
        {"Ref": "Log"},
        {"Fn::GetAtt": ["Key", "Arn"]},
        {"Fn::Join": ["", ["arn:aws:logs:us-west-2:111111111111:log-group:", {"Ref": "Log"}]]},
    ],
)
def test_a_destination_without_a_star_is_fine(destination: Any) -> None:
    assert SENTENCE not in found(named_log(destination))


def test_a_lifecycle_rule_that_is_off_is_none() -> None:
    assert found(changed(KEPT, "Bucket/Properties/LifecycleConfiguration/Rules", [{"Status": "Disabled"}])) == [
        "Bucket: the bucket has no lifecycle rule."
    ]


# The workflow


def machine(**fields: Any) -> Resources:
    task = {
        "Type": "Task",
        "Resource": "arn:aws:states:::lambda:invoke",
        "Parameters": {"FunctionName": "${PollJob}"},
        "TimeoutSeconds": 90,
        "Retry": [{"ErrorEquals": ["States.ALL"]}],
        "Catch": [{"ErrorEquals": ["States.ALL"], "Next": "Failed"}],
    }
    task = {key: value for key, value in (task | fields).items() if value is not None}
    definition = {"StartAt": "Poll", "States": {"Poll": task, "Failed": {"Type": "Fail"}}}
    return {
        "Machine": {
            "Type": "AWS::StepFunctions::StateMachine",
            "Properties": {
                "DefinitionString": json.dumps(definition),
                "DefinitionSubstitutions": {"PollJob": {"Ref": "Alias"}},
            },
        },
        "Alias": {
            "Type": "AWS::Lambda::Alias",
            "Properties": {"FunctionName": {"Fn::GetAtt": ["Version", "FunctionName"]}},
        },
        "Version": {"Type": "AWS::Lambda::Version", "Properties": {"FunctionName": {"Ref": "Function"}}},
        "Function": {
            "Type": "AWS::Lambda::Function",
            "Properties": {"Timeout": 60, "LoggingConfig": {"LogGroup": {"Ref": "Log"}}},
        },
    }


def test_a_task_that_outlives_its_function_retries_and_catches_is_fine() -> None:
    assert found(machine()) == []


@pytest.mark.parametrize("field", ["Retry", "Catch"])
def test_a_task_that_gives_up_at_once_is_found(field: str) -> None:
    assert found(machine(**{field: None})) == [f"Machine: the task Poll has no {field}."]


def test_a_task_inside_a_parallel_state_is_read_too() -> None:
    resources = machine()
    definition = json.loads(resources["Machine"]["Properties"]["DefinitionString"])
    del definition["States"]["Poll"]["Catch"]
    whole = {"StartAt": "Both", "States": {"Both": {"Type": "Parallel", "Branches": [definition]}}}
    assert found(changed(resources, "Machine/Properties/DefinitionString", json.dumps(whole))) == [
        "Machine: the task Poll has no Catch."
    ]


def test_a_definition_joined_from_pieces_is_read_too() -> None:
    resources = machine(Retry=None)
    whole = resources["Machine"]["Properties"]["DefinitionString"]
    first, second = whole.split("arn:aws:", 1)
    joined = {"Fn::Join": ["", [first, "arn:", {"Ref": "AWS::Partition"}, ":", second]]}
    assert found(changed(resources, "Machine/Properties/DefinitionString", joined)) == [
        "Machine: the task Poll has no Retry."
    ]


def test_a_function_that_may_run_longer_than_its_task_waits_is_found() -> None:
    assert found(changed(machine(), "Function/Properties/Timeout", 90)) == [
        "Function: the function may run for 90 s, but its task Poll waits 90 s."
    ]


def test_a_function_without_a_time_limit_of_its_own_has_lambdas() -> None:
    assert found(changed(machine(TimeoutSeconds=4), "Function/Properties/Timeout", None)) == []
    assert found(changed(machine(TimeoutSeconds=3), "Function/Properties/Timeout", None)) != []


def test_a_task_whose_function_cannot_be_found_is_told() -> None:
    assert found(changed(machine(), "Machine/Properties/DefinitionSubstitutions", None)) == [
        "Machine: the task Poll leads to no function of this app."
    ]


def test_a_definition_that_cannot_be_read_is_told() -> None:
    assert found(changed(machine(), "Machine/Properties/DefinitionString", {"Ref": "Parameter"})) == [
        "Machine: the definition does not stand in the template as JSON."
    ]


# Access


def policy(**fields: Any) -> Resources:
    statement = {"Effect": "Allow", "Action": "s3:GetObject", "Resource": "arn:aws:s3:::bucket/*"} | fields
    return {
        "Policy": {"Type": "AWS::IAM::Policy", "Properties": {"PolicyDocument": {"Statement": [statement]}}},
    }


def test_a_statement_that_names_its_resource_is_fine() -> None:
    assert found(policy()) == []


def test_a_star_where_the_action_could_be_narrowed_is_found() -> None:
    assert found(policy(Resource=["arn:aws:s3:::bucket", "*"])) == [
        "Policy: the action s3:GetObject is allowed on every resource."
    ]


def test_a_star_for_every_action_is_found() -> None:
    assert found(policy(Action=["s3:*", "*"], Resource="*")) == [
        "Policy: the action s3:* is allowed on every resource.",
        "Policy: the action * is allowed on every resource.",
    ]


def test_a_refusal_of_everything_is_fine() -> None:
    assert found(policy(Effect="Deny", Resource="*")) == []


def test_actions_that_take_no_resource_are_fine() -> None:
    actions = ["xray:PutTraceSegments", "logs:CreateLogDelivery", "ec2:CreateNetworkInterface"]
    assert found(policy(Action=actions, Resource="*")) == []


def test_an_action_is_narrowed_by_its_condition_where_no_resource_can() -> None:
    (action, key), *_ = NEEDS_CONDITION.items()
    narrowed = {"StringEquals": {key: "Trainflow"}}
    assert found(policy(Action=action, Resource="*", Condition=narrowed)) == []
    assert found(policy(Action=action, Resource="*")) == [f"Policy: the action {action} is allowed without {key}."]


def test_policies_inside_roles_and_on_queues_are_read_too() -> None:
    document = policy(Resource="*")["Policy"]["Properties"]["PolicyDocument"]
    inline = {"PolicyName": "inline", "PolicyDocument": document}
    resources = {
        "Role": {"Type": "AWS::IAM::Role", "Properties": {"Policies": [inline]}},
        "OnQueue": {"Type": "AWS::SQS::QueuePolicy", "Properties": {"PolicyDocument": document}},
    }
    assert [line.split(":")[0] for line in found(resources)] == ["Role", "OnQueue"]


def manifest(*objects: Any, joined: bool = False) -> Resources:
    text: Any = json.dumps(objects)
    if joined:
        before, after = text.split("NAME")
        text = {"Fn::Join": ["", [before, {"Ref": "Cluster"}, after]]}
    return {"Manifest": {"Type": "Custom::AWSCDK-EKS-KubernetesResource", "Properties": {"Manifest": text}}}


def test_the_roles_that_the_functions_get_in_the_cluster_are_fine() -> None:
    assert found(manifest(*access_manifests("training"))) == []


@pytest.mark.parametrize("field", ["apiGroups", "resources", "verbs"])
@pytest.mark.parametrize("kind", ["Role", "ClusterRole"])
def test_a_star_in_a_role_of_the_cluster_is_found(kind: str, field: str) -> None:
    rule = {"apiGroups": ["batch"], "resources": ["jobs"], "verbs": ["get"]} | {field: ["*"]}
    role = {"kind": kind, "metadata": {"name": "NAME"}, "rules": [rule]}
    assert found(manifest(role)) == [f"Manifest: the {kind} NAME grants '*' in {field}."]
    assert found(manifest(role, joined=True)) == [f"Manifest: the {kind} token grants '*' in {field}."]


def test_a_star_behind_a_group_is_found() -> None:
    rule = {"apiGroups": ["batch"], "resources": ["jobs/*"], "verbs": ["get"]}
    assert found(manifest({"kind": "Role", "metadata": {"name": "r"}, "rules": [rule]})) != []


JOB = {
    "kind": "Job",
    "metadata": {"name": "prepare-fs-1"},
    "spec": {"template": {"spec": {"containers": [{"name": "main", "image": "busybox:1"}]}}},
}


def applied_with_pruning(job: dict[str, Any]) -> Resources:
    return changed(manifest(job), "Manifest/Properties/PruneLabel", "aws.cdk.eks/prune-c8")


def test_a_job_that_is_named_after_its_template_and_pruned_is_fine() -> None:
    assert found(applied_with_pruning(named_after_template(JOB))) == []


def test_a_job_that_keeps_its_name_when_its_template_changes_is_found() -> None:
    kept = named_after_template(JOB)
    kept["spec"] = {"template": {"spec": {"containers": [{"name": "main", "image": "busybox:2"}]}}}
    (sentence,) = found(applied_with_pruning(kept))
    assert re.fullmatch(rf"Manifest: the Job {kept['metadata']['name']} does not end with .* hash \w{{8}}\.", sentence)


def test_a_job_that_is_not_removed_when_its_name_changes_is_found() -> None:
    job = named_after_template(JOB)
    assert found(manifest(job)) == [
        f"Manifest: nothing removes the Job {job['metadata']['name']} when its name changes."
    ]


def test_a_hash_cannot_follow_a_value_that_only_cloudformation_knows() -> None:
    image = cdk.Fn.import_value("image")
    job = {**JOB, "spec": {"template": {"spec": {"containers": [{"name": "main", "image": image}]}}}}
    with pytest.raises(ValueError, match=r"template of prepare-fs-1 .*value"):
        named_after_template(job)


def test_a_manifest_that_cannot_be_read_is_told() -> None:
    assert found(changed(manifest(), "Manifest/Properties/Manifest", {"Ref": "Parameter"})) == [
        "Manifest: the manifest is not JSON that could be checked."
    ]


# What can be reached, and what costs

INGRESS = {"IpProtocol": "tcp", "FromPort": 443, "ToPort": 443}


@pytest.mark.parametrize(
    ("field", "world", "office"), [("CidrIp", "0.0.0.0/0", "203.0.113.0/24"), ("CidrIpv6", "::/0", "2001:db8::/32")]
)
def test_ingress_from_everywhere_is_found(field: str, world: str, office: str) -> None:
    def group(network: str) -> Resources:
        rules = {"SecurityGroupIngress": [INGRESS | {field: network}]}
        return {
            "Group": {"Type": "AWS::EC2::SecurityGroup", "Properties": rules},
            "Rule": {"Type": "AWS::EC2::SecurityGroupIngress", "Properties": INGRESS | {field: network}},
        }

    assert found(group(office)) == []
    assert found(group(world)) == [f"Group: ingress is open to {world}.", f"Rule: ingress is open to {world}."]


def api_server(**access: Any) -> Resources:
    return {"Cluster": {"Type": "AWS::EKS::Cluster", "Properties": {"ResourcesVpcConfig": access}}}


@pytest.mark.parametrize(
    "access",
    [
        {"EndpointPublicAccess": False},
        {"EndpointPublicAccess": True, "PublicAccessCidrs": ["203.0.113.0/24", "198.51.100.7/32"]},
    ],
)
def test_an_api_server_for_named_networks_is_fine(access: dict[str, Any]) -> None:
    assert found(api_server(**access)) == []


@pytest.mark.parametrize(
    "access",
    [
        {},
        {"EndpointPublicAccess": True},
        {"EndpointPublicAccess": True, "PublicAccessCidrs": ["203.0.113.0/24", "0.0.0.0/1"]},
        {"EndpointPublicAccess": True, "PublicAccessCidrs": [{"Ref": "Parameter"}]},
        {"EndpointPublicAccess": {"Ref": "Parameter"}},
    ],
)
def test_an_api_server_open_to_the_world_is_found(access: dict[str, Any]) -> None:
    assert found(api_server(**access)) != []


def nodegroup(desired: Any = 0, **fields: Any) -> Resources:
    scaling = {"ScalingConfig": {"MinSize": 0, "DesiredSize": desired, "MaxSize": 4}}
    return {"Nodes": {"Type": "AWS::EKS::Nodegroup", "Properties": scaling | fields}}


def test_a_node_group_that_is_deployed_with_nodes_is_found() -> None:
    assert found(nodegroup(0)) == []
    assert found(nodegroup(1)) == ["Nodes: the node group is deployed with desired size 1."]


def test_a_node_group_that_leaves_its_size_to_eks_is_found() -> None:
    assert found(changed(nodegroup(), "Nodes/Properties/ScalingConfig", None)) != []


PLACED = {"Placement": {"GroupName": {"Ref": "Group"}}}


METADATA = {"HttpTokens": "required", "HttpPutResponseHopLimit": 1}


def launch_template(**data: Any) -> Resources:
    properties = {"LaunchTemplateData": {"MetadataOptions": METADATA, **data}}
    return {"Template": {"Type": "AWS::EC2::LaunchTemplate", "Properties": properties}}


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"HttpTokens": "required"}, "the metadata service's hop limit is None, and pods reach it; set 1."),
        (METADATA | {"HttpPutResponseHopLimit": 2}, "the metadata service's hop limit is 2, and pods reach it; set 1."),
        (METADATA | {"HttpTokens": "optional"}, "the metadata service answers without a token; require one."),
    ],
)
def test_a_metadata_service_that_pods_reach_is_found(options: dict[str, Any], sentence: str) -> None:
    assert found(launch_template(MetadataOptions=options)) == [f"Template: {sentence}"]


def test_a_placement_group_for_nodes_on_demand_is_fine() -> None:
    assert found(nodegroup(LaunchTemplate={"Id": {"Ref": "Template"}}) | launch_template(**PLACED)) == []


@pytest.mark.parametrize(
    "reserved",
    [
        {"InstanceMarketOptions": {"MarketType": "capacity-block"}},
        {"CapacityReservationSpecification": {"CapacityReservationTarget": {"CapacityReservationId": "cr-01234567"}}},
    ],
)
def test_reserved_capacity_inside_a_placement_group_is_found(reserved: dict[str, Any]) -> None:
    assert found(launch_template(**reserved)) == []
    assert found(launch_template(**reserved, **PLACED)) == [
        "Template: reserved capacity is asked for inside a placement group."
    ]


def test_a_capacity_block_is_known_by_its_node_group_too() -> None:
    group = nodegroup(LaunchTemplate={"Id": {"Ref": "Template"}}, CapacityType="CAPACITY_BLOCK")
    assert found(group | launch_template(**PLACED)) != []
    assert found(group | launch_template()) == []


# Exceptions


def test_an_exception_covers_its_resource_and_its_rule_alone() -> None:
    templates = {"Stack": {"Resources": {"SystemNodes": nodegroup(2)["Nodes"], **nodegroup(2)}}}
    system = Accepted(rule="nodes-off", resource=r"System.*", reason="they are always there")
    other = Accepted(rule="retention", resource=r".*", reason="of another rule")
    assert [finding.logical_id for finding in findings(templates, accepted=(system, other))] == ["Nodes"]


def test_every_exception_has_a_reason_and_a_rule_that_exists() -> None:
    rules = set(Path("stacks/checks").rglob("*.py"))
    texts = "".join(path.read_text() for path in rules if path.name != "accepted.py")
    for exception in ACCEPTED:
        assert len(exception.reason) > 40, exception
        assert f'"{exception.rule}"' in texts, exception
    assert all(WITHOUT_RESOURCE.values())


def test_nothing_is_found_in_an_empty_app() -> None:
    assert CHECKS
    assert findings({"Stack": {}}) == []


# The plugin


def synthesized(tmp_path: Path, retention: logs.RetentionDays) -> list[Path]:
    app = cdk.App(outdir=str(tmp_path))
    stack = cdk.Stack(app, "Logs")
    logs.LogGroup(stack, "Log", retention=retention, removal_policy=cdk.RemovalPolicy.DESTROY)
    app.synth()
    return [tmp_path / "Logs.template.json"]


def test_the_plugin_reports_what_the_checks_find(tmp_path: Path) -> None:
    paths = synthesized(tmp_path, logs.RetentionDays.INFINITE)
    report = TrainflowChecks().validate(SimpleNamespace(template_paths=[str(path) for path in paths]))  # type: ignore[arg-type]
    assert not report.success
    (violation,) = report.violations
    assert violation.rule_name == "retention"
    assert violation.violating_resources[0].template_path == str(paths[0])


def test_the_plugin_has_nothing_to_say_about_a_sound_app(tmp_path: Path) -> None:
    paths = synthesized(tmp_path, logs.RetentionDays.ONE_MONTH)
    report = TrainflowChecks().validate(SimpleNamespace(template_paths=[str(path) for path in paths]))  # type: ignore[arg-type]
    assert report.success
    assert report.violations == []


def test_synthesis_fails_on_a_finding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    app = cdk.App(outdir=str(tmp_path), context={"@aws-cdk/core:failSynthOnValidationErrors": True})
    logs.LogGroup(cdk.Stack(app, "Logs"), "Log", retention=logs.RetentionDays.INFINITE)
    cdk.Validations.of(app).add_plugins(TrainflowChecks())
    with pytest.raises(RuntimeError, match="ValidationFailed"):
        app.synth()


def test_the_plugin_looks_into_nested_stacks(tmp_path: Path) -> None:
    app = cdk.App(outdir=str(tmp_path))
    stack = cdk.Stack(app, "Parent")
    logs.LogGroup(cdk.NestedStack(stack, "Nested"), "Log", retention=logs.RetentionDays.INFINITE)
    app.synth()
    context = SimpleNamespace(template_paths=[str(tmp_path / "Parent.template.json")])
    (violation,) = TrainflowChecks().validate(context).violations  # type: ignore[arg-type]
    assert "Nested" in str(violation.violating_resources[0].template_path)
