"""Questions to AWS: against moto where it knows the call, and against given answers where it does not."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

import boto3
import pytest
from botocore import exceptions
from moto import mock_aws

from tests.fakes.aws_account import Given, GivenAccount, refusal
from tests.wording import wording
from trainflow.cli.account.aws import Account
from trainflow.cli.account.facts import (
    ClusterVersion,
    EksCluster,
    Identity,
    NoCredentials,
    NodegroupImage,
    NodeImage,
    Quota,
    Reservation,
    Simulation,
    Unknown,
)
from trainflow.cli.documents import page_path

ACCOUNT = "123456789012"
ROLE = f"arn:aws:iam::{ACCOUNT}:role/aws-reserved/sso.amazonaws.com/Deployer"


@pytest.fixture(autouse=True)
def credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_PROFILE", "AWS_ENDPOINT_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "k")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "s")


@pytest.fixture
def moto() -> Iterator[Account]:
    with mock_aws():
        yield Account(region="us-west-2")


def client(service: str) -> Any:
    return boto3.client(service, region_name="us-west-2")  # type: ignore[call-overload]


class TestWhoAsks:
    def test_the_caller_has_an_account(self, moto: Account) -> None:
        who = moto.identity()
        assert isinstance(who, Identity) and who.account == ACCOUNT

    @pytest.mark.parametrize(
        ("given", "sentence"),
        [
            (refusal("ExpiredToken"), "the credentials have expired"),
            (refusal("InvalidClientTokenId"), "AWS does not know the access key"),
            (
                refusal("SignatureDoesNotMatch"),
                wording("aws.a_caller_without_credentials_gets_the_reason", "signature", "machine"),
            ),
            (refusal("Throttling"), "sts:GetCallerIdentity answered Throttling"),
            (exceptions.NoCredentialsError(), "there are no AWS credentials"),
            (
                exceptions.PartialCredentialsError(provider="env", cred_var="AWS_SECRET_ACCESS_KEY"),
                "the AWS credentials are incomplete",
            ),
            (
                exceptions.UnauthorizedSSOTokenError(),
                "the login with IAM Identity Center has expired or is missing",
            ),
            (
                exceptions.TokenRetrievalError(provider="sso", error_msg="expired"),
                "the login with IAM Identity Center has expired or is missing",
            ),
            (
                exceptions.EndpointConnectionError(endpoint_url="https://sts.us-west-2.amazonaws.com"),
                "AWS cannot be reached from here",
            ),
            (
                exceptions.ReadTimeoutError(endpoint_url="https://sts"),
                "AWS could not be asked who you are (ReadTimeoutError)",
            ),
        ],
    )
    def test_a_caller_without_credentials_gets_the_reason(self, given: Given, sentence: str) -> None:
        without_credentials = GivenAccount({"sts.GetCallerIdentity": given}).identity()
        assert isinstance(without_credentials, NoCredentials)
        assert without_credentials.reason == sentence
        assert without_credentials.fix


class TestAgainstMoto:
    def test_zones_and_offerings_by_id(self, moto: Account) -> None:
        zones = moto.zones()
        assert not isinstance(zones, Unknown) and "usw2-az4" in zones
        offered = moto.offered(["trn1.32xlarge", "trn9.huge"])
        assert not isinstance(offered, Unknown)
        assert "usw2-az4" in offered["trn1.32xlarge"] and offered["trn9.huge"] == frozenset()
        assert moto.region_status() == "opt-in-not-required"

    def test_a_quota_and_what_is_in_use_of_it(self, moto: Account) -> None:
        assert moto.quota("vpc", "L-F678F1CE", moto.num_vpcs) == Quota(5, 1)  # the default VPC
        client("ec2").create_vpc(CidrBlock="10.0.0.0/16")
        assert moto.num_vpcs() == 2
        client("ec2").allocate_address(Domain="vpc")
        assert moto.num_addresses() == 1

    def test_only_file_systems_of_our_kind_count(self, moto: Account) -> None:
        subnet = client("ec2").describe_subnets()["Subnets"][0]["SubnetId"]
        for kind in ("PERSISTENT_2", "SCRATCH_2"):
            client("fsx").create_file_system(
                FileSystemType="LUSTRE",
                StorageCapacity=2400,
                SubnetIds=[subnet],
                LustreConfiguration={"DeploymentType": kind},
            )
        assert moto.lustre_gib() == 2400

    def test_the_bootstrap_and_its_absence(self, moto: Account) -> None:
        parameter = "/cdk-bootstrap/hnb659fds/version"
        assert moto.bootstrap_version(parameter) is None
        client("ssm").put_parameter(Name=parameter, Value="31", Type="String")
        assert moto.bootstrap_version(parameter) == 31
        client("ssm").put_parameter(Name=parameter, Value="one", Type="String", Overwrite=True)
        assert moto.bootstrap_version(parameter) == Unknown(f"the parameter {parameter} holds 'one'")

    def test_roles_and_users_by_name_and_by_arn(self, moto: Account) -> None:
        iam = client("iam")
        arn = iam.create_role(RoleName="Admin", Path="/team/", AssumeRolePolicyDocument="{}")["Role"]["Arn"]
        user = iam.create_user(UserName="ada")["User"]["Arn"]
        assert moto.has_role("Admin") is True and moto.has_role(arn) is True and moto.has_role(user) is True
        assert moto.has_role("Missing") is False and moto.has_role(user.replace("ada", "bob")) is False
        assert moto.has_role(f"arn:aws:iam::{ACCOUNT}:role/Admin") is False  # its path is missing

    def test_stacks_that_are_there(self, moto: Account) -> None:
        template = json.dumps({"Resources": {"Topic": {"Type": "AWS::SNS::Topic"}}})
        client("cloudformation").create_stack(StackName="mine-images", TemplateBody=template)
        assert moto.stacks(["mine-network", "mine-images"]) == {"mine-images": "CREATE_COMPLETE"}

    def test_log_groups_of_the_very_name(self, moto: Account) -> None:
        for name in ("/aws/eks/mine/cluster", "/aws/eks/mine2/cluster"):
            client("logs").create_log_group(logGroupName=name)
        assert moto.log_groups(["/aws/eks/mine/cluster", "/aws/eks/mine"]) == {"/aws/eks/mine/cluster"}

    def test_what_bears_the_tag(self, moto: Account) -> None:
        vpc = client("ec2").create_vpc(CidrBlock="10.0.0.0/16")["Vpc"]["VpcId"]
        client("ec2").create_tags(Resources=[vpc], Tags=[{"Key": "trainflow:deployment", "Value": "mine"}])
        assert moto.tagged("mine") == (f"arn:aws:ec2:us-west-2:{ACCOUNT}:vpc/{vpc}",)
        assert moto.tagged("other") == ()

    def test_clusters_and_node_groups(self, moto: Account) -> None:
        assert moto.cluster("mine") is None
        eks = client("eks")
        role = f"arn:aws:iam::{ACCOUNT}:role/any"
        eks.create_cluster(
            name="mine",
            version="1.36",
            roleArn=role,
            resourcesVpcConfig={"subnetIds": ["subnet-1"]},
            accessConfig={"authenticationMode": "API"},
            tags={"trainflow:deployment": "mine"},
        )
        eks.create_nodegroup(
            clusterName="mine",
            nodegroupName="trainflow-trn1-2xlarge",
            subnets=["subnet-1"],
            nodeRole=role,
            releaseVersion="1.36.2-20260728",
            scalingConfig={"minSize": 0, "desiredSize": 2, "maxSize": 4},
        )
        found = moto.cluster("mine")
        assert isinstance(found, EksCluster) and (found.status, found.deployment) == ("ACTIVE", "mine")
        groups = moto.nodegroups("mine", ["trainflow-trn1-2xlarge", "trainflow-trn1-32xlarge"])
        assert groups == {"trainflow-trn1-2xlarge": NodegroupImage("1.36.2-20260728", 2)}
        assert moto.num_clusters() == 1

    def test_images_in_ecr_and_resources_by_id(self, moto: Account) -> None:
        ecr = client("ecr")
        ecr.create_repository(repositoryName="trainer")
        manifest = json.dumps(
            {"schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json", "config": {}, "layers": []}
        )
        ecr.put_image(repositoryName="trainer", imageManifest=manifest, imageTag="v1")
        registry = f"{ACCOUNT}.dkr.ecr.us-west-2.amazonaws.com"
        assert moto.has_image(f"{registry}/trainer:v1") is True
        assert moto.has_image(f"{registry}/trainer@sha256:{'0' * 64}") is False
        assert moto.has_image(f"{registry}/other:v1") is False
        elsewhere = moto.has_image(f"{ACCOUNT}.dkr.ecr.eu-west-1.amazonaws.com/trainer:v1")
        assert elsewhere == Unknown("it lies in eu-west-1, and us-west-2 is asked")
        vpc = client("ec2").create_vpc(CidrBlock="10.0.0.0/16")["Vpc"]["VpcId"]
        assert moto.has_resource(vpc) is True
        for missing in ("vpc-0123456789abcdef0", "ami-0123456789abcdef0", "sg-0123456789abcdef0"):
            assert moto.has_resource(missing) is False
        secret = f"arn:aws:secretsmanager:us-west-2:{ACCOUNT}:secret:key-AbCdEf"
        assert moto.has_resource(secret) is False


class TestGivenAnswers:
    def test_kubernetes_versions_over_two_pages(self) -> None:
        end = datetime(2027, 9, 1, tzinfo=UTC)
        pages = {
            None: {"clusterVersions": [_version("1.36", "STANDARD_SUPPORT", end)], "nextToken": "more"},
            "more": {"clusterVersions": [_version("1.32", "EXTENDED_SUPPORT", None)]},
        }
        account = GivenAccount({"eks.DescribeClusterVersions": lambda asked: pages[asked.get("nextToken")]})
        assert account.cluster_versions() == (
            ClusterVersion("1.36", "STANDARD_SUPPORT", end),
            ClusterVersion("1.32", "EXTENDED_SUPPORT", None),
        )

    def test_add_ons_of_a_version(self) -> None:
        versions = [
            {
                "addonVersion": "v1.14.2-eksbuild.1",
                "compatibilities": [{"clusterVersion": "1.36", "defaultVersion": False}],
            },
            {
                "addonVersion": "v1.14.1-eksbuild.2",
                "compatibilities": [
                    {"clusterVersion": "1.35", "defaultVersion": False},
                    {"clusterVersion": "1.36", "defaultVersion": True},
                ],
            },
            {
                "addonVersion": "v1.13.0-eksbuild.1",
                "compatibilities": [{"clusterVersion": "1.35", "defaultVersion": True}],
            },
        ]
        add_ons = [{"addonName": "coredns", "addonVersions": versions}, {"addonName": "kube-proxy"}]
        account = GivenAccount({"eks.DescribeAddonVersions": {"addons": add_ons}})
        assert account.add_ons("1.36") == {"coredns": "v1.14.1-eksbuild.2", "kube-proxy": ""}

    def test_the_newest_neuron_release_is_read_from_ekss_parameter(self) -> None:
        def parameter(asked: Mapping[str, Any]) -> Mapping[str, Any]:
            name = "/aws/service/eks/optimized-ami/1.36/amazon-linux-2023/x86_64/neuron/recommended/release_version"
            assert asked == {"Name": name}
            return {"Parameter": {"Name": name, "Value": "1.36.3-20260827"}}

        assert GivenAccount({"ssm.GetParameter": parameter}).newest_release("1.36") == "1.36.3-20260827"
        none = GivenAccount({"ssm.GetParameter": refusal("ParameterNotFound")})
        assert none.newest_release("1.36") is None

    def test_a_releases_image_is_found_by_version_and_date_even_when_deprecated(self) -> None:
        name, description = "amazon-eks-node-al2023-x86_64-neuron-1.36-v20260827", "node (k8s: 1.36.3, containerd: 2.*)"

        def images(asked: Mapping[str, Any]) -> Mapping[str, Any]:
            assert asked["Filters"] == [{"Name": "name", "Values": [name]}]
            assert asked["Owners"] == ["602401143452"] and asked["IncludeDeprecated"] is True
            return {"Images": [{"Name": name, "Description": description}]}

        account = GivenAccount({"ec2.DescribeImages": images})
        assert account.node_images("1.36.3-20260827") == (NodeImage(name, description),)

    def test_a_quota_without_an_applied_value_has_awss_default(self) -> None:
        account = GivenAccount(
            {
                "service-quotas.GetServiceQuota": refusal("NoSuchResourceException"),
                "service-quotas.GetAWSDefaultServiceQuota": {"Quota": {"QuotaCode": "L-1194D53C", "Value": 100.0}},
            }
        )
        assert account.quota("eks", "L-1194D53C") == Quota(100)

    def test_a_capacity_block(self) -> None:
        end = datetime(2026, 12, 1, tzinfo=UTC)
        block = {
            "State": "scheduled",
            "InstanceType": "trn1.32xlarge",
            "AvailabilityZoneId": "usw2-az4",
            "TotalInstanceCount": 2,
            "ReservationType": "capacity-block",
            "EndDate": end,
        }
        account = GivenAccount({"ec2.DescribeCapacityReservations": {"CapacityReservations": [block]}})
        wanted = Reservation("scheduled", "trn1.32xlarge", "usw2-az4", 2, True, end)
        assert account.reservation("cr-0123456789abcdef0") == wanted
        gone = GivenAccount({"ec2.DescribeCapacityReservations": refusal("InvalidCapacityReservationId.NotFound")})
        assert gone.reservation("cr-0123456789abcdef0") is None

    def test_an_assumed_role_is_simulated_by_its_roles_whole_arn(self) -> None:
        role = {
            "Path": "/aws-reserved/sso.amazonaws.com/",
            "RoleName": "Deployer",
            "RoleId": "AROAEXAMPLEEXAMPLE00",
            "Arn": ROLE,
            "CreateDate": datetime(2026, 1, 1, tzinfo=UTC),
        }

        def simulate(asked: Mapping[str, Any]) -> Mapping[str, Any]:
            assert asked["PolicySourceArn"] == ROLE
            (region,) = asked["ContextEntries"]
            assert (region["ContextKeyName"], region["ContextKeyValues"]) == ("aws:RequestedRegion", ["us-west-2"])
            results = [
                {
                    "EvalActionName": "s3:CreateBucket",
                    "EvalDecision": "implicitDeny",
                    "MissingContextValues": ["aws:RequestTag/team"],
                },
                {"EvalActionName": "eks:CreateCluster", "EvalDecision": "allowed"},
                {"EvalActionName": "fsx:CreateFileSystem", "EvalDecision": "explicitDeny"},
                {
                    "EvalActionName": "sts:AssumeRole",
                    "EvalDecision": "allowed",
                    "ResourceSpecificResults": [
                        {"EvalResourceName": "arn:aws:iam::1:role/a", "EvalResourceDecision": "implicitDeny"}
                    ],
                },
            ]
            return {"EvaluationResults": results}

        account = GivenAccount({"iam.GetRole": {"Role": role}, "iam.SimulatePrincipalPolicy": simulate})
        session = f"arn:aws:sts::{ACCOUNT}:assumed-role/Deployer/me"
        said = account.simulate(session, ["eks:CreateCluster", "fsx:CreateFileSystem", "sts:AssumeRole"])
        assert said == Simulation(ROLE, ("fsx:CreateFileSystem", "sts:AssumeRole"))

    def test_a_principal_that_iam_does_not_know_or_simulate(self) -> None:
        unknown = GivenAccount({"iam.SimulatePrincipalPolicy": refusal("NoSuchEntity")})
        assert unknown.simulate(ROLE, ["sts:AssumeRole"]) is None
        root = f"arn:aws:iam::{ACCOUNT}:root"
        assert unknown.simulate(root, ["sts:AssumeRole"]) == Unknown(
            f"IAM simulates policies of users and roles, and the caller is {root}"
        )


QUESTIONS = {
    "ec2:DescribeRegions": lambda account: account.region_status(),
    "ec2:DescribeAvailabilityZones": lambda account: account.zones(),
    "ec2:DescribeInstanceTypeOfferings": lambda account: account.offered(["trn1.2xlarge"]),
    "servicequotas:GetServiceQuota and GetAWSDefaultServiceQuota": lambda account: account.quota("ec2", "L-2C3B7624"),
    "ec2:DescribeVpcs": lambda account: account.num_vpcs(),
    "ec2:DescribeAddresses": lambda account: account.num_addresses(),
    "eks:ListClusters": lambda account: account.num_clusters(),
    "fsx:DescribeFileSystems": lambda account: account.lustre_gib(),
    "eks:DescribeClusterVersions": lambda account: account.cluster_versions(),
    "eks:DescribeAddonVersions": lambda account: account.add_ons("1.36"),
    "eks:DescribeCluster": lambda account: account.cluster("mine"),
    "eks:DescribeNodegroup": lambda account: account.nodegroups("mine", ["one"]),
    "ssm:GetParameter": lambda account: account.newest_release("1.36"),
    "ec2:DescribeImages": lambda account: account.node_images("1.36.3-20260827"),
    "iam:GetRole": lambda account: account.has_role("Admin"),
    "iam:GetUser": lambda account: account.has_role(f"arn:aws:iam::{ACCOUNT}:user/ada"),
    "iam:SimulatePrincipalPolicy and iam:GetRole": lambda account: account.simulate(ROLE, ["sts:AssumeRole"]),
    "cloudformation:DescribeStacks": lambda account: account.stacks(["mine"]),
    "logs:DescribeLogGroups": lambda account: account.log_groups(["/aws/eks/mine/cluster"]),
    "tag:GetResources": lambda account: account.tagged("mine"),
    "ec2:DescribeCapacityReservations": lambda account: account.reservation("cr-0123456789abcdef0"),
    "ecr:DescribeImages": lambda account: account.has_image(f"{ACCOUNT}.dkr.ecr.us-west-2.amazonaws.com/trainer:v1"),
    "ec2:DescribeInstances": lambda account: account.has_resource("i-0123456789abcdef0"),
    "secretsmanager:DescribeSecret": lambda account: account.has_resource("arn:aws:secretsmanager:…"),
}
"""Every question, by the permissions that it needs."""


@pytest.mark.parametrize("permission", QUESTIONS)
def test_a_question_that_is_forbidden_names_the_permission(permission: str) -> None:
    said = QUESTIONS[permission](GivenAccount())
    assert said == Unknown(
        f"the caller lacks the permission {permission}", f"Allow {permission}: {page_path('check-account.md')}."
    )


def test_a_service_that_does_not_answer_is_no_failure() -> None:
    account = GivenAccount({"ec2.DescribeRegions": exceptions.ReadTimeoutError(endpoint_url="https://ec2")})
    assert account.region_status() == Unknown("ec2:DescribeRegions did not answer (ReadTimeoutError)")


def _version(version: str, status: str, end: datetime | None) -> dict[str, Any]:
    found: dict[str, Any] = {"clusterVersion": version, "versionStatus": status}
    return found | ({"endOfStandardSupportDate": end} if end else {})
