"""Asks AWS. The answer to every question is a value, or `Unknown` with the reason."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from threading import Lock
from typing import Any, TypeVar

import boto3
from botocore import exceptions
from botocore.config import Config
from botocore.parsers import ResponseParserError

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
from trainflow.cli.account.needs import PRIVATE_ECR
from trainflow.cli.documents import page_path
from trainflow.client.refusals import DENIED, EXPIRED, UNKNOWN_KEY

IMPATIENT = Config(connect_timeout=5, read_timeout=20, retries={"total_max_attempts": 3})

EKS_IMAGES = "602401143452"
"""The account of EKS's own images in commercial Regions (EKS user guide, "View Amazon container image registries")."""

NEURON_RELEASE = "/aws/service/eks/optimized-ami/{version}/amazon-linux-2023/x86_64/neuron/recommended/release_version"
"""EKS user guide, "Retrieve recommended Amazon Linux AMI IDs"."""

NEURON_IMAGE = "amazon-eks-node-al2023-x86_64-neuron-{version}-v{date}"
"""github.com/awslabs/amazon-eks-ami, notes of release v20260728."""

DEPLOYMENT_TAG = "trainflow:deployment"

ASSUMED_ROLE = re.compile(r"^arn:[^:]+:sts::\d{12}:assumed-role/(?P<role>[^/]+)/.+$")

Answer = TypeVar("Answer")


