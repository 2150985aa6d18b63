"""Permissions of runs' programs on the buckets, in pods and on Slurm's nodes alike."""

from __future__ import annotations

from typing import TYPE_CHECKING

import aws_cdk as cdk
from aws_cdk import aws_iam as iam
from aws_cdk import aws_s3 as s3

from stacks.orchestration.permissions import acknowledge_patterns
from stacks.shared.acknowledgements import Reason, acknowledge, in_both_baselines
from stacks.storage import further_buckets

if TYPE_CHECKING:
    from stacks.storage.stack import StorageStack


ARTIFACTS = "runs/*"
"""Objects of the artifact bucket that programs write, `runs/<run id>/…`. The session of a pod names the pod and not its
run, so no policy can have a prefix for each run."""


def let_runs_use(storage: StorageStack, role: iam.Role) -> None:
    """Give the role of a run's programs its rights."""
    further = list(further_buckets.for_runs(storage.granted_buckets))
    for statement in (*_statements(storage), *(grant.statement for grant in further)):
        role.add_to_policy(statement)
    acknowledge_patterns(role, further)
    acknowledge(role, *in_both_baselines("IAMNoInlinePolicy"), reason=Reason.POLICY_OF_ONE_ROLE)
    acknowledge(
        role,
        *(
            f"AwsSolutions-IAM5[Resource::{_imported(bucket)}/{objects}]"
            for bucket, objects in (
                (storage.data_bucket, "*"),
                (storage.artifact_bucket, "*"),
                (storage.artifact_bucket, ARTIFACTS),
            )
        ),
        reason=Reason.OBJECTS_ARE_NAMED_BY_RUNS,
    )


def _imported(bucket: s3.Bucket) -> str:
    """ARN of another stack's bucket in cdk-nag's findings."""
    stack = cdk.Stack.of(bucket)
    return str(stack.resolve(stack.export_value(bucket.bucket_arn))["Fn::ImportValue"])


def _statements(storage: StorageStack) -> list[iam.PolicyStatement]:
    """Read data; write artifacts of runs, and read them back to compare. Nothing can be deleted; packed code and the
    file system's copy cannot be written."""
    data, artifacts = storage.data_bucket, storage.artifact_bucket
    return [
        iam.PolicyStatement(
            sid="FindObjects", actions=["s3:ListBucket"], resources=[data.bucket_arn, artifacts.bucket_arn]
        ),
        iam.PolicyStatement(sid="ReadData", actions=["s3:GetObject"], resources=[data.arn_for_objects("*")]),
        iam.PolicyStatement(
            sid="WriteArtifacts",
            actions=["s3:PutObject", "s3:AbortMultipartUpload"],
            resources=[artifacts.arn_for_objects(ARTIFACTS)],
        ),
        iam.PolicyStatement(sid="ReadArtifacts", actions=["s3:GetObject"], resources=[artifacts.arn_for_objects("*")]),
        iam.PolicyStatement(
            sid="ThroughTheBucketsOnly",
            actions=["kms:Decrypt", "kms:GenerateDataKey"],
            resources=[storage.key.key_arn],
            conditions={"StringEquals": {"kms:ViaService": f"s3.{cdk.Stack.of(storage).region}.amazonaws.com"}},
        ),
    ]
