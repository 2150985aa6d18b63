"""Storage of data and results: two buckets, the key that encrypts them, and the file system of the pods.

Nothing here is deleted unless the configuration says `delete`, and in production the buckets stay in any case. The key
stays as long as anything that it encrypts: without it the rest would be noise.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import aws_cdk as cdk
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_logs as logs
from aws_cdk import aws_s3 as s3
from constructs import Construct

from stacks.shared.acknowledgements import Reason, acknowledge, in_both_baselines
from stacks.shared.custom_resources import settle_custom_resources
from stacks.shared.log_keys import ACTIONS, let_logs_use
from stacks.storage.lustre import DATA_PREFIX, EXPORT_PREFIX, LustreFileSystem, SharedFileSystem
from stacks.storage.run_requests import refuse_others
from trainflow.configuration.deployment import Configuration, Lustre

if TYPE_CHECKING:
    from stacks.network.stack import NetworkStack

__all__ = ["DATA_PREFIX", "EXPORT_PREFIX", "SharedFileSystem", "StorageStack"]

ABANDONED_UPLOAD_DAYS = 7
OLD_VERSION_DAYS = 30
"""Time to notice that something was overwritten or deleted by mistake."""

LOG_DAYS = 90
PRODUCTION_LOG_DAYS = 365
"""Access logs; a year is what audits usually ask for."""


class StorageStack(cdk.Stack):
    """Buckets, key and file system."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        configuration: Configuration,
        network: NetworkStack | None,
        **kwargs: Any,
    ) -> None:
        super().__init__(scope, construct_id, **kwargs)
        self._configuration = configuration
        self.granted_buckets = configuration.storage.grants
        """Not of this deployment: runs may use them all the same."""
        self.key = self._make_key()
        self._access_logs = self._make_log_bucket()
        self.data_bucket = self._make_bucket("Data")
        if configuration.storage.requesters:
            refuse_others(self.data_bucket, configuration.storage.requesters)
        self.artifact_bucket = self._make_bucket("Artifacts", days=configuration.storage.artifact_days)
        self.shared: SharedFileSystem | None = None
        if configuration.storage.lustre is not None and network is not None:
            self.shared = self._make_file_system(configuration.storage.lustre, network)
        cdk.CfnOutput(self, "DataBucket", value=self.data_bucket.bucket_name, description="Data sets and run requests")
        cdk.CfnOutput(self, "ArtifactBucket", value=self.artifact_bucket.bucket_name, description="Results of runs")
        settle_custom_resources(self, key=self.key)

    @property
    def _keeps_buckets(self) -> bool:
        return self._configuration.production or self._configuration.storage.buckets_on_destroy == "retain"

    def _make_key(self) -> kms.Key:
        key = kms.Key(
            self,
            "Key",
            alias=f"{self._configuration.name}-storage",
            description="Trainflow: data, artifacts and the shared file system",
            enable_key_rotation=True,
            # A file system that stays is linked to buckets that stay; the configuration allows nothing else.
            removal_policy=_policy(keep=self._keeps_buckets),
        )
        key.add_to_resource_policy(self._fsx_through_s3())
        let_logs_use(key, (f"{self._configuration.name}-*", f"{self._log_group_prefix}*"))
        return key

    def _fsx_through_s3(self) -> iam.PolicyStatement:
        """FSx reads and writes the linked buckets with a role of its own, made when the link is made.

        A key policy cannot name a role that does not exist yet, so it names the pattern of the role's ARN in a
        condition (FSx for Lustre user guide, 'Working with server-side encrypted Amazon S3 buckets').
        """
        roles = (
            f"arn:{self.partition}:iam::{self.account}:role/aws-service-role/s3.data-source.lustre.fsx.amazonaws.com"
        )
        return iam.PolicyStatement(
            sid="FileSystemThroughBuckets",
            principals=[iam.AnyPrincipal()],
            actions=ACTIONS,
            resources=["*"],
            conditions={
                "StringEquals": {
                    "kms:CallerAccount": self.account,
                    "kms:ViaService": f"s3.{self.region}.amazonaws.com",
                },
                "ArnLike": {"aws:PrincipalArn": f"{roles}/AWSServiceRoleForFSxS3Access_*"},
            },
        )

    @property
    def _log_group_prefix(self) -> str:
        """FSx writes only to groups whose name begins with /aws/fsx/."""
        return f"/aws/fsx/{self._configuration.name}-"

    def _make_log_bucket(self) -> s3.Bucket:
        """S3-managed encryption: the log delivery service cannot write under a key of ours."""
        days = PRODUCTION_LOG_DAYS if self._configuration.production else LOG_DAYS
        bucket = self._make_closed_bucket(
            "AccessLogs",
            versioned=True,
            encryption=s3.BucketEncryption.S3_MANAGED,
            lifecycle_rules=[
                _abandoned_uploads(),
                s3.LifecycleRule(expiration=cdk.Duration.days(days)),
                _old_versions(),
            ],
        )
        acknowledge(bucket, *in_both_baselines("S3DefaultEncryptionKMS"), reason=Reason.LOG_DELIVERY_HAS_NO_KEY)
        return bucket

    def _make_bucket(self, construct_id: str, *, days: int | None = None) -> s3.Bucket:
        bucket = self._make_closed_bucket(
            construct_id,
            versioned=True,
            encryption=s3.BucketEncryption.KMS,
            encryption_key=self.key,
            bucket_key_enabled=True,
            server_access_logs_bucket=self._access_logs,
            server_access_logs_prefix=f"{construct_id.lower()}/",
            lifecycle_rules=[
                _abandoned_uploads(),
                _old_versions(),
                *([s3.LifecycleRule(expiration=cdk.Duration.days(days))] if days else []),
            ],
        )
        # Not `event_bridge_enabled`: its custom resource replaces the whole notification configuration, and with
        # it what FSx has put there to hear of new objects.
        resource = bucket.node.default_child
        if not isinstance(resource, s3.CfnBucket):
            raise TypeError("a bucket is made of AWS::S3::Bucket")
        resource.notification_configuration = s3.CfnBucket.NotificationConfigurationProperty(
            event_bridge_configuration=s3.CfnBucket.EventBridgeConfigurationProperty(event_bridge_enabled=True)
        )
        return bucket

    def _make_closed_bucket(self, construct_id: str, **props: Any) -> s3.Bucket:
        """A bucket that cannot be read without credentials and TLS; its policy exists as long as the bucket."""
        policy = _policy(keep=self._keeps_buckets)
        bucket = s3.Bucket(
            self,
            construct_id,
            block_public_access=s3.BlockPublicAccess.BLOCK_ALL,
            object_ownership=s3.ObjectOwnership.BUCKET_OWNER_ENFORCED,
            enforce_ssl=True,
            minimum_tls_version=1.2,
            removal_policy=policy,
            auto_delete_objects=not self._keeps_buckets,
            **props,
        )
        cdk.RemovalPolicies.of(bucket).apply(policy)
        acknowledge(bucket, *in_both_baselines("S3BucketReplicationEnabled"), reason=Reason.ONE_REGION)
        return bucket

    def _make_file_system(self, settings: Lustre, network: NetworkStack) -> SharedFileSystem:
        # Stays as long as the file system, which writes to it; so its name must not be in the next deployment's way.
        stack_uuid = cdk.Fn.select(2, cdk.Fn.split("/", self.stack_id))
        log_group = logs.LogGroup(
            self,
            "FileSystemLog",
            log_group_name=f"{self._log_group_prefix}{stack_uuid}",
            encryption_key=self.key,
            retention=logs.RetentionDays.ONE_YEAR if self._configuration.production else logs.RetentionDays.ONE_MONTH,
            removal_policy=_policy(keep=settings.on_destroy == "retain"),
        )
        lustre = LustreFileSystem(
            self,
            "Lustre",
            settings=settings,
            vpc=network.vpc,
            subnet=network.training_subnet,
            key=self.key,
            log_group=log_group,
            data=self.data_bucket,
        )
        lustre.import_data(self)
        lustre.export_to(self, self.artifact_bucket)
        return lustre.shared


def _policy(*, keep: bool) -> cdk.RemovalPolicy:
    return cdk.RemovalPolicy.RETAIN if keep else cdk.RemovalPolicy.DESTROY


def _old_versions() -> s3.LifecycleRule:
    return s3.LifecycleRule(
        noncurrent_version_expiration=cdk.Duration.days(OLD_VERSION_DAYS), expired_object_delete_marker=True
    )


def _abandoned_uploads() -> s3.LifecycleRule:
    return s3.LifecycleRule(abort_incomplete_multipart_upload_after=cdk.Duration.days(ABANDONED_UPLOAD_DAYS))