class Account:
    """One account and Region, asked with the caller's own credentials, by several threads if need be."""

    def __init__(self, *, region: str) -> None:
        """
        Args:
            region: The configuration's; what the caller's environment says about Regions does not matter.

        Raises:
            ProfileNotFound: If AWS_PROFILE names a profile that the configuration files lack.
        """
        self._region = region
        self._session = boto3.Session(region_name=region)
        self._lock = Lock()
        self._clients: dict[str, Any] = {}

    def client(self, service: str) -> Any:
        """A client of a service. Sessions may not make two at once; clients may be used by many."""
        with self._lock:
            if service not in self._clients:
                self._clients[service] = self._session.client(service, config=IMPATIENT)  # type: ignore[call-overload]
            return self._clients[service]

    def identity(self) -> Identity | NoCredentials:
        """Who asks."""
        try:
            caller = self.client("sts").get_caller_identity()
        except exceptions.ClientError as error:
            return _refused(error.response["Error"]["Code"])
        except exceptions.BotoCoreError as error:
            return _missing_credentials(error)
        except ResponseParserError:
            return NoCredentials("something that is not AWS answered in its place", "Look for a proxy in between.")
        return Identity(account=caller["Account"], arn=caller["Arn"])

    def region_status(self) -> str | Unknown:
        """`opt-in-not-required`, `opted-in` or `not-opted-in`."""

        def ask() -> str:
            found = self.client("ec2").describe_regions(RegionNames=[self._region], AllRegions=True)["Regions"]
            return str(found[0]["OptInStatus"]) if found else "not-opted-in"

        return answer("ec2:DescribeRegions", ask)

    def zones(self) -> frozenset[str] | Unknown:
        """Ids of the Region's Availability Zones."""

        def ask() -> frozenset[str]:
            zones = self.client("ec2").describe_availability_zones()["AvailabilityZones"]
            return frozenset(zone["ZoneId"] for zone in zones if zone.get("State", "available") == "available")

        return answer("ec2:DescribeAvailabilityZones", ask)

    def offered(self, instance_types: Iterable[str]) -> Mapping[str, frozenset[str]] | Unknown:
        """The zones that offer each type, by id."""
        wanted = sorted(instance_types)

        def ask() -> Mapping[str, frozenset[str]]:
            pages = self.client("ec2").get_paginator("describe_instance_type_offerings")
            asked = pages.paginate(
                LocationType="availability-zone-id", Filters=[{"Name": "instance-type", "Values": wanted}]
            )
            zones: dict[str, set[str]] = {name: set() for name in wanted}
            for page in asked:
                for offering in page["InstanceTypeOfferings"]:
                    zones.setdefault(offering["InstanceType"], set()).add(offering["Location"])
            return {name: frozenset(found) for name, found in zones.items()}

        return answer("ec2:DescribeInstanceTypeOfferings", ask)

    def quota(self, service: str, code: str, in_use: Callable[[], float | Unknown] | None = None) -> Quota | Unknown:
        """A quota as it is applied to the account, or AWS's default where nothing else is applied.

        Args:
            service: As Service Quotas calls it.
            code: Of the quota.
            in_use: Counts what is in use.
        """

        def ask() -> Quota:
            quotas = self.client("service-quotas")
            try:
                found = quotas.get_service_quota(ServiceCode=service, QuotaCode=code)["Quota"]
            except exceptions.ClientError as error:
                # "If the applied quota value is not available for a quota, the quota is not retrieved" (API reference).
                if error.response["Error"]["Code"] != "NoSuchResourceException":
                    raise
                found = quotas.get_aws_default_service_quota(ServiceCode=service, QuotaCode=code)["Quota"]
            return Quota(limit=float(found["Value"]), in_use=in_use() if in_use else 0)

        return answer("servicequotas:GetServiceQuota and GetAWSDefaultServiceQuota", ask)

    def num_vpcs(self) -> float | Unknown:
        """VPCs in the Region."""
        return answer("ec2:DescribeVpcs", lambda: float(sum(1 for _ in self._all("ec2", "describe_vpcs", "Vpcs"))))

    def num_addresses(self) -> float | Unknown:
        """Elastic IP addresses in the Region."""
        return answer("ec2:DescribeAddresses", lambda: float(len(self.client("ec2").describe_addresses()["Addresses"])))

    def num_clusters(self) -> float | Unknown:
        """EKS clusters in the Region."""
        return answer("eks:ListClusters", lambda: float(sum(1 for _ in self._all("eks", "list_clusters", "clusters"))))

    def lustre_gib(self) -> float | Unknown:
        """Storage of the Region's PERSISTENT_2 file systems, in GiB."""

        def ask() -> float:
            found = self._all("fsx", "describe_file_systems", "FileSystems")
            return float(
                sum(
                    system.get("StorageCapacity", 0)
                    for system in found
                    if system.get("LustreConfiguration", {}).get("DeploymentType") == "PERSISTENT_2"
                )
            )

        return answer("fsx:DescribeFileSystems", ask)

    def cluster_versions(self) -> tuple[ClusterVersion, ...] | Unknown:
        """Kubernetes versions that EKS offers."""

        def ask() -> tuple[ClusterVersion, ...]:
            found = self._all("eks", "describe_cluster_versions", "clusterVersions", includeAll=True)
            return tuple(
                ClusterVersion(
                    version=version.get("clusterVersion", ""),
                    status=version.get("versionStatus", "UNSUPPORTED"),
                    end_of_standard_support=version.get("endOfStandardSupportDate"),
                )
                for version in found
            )

        return answer("eks:DescribeClusterVersions", ask)

    def add_ons(self, version: str) -> Mapping[str, str] | Unknown:
        """Add-ons for a Kubernetes version: the version of each that EKS installs, by the add-on's name; empty where
        EKS names none."""

        def ask() -> Mapping[str, str]:
            found = self._all("eks", "describe_addon_versions", "addons", kubernetesVersion=version)
            return {add_on["addonName"]: _default_version(add_on, version) for add_on in found}

        return answer("eks:DescribeAddonVersions", ask)

    def cluster(self, name: str) -> EksCluster | Unknown | None:
        """A cluster; None if it does not exist."""

        def ask() -> EksCluster | None:
            try:
                found = self.client("eks").describe_cluster(name=name)["cluster"]
            except exceptions.ClientError as error:
                if error.response["Error"]["Code"] == "ResourceNotFoundException":
                    return None
                raise
            return EksCluster(
                version=found.get("version", ""),
                status=found.get("status", ""),
                authentication_mode=found.get("accessConfig", {}).get("authenticationMode", ""),
                deployment=found.get("tags", {}).get(DEPLOYMENT_TAG),
                ip_family=found.get("kubernetesNetworkConfig", {}).get("ipFamily", "ipv4"),
            )

        return answer("eks:DescribeCluster", ask)

    def nodegroups(self, cluster: str, names: Iterable[str]) -> Mapping[str, NodegroupImage] | Unknown:
        """Those of the node groups that are there."""

        def ask() -> Mapping[str, NodegroupImage]:
            there = {}
            for name in names:
                try:
                    found = self.client("eks").describe_nodegroup(clusterName=cluster, nodegroupName=name)["nodegroup"]
                except exceptions.ClientError as error:
                    if error.response["Error"]["Code"] == "ResourceNotFoundException":
                        continue
                    raise
                desired = found.get("scalingConfig", {}).get("desiredSize", 0)
                there[name] = NodegroupImage(release=found.get("releaseVersion", ""), desired=int(desired))
            return there

        return answer("eks:DescribeNodegroup", ask)

    def newest_release(self, version: str) -> str | Unknown | None:
        """The newest release of EKS's Neuron image for a Kubernetes version; None if it does not exist."""
        return self._parameter(NEURON_RELEASE.format(version=version))

    def node_images(self, release: str) -> tuple[NodeImage, ...] | Unknown:
        """EKS's Neuron images of a release's minor version and date.

        The name holds no patch version; the description does: "… (k8s: 1.36.2, containerd: 2.*)".
        """
        version, _, date = release.partition("-")
        name = NEURON_IMAGE.format(version=version.rpartition(".")[0], date=date)

        def ask() -> tuple[NodeImage, ...]:
            found = self.client("ec2").describe_images(
                Owners=[EKS_IMAGES], Filters=[{"Name": "name", "Values": [name]}], IncludeDeprecated=True
            )["Images"]
            return tuple(NodeImage(image.get("Name", ""), image.get("Description", "")) for image in found)

        return answer("ec2:DescribeImages", ask)

    def bootstrap_version(self, parameter: str) -> int | Unknown | None:
        """Version of what `cdk bootstrap` made; None when it was not run."""
        found = self._parameter(parameter)
        if isinstance(found, str):
            return int(found) if found.isdigit() else Unknown(f"the parameter {parameter} holds '{found}'")
        return found

    def has_role(self, name: str) -> bool | Unknown:
        """Whether IAM has a role, by name or ARN, or a user, by ARN."""
        return answer("iam:GetUser" if ":user/" in name else "iam:GetRole", lambda: self._has_role(name))

    def _has_role(self, name: str) -> bool:
        short = name.rpartition("/")[2]
        try:
            if ":user/" in name:
                arn = self.client("iam").get_user(UserName=short)["User"]["Arn"]
            else:
                arn = self.client("iam").get_role(RoleName=short)["Role"]["Arn"]
        except exceptions.ClientError as error:
            if error.response["Error"]["Code"] == "NoSuchEntity":
                return False
            raise
        return bool(arn == name) if name.startswith("arn:") else True

    def simulate(
        self, caller: str, actions: Iterable[str], resources: Iterable[str] = ()
    ) -> Simulation | Unknown | None:
        """Denied actions of a principal in IAM's simulation; None for an unknown principal.

        Args:
            caller: ARN of a user, a role, or an assumed role's session. The root user and federated users lack policies
                of their own: Unknown.
            actions: As policies name them.
            resources: ARNs; every resource if not given.
        """
        session = ASSUMED_ROLE.match(caller)
        if session is None and ":role/" not in caller and ":user/" not in caller:
            return Unknown(f"IAM simulates policies of users and roles, and the caller is {caller}")

        def ask() -> Simulation | None:
            iam = self.client("iam")
            try:
                # A session's ARN has lost the path of its role.
                principal = iam.get_role(RoleName=session["role"])["Role"]["Arn"] if session else caller
                pages = iam.get_paginator("simulate_principal_policy").paginate(
                    PolicySourceArn=principal,
                    ActionNames=list(actions),
                    ResourceArns=list(resources) or ["*"],
                    ContextEntries=[self._requested_region()],
                )
                results = [result for page in pages for result in page["EvaluationResults"]]
            except exceptions.ClientError as error:
                if error.response["Error"]["Code"] in {"NoSuchEntity", "NoSuchEntityException"}:
                    return None
                raise
            return Simulation(principal, tuple(sorted(_denied(results))))

        return answer("iam:SimulatePrincipalPolicy and iam:GetRole", ask)

    def _requested_region(self) -> dict[str, Any]:
        """Context for policies that allow only some Regions."""
        return {
            "ContextKeyName": "aws:RequestedRegion",
            "ContextKeyValues": [self._region],
            "ContextKeyType": "string",
        }

    def stacks(self, names: Iterable[str]) -> Mapping[str, str] | Unknown:
        """Status of those of the stacks that are there."""

        def ask() -> Mapping[str, str]:
            there = {}
            for name in names:
                try:
                    found = self.client("cloudformation").describe_stacks(StackName=name)["Stacks"]
                except exceptions.ClientError as error:
                    if "does not exist" in error.response["Error"].get("Message", ""):
                        continue
                    raise
                there[name] = str(found[0]["StackStatus"])
            return there

        return answer("cloudformation:DescribeStacks", ask)

    def log_groups(self, names: Iterable[str]) -> frozenset[str] | Unknown:
        """Those of the log groups that are there."""

        def ask() -> frozenset[str]:
            there = set()
            for name in names:
                found = self.client("logs").describe_log_groups(logGroupNamePrefix=name)["logGroups"]
                there |= {group["logGroupName"] for group in found if group.get("logGroupName") == name}
            return frozenset(there)

        return answer("logs:DescribeLogGroups", ask)

    def tagged(self, deployment: str) -> tuple[str, ...] | Unknown:
        """ARNs of everything in the Region that bears the deployment's tag."""

        def ask() -> tuple[str, ...]:
            found = self._all(
                "resourcegroupstaggingapi",
                "get_resources",
                "ResourceTagMappingList",
                TagFilters=[{"Key": DEPLOYMENT_TAG, "Values": [deployment]}],
            )
            return tuple(sorted(resource["ResourceARN"] for resource in found))

        return answer("tag:GetResources", ask)

    def reservation(self, reservation: str) -> Reservation | Unknown | None:
        """A capacity reservation or Capacity Block; None if it is not in the account."""

        def ask() -> Reservation | None:
            try:
                found = self.client("ec2").describe_capacity_reservations(CapacityReservationIds=[reservation])
            except exceptions.ClientError as error:
                if error.response["Error"]["Code"].startswith("InvalidCapacityReservationId"):
                    return None
                raise
            for one in found["CapacityReservations"]:
                return Reservation(
                    state=one.get("State", ""),
                    instance_type=one.get("InstanceType", ""),
                    zone_id=one.get("AvailabilityZoneId", ""),
                    total=int(one.get("TotalInstanceCount", 0)),
                    capacity_block=one.get("ReservationType") == "capacity-block",
                    end=one.get("EndDate"),
                )
            return None

        return answer("ec2:DescribeCapacityReservations", ask)

    def has_image(self, reference: str) -> bool | Unknown:
        """Whether a private ECR repository has an image."""
        parts = PRIVATE_ECR.fullmatch(reference)
        if parts is None:
            return Unknown(f"'{reference}' is not the name of an image in ECR")
        if parts["region"] != self._region:
            return Unknown(f"it lies in {parts['region']}, and {self._region} is asked")
        by = {"imageDigest": parts["digest"]} if parts["digest"] else {"imageTag": parts["tag"] or "latest"}

        def ask() -> bool:
            try:
                found = self.client("ecr").describe_images(
                    registryId=parts["account"], repositoryName=parts["repository"], imageIds=[by]
                )
            except exceptions.ClientError as error:
                if error.response["Error"]["Code"] in {"ImageNotFoundException", "RepositoryNotFoundException"}:
                    return False
                raise
            return bool(found["imageDetails"])

        return answer("ecr:DescribeImages", ask)

    def has_resource(self, name: str) -> bool | Unknown:
        """Whether there is a resource, by its id or ARN."""
        prefix = name.partition("-")[0]
        ec2: dict[str, tuple[str, str]] = {
            "ami": ("describe_images", "ImageIds"),
            "i": ("describe_instances", "InstanceIds"),
            "sg": ("describe_security_groups", "GroupIds"),
            "subnet": ("describe_subnets", "SubnetIds"),
            "vpc": ("describe_vpcs", "VpcIds"),
        }

        def ask() -> bool:
            try:
                if prefix in ec2:
                    operation, argument = ec2[prefix]
                    getattr(self.client("ec2"), operation)(**{argument: [name]})
                else:
                    self.client("secretsmanager").describe_secret(SecretId=name)
            except exceptions.ClientError as error:
                if error.response["Error"]["Code"] == "ResourceNotFoundException" or re.match(
                    r"Invalid.*\.(NotFound|Malformed|Unavailable)", error.response["Error"]["Code"]
                ):
                    return False
                raise
            return True

        words = ec2[prefix][0].split("_") if prefix in ec2 else []
        return answer(f"ec2:{''.join(map(str.title, words))}" if words else "secretsmanager:DescribeSecret", ask)

    def _parameter(self, name: str) -> str | Unknown | None:
        def ask() -> str | None:
            try:
                return str(self.client("ssm").get_parameter(Name=name)["Parameter"]["Value"])
            except exceptions.ClientError as error:
                if error.response["Error"]["Code"] == "ParameterNotFound":
                    return None
                raise

        return answer("ssm:GetParameter", ask)

    def _all(self, service: str, operation: str, key: str, **arguments: Any) -> Iterable[Any]:
        for page in self.client(service).get_paginator(operation).paginate(**arguments):
            yield from page.get(key, ())


