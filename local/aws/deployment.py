"""Deploys the stacks to the twin's account, beside a cluster that is made apart from them.

With the cluster only, the twin is an account that the CDK can deploy the stacks to.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from moto.core import DEFAULT_ACCOUNT_ID
from moto.eks.models import eks_backends

from local.aws import cloudformation, quotas
from local.aws.server import REGION, AwsServer
from local.aws.template import NAMES, Template
from local.granted_buckets import GrantedBuckets
from local.node_shapes import SMALL_JOBS_NODEGROUP
from trainflow.deployment.address import DeploymentAddress
from trainflow.deployment.functions import EVENT_HANDLERS, LINK, SLURM, TASKS
from trainflow.nodes.instances import INSTANCE_TYPES, SYSTEM_INSTANCE, nodegroup_name
from trainflow.state_machines import definition_json

CLUSTER_NAME = "trainflow"
DEPLOYMENT_NAME = "twin"
"""Dimension of the metrics; another word than the cluster's name, so that neither passes for the other."""
NAMESPACE = "training"
DATA_BUCKET = NAMES["storage.Data"]
ARTIFACT_BUCKET = NAMES["storage.Artifacts"]
BUCKETS = (DATA_BUCKET, ARTIFACT_BUCKET)
RUN_TABLE = NAMES["orchestration.Runs"]
CACHE_TABLE = NAMES["orchestration.Caches"]
REQUESTS = NAMES["triggers.RunRequests"]
LOST_REQUESTS = NAMES["triggers.DeadLettersRunRequests"]
IMAGE_REPOSITORY = NAMES["images.Repository"]
TOOLS_IMAGE = f"{DEFAULT_ACCOUNT_ID}.dkr.ecr.{REGION}.amazonaws.com/{IMAGE_REPOSITORY}:tools-twin"
POD_ROLE = f"arn:aws:iam::{DEFAULT_ACCOUNT_ID}:role/{NAMES['cluster.WorkloadPodRole']}"
"""The role of the runs' pods."""

MAX_NODES = 16
"""Nodes of each type that the twin will start on one machine."""

SMALL_JOB_NODES = 1
"""The default of `cluster.small_job_nodes`. System nodes are left out: the twin does not run their software."""

ZONE_ID = "usw2-az4"
"""The value of `network.zone_id` in the example configuration: the zone offers every trn1 type."""


@dataclass(frozen=True, kw_only=True)
class Deployment:
    """Names of what was made."""

    address: DeploymentAddress
    """The content of the parameter in Systems Manager that clients read."""
    topic_arn: str
    functions: Mapping[str, str]
    """Function ARN by the function's name."""
    tools_image: str
    """Image of the runs' small jobs and helpers."""


def make_cluster(aws: AwsServer) -> None:
    """Make the EKS cluster and its node groups: empty ones to train on, and one for small pods."""
    quotas.serve(max_nodes=MAX_NODES)
    eks, role = aws.client("eks"), _cluster_role(aws)
    in_zone = [{"Name": "availability-zone-id", "Values": [ZONE_ID]}]
    subnets = [found["SubnetId"] for found in aws.client("ec2").describe_subnets(Filters=in_zone)["Subnets"]]
    eks.create_cluster(name=CLUSTER_NAME, roleArn=role, resourcesVpcConfig={"subnetIds": subnets})
    _admit_creator(aws)
    empty = {"minSize": 0, "desiredSize": 0, "maxSize": MAX_NODES}
    always = {"minSize": SMALL_JOB_NODES, "desiredSize": SMALL_JOB_NODES, "maxSize": SMALL_JOB_NODES + 1}
    groups = {nodegroup_name(name): (name, empty) for name in INSTANCE_TYPES}
    backend = eks_backends[DEFAULT_ACCOUNT_ID][REGION]
    for name, (instance_type, size) in {**groups, SMALL_JOBS_NODEGROUP: (SYSTEM_INSTANCE.name, always)}.items():
        # Without a request for each: there are ninety types, and a request takes 45 ms.
        backend.create_nodegroup(
            cluster_name=CLUSTER_NAME,
            nodegroup_name=name,
            node_role=role,
            subnets=list(subnets),
            instance_types=[instance_type],
            scaling_config=dict(size),
        )


def _admit_creator(aws: AwsServer) -> None:
    """Let the account's owner administer the cluster, as EKS lets the creator of one.

    Source: EKS API reference, CreateAccessConfigRequest: `bootstrapClusterCreatorAdminPermissions` defaults to true.
    """
    owner = aws.client("sts").get_caller_identity()["Arn"]
    aws.client("eks").create_access_entry(
        clusterName=CLUSTER_NAME, principalArn=owner, kubernetesGroups=["system:masters"]
    )


