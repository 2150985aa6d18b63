"""What `cdk deploy` makes in an account, made in the twin: functions, state machines, buckets, table, topic, triggers.

From the same texts and the same list of functions; only the calls differ. The cluster is made apart from the rest: with
it alone, the twin is an account that the stacks themselves can be deployed to.
"""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from string import Template
from typing import Any

from moto.core import DEFAULT_ACCOUNT_ID
from moto.eks.models import eks_backends

from local.aws import quotas, triggers
from local.aws.server import REGION, AwsServer
from trainflow.models import compile_cache
from trainflow.models.deployment_address import DeploymentAddress, parameter_name
from trainflow.models.functions import EVENT_HANDLERS, LINK, SLURM, TASKS, Function
from trainflow.models.instances import INSTANCE_TYPES, SYSTEM_INSTANCE, SYSTEM_NODEGROUP, nodegroup_name
from trainflow.models.run_table import KEY
from trainflow.state_machines import definition_json

CLUSTER_NAME = "trainflow"
DEPLOYMENT_NAME = "twin"
"""Dimension of the metrics; another word than the cluster's name, so that neither passes for the other."""
NAMESPACE = "training"
DATA_BUCKET = "trainflow-data"
ARTIFACT_BUCKET = "trainflow-artifacts"
RUN_TABLE = "trainflow-runs"
CACHE_TABLE = "trainflow-caches"
IMAGE_REPOSITORY = "trainflow"
TOOLS_TAG = "tools-twin"
IDLE_MINUTES = 20
"""The default of `capacity.idle_minutes`."""

MAX_NODES = 16
"""Nodes of each type that the twin will start on one machine."""

SYSTEM_NODES = 1
"""The value of `cluster.system_nodes` in the example configuration."""

ZONE_ID = "usw2-az4"
"""The value of `network.zone_id` in the example configuration: the zone offers every trn1 type."""


@dataclass(frozen=True, kw_only=True)
class Deployment:
    """Names of what was made."""

    address: DeploymentAddress
    """What clients have to know, as the parameter of Systems Manager says it."""
    topic_arn: str
    functions: Mapping[str, str]
    """Function ARN by the function's name."""
    tools_image: str
    """Image of the runs' small jobs and helpers."""


def make_cluster(aws: AwsServer) -> None:
    """Make the EKS cluster and its node groups: empty ones to train on, and one for small pods."""
    quotas.serve(max_nodes=MAX_NODES)
    eks, role = aws.client("eks"), _role(aws, "cluster")
    in_zone = [{"Name": "availability-zone-id", "Values": [ZONE_ID]}]
    subnets = [found["SubnetId"] for found in aws.client("ec2").describe_subnets(Filters=in_zone)["Subnets"]]
    eks.create_cluster(name=CLUSTER_NAME, roleArn=role, resourcesVpcConfig={"subnetIds": subnets})
    _admit_creator(aws)
    empty = {"minSize": 0, "desiredSize": 0, "maxSize": MAX_NODES}
    always = {"minSize": SYSTEM_NODES, "desiredSize": SYSTEM_NODES, "maxSize": SYSTEM_NODES + 1}
    groups = {nodegroup_name(name): (name, empty) for name in INSTANCE_TYPES}
    backend = eks_backends[DEFAULT_ACCOUNT_ID][REGION]
    for name, (instance_type, size) in {**groups, SYSTEM_NODEGROUP: (SYSTEM_INSTANCE.name, always)}.items():
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
    """Let `eks:DescribeCluster` name the cluster's Kubernetes API; moto invents one and has no call that sets it.

    Args:
        kubernetes_endpoint: HTTPS URL of the API.
        ca_data: Its certificate authority, PEM in base64.
        cluster_name: Which cluster.
    """
    cluster = eks_backends[DEFAULT_ACCOUNT_ID][REGION].clusters[cluster_name]
    cluster.endpoint, cluster.certificate_authority = kubernetes_endpoint, {"data": ca_data}


def deploy(aws: AwsServer, *, slurm: Mapping[str, str] | None = None) -> Deployment:
    """Make everything that a run needs beside the cluster.

    Args:
        aws: Where.
        slurm: What functions are told about a Slurm cluster; None if there is none.
    """
    topic_arn = aws.client("sns").create_topic(Name="trainflow-runs")["TopicArn"]
    for bucket in (DATA_BUCKET, ARTIFACT_BUCKET):
        if not _exists(aws, bucket):
            create_bucket(aws, bucket)
    for table, key in ((RUN_TABLE, KEY), (CACHE_TABLE, compile_cache.KEY)):
        aws.client("dynamodb").create_table(
            TableName=table,
            BillingMode="PAY_PER_REQUEST",
            KeySchema=[{"AttributeName": key, "KeyType": "HASH"}],
            AttributeDefinitions=[{"AttributeName": key, "AttributeType": "S"}],
        )
    tools_image = _tools_image(aws)
    settings = {
        "CLUSTER_NAME": CLUSTER_NAME,
        "DEPLOYMENT": DEPLOYMENT_NAME,
        "NAMESPACE": NAMESPACE,
        "ARTIFACT_BUCKET": ARTIFACT_BUCKET,
        "TOPIC_ARN": topic_arn,
        "RUN_TABLE": RUN_TABLE,
        "CACHE_TABLE": CACHE_TABLE,
        "IDLE_MINUTES": str(IDLE_MINUTES),
        "TOOLS_IMAGE": tools_image,
        "REPLACE_BAD_NODES": "false",
        **dict.fromkeys((*SLURM, *LINK), ""),
        **(slurm or {}),
    }
    functions = _functions(aws, TASKS, settings)
    role = _role(aws, "states")
    watch_job = _state_machine(aws, role, "watch_job", functions)
    training = _state_machine(aws, role, "training", {**functions, "WatchJob": watch_job})
    functions |= _functions(aws, EVENT_HANDLERS, {**settings, "TRAINING_STATE_MACHINE_ARN": training})
    address = DeploymentAddress(
        deployment=DEPLOYMENT_NAME,
        state_machine_arn=training,
        artifact_bucket=ARTIFACT_BUCKET,
        data_bucket=DATA_BUCKET,
        cluster=CLUSTER_NAME,
        namespace=NAMESPACE,
        survey_function=functions["SurveyFleet"],
    )
    aws.client("ssm").put_parameter(
        Name=parameter_name(DEPLOYMENT_NAME), Value=address.model_dump_json(), Type="String"
    )
    triggers.make(aws, functions, data_bucket=DATA_BUCKET, training_state_machine_arn=training, role=role)
    return Deployment(address=address, topic_arn=topic_arn, functions=functions, tools_image=tools_image)


