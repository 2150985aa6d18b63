"""What `cdk deploy` makes in an account, made in the twin: functions, state machines, buckets, topic, cluster.

From the same texts and the same list of functions; only the calls differ.
"""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from string import Template
from typing import Any

from moto.core import DEFAULT_ACCOUNT_ID
from moto.eks.models import eks_backends

from lambdas.models.functions import FUNCTIONS
from lambdas.models.instances import INSTANCE_TYPES, nodegroup_name
from local.aws.server import REGION, AwsServer

STATE_MACHINES = Path(__file__).parents[2] / "statemachines"

CLUSTER_NAME = "trainflow"
NAMESPACE = "training"
ARTIFACT_BUCKET = "trainflow-artifacts"
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


def deploy(aws: AwsServer, *, kubernetes_endpoint: str, ca_data: str) -> Deployment:
    """Make everything that a run needs.

    Args:
        aws: The running endpoint.
        kubernetes_endpoint: HTTPS URL of the Kubernetes API that `eks:DescribeCluster` shall name.
        ca_data: Its certificate authority, PEM in base64.
    """
    role = _role(aws)
    topic_arn = aws.client("sns").create_topic(Name="trainflow-runs")["TopicArn"]
    if not _exists(aws, ARTIFACT_BUCKET):
        create_bucket(aws, ARTIFACT_BUCKET)
    _cluster(aws, role, endpoint=kubernetes_endpoint, ca_data=ca_data)
    settings = {
        "CLUSTER_NAME": CLUSTER_NAME,
        "NAMESPACE": NAMESPACE,
        "ARTIFACT_BUCKET": ARTIFACT_BUCKET,
        "TOPIC_ARN": topic_arn,
    }
    functions = _functions(aws, role, settings)
    watch_job = _state_machine(aws, role, "watch_job", functions)
    training = _state_machine(aws, role, "training", {**functions, "WatchJob": watch_job})
    return Deployment(training_state_machine_arn=training, topic_arn=topic_arn, functions=functions)


def create_bucket(aws: AwsServer, name: str) -> None:
    """Make a bucket in the twin's region."""
    aws.client("s3").create_bucket(Bucket=name, CreateBucketConfiguration={"LocationConstraint": REGION})


def _exists(aws: AwsServer, bucket: str) -> bool:
    return any(found["Name"] == bucket for found in aws.client("s3").list_buckets()["Buckets"])


def _role(aws: AwsServer) -> str:
    policy = {"Version": "2012-10-17", "Statement": []}
    role = aws.client("iam").create_role(RoleName="trainflow-twin", AssumeRolePolicyDocument=json.dumps(policy))
    return str(role["Role"]["Arn"])


def _cluster(aws: AwsServer, role: str, *, endpoint: str, ca_data: str) -> None:
    eks = aws.client("eks")
    eks.create_cluster(name=CLUSTER_NAME, roleArn=role, resourcesVpcConfig={"subnetIds": list(_SUBNETS)})
    # moto invents an endpoint and has no call that sets it.
    cluster = eks_backends[DEFAULT_ACCOUNT_ID][REGION].clusters[CLUSTER_NAME]
    cluster.endpoint, cluster.certificate_authority = endpoint, {"data": ca_data}
    for instance_type in INSTANCE_TYPES:
        eks.create_nodegroup(
            clusterName=CLUSTER_NAME,
            nodegroupName=nodegroup_name(instance_type),
            nodeRole=role,
            subnets=list(_SUBNETS),
            instanceTypes=[instance_type],
            scalingConfig={"minSize": 0, "desiredSize": 0, "maxSize": MAX_NODES},
        )


def _functions(aws: AwsServer, role: str, settings: Mapping[str, str]) -> dict[str, str]:
    client = aws.client("lambda")
    arns = {}
    for function in FUNCTIONS:
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
