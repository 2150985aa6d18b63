"""Who can reach the cluster, what its members may do, and what is left of it after `cdk destroy`: nothing."""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import aws_cdk as cdk
import boto3
import kubernetes_validate
import moto
import pytest
from aws_cdk.assertions import Template
from aws_cdk.lambda_layer_kubectl_v36 import KubectlV36Layer
from botocore import xform_name
from moto.iam.aws_managed_policies import aws_managed_policies_data
from pydantic import ValidationError

from lambdas.backends import job as indexed_job
from lambdas.logic.jobs import Job
from local.shared_storage import NAMESPACE_LABELS
from stacks.checks.packs import PACKS
from stacks.cluster import workload
from stacks.cluster.addons import on_nodes
from stacks.cluster.network_policies import network_policy_manifests
from stacks.cluster.stack import KUBERNETES_VERSIONS, ClusterReference, ClusterStack, existing_cluster
from stacks.network.stack import NetworkStack
from stacks.shared import session_manager
from stacks.shared.acknowledgements import Reason
from stacks.storage.stack import StorageStack
from tests.infrastructure.auditors import audit, unacknowledged
from trainflow.configuration.cluster_software import CHARTS, TRAINER, VOLCANO
from trainflow.configuration.deployment import Cluster, Configuration, ConfigurationError, Images, load_configuration
from trainflow.configuration.queues import VolcanoQueue
from trainflow.deployment.kubernetes_access import Access, access_manifests
from trainflow.deployment.volcano_queues import queue_manifest
from trainflow.nodes.instances import INSTANCE_TYPES
from trainflow.protocol.pods import CACHE_MOUNT, CLAIM, DATA_MOUNT, FOLDERS, RUNS_MOUNT, SERVICE_ACCOUNT, USER
from trainflow.workflow.run import JobRef, Stage

Resource = dict[str, Any]

EXAMPLE = Path("config/example.yaml")
CONTEXT = {**json.loads(Path("cdk.json").read_text())["context"], "aws:cdk:disable-asset-staging": True}
ADMINISTRATOR = "arn:aws:iam::111122223333:role/administrator"
OFFICE = "203.0.113.0/24"
APPLIED = "Custom::AWSCDK-EKS-KubernetesResource"
PINNED = re.compile(r"v?\d+\.\d+\.\d+")


def configuration(**cluster: Any) -> Configuration:
    document = load_configuration(EXAMPLE).model_dump()
    return Configuration.model_validate({**document, "cluster": {**document["cluster"], **cluster}})


def compose(app: cdk.App, settings: Configuration) -> ClusterStack:
    env = cdk.Environment(region=settings.region)
    network = NetworkStack(app, "Network", configuration=settings, env=env)
    storage = StorageStack(app, "Storage", configuration=settings, network=network, env=env)
    return ClusterStack(app, "Cluster", configuration=settings, network=network, storage=storage, env=env)


@cache
def template(*, public: bool = False, production: bool = False) -> dict[str, Resource]:
    """Resources by logical id; `public` opens the endpoint to one network and names an administrator."""
    settings = configuration(
        public_endpoint_cidrs=(OFFICE,) if public else (), administrators=(ADMINISTRATOR,) if public else ()
    )
    with tempfile.TemporaryDirectory() as folder:
        app = cdk.App(context=CONTEXT, outdir=folder)
        compose(app, settings.model_copy(update={"environment": "production"}) if production else settings)
        app.synth()
        resources: dict[str, Resource] = json.loads((Path(folder) / "Cluster.template.json").read_text())["Resources"]
    return resources


def of_type(kind: str, *, public: bool = False) -> dict[str, Resource]:
    return {
        name: resource["Properties"] for name, resource in template(public=public).items() if resource["Type"] == kind
    }


def only(kind: str, *, public: bool = False) -> Resource:
    [resource] = of_type(kind, public=public).values()
    return resource


def manifests() -> list[Resource]:
    """Every object that is applied to the cluster, without the label by which CDK prunes."""
    found = []
    for properties in of_type(APPLIED).values():
        for manifest in json.loads(_text(properties["Manifest"])):
            labels = manifest["metadata"].get("labels", {})
            manifest["metadata"]["labels"] = {key: labels[key] for key in labels if not key.startswith("aws.cdk.eks")}
            found.append(manifest)
    return found


def of_kind(*kinds: str) -> list[Resource]:
    return [manifest for manifest in manifests() if manifest["kind"] in kinds]


def _text(value: Any) -> str:
    """What a template's text says; references stand as words in it."""
    if isinstance(value, str):
        return value
    separator, parts = value["Fn::Join"]
    return str(separator).join(part if isinstance(part, str) else "fs-0reference" for part in parts)


