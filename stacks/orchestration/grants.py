"""Permissions of the functions of a run, and those that they share with other functions.

In addition, each function may write its own log and traces, decrypt with the deployment's key and, if it uses the
cluster, call `eks:DescribeCluster` (`functions`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import aws_cdk as cdk
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_sns as sns

from stacks.orchestration.permissions import USE_OF_KEY, Grant, SharedPolicies, allow, objects, policy
from stacks.orchestration.state_machines import executions_of
from stacks.shared.acknowledgements import Reason
from stacks.storage import further_buckets
from stacks.storage.stack import DATA_PREFIX
from trainflow.configuration.deployment import Configuration
from trainflow.deployment.functions import Function
from trainflow.nodes.instances import nodegroup_name
from trainflow.record.steps import FILE_NAME as STEPS_FILE

if TYPE_CHECKING:
    from stacks.images.stack import ImagesStack
    from stacks.storage.stack import StorageStack

Grants = Sequence[Grant | iam.ManagedPolicy]


@dataclass(frozen=True, kw_only=True)
class Resources:
    """Resources that functions are given permissions on."""

    stack: cdk.Stack
    configuration: Configuration
    storage: StorageStack
    images: ImagesStack
    key: kms.Key
    topic: sns.Topic
    run_table: dynamodb.Table
    cache_table: dynamodb.Table
    policies: SharedPolicies


class SharedGrants:
    """Permissions that several functions share, in this stack and in the triggers' stack."""

    def __init__(self, resources: Resources) -> None:
        self._resources, self._storage = resources, resources.storage
        self.policies = resources.policies
        self.cluster_makes_nodes = resources.configuration.capacity.cluster
        self.resize_nodegroups = [] if self.cluster_makes_nodes else [self._may_resize_nodegroups()]
        self.write_artifacts = self._may_write_artifacts()

    def use_table(self, *actions: str, items: Sequence[str] = ()) -> list[Grant]:
        """Actions on the run table, and on its key, which DynamoDB uses with the caller's permissions.

        Args:
            actions: The actions.
            items: Patterns of the keys that they are limited to; empty for all items.
        """
        return self._use(self._resources.run_table, actions, items)

    def use_caches(self, *actions: str) -> list[Grant]:
        """Actions on the table of compile caches and on its key."""
        return self._use(self._resources.cache_table, actions)

    def release_caches(self) -> list[Grant]:
        """Release the lease of the compile cache that a run was filling."""
        return self.use_caches("dynamodb:Scan", "dynamodb:DeleteItem")

    def write_records(self) -> list[Grant | iam.ManagedPolicy]:
        """Read the history of an execution and of its watch windows, the kept steps, and how busy nodes were; write
        the record."""
        stack, name = self._resources.stack, self._resources.configuration.name
        return [
            allow(
                "states:GetExecutionHistory",
                on=[executions_of(stack, f"{name}-training"), executions_of(stack, f"{name}-watch-job")],
                pattern_because=Reason.RUNS_CHOOSE,
            ),
            self.policies.read_metrics,
            *self.keep_steps(),
        ]

    def keep_steps(self) -> list[Grant | iam.ManagedPolicy]:
        """Read the kept steps of a training, and write them together with new ones."""
        kept = allow(
            "s3:GetObject",
            on=objects(self._storage, self._storage.artifact_bucket, f"runs/*/{STEPS_FILE}"),
            pattern_because=Reason.OBJECTS_ARE_NAMED_BY_RUNS,
        )
        return [kept, self.decrypt(), self.write_artifacts]

    def use_kept_logs(self, *actions: str) -> list[Grant]:
        """Actions on the kept last lines of pods' logs, and on the key of their bucket."""
        logs = objects(self._storage, self._storage.artifact_bucket, "runs/*/logs/*")
        return [
            allow(*actions, on=logs, pattern_because=Reason.OBJECTS_ARE_NAMED_BY_RUNS),
            allow("kms:Decrypt", "kms:GenerateDataKey", on=self._storage.key.key_arn),
        ]

    def find_rank0(self) -> list[Grant]:
        """Read the object that announces the pod of rank 0 of an elastic job."""
        announcements = allow(
            "s3:GetObject",
            on=objects(self._storage, self._storage.artifact_bucket, "runs/*/rank0/*"),
            pattern_because=Reason.OBJECTS_ARE_NAMED_BY_RUNS,
        )
        return [announcements, self.decrypt()]

    def decrypt(self) -> Grant:
        """Decrypt objects of the buckets."""
        return allow("kms:Decrypt", on=self._storage.key.key_arn)

    def send_messages(self) -> list[Grant]:
        """Send messages over every notification channel, whose topic the deployment's key encrypts."""
        return [
            allow("sns:Publish", on=self._resources.topic.topic_arn),
            allow(*USE_OF_KEY, on=self._resources.key.key_arn),
        ]

    def terminate_instances(self) -> Grant:
        """Terminate instances of the cluster's own Auto Scaling groups.

        EKS names these groups after its node groups, and tags them with the cluster's name.
        """
        groups = self._resources.stack.format_arn(
            service="autoscaling",
            resource="autoScalingGroup:*:autoScalingGroupName",
            resource_name=f"eks-{nodegroup_name('*')}",
        )
        cluster_name = self._resources.configuration.cluster_name
        return allow(
            "autoscaling:TerminateInstanceInAutoScalingGroup",
            on=groups,
            when={"StringEquals": {"aws:ResourceTag/eks:cluster-name": cluster_name}},
            pattern_because=Reason.SERVICES_CHOOSE_IDS,
        )

    def describe_runs(self, stack: cdk.Stack) -> Grant:
        """Ask Step Functions whether a run is still running."""
        return allow(
            "states:DescribeExecution",
            on=executions_of(stack, f"{self._resources.configuration.name}-training"),
            pattern_because=Reason.RUNS_CHOOSE,
        )

    def _use(self, table: dynamodb.Table, actions: Sequence[str], items: Sequence[str] = ()) -> list[Grant]:
        limited = {"ForAllValues:StringLike": {"dynamodb:LeadingKeys": list(items)}} if items else None
        return [
            allow(*actions, on=table.table_arn, when=limited),
            allow("kms:Encrypt", "kms:DescribeKey", *USE_OF_KEY, on=self._resources.key.key_arn),
        ]

    def _may_resize_nodegroups(self) -> iam.ManagedPolicy:
        resize = allow(
            "eks:DescribeNodegroup",
            "eks:UpdateNodegroupConfig",
            on=self._nodegroups,
            pattern_because=Reason.SERVICES_CHOOSE_IDS,
        )
        return policy(self._resources.stack, "ResizeNodegroups", resize)

    def _may_write_artifacts(self) -> iam.ManagedPolicy:
        write = allow(
            "s3:PutObject",
            on=objects(self._storage, self._storage.artifact_bucket, "runs/*"),
            pattern_because=Reason.OBJECTS_ARE_NAMED_BY_RUNS,
        )
        generate = allow("kms:GenerateDataKey", on=self._storage.key.key_arn)
        return policy(self._resources.stack, "WriteArtifacts", write, generate)

    @property
    def _nodegroups(self) -> str:
        name = f"{self._resources.configuration.cluster_name}/trainflow-*/*"
        return self._resources.stack.format_arn(service="eks", resource="nodegroup", resource_name=name)