def answer(permission: str, ask: Callable[[], Answer]) -> Answer | Unknown:
    """The answer to a question, or the reason why it failed."""
    try:
        return ask()
    except exceptions.ClientError as error:
        code = error.response["Error"]["Code"]
        if code in DENIED:
            return Unknown(
                f"the caller lacks the permission {permission}", f"Allow {permission}: {page_path('check-account.md')}."
            )
        return Unknown(f"{permission} answered {code}")
    except exceptions.BotoCoreError as error:
        return Unknown(f"{permission} did not answer ({type(error).__name__})")
    except ResponseParserError:
        return Unknown(f"{permission} did not get an answer from AWS", "Look for a proxy in between.")


def _default_version(add_on: Mapping[str, Any], kubernetes_version: str) -> str:
    """The version of an add-on that EKS installs where none is asked for; empty if it names none."""
    for offered in add_on.get("addonVersions", ()):
        for fit in offered.get("compatibilities", ()):
            if fit.get("clusterVersion") == kubernetes_version and fit.get("defaultVersion"):
                return str(offered["addonVersion"])
    return ""


def _denied(results: Iterable[Mapping[str, Any]]) -> set[str]:
    """Actions that are denied, each for any of the resources that it was simulated for.

    A denial by a condition that only the real request can answer does not count: it may well be allowed, and should not
    stop a deployment.
    """
    denied = set()
    for result in results:
        if result.get("MissingContextValues") and result["EvalDecision"] != "explicitDeny":
            continue
        decisions = [one.get("EvalResourceDecision") for one in result.get("ResourceSpecificResults", ())]
        if any(decision != "allowed" for decision in decisions or [result["EvalDecision"]]):
            denied.add(result["EvalActionName"])
    return denied