def _references(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for key, inner in value.items():
            if key == "Ref":
                yield str(inner)
            elif key == "Fn::GetAtt":
                yield str(inner[0])
            else:
                yield from _references(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _references(inner)


def needs(name: str, *, production: bool = False) -> set[str]:
    """Everything that is made before a resource, and deleted after it."""
    found: set[str] = set()
    waiting = [name]
    while waiting:
        resource = template(production=production).get(waiting.pop(), {})
        depends = resource.get("DependsOn", [])
        before = {*([depends] if isinstance(depends, str) else depends), *_references(resource.get("Properties", {}))}
        waiting += before - found
        found |= before
    return found


def statements(part: str) -> list[Resource]:
    [policy] = [properties for name, properties in of_type("AWS::IAM::Policy").items() if part in name]
    found: list[Resource] = policy["PolicyDocument"]["Statement"]
    return found


def test_the_api_server_is_reached_by_functions_over_https_and_by_no_other_client_from_outside_the_nodes() -> None:
    [rule] = of_type("AWS::EC2::SecurityGroupIngress").values()
    assert (rule["IpProtocol"], rule["FromPort"], rule["ToPort"]) == ("tcp", 443, 443)
    assert "Functions" in rule["SourceSecurityGroupId"]["Fn::ImportValue"]
    for group in of_type("AWS::EC2::SecurityGroup").values():
        assert "SecurityGroupIngress" not in group


def test_manifests_are_applied_by_a_function_that_the_api_server_lets_in_until_they_are_gone() -> None:
    handlers = [function for function in of_type("AWS::Lambda::Function").values() if "Layers" in function]
    [groups] = [handler["VpcConfig"]["SecurityGroupIds"] for handler in handlers]
    [rule] = of_type("AWS::EC2::SecurityGroupIngress")
    assert groups == [of_type("AWS::EC2::SecurityGroupIngress")[rule]["SourceSecurityGroupId"]]
    for name in of_type("Custom::AWSCDK-EKS-KubernetesResource") | of_type("Custom::AWSCDK-EKS-HelmChart"):
        assert rule in needs(name)


def test_the_endpoint_is_private_unless_networks_are_named() -> None:
    endpoint = only("AWS::EKS::Cluster")["ResourcesVpcConfig"]
    assert (endpoint["EndpointPrivateAccess"], endpoint["EndpointPublicAccess"]) == (True, False)


def test_a_public_endpoint_is_open_to_the_named_networks_only_and_to_the_vpc_still() -> None:
    endpoint = only("AWS::EKS::Cluster", public=True)["ResourcesVpcConfig"]
    assert (endpoint["EndpointPrivateAccess"], endpoint["EndpointPublicAccess"]) == (True, True)
    assert endpoint["PublicAccessCidrs"] == [OFFICE]


def log_calls(event: str, *, production: bool = False) -> list[Resource]:
    """What the custom resources of the log groups call, in the order of their dependencies."""
    calls = []
    for name, resource in template(production=production).items():
        if resource["Type"] == "Custom::AWS" and event in resource["Properties"]:
            text = resource["Properties"][event]
            calls.append((len(needs(name, production=production)), json.loads(text)))
    return [call for _, call in sorted(calls, key=lambda found: found[0])]


def test_the_control_plane_logs_everything_into_a_group_that_was_there_first() -> None:
    [(name, cluster)] = of_type("AWS::EKS::Cluster").items()
    logged = {entry["Type"] for entry in cluster["Logging"]["ClusterLogging"]["EnabledTypes"]}
    assert logged == {"api", "audit", "authenticator", "controllerManager", "scheduler"}
    before = [template()[other] for other in needs(name) if template().get(other, {}).get("Type") == "Custom::AWS"]
    made = {json.loads(call["Properties"]["Update"])["parameters"]["logGroupName"] for call in before}
    assert "/aws/eks/trainflow/cluster" in made
    kinds = ("application", "dataplane", "host", "performance")
    assert made == {"/aws/eks/trainflow/cluster", *(f"/aws/containerinsights/trainflow/{kind}" for kind in kinds)}


@pytest.fixture
def account() -> Iterator[None]:
    with moto.mock_aws():
        yield


@pytest.mark.usefixtures("account")
@pytest.mark.parametrize("production", [False, True])
def test_a_second_deployment_finds_the_log_groups_of_the_first_and_they_expire(production: bool) -> None:
    """The calls in the template, made as CDK's function makes them."""
    client = boto3.client("logs", region_name="us-west-2")
    client.create_log_group(logGroupName="/aws/eks/trainflow/cluster")  # as EKS does by itself
    for _ in range(2):
        for call in log_calls("Update", production=production):
            make_call(client, call)
    groups = client.describe_log_groups()["logGroups"]
    retention = {group["logGroupName"].removeprefix("/aws/"): group["retentionInDays"] for group in groups}
    pods = 90 if production else 14
    assert retention == {
        "eks/trainflow/cluster": 365 if production else 30,
        **{f"containerinsights/trainflow/{kind}": pods for kind in ("application", "dataplane", "host", "performance")},
    }
    for _ in range(2):
        for call in log_calls("Delete", production=production):
            make_call(client, call)
    assert len(client.describe_log_groups()["logGroups"]) == (5 if production else 0)


def make_call(client: Any, call: Resource) -> None:
    assert call["service"] == "cloudwatch-logs"
    try:
        getattr(client, xform_name(call["action"]))(**call["parameters"])
    except client.exceptions.ClientError as error:
        if not re.search(call["ignoreErrorCodesMatching"], error.response["Error"]["Code"]):
            raise


def test_no_log_is_kept_forever_or_left_behind() -> None:
    for name in of_type("AWS::Logs::LogGroup"):
        assert template()[name]["Properties"]["RetentionInDays"]
        assert template()[name]["DeletionPolicy"] == "Delete"
    for function in of_type("AWS::Lambda::Function").values():
        assert function["LoggingConfig"]["LogGroup"]["Ref"] in of_type("AWS::Logs::LogGroup")


def test_a_function_writes_to_a_log_group_to_which_its_role_may_write() -> None:
    for function in of_type("AWS::Lambda::Function").values():
        group = function["LoggingConfig"]["LogGroup"]["Ref"]
        role = function["Role"]["Fn::GetAtt"][0]
        allowed = [
            statement["Resource"]
            for policy in of_type("AWS::IAM::Policy").values()
            if {"Ref": role} in policy["Roles"]
            for statement in policy["PolicyDocument"]["Statement"]
            if "logs:PutLogEvents" in _listed(statement["Action"])
        ]
        assert allowed == [{"Fn::GetAtt": [group, "Arn"]}]


def test_another_base_image_makes_another_job_and_the_old_one_is_removed() -> None:
    shared = SimpleNamespace(file_system_id="fs-0123456789abcdef0")
    first, again, other = (
        workload.folders_manifest(
            configuration().model_copy(update={"images": Images(cpu_base=image)}), cast(Any, shared)
        )
        for image in ("python:3.12", "python:3.12", "python:3.13")
    )
    assert first == again
    assert re.fullmatch(r"prepare-fs-0123456789abcdef0-[0-9a-f]{8}", first["metadata"]["name"])
    assert other["metadata"]["name"] != first["metadata"]["name"]
    (applied,) = (found for found in of_type(APPLIED).values() if '"kind":"Job"' in json.dumps(found).replace("\\", ""))
    assert applied["PruneLabel"].startswith("aws.cdk.eks/prune-")


def test_secrets_are_encrypted_with_a_key_that_rotates() -> None:
    [encryption] = only("AWS::EKS::Cluster")["EncryptionConfig"]
    key = of_type("AWS::KMS::Key")[encryption["Provider"]["KeyArn"]["Fn::GetAtt"][0]]
    assert encryption["Resources"] == ["secrets"]
    assert key["EnableKeyRotation"] is True


def test_only_the_named_and_the_kubectl_handler_administer_the_cluster() -> None:
    access = only("AWS::EKS::Cluster", public=True)["AccessConfig"]
    assert access == {"AuthenticationMode": "API", "BootstrapClusterCreatorAdminPermissions": False}
    principals = [entry["PrincipalArn"] for entry in of_type("AWS::EKS::AccessEntry", public=True).values()]
    named = [principal for principal in principals if isinstance(principal, str)]
    [handler] = [principal for principal in principals if not isinstance(principal, str)]
    assert named == [ADMINISTRATOR]
    assert "KubectlProviderHandler" in handler["Fn::GetAtt"][0]


def test_the_function_that_administers_the_cluster_can_do_nothing_else_in_the_account() -> None:
    for name, role in of_type("AWS::IAM::Role").items():
        if "KubectlProvider" in name:
            assert not role.get("ManagedPolicyArns")
    allowed = {action for statement in statements("ProviderHandler") for action in _listed(statement["Action"])}
    services = {action.split(":")[0] for action in allowed}
    assert services == {"logs", "ec2", "ecr-public", "sts", "eks"}
    assert {action for action in allowed if action.startswith("eks:")} == {"eks:DescribeCluster"}


def test_the_kubectl_handler_has_the_runtime_that_cdk_generates_and_tests_it_with() -> None:
    """`KubectlFunction` in aws-cdk-lib 2.275, custom-resource-handlers/dist/aws-eks-v2/kubectl-provider.generated."""
    runtimes = {
        function["Runtime"] for name, function in of_type("AWS::Lambda::Function").items() if "ProviderHandler" in name
    }
    assert runtimes == {"python3.13"}


def test_every_group_may_do_exactly_what_its_calls_use() -> None:
    rules = of_kind("Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding")
    ours = [rule for rule in rules if rule["metadata"]["labels"].get("app.kubernetes.io/managed-by") == "trainflow"]
    assert ours == access_manifests(configuration().namespace)


def test_clean_up_and_the_survey_alone_may_delete_jobs() -> None:
    may = {
        manifest["metadata"]["name"]
        for manifest in of_kind("Role", "ClusterRole")
        for rule in manifest["rules"]
        if {"jobs", "*"} & set(rule["resources"]) and {"delete", "deletecollection", "*"} & set(rule["verbs"])
    }
    assert may == {access.value.replace(":", "-") for access in (Access.CLEAN_UP, Access.SURVEY)}


def test_no_role_may_read_the_secrets_of_other_namespaces() -> None:
    for manifest in of_kind("ClusterRole"):
        assert not [rule for rule in manifest["rules"] if {"secrets", "*"} & set(rule["resources"])]


def test_pods_read_data_and_write_artifacts_and_delete_nothing() -> None:
    allowed = {
        (action, resource)
        for statement in statements("PodRole")
        for action in _listed(statement["Action"])
        for resource in re.findall(r"GetAtt(Data|Artifacts|Key)", json.dumps(statement["Resource"]))
    }
    assert allowed == {
        ("s3:ListBucket", "Data"),
        ("s3:ListBucket", "Artifacts"),
        ("s3:GetObject", "Data"),
        ("s3:GetObject", "Artifacts"),
        ("s3:PutObject", "Artifacts"),
        ("s3:AbortMultipartUpload", "Artifacts"),
        ("kms:Decrypt", "Key"),
        ("kms:GenerateDataKey", "Key"),
    }
    assert all(statement["Effect"] == "Allow" for statement in statements("PodRole"))
    written = [statement for statement in statements("PodRole") if "s3:PutObject" in _listed(statement["Action"])]
    assert [json.dumps(statement["Resource"]).count('"/runs/*"') for statement in written] == [1]


def test_the_key_serves_pods_through_s3_only() -> None:
    [statement] = [found for found in statements("PodRole") if "kms:Decrypt" in found["Action"]]
    assert statement["Condition"] == {"StringEquals": {"kms:ViaService": "s3.us-west-2.amazonaws.com"}}


def test_the_pods_role_is_for_one_service_account_of_this_cluster() -> None:
    association = only("AWS::EKS::PodIdentityAssociation")
    assert (association["Namespace"], association["ServiceAccount"]) == ("training", SERVICE_ACCOUNT)
    [role] = [properties for name, properties in of_type("AWS::IAM::Role").items() if "PodRole" in name]
    for statement in role["AssumeRolePolicyDocument"]["Statement"]:
        tags = statement["Condition"]["StringEquals"]
        assert statement["Principal"] == {"Service": "pods.eks.amazonaws.com"}
        assert tags["aws:RequestTag/kubernetes-namespace"] == "training"
        assert tags["aws:RequestTag/kubernetes-service-account"] == SERVICE_ACCOUNT
        assert "aws:RequestTag/eks-cluster-name" in tags


def test_a_node_reads_pulls_images_and_takes_the_roles_of_its_pods() -> None:
    [role] = [properties for name, properties in of_type("AWS::IAM::Role").items() if name.startswith("NodeRole")]
    names = {_text(policy).rsplit("/", 1)[1] for policy in role["ManagedPolicyArns"]}
    assert names == {"AmazonEKSWorkerNodePolicy", "AmazonEC2ContainerRegistryPullOnly"}
    (offers_sessions,) = statements("NodeRole")
    assert set(offers_sessions["Action"]) == set(session_manager.ACTIONS)
    policies = json.loads(aws_managed_policies_data)
    every = [statement["Action"] for name in names for statement in policies[name]["Document"]["Statement"]]
    actions = {
        action for found in every for action in found if not re.match(r"ec2:Describe|eks:Describe|ecr:.*Get", action)
    }
    assert actions == {"eks-auth:AssumeRoleForPodIdentity", "ecr:BatchImportUpstreamImage"}
    assert [action for action in actions if action not in Reason.NODE_POLICIES.value] == [], "an auditor reads of it"


def test_nodes_offer_no_sessions_unless_the_configuration_says_so() -> None:
    assert not Cluster().ssm_access
    app = cdk.App(context=CONTEXT)
    stack = compose(app, configuration(ssm_access=False))
    assert not stack.node.find_child("NodeRole").node.try_find_child("DefaultPolicy")


def test_permanent_nodes_ask_for_tokens_and_write_to_encrypted_disks_and_can_mount_the_file_system() -> None:
    node = only("AWS::EC2::LaunchTemplate")["LaunchTemplateData"]
    assert node["MetadataOptions"]["HttpTokens"] == "required"
    assert node["MetadataOptions"]["HttpPutResponseHopLimit"] == 1
    assert all(disk["Ebs"]["Encrypted"] for disk in node["BlockDeviceMappings"])
    assert "ClusterSecurityGroupId" in json.dumps(node["SecurityGroupIds"])
    assert "LustreClients" in json.dumps(node["SecurityGroupIds"])


def node_groups(**cluster: Any) -> dict[str, Resource]:
    """The permanent node groups by the value of their label; an empty text is the one without."""
    stack = compose(cdk.App(context=CONTEXT), configuration(**cluster))
    groups = Template.from_stack(stack).find_resources("AWS::EKS::Nodegroup").values()
    return {each["Properties"].get("Labels", {}).get("trainflow/nodes", ""): each["Properties"] for each in groups}


def test_small_jobs_have_tainted_nodes_of_their_own_and_stay_off_those_of_controllers() -> None:
    assert Cluster().small_job_nodes == 1, "by default"
    groups = node_groups(system_nodes=3, small_job_nodes=2)
    assert {kind: group["ScalingConfig"] for kind, group in groups.items()} == {
        kind: {"MinSize": count, "DesiredSize": count, "MaxSize": count + 1}
        for kind, count in (("controllers", 3), ("small-jobs", 2))
    }
    taint = {"Key": "trainflow/nodes", "Value": "small-jobs", "Effect": "NO_SCHEDULE"}
    assert {kind: group.get("Taints", []) for kind, group in groups.items()} == {
        "controllers": [],
        "small-jobs": [taint],
    }


def test_without_nodes_of_their_own_small_jobs_run_on_the_system_nodes() -> None:
    """They stay off nodes with the label of controllers."""
    groups = node_groups(small_job_nodes=0)
    assert groups.keys() == {""}
    assert groups[""].get("Taints", []) == []


@pytest.mark.parametrize("version", KUBERNETES_VERSIONS)
def test_kubectl_fits_the_cluster_and_the_version_to_which_aws_upgrades_it(version: str) -> None:
    layer, minor = int(re.findall(r"V(\d+)Layer", KubectlV36Layer.__name__)[0]), int(version.split(".")[1])
    assert abs(layer - minor) <= 1
    assert abs(layer - (minor + 1)) <= 1


@pytest.mark.parametrize("version", KUBERNETES_VERSIONS)
def test_every_supported_version_can_be_deployed_with_its_node_image(version: str) -> None:
    document = configuration().model_dump()
    document["cluster"]["kubernetes_version"] = version
    document["capacity"]["neuron_ami_release"] = f"{version}.1-20261101"
    with tempfile.TemporaryDirectory() as folder:
        app = cdk.App(context=CONTEXT, outdir=folder)
        compose(app, Configuration.model_validate(document))
        app.synth()
        resources = json.loads((Path(folder) / "Cluster.template.json").read_text())["Resources"].values()
    (cluster,) = (found["Properties"] for found in resources if found["Type"] == "AWS::EKS::Cluster")
    assert cluster["Version"] == version
    assert cluster["UpgradePolicy"] == {"SupportType": "STANDARD"}


def test_a_version_that_kubectl_does_not_fit_is_refused_with_those_that_it_does() -> None:
    with pytest.raises(ConfigurationError, match=r"kubernetes_version: '1\.30' .*1\.35"):
        unsupported = configuration().cluster.model_copy(update={"kubernetes_version": "1.30"})
        compose(cdk.App(context=CONTEXT), configuration().model_copy(update={"cluster": unsupported}))


def test_every_chart_has_a_version() -> None:
    installed = of_type("Custom::AWSCDK-EKS-HelmChart").values()
    assert {chart["Release"] for chart in installed} == {chart.name for chart in CHARTS}
    for chart in installed:
        assert PINNED.fullmatch(chart["Version"]), chart["Release"]


def made_with(**cluster: Any) -> Template:
    return Template.from_stack(compose(cdk.App(context=CONTEXT), configuration(**cluster)))


@pytest.mark.parametrize("trainer", [True, False])
def test_trainer_is_installed_where_it_is_configured_and_brings_no_jobset_of_its_own(trainer: bool) -> None:
    charts = made_with(trainer=trainer).find_resources("Custom::AWSCDK-EKS-HelmChart")
    by_release = {chart["Properties"]["Release"]: (name, chart) for name, chart in charts.items()}
    assert (TRAINER.name in by_release) is trainer
    if trainer:
        _, chart = by_release[TRAINER.name]
        assert '"jobset":{"install":false}' in chart["Properties"]["Values"]
        assert by_release["jobset"][0] in chart["DependsOn"], "Trainer needs the definition of JobSets"


@pytest.mark.parametrize("training_operator", [True, False])
def test_the_training_operator_can_be_left_out(training_operator: bool) -> None:
    made = made_with(training_operator=training_operator).find_resources("Custom::AWSCDK-EKS-KubernetesResource")
    assert any("pytorchjobs.kubeflow.org" in str(each) for each in made.values()) is training_operator


def test_the_configured_queues_are_applied_once_volcano_runs_to_check_them() -> None:
    (queue,) = of_kind("Queue")
    assert queue == queue_manifest("test")
    (name,) = (
        name
        for name, properties in of_type("Custom::AWSCDK-EKS-KubernetesResource").items()
        if '"Queue"' in _text(properties["Manifest"])
    )
    (volcano,) = (
        name for name, chart in of_type("Custom::AWSCDK-EKS-HelmChart").items() if chart["Release"] == VOLCANO
    )
    assert volcano in needs(name)


def test_a_queue_says_its_weight_and_its_limit() -> None:
    settings = VolcanoQueue(name="research", weight=3, capability={"aws.amazon.com/neuron": "32"}, reclaimable=False)
    assert queue_manifest(**settings.model_dump())["spec"] == {
        "weight": 3,
        "reclaimable": False,
        "capability": {"aws.amazon.com/neuron": "32"},
    }


def test_every_image_that_we_name_ourselves_has_a_tag_or_a_digest() -> None:
    images = [
        container["image"]
        for manifest in of_kind("Deployment", "Job")
        for container in manifest["spec"]["template"]["spec"]["containers"]
    ]
    assert images
    for image in images:
        assert re.search(r"(:[\w.-]+|@sha256:\w+)$", image)
        assert not image.endswith(":latest")


@pytest.mark.parametrize(("where", "sent"), [("cloudwatch", True), ("none", False)])
def test_the_configuration_says_whether_what_pods_write_is_sent_to_cloudwatch(where: str, sent: bool) -> None:
    app = cdk.App(context=CONTEXT)
    made = Template.from_stack(compose(app, configuration(pod_logs=where))).find_resources("AWS::EKS::Addon")
    values = {
        addon["Properties"]["AddonName"]: json.loads(addon["Properties"]["ConfigurationValues"])
        for addon in made.values()
        if "ConfigurationValues" in addon["Properties"]
    }
    assert values["amazon-cloudwatch-observability"]["containerLogs"] == {"enabled": sent}


def test_the_cloudwatch_add_on_adds_nothing_to_the_pods_of_controllers() -> None:
    (observability,) = (each for each in on_nodes(pod_logs=True) if each.name == "amazon-cloudwatch-observability")
    assert observability.configuration is not None
    signals = observability.configuration["manager"]["applicationSignals"]
    assert signals == {"autoMonitor": {"monitorAllServices": False}}


def test_add_ons_go_with_the_cluster() -> None:
    add_ons = of_type("AWS::EKS::Addon").values()
    assert {add_on["AddonName"] for add_on in add_ons} >= {
        "vpc-cni",
        "coredns",
        "kube-proxy",
        "eks-pod-identity-agent",
        "aws-fsx-csi-driver",
        "amazon-cloudwatch-observability",
    }
    assert all(add_on["PreserveOnDelete"] is False for add_on in add_ons)


def test_nodes_wait_for_their_network_and_pods_for_their_nodes() -> None:
    names = {properties["AddonName"]: name for name, properties in of_type("AWS::EKS::Addon").items()}
    groups = of_type("AWS::EKS::Nodegroup")
    for nodes in groups:
        assert {names["vpc-cni"], names["kube-proxy"], names["eks-pod-identity-agent"]} <= needs(nodes)
    assert groups.keys() <= needs(names["coredns"])
    assert names["eks-pod-identity-agent"] in needs(names["vpc-cni"])


def test_what_is_in_the_cluster_is_taken_back_while_there_are_nodes_and_a_driver_to_let_go_of_it() -> None:
    driver = next(
        name for name, add_on in of_type("AWS::EKS::Addon").items() if add_on["AddonName"] == "aws-fsx-csi-driver"
    )
    nodes = of_type("AWS::EKS::Nodegroup").keys()
    for name in of_type("Custom::AWSCDK-EKS-KubernetesResource") | of_type("Custom::AWSCDK-EKS-HelmChart"):
        assert {driver, *nodes} <= needs(name)


def test_the_kubectl_handler_keeps_its_rights_until_every_manifest_is_gone() -> None:
    [access] = of_type("AWS::EKS::AccessEntry")
    policies = {name for name in of_type("AWS::IAM::Policy") if "KubectlProvider" in name}
    for name in of_type("Custom::AWSCDK-EKS-KubernetesResource") | of_type("Custom::AWSCDK-EKS-HelmChart"):
        assert {access, *policies} <= needs(name)


def test_no_load_balancer_and_no_volume_is_made_outside_of_cloudformation() -> None:
    [quota] = of_kind("ResourceQuota")
    assert quota["spec"]["hard"]["services.loadbalancers"] == "0"
    assert all(service["spec"].get("type", "ClusterIP") == "ClusterIP" for service in of_kind("Service"))
    assert not of_kind("StorageClass")


def test_the_quota_holds_the_largest_run_of_every_type_at_once() -> None:
    [quota] = of_kind("ResourceQuota")
    asked: dict[str, float] = {}
    for group in configuration().capacity.nodegroups:
        requests = _pod(group.instance_type, nodes=group.max_nodes)["containers"][0]["resources"]["requests"]
        for resource, amount in requests.items():
            asked[resource] = asked.get(resource, 0) + group.max_nodes * _amount(amount)
    assert asked
    for resource, amount in asked.items():
        assert amount <= _amount(quota["spec"]["hard"][f"requests.{resource}"]), resource


def test_the_quota_is_no_larger_than_the_nodes() -> None:
    settings = configuration()
    chips = sum(group.instance.neuron_devices * group.max_nodes for group in settings.capacity.nodegroups)
    [quota] = of_kind("ResourceQuota")
    assert quota["spec"]["hard"]["requests.aws.amazon.com/neuron"] == str(chips)


def test_the_namespace_takes_our_pods_and_refuses_those_that_get_at_the_node() -> None:
    [namespace] = [found for found in of_kind("Namespace") if found["metadata"]["name"] == "training"]
    assert namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "baseline"
    assert NAMESPACE_LABELS.items() <= namespace["metadata"]["labels"].items()
    [prepare] = of_kind("Job")
    for pod in (_pod("trn1.32xlarge", nodes=2), prepare["spec"]["template"]["spec"]):
        # What the pod security standard `baseline` forbids.
        assert not {"hostNetwork", "hostPID", "hostIPC"} & pod.keys()
        assert not [volume for volume in pod["volumes"] if "hostPath" in volume]
        for container in pod["containers"]:
            assert not container["securityContext"].get("privileged")
            assert not container["securityContext"].get("capabilities", {}).get("add")


def test_nothing_reaches_a_pod_but_what_its_job_lets_in_and_pods_reach_dns_their_credentials_and_https() -> None:
    by_nobody, by_earlier, reach = (policy["spec"] for policy in of_kind("NetworkPolicy"))
    inside = {"podSelector": {}}
    for policy in (by_nobody, reach):
        assert policy["podSelector"] == {}, "every pod of the namespace"
    assert (by_nobody["policyTypes"], by_nobody["ingress"]) == (["Ingress"], [])
    assert (by_earlier["policyTypes"], by_earlier["ingress"]) == (["Ingress"], [{"from": [inside]}])
    [without_label] = by_earlier["podSelector"]["matchExpressions"]
    assert without_label == {"key": "trainflow/network", "operator": "DoesNotExist"}
    assert reach["policyTypes"] == ["Egress"]
    allowed = [(rule["to"], {port["port"] for port in rule.get("ports", [])}) for rule in reach["egress"]]
    gang, (dns, dns_ports), (agent, agent_ports), (world, world_ports) = allowed
    assert gang == ([inside], set())
    assert dns[0]["podSelector"] == {"matchLabels": {"k8s-app": "kube-dns"}}
    assert dns[0]["namespaceSelector"] == {"matchLabels": {"kubernetes.io/metadata.name": "kube-system"}}
    assert dns_ports == {53}
    assert (agent, agent_ports) == ([{"ipBlock": {"cidr": "169.254.170.23/32"}}], {80})
    assert (world, world_ports) == ([{"ipBlock": {"cidr": "0.0.0.0/0", "except": ["169.254.0.0/16"]}}], {443})


def test_network_policies_are_enforced() -> None:
    add_ons = {found["AddonName"]: found for found in of_type("AWS::EKS::Addon").values()}
    assert json.loads(add_ons["vpc-cni"]["ConfigurationValues"]) == {"enableNetworkPolicy": "true"}


def test_further_ports_are_opened_by_the_configuration() -> None:
    document = load_configuration(EXAMPLE).model_dump()
    settings = Configuration.model_validate({**document, "pod_egress_ports": [443, 5000]})
    *_, reach = network_policy_manifests(settings)
    assert [port["port"] for port in reach["spec"]["egress"][-1]["ports"]] == [443, 5000]
    with pytest.raises(ValidationError, match="port 443 is missing"):
        Configuration.model_validate({**document, "pod_egress_ports": [80]})


def test_the_volume_is_the_file_system_and_outlives_its_claim() -> None:
    [volume] = of_kind("PersistentVolume")
    [claim] = of_kind("PersistentVolumeClaim")
    assert volume["spec"]["persistentVolumeReclaimPolicy"] == "Retain"
    assert volume["spec"]["csi"]["driver"] == "fsx.csi.aws.com"
    assert set(volume["spec"]["csi"]["volumeAttributes"]) == {"dnsname", "mountname"}
    assert claim["spec"]["volumeName"] == volume["metadata"]["name"]
    assert volume["spec"]["claimRef"] == {"namespace": "training", "name": claim["metadata"]["name"]}
    assert claim["metadata"]["name"] == CLAIM
    # A class, even the default one, would make a file system of its own for the claim.
    assert volume["spec"]["storageClassName"] == claim["spec"]["storageClassName"] == ""


def test_the_folders_are_prepared_for_those_who_use_them() -> None:
    pod = _pod("trn1.32xlarge", nodes=1)
    assert pod["securityContext"]["runAsUser"] == pod["securityContext"]["runAsGroup"] == USER
    assert {mount.strip("/") for mount in (DATA_MOUNT, RUNS_MOUNT, CACHE_MOUNT)} == set(FOLDERS)
    [prepare] = of_kind("Job")
    [container] = prepare["spec"]["template"]["spec"]["containers"]
    assert all(f"/shared/{folder}" in container["command"][-1] for folder in FOLDERS)


def test_kubernetes_accepts_every_manifest() -> None:
    version = max(KUBERNETES_VERSIONS)
    for manifest in manifests():
        if not manifest["apiVersion"].startswith("scheduling.volcano.sh/"):  # the twin's API knows Volcano's kinds
            kubernetes_validate.validate(manifest, version, strict=True)


def test_without_a_file_system_there_is_no_claim_to_wait_for() -> None:
    document = load_configuration(EXAMPLE).model_dump()
    settings = Configuration.model_validate({**document, "storage": {**document["storage"], "lustre": None}})
    stack = compose(cdk.App(context=CONTEXT), settings)
    assert not [node for node in stack.node.find_all() if "Volume" in node.node.id]


def test_production_protects_the_cluster_from_deletion() -> None:
    images = {"neuron_base": f"n@sha256:{'0' * 64}", "cpu_base": f"c@sha256:{'0' * 64}"}
    document = {
        **load_configuration(EXAMPLE).model_dump(),
        "environment": "production",
        "images": images,
        "storage": {},
    }
    stack = compose(cdk.App(context=CONTEXT), Configuration.model_validate(document))
    [cluster] = [node for node in stack.node.find_all() if isinstance(node, cdk.aws_eks_v2.CfnCluster)]
    assert cluster.deletion_protection is True


def test_auditors_find_nothing_that_is_not_explained() -> None:
    app = cdk.App(context=CONTEXT)
    compose(app, configuration())
    report = audit(app)
    assert set(report) == set(PACKS)
    assert unacknowledged(report) == []


class TestAnExistingCluster:
    def test_is_described_without_a_request_to_it(self) -> None:
        reference, template = _refer({"name": "theirs"})
        assert (reference.name, reference.placement) == ("theirs", None)
        assert template.get("Resources", {}) == {}

    def test_with_a_private_endpoint_says_where_functions_have_to_stand(self) -> None:
        reference, _ = _refer(
            {"name": "theirs", "vpc_id": "vpc-1", "subnet_ids": ("subnet-1", "subnet-2"), "security_group_id": "sg-1"}
        )
        assert reference.placement is not None
        assert reference.placement.vpc.vpc_id == "vpc-1"
        chosen = reference.placement.vpc.select_subnets(subnets=reference.placement.subnets.subnets)
        assert chosen.subnet_ids == ["subnet-1", "subnet-2"]
        assert reference.placement.security_group.security_group_id == "sg-1"


def _refer(existing: dict[str, Any]) -> tuple[ClusterReference, dict[str, Any]]:
    document = load_configuration(EXAMPLE).model_dump()
    document |= {"network": None, "existing_cluster": existing, "storage": {"lustre": None}}
    with tempfile.TemporaryDirectory() as folder:
        app = cdk.App(outdir=folder)
        stack = cdk.Stack(app, "Any", env=cdk.Environment(region="us-west-2"))
        reference = existing_cluster(stack, Configuration.model_validate(document))
        app.synth()
        assert "missing" not in json.loads((Path(folder) / "manifest.json").read_text())
        return reference, json.loads((Path(folder) / "Any.template.json").read_text())


def _pod(instance_type: str, *, nodes: int) -> dict[str, Any]:
    """The pod of a training job that takes whole nodes."""
    job = Job(
        ref=JobRef(name="run-training-1", stage=Stage.TRAINING, attempt=1, num_nodes=nodes),
        run_id="run",
        image="image",
        command=("true",),
        instance=INSTANCE_TYPES[instance_type],
        processes_per_node=INSTANCE_TYPES[instance_type].max_processes,
        deadline_seconds=60,
    )
    [found] = [manifest for manifest in indexed_job.render(job) if manifest["kind"] == "Job"]
    pod: dict[str, Any] = found["spec"]["template"]["spec"]
    return pod


def _amount(quantity: str) -> float:
    """A Kubernetes quantity as a number, memory in GiB."""
    units = {"Gi": 1.0, "Mi": 1 / 1024, "m": 1 / 1000}
    for unit, factor in units.items():
        if quantity.endswith(unit):
            return float(quantity.removesuffix(unit)) * factor
    return float(quantity)


def _listed(value: str | list[str]) -> list[str]:
    return [value] if isinstance(value, str) else value