class TaskGrants(SharedGrants):
    """Permissions of the functions behind the Task states."""

    def of(self, function: Function) -> Grants:
        """The permissions of a function."""
        grants: Mapping[str, Callable[[], Grants]] = {
            "ValidateRun": self.validate_run,
            "Preflight": self.preflight,
            "AcquireCache": self.acquire_cache,
            "EnsureCapacity": self.ensure_capacity,
            "StageData": self.stage_data,
            "SubmitJob": self.submit_job,
            "PollJob": self.poll_job,
            "LocateRank0": self.locate_rank0,
            "PublishMetrics": self.publish_metrics,
            "CheckCompilation": self.check_compilation,
            "PublishArtifacts": self.publish_artifacts,
            "CollectDiagnostics": self.collect_diagnostics,
            "TearDown": self.tear_down,
            "WriteRecord": self.write_record,
            "Notify": self.notify,
        }
        return grants[function.name]()

    def validate_run(self) -> Grants:
        """Writes the run to the run table, and its end if the run was stopped before."""
        return [
            *self.use_table("dynamodb:PutItem", "dynamodb:UpdateItem"),
            self.describe_runs(self._resources.stack),
        ]

    def preflight(self) -> Grants:
        """Reads everything that can prevent a run from starting; changes nothing in the account."""
        sizes = allow("eks:DescribeNodegroup", on=self._nodegroups, pattern_because=Reason.SERVICES_CHOOSE_IDS)
        return [
            *([] if self.cluster_makes_nodes else [sizes]),
            self.policies.examine,
            *self._find_data_sets(),
            self.decrypt(),
            *further_buckets.for_preflight(self._storage.granted_buckets),
            *self.use_caches("dynamodb:GetItem"),
            *self._find_tools_image(),
        ]

    def stage_data(self) -> Grants:
        """Publishes the progress of staging, and imports the names of a linked bucket's objects."""
        return [self.policies.publish_metrics, *self._import_names()]

    def acquire_cache(self) -> Grants:
        """Acquires, renews and takes over leases of compile caches."""
        actions = ("dynamodb:GetItem", "dynamodb:PutItem", "dynamodb:UpdateItem", "dynamodb:DeleteItem")
        return [*self.use_caches(*actions), self.describe_runs(self._resources.stack)]

    def ensure_capacity(self) -> Grants:
        """Resizes nodegroups, reads why instances could not be started, and replaces instances if it is asked to.

        On a cluster that makes nodes by itself it uses only the cluster.
        """
        if self.cluster_makes_nodes:
            return []
        replaces = self._resources.configuration.capacity.replace_bad_nodes
        replace = [self.terminate_instances()] if replaces else []
        return [*self.resize_nodegroups, self.policies.read_launches, *replace]

    def submit_job(self) -> Grants:
        """Uses only the cluster."""
        return []

    def poll_job(self) -> Grants:
        """Keeps the last lines of failed pods' logs, and reads none of them."""
        return self.use_kept_logs("s3:PutObject")

    def locate_rank0(self) -> Grants:
        """Reads the announcements of elastic jobs' rank 0."""
        return self.find_rank0()

    def publish_metrics(self) -> Grants:
        """Publishes the metrics of steps, and keeps the steps for the record."""
        return [self.policies.publish_metrics, *self.keep_steps()]

    def check_compilation(self) -> Grants:
        """Marks a compile cache as ready."""
        return self.use_caches("dynamodb:UpdateItem")

    def publish_artifacts(self) -> Grants:
        """Reads the announcements of elastic jobs' rank 0; a pod uploads the artifacts themselves."""
        return self.find_rank0()

    def collect_diagnostics(self) -> Grants:
        """Writes the diagnostics beside the run's artifacts, and reads the kept logs."""
        return [self.write_artifacts, *self.use_kept_logs("s3:GetObject")]

    def tear_down(self) -> Grants:
        """Releases nodes and leases, stores the last lines of the pods' logs, and publishes the last steps."""
        return [
            *self.resize_nodegroups,
            *self.find_rank0(),
            *self.release_caches(),
            self.policies.publish_metrics,
            *self.keep_steps(),
            *self.use_kept_logs("s3:GetObject"),
        ]

    def write_record(self) -> Grants:
        """Writes the record and the report."""
        return [*self.write_records(), *self.use_table("dynamodb:GetItem")]

    def notify(self) -> Grants:
        """Reads the run's record, sends the message about the run's end, and writes the end to the run table."""
        record = allow(
            "s3:GetObject",
            on=objects(self._storage, self._storage.artifact_bucket, "runs/*/run.json"),
            pattern_because=Reason.OBJECTS_ARE_NAMED_BY_RUNS,
        )
        table = self.use_table("dynamodb:GetItem", "dynamodb:UpdateItem")
        return [record, self.decrypt(), *self.send_messages(), *table]

    def _find_data_sets(self) -> list[Grant]:
        read = allow(
            "s3:GetObject",
            on=objects(self._storage, self._storage.data_bucket, f"{DATA_PREFIX}*"),
            pattern_because=Reason.OBJECTS_ARE_NAMED_BY_RUNS,
        )
        find = allow(
            "s3:ListBucket",
            on=self._storage.data_bucket.bucket_arn,
            when={"StringLike": {"s3:prefix": f"{DATA_PREFIX}*"}},
        )
        return [read, find]

    def _find_tools_image(self) -> list[Grant]:
        repository = self._resources.images.tools_repository_arn
        return [allow("ecr:DescribeImages", on=repository)] if repository else []

    def _import_names(self) -> Grants:
        """Permissions from the FSx for Lustre user guide ('API permissions'): a task is a resource of its own, which
        only the call that lists them cannot name (Service Authorization Reference)."""
        shared, stack = self._storage.shared, self._resources.stack
        if shared is None:
            return []
        file_system = stack.format_arn(service="fsx", resource="file-system", resource_name=shared.file_system_id)
        tasks = stack.format_arn(service="fsx", resource="task", resource_name="*")
        create = "fsx:CreateDataRepositoryTask"
        return [
            allow(create, on=[file_system, tasks], pattern_because=Reason.SERVICES_CHOOSE_IDS),
            self.policies.read_imports,
        ]