def _refused(code: str) -> NoCredentials:
    if code in EXPIRED:
        return NoCredentials("the credentials have expired", "Get new ones: aws sso login, or aws configure.")
    if code in UNKNOWN_KEY:
        return NoCredentials("AWS does not know the access key", "Correct the credentials: aws configure.")
    if code == "SignatureDoesNotMatch":
        return NoCredentials(
            "AWS refuses the signature: the secret key or this machine's clock is wrong",
            "Correct the credentials (aws configure), or set the clock.",
        )
    return NoCredentials(f"sts:GetCallerIdentity answered {code}", "Try: aws sts get-caller-identity.")


def _missing_credentials(error: exceptions.BotoCoreError) -> NoCredentials:
    """Reason for missing credentials, in a sentence."""
    log_in = "Log in: aws sso login."
    known: tuple[tuple[tuple[type[exceptions.BotoCoreError], ...], str, str], ...] = (
        (
            (exceptions.NoCredentialsError,),
            "there are no AWS credentials",
            "Give some: aws configure, aws sso login, or AWS_PROFILE.",
        ),
        (
            (exceptions.PartialCredentialsError,),
            "the AWS credentials are incomplete",
            "Give both the access key and its secret: aws configure.",
        ),
        (
            (exceptions.SSOError, exceptions.TokenRetrievalError),
            "the login with IAM Identity Center has expired or is missing",
            log_in,
        ),
        (
            (exceptions.CredentialRetrievalError,),
            "the credentials could not be had",
            "Try: aws sts get-caller-identity.",
        ),
        (
            (exceptions.EndpointConnectionError, exceptions.ConnectTimeoutError, exceptions.ProxyConnectionError),
            "AWS cannot be reached from here",
            "Look at the network, and at HTTPS_PROXY if there is a proxy.",
        ),
    )
    for kinds, reason, fix in known:
        if isinstance(error, kinds):
            return NoCredentials(reason, fix)
    return NoCredentials(
        f"AWS could not be asked who you are ({type(error).__name__})", "Try: aws sts get-caller-identity."
    )