def _tools_image(aws: AwsServer) -> str:
    """The name of the image that staging and publishing run in, which ECR has. The twin's nodes read no image."""
    ecr = aws.client("ecr")
    repository = ecr.create_repository(repositoryName=IMAGE_REPOSITORY)["repository"]
    manifest = {"schemaVersion": 2, "mediaType": "application/vnd.docker.distribution.manifest.v2+json", "layers": []}
    ecr.put_image(repositoryName=IMAGE_REPOSITORY, imageManifest=json.dumps(manifest), imageTag=TOOLS_TAG)
    return f"{repository['repositoryUri']}:{TOOLS_TAG}"


def create_bucket(aws: AwsServer, name: str) -> None:
    """Make a bucket in the twin's region."""
    aws.client("s3").create_bucket(Bucket=name, CreateBucketConfiguration={"LocationConstraint": REGION})


def create_secret(aws: AwsServer, name: str, text: str) -> str:
    """Keep a text in Secrets Manager; the ARN by which functions ask for it."""
    return str(aws.client("secretsmanager").create_secret(Name=name, SecretString=text)["ARN"])


def _exists(aws: AwsServer, bucket: str) -> bool:
    return any(found["Name"] == bucket for found in aws.client("s3").list_buckets()["Buckets"])


def _role(aws: AwsServer, name: str) -> str:
    policy = {"Version": "2012-10-17", "Statement": []}
    role = aws.client("iam").create_role(RoleName=f"trainflow-{name}", AssumeRolePolicyDocument=json.dumps(policy))
    return str(role["Role"]["Arn"])


def _functions(aws: AwsServer, functions: Iterable[Function], settings: Mapping[str, str]) -> dict[str, str]:
    """Functions with a role each, and what the cluster's access entries say of it."""
    client, eks = aws.client("lambda"), aws.client("eks")
    arns = {}
    for function in functions:
        role = _role(aws, function.name)
        if function.access is not None:
            eks.create_access_entry(
                clusterName=CLUSTER_NAME, principalArn=role, kubernetesGroups=[function.access.value]
            )
        created = client.create_function(
            FunctionName=f"trainflow-{function.name}",
            Runtime="python3.12",
            Role=role,
            Handler=function.handler,
            Timeout=function.timeout_seconds,
            MemorySize=function.memory_mib,
            Environment={"Variables": {name: settings[name] for name in function.environment}},
            # Workers import the repository's own modules; moto wants some archive.
            Code={"ZipFile": empty_archive()},
        )
        arns[function.name] = str(created["FunctionArn"])
    return arns


def empty_archive() -> bytes:
    """A code archive for functions whose code is not in one."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("README", "The twin runs handlers from the repository.")
    return buffer.getvalue()


def _state_machine(aws: AwsServer, role: str, name: str, substitutions: Mapping[str, str]) -> str:
    created: Any = aws.client("stepfunctions").create_state_machine(
        name=f"trainflow-{name.replace('_', '-')}",
        definition=_Substituted(definition_json(name)).substitute(substitutions),
        roleArn=role,
    )
    return str(created["stateMachineArn"])


class _Substituted(Template):
    """`${Name}` alone is a placeholder, as in CDK; `$name` and `$$.` are Step Functions' own."""

    pattern = r"\$\{(?P<braced>[A-Za-z0-9]+)\}|(?P<escaped>(?!))|(?P<named>(?!))|(?P<invalid>(?!))"  # type: ignore[assignment]


def desired_sizes() -> dict[str, tuple[str, int]]:
    """Instance type and desired size by the name of the node group, as the last EKS call left it."""
    nodegroups = eks_backends[DEFAULT_ACCOUNT_ID][REGION].clusters[CLUSTER_NAME].nodegroups
    return {
        name: (nodegroup.instance_types[0], int(nodegroup.scaling_config["desiredSize"]))
        for name, nodegroup in nodegroups.items()
    }


def gang_nodes() -> int:
    """Number of nodes that runs have requested and not released; the permanent nodes do not count."""
    return sum(size for name, (_, size) in desired_sizes().items() if name != SYSTEM_NODEGROUP)
