"""What the functions talk to: an AWS in memory, and a Kubernetes API that remembers what it was asked for."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from types import SimpleNamespace
from typing import Any

import pytest
from botocore.client import BaseClient
from botocore.exceptions import ClientError
from moto import mock_aws
from moto.core import DEFAULT_ACCOUNT_ID
from moto.sns.models import sns_backends

from lambdas.gateways import aws as clients
from lambdas.gateways import executions, kubernetes
from lambdas.gateways.runs import RunTable
from local.aws import patches
from local.aws.replacements import put_back
from tests.fakes.kubernetes_api import FakeKubernetesApi
from tests.fakes.runs import TOOLS_IMAGE
from trainflow.deployment.functions import SLURM
from trainflow.nodes.instances import nodegroup_name
from trainflow.record.history import ExecutionHistory

REGION = "us-west-2"
CLUSTER = "trainflow"
DATA_BUCKET = "data"
ARTIFACT_BUCKET = "artifacts"
RUN_TABLE = "runs"
CACHE_TABLE = "caches"
NAMESPACE = "training"

CONTEXT = SimpleNamespace(aws_request_id="request", function_name="function", memory_limit_in_mb=512)


@dataclass
class Aws:
    """An account with what a deployment makes."""

    topic_arn: str
    state_machine_arn: str

    def client(self, service: str) -> Any:
        return clients.client(service)

    @property
    def messages(self) -> list[tuple[str, str]]:
        """Subjects and messages that subscribers of the topic get by mail."""
        topic = sns_backends[DEFAULT_ACCOUNT_ID][REGION].topics[self.topic_arn]
        return [(sent[2], json.loads(sent[1])["default"]) for sent in topic.sent_notifications]

    @property
    def table(self) -> RunTable:
        return RunTable(RUN_TABLE)

    def executions(self) -> dict[str, Any]:
        """Input by name."""
        sfn = self.client("stepfunctions")
        found = sfn.list_executions(stateMachineArn=self.state_machine_arn)["executions"]
        return {
            each["name"]: json.loads(sfn.describe_execution(executionArn=each["executionArn"])["input"])
            for each in found
        }

    def add_nodegroup(
        self,
        instance_type: str,
        *,
        desired: int = 0,
        minimum: int = 0,
        maximum: int = 16,
        subnets: Sequence[str] = ("subnet-1",),
    ) -> None:
        self.client("eks").create_nodegroup(
            clusterName=CLUSTER,
            nodegroupName=nodegroup_name(instance_type),
            nodeRole=f"arn:aws:iam::{DEFAULT_ACCOUNT_ID}:role/node",
            subnets=list(subnets),
            scalingConfig={"minSize": minimum, "desiredSize": desired, "maxSize": maximum},
        )

    def start_instances(self, instance_type: str, num_instances: int) -> list[str]:
        """Instances of a node group, which are in its Auto Scaling group as EKS has one; their ids."""
        image = self.client("ec2").register_image(Name="node", RootDeviceName="/dev/xvda")
        scaling = self.client("autoscaling")
        scaling.create_launch_configuration(
            LaunchConfigurationName="node", ImageId=image["ImageId"], InstanceType="t3.micro"
        )
        scaling.create_auto_scaling_group(
            AutoScalingGroupName=self._auto_scaling_group(instance_type),
            LaunchConfigurationName="node",
            MinSize=0,
            MaxSize=8,
            DesiredCapacity=num_instances,
            AvailabilityZones=["us-west-2a"],
        )
        return self.instances(instance_type)

    def instances(self, instance_type: str) -> list[str]:
        """Ids of the instances of a node group, the oldest first."""
        return [each["InstanceId"] for each in self._scaling(instance_type)["Instances"]]

    def capacity(self, instance_type: str) -> int:
        """Desired size of the Auto Scaling group of a node group."""
        return int(self._scaling(instance_type)["DesiredCapacity"])

    def _scaling(self, instance_type: str) -> Any:
        name = self._auto_scaling_group(instance_type)
        found = self.client("autoscaling").describe_auto_scaling_groups(AutoScalingGroupNames=[name])
        return found["AutoScalingGroups"][0]

    def _auto_scaling_group(self, instance_type: str) -> str:
        found = self.client("eks").describe_nodegroup(clusterName=CLUSTER, nodegroupName=nodegroup_name(instance_type))
        return str(found["nodegroup"]["resources"]["autoScalingGroups"][0]["name"])

    def desired(self, instance_type: str) -> int:
        found = self.client("eks").describe_nodegroup(clusterName=CLUSTER, nodegroupName=nodegroup_name(instance_type))
        return int(found["nodegroup"]["scalingConfig"]["desiredSize"])


@pytest.fixture(scope="package")
def own_clients() -> Iterator[None]:
    """Clients are the dearest part of a test here; those of other packages lead elsewhere."""
    clients.client.cache_clear()
    yield
    clients.client.cache_clear()


@pytest.fixture
def aws(monkeypatch: pytest.MonkeyPatch, own_clients: None) -> Iterator[Aws]:
    """The account; the functions' environment variables lead to it."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    monkeypatch.setenv("AWS_DEFAULT_REGION", REGION)
    monkeypatch.setenv("AWS_REGION", REGION)
    monkeypatch.delenv("AWS_ENDPOINT_URL", raising=False)
    patches.atomic_writes()
    with mock_aws():
        account = _account()
        for name, value in {
            "CLUSTER_NAME": CLUSTER,
            "DEPLOYMENT": "twin",
            "NAMESPACE": NAMESPACE,
            "ARTIFACT_BUCKET": ARTIFACT_BUCKET,
            "RUN_TABLE": RUN_TABLE,
            "CACHE_TABLE": CACHE_TABLE,
            "TOPIC_ARN": account.topic_arn,
            "TRAINING_STATE_MACHINE_ARN": account.state_machine_arn,
            "IDLE_MINUTES": "30",
            "CLUSTER_MAKES_NODES": "false",
            "REPLACE_BAD_NODES": "false",
            "LINKED_FILE_SYSTEM": "",
            "LINKED_URL": "",
            "TOOLS_IMAGE": TOOLS_IMAGE,
            "ALLOWED_IMAGES": "[]",
            "DEFAULT_TEAM": "",
            "DEFAULT_PROJECT": "",
            **dict.fromkeys(SLURM, ""),
        }.items():
            monkeypatch.setenv(name, value)
        yield account
    put_back()


