"""Objects of the data bucket that request a run, and who may upload them."""

from __future__ import annotations

from collections.abc import Sequence

from aws_cdk import aws_iam as iam
from aws_cdk import aws_s3 as s3

RUN_REQUESTS = "runs/*"
"""Objects of the data bucket that request a run, with one of these endings."""
SUFFIXES = ("yaml", "yml", "json")


def refuse_others(bucket: s3.Bucket, requesters: Sequence[str]) -> None:
    """Refuse uploads of run specs by everyone else, whatever their own policies allow: the account's owner too.

    A request without a principal's ARN, such as a service's, is refused as well: negated operators match a key that is
    not there (IAM user guide, "IAM JSON policy elements: Condition operators").

    Args:
        bucket: The data bucket.
        requesters: Patterns of ARNs of users and roles. An assumed role's is that of the role.
    """
    bucket.add_to_resource_policy(
        iam.PolicyStatement(
            sid="RunsAreRequestedByRequesters",
            effect=iam.Effect.DENY,
            principals=[iam.AnyPrincipal()],
            actions=["s3:PutObject", "s3:ReplicateObject"],
            resources=[bucket.arn_for_objects(f"{RUN_REQUESTS}.{suffix}") for suffix in SUFFIXES],
            conditions={"ArnNotLike": {"aws:PrincipalArn": list(requesters)}},
        )
    )
