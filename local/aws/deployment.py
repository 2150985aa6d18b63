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
from pathlib import Path
from string import Template
from typing import Any

from moto.core import DEFAULT_ACCOUNT_ID
from moto.eks.models import eks_backends

from lambdas.models.functions import EVENT_HANDLERS, TASKS, Function
from lambdas.models.instances import INSTANCE_TYPES, nodegroup_name
from lambdas.models.run_table import KEY
from local.aws import triggers
from local.aws.server import REGION, AwsServer

STATE_MACHINES = Path(__file__).parents[2] / "statemachines"

CLUSTER_NAME = "trainflow"
NAMESPACE = "training"
DATA_BUCKET = "trainflow-data"
ARTIFACT_BUCKET = "trainflow-artifacts"
RUN_TABLE = "trainflow-runs"
IDLE_MINUTES = 20
"""As `capacity.idle_minutes` has it by default."""

MAX_NODES = 16
"""Nodes of each type that the twin will start on one machine."""

_SUBNETS = ("subnet-twin0", "subnet-twin1")


@dataclass(frozen=True, kw_only=True)
class Deployment:
    """Names of what was made."""

    training_state_machine_arn: str
    topic_arn: str
    functions: Mapping[str, str]
    """Function ARN by the function's name."""


def make_cluster(aws: AwsServer) -> None:
    """Make the EKS cluster and its node groups."""
    eks, role = aws.client("eks"), _role(aws, "cluster")
    eks.create_cluster(name=CLUSTER_NAME, roleArn=role, resourcesVpcConfig={"subnetIds": list(_SUBNETS)})
    for instance_type in INSTANCE_TYPES:
        eks.create_nodegroup(
            clusterName=CLUSTER_NAME,
            nodegroupName=nodegroup_name(instance_type),
            nodeRole=role,
            subnets=list(_SUBNETS),
            instanceTypes=[instance_type],
            scalingConfig={"minSize": 0, "desiredSize": 0, "maxSize": MAX_NODES},
        )


def set_endpoint(*, kubernetes_endpoint: str, ca_data: str) -> None:
    """Let `eks:DescribeCluster` name the cluster's Kubernetes API; moto invents one and has no call that sets it.

    Args:
        kubernetes_endpoint: HTTPS URL of the API.
        ca_data: Its certificate authority, PEM in base64.
    """
    cluster = eks_backends[DEFAULT_ACCOUNT_ID][REGION].clusters[CLUSTER_NAME]
    cluster.endpoint, cluster.certificate_authority = kubernetes_endpoint, {"data": ca_data}


def deploy(aws: AwsServer) -> Deployment:
    """Make everything that a run needs beside the cluster."""
    topic_arn = aws.client("sns").create_topic(Name="trainflow-runs")["TopicArn"]
    for bucket in (DATA_BUCKET, ARTIFACT_BUCKET):
        if not _exists(aws, bucket):
            create_bucket(aws, bucket)
    aws.client("dynamodb").create_table(
        TableName=RUN_TABLE,
        BillingMode="PAY_PER_REQUEST",
        KeySchema=[{"AttributeName": KEY, "KeyType": "HASH"}],
        AttributeDefinitions=[{"AttributeName": KEY, "AttributeType": "S"}],
    )
    settings = {
        "CLUSTER_NAME": CLUSTER_NAME,
        "NAMESPACE": NAMESPACE,
        "ARTIFACT_BUCKET": ARTIFACT_BUCKET,
        "TOPIC_ARN": topic_arn,
        "RUN_TABLE": RUN_TABLE,
        "IDLE_MINUTES": str(IDLE_MINUTES),
    }
    functions = _functions(aws, TASKS, settings)
    role = _role(aws, "states")
    watch_job = _state_machine(aws, role, "watch_job", functions)
    training = _state_machine(aws, role, "training", {**functions, "WatchJob": watch_job})
    functions |= _functions(aws, EVENT_HANDLERS, {**settings, "TRAINING_STATE_MACHINE_ARN": training})
    triggers.make(aws, functions, data_bucket=DATA_BUCKET, training_state_machine_arn=training, role=role)
    return Deployment(training_state_machine_arn=training, topic_arn=topic_arn, functions=functions)


def create_bucket(aws: AwsServer, name: str) -> None:
    """Make a bucket in the twin's region."""
    aws.client("s3").create_bucket(Bucket=name, CreateBucketConfiguration={"LocationConstraint": REGION})


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
    text = (STATE_MACHINES / f"{name}.asl.json").read_text()
    created: Any = aws.client("stepfunctions").create_state_machine(
        name=f"trainflow-{name.replace('_', '-')}",
        definition=_Substituted(text).substitute(substitutions),
        roleArn=role,
    )
    return str(created["stateMachineArn"])


class _Substituted(Template):
    """`${Name}` alone is a placeholder, as in CDK; `$name` and `$$.` are Step Functions' own."""

    pattern = r"\$\{(?P<braced>[A-Za-z0-9]+)\}|(?P<escaped>(?!))|(?P<named>(?!))|(?P<invalid>(?!))"  # type: ignore[assignment]


def desired_sizes() -> dict[str, tuple[str, int]]:
    """From node group name to (instance type, desired size), as the last EKS call left it."""
    nodegroups = eks_backends[DEFAULT_ACCOUNT_ID][REGION].clusters[CLUSTER_NAME].nodegroups
    return {
        name: (nodegroup.instance_types[0], int(nodegroup.scaling_config["desiredSize"]))
        for name, nodegroup in nodegroups.items()
    }