def _account() -> Aws:
    role = f"arn:aws:iam::{DEFAULT_ACCOUNT_ID}:role/states"
    account = Aws(topic_arn="", state_machine_arn="")
    account.topic_arn = account.client("sns").create_topic(Name="runs")["TopicArn"]
    account.state_machine_arn = account.client("stepfunctions").create_state_machine(
        name="training",
        definition=json.dumps({"StartAt": "End", "States": {"End": {"Type": "Succeed"}}}),
        roleArn=role,
    )["stateMachineArn"]
    for bucket in (DATA_BUCKET, ARTIFACT_BUCKET):
        account.client("s3").create_bucket(Bucket=bucket, CreateBucketConfiguration={"LocationConstraint": REGION})
    account.client("s3").put_bucket_versioning(Bucket=DATA_BUCKET, VersioningConfiguration={"Status": "Enabled"})
    for table, key in ((RUN_TABLE, "run_id"), (CACHE_TABLE, "cache_key")):
        account.client("dynamodb").create_table(
            TableName=table,
            KeySchema=[{"AttributeName": key, "KeyType": "HASH"}],
            AttributeDefinitions=[{"AttributeName": key, "AttributeType": "S"}],
            BillingMode="PAY_PER_REQUEST",
        )
    account.client("eks").create_cluster(name=CLUSTER, roleArn=role, resourcesVpcConfig={"subnetIds": ["subnet-1"]})
    return account


@pytest.fixture
def begun_history(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every execution has only begun, according to its history: moto invents histories."""
    events = ({"id": 1, "type": "ExecutionStarted", "timestamp": datetime(2026, 11, 21, 12, tzinfo=UTC)},)
    monkeypatch.setattr(executions, "history", lambda arn: ExecutionHistory(arn=arn, events=events))


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> FakeKubernetesApi:
    """The Kubernetes API that the functions connect to."""
    api = FakeKubernetesApi()
    monkeypatch.setattr(kubernetes, "_api_client", lru_cache(lambda _cluster, _period: api))
    return api


@pytest.fixture
def refusing(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str | None], None]:
    """Lets AWS refuse an operation with an error code from now on, or with None no longer."""
    answer, refused = BaseClient._make_api_call, dict[str, str | None]()  # type: ignore[attr-defined]

    def call(self: Any, operation: str, arguments: Any) -> Any:
        if code := refused.get(operation):
            response: Any = {"Error": {"Code": code, "Message": ""}, "ResponseMetadata": {"HTTPStatusCode": 400}}
            raise ClientError(response, operation)
        return answer(self, operation, arguments)

    monkeypatch.setattr(BaseClient, "_make_api_call", call)
    return refused.__setitem__