def set_endpoint(*, kubernetes_endpoint: str, ca_data: str, cluster_name: str = CLUSTER_NAME) -> None:
    """Let `eks:DescribeCluster` name the cluster's Kubernetes API; moto invents one and offers no call to set it.

    Args:
        kubernetes_endpoint: HTTPS URL of the API.
        ca_data: Its certificate authority, PEM in base64.
        cluster_name: Name of the cluster.
    """
    cluster = eks_backends[DEFAULT_ACCOUNT_ID][REGION].clusters[cluster_name]
    cluster.endpoint, cluster.certificate_authority = kubernetes_endpoint, {"data": ca_data}


def deploy(
    aws: AwsServer,
    *,
    slurm: Callable[[], Mapping[str, str]] | None = None,
    granted_buckets: GrantedBuckets = GrantedBuckets(),  # noqa: B008 (it is frozen)
    granted_secrets: Sequence[str] = (),
    cluster_makes_nodes: bool = False,
) -> Deployment:
    """Make everything that a run needs beside the cluster.

    Args:
        aws: Where.
        slurm: Returns the variables of the functions for a Slurm cluster; None without one. It is called when the role
            of the runs' pods exists, whose credentials Slurm's jobs have.
        granted_buckets: Further buckets that runs may use, as `storage.grants` names them.
        granted_secrets: ARNs of secrets that runs may read, as `run_secrets` names them.
        cluster_makes_nodes: Value of `capacity.cluster`.
    """
    cloudformation.whole_models()
    values: dict[str, Sequence[str]] = {
        **{f"definition {name}": [definition_json(name)] for name in ("watch_job", "training")},
        "cluster.Cluster": [CLUSTER_NAME],
        "cluster.Cluster.Arn": [f"arn:aws:eks:{REGION}:{DEFAULT_ACCOUNT_ID}:cluster/{CLUSTER_NAME}"],
        "readable bucket": granted_buckets.readable,
        "writable bucket": granted_buckets.writable,
        "granted secret": granted_secrets,
    }
    template = Template(aws.client, values, region=REGION)
    template.make("cluster.WorkloadPodRole")
    found = slurm() if slurm else {}
    settings = {
        **dict.fromkeys((*SLURM, *LINK), ""),
        **found,
        "DEPLOYMENT": DEPLOYMENT_NAME,
        "TOOLS_IMAGE": TOOLS_IMAGE,
        "CLUSTER_MAKES_NODES": str(cluster_makes_nodes).lower(),
    }
    values["slurm secret"] = [found["SLURM_KEY_SECRET"]] if found else []
    values |= {f"setting {name}": [value] for name, value in settings.items()}
    template.make_all()
    _put_tools_image(aws)
    functions = {
        function.name: template.make(f"{stack}.{function.name}Function").attributes["Arn"]
        for stack, functions in (("orchestration", TASKS), ("triggers", EVENT_HANDLERS))
        for function in functions
    }
    address = template.make("orchestration.Address").attributes["Value"]
    return Deployment(
        address=DeploymentAddress.model_validate_json(address),
        topic_arn=template.make("orchestration.Topic").physical_id,
        functions=functions,
        tools_image=TOOLS_IMAGE,
    )


def _put_tools_image(aws: AwsServer) -> None:
    """Put the image of staging and publishing into ECR, as `make images` does. The twin's nodes read no image."""
    manifest = {"schemaVersion": 2, "mediaType": "application/vnd.docker.distribution.manifest.v2+json", "layers": []}
    tag = TOOLS_IMAGE.rpartition(":")[2]
    aws.client("ecr").put_image(repositoryName=IMAGE_REPOSITORY, imageManifest=json.dumps(manifest), imageTag=tag)


def create_bucket(aws: AwsServer, name: str) -> None:
    """Make a bucket in the twin's region."""
    aws.client("s3").create_bucket(Bucket=name, CreateBucketConfiguration={"LocationConstraint": REGION})


def create_secret(aws: AwsServer, name: str, text: str) -> str:
    """Keep a text in Secrets Manager; returns its ARN."""
    return str(aws.client("secretsmanager").create_secret(Name=name, SecretString=text)["ARN"])


def _cluster_role(aws: AwsServer) -> str:
    """ARN of a role that nothing assumes."""
    trust = json.dumps({"Version": "2012-10-17", "Statement": []})
    role = aws.client("iam").create_role(RoleName="trainflow-cluster", AssumeRolePolicyDocument=trust)
    return str(role["Role"]["Arn"])


def desired_sizes() -> dict[str, tuple[str, int]]:
    """Instance type and desired size by the name of the node group, as the last EKS call left it."""
    nodegroups = eks_backends[DEFAULT_ACCOUNT_ID][REGION].clusters[CLUSTER_NAME].nodegroups
    return {
        name: (nodegroup.instance_types[0], int(nodegroup.scaling_config["desiredSize"]))
        for name, nodegroup in nodegroups.items()
    }


def gang_nodes() -> int:
    """Number of nodes that runs have requested and not released; the permanent nodes do not count."""
    return sum(size for name, (_, size) in desired_sizes().items() if name != SMALL_JOBS_NODEGROUP)
