"""Log in to the Kubernetes API of an EKS cluster with AWS credentials."""

from __future__ import annotations

import base64
from typing import Any

from botocore.signers import RequestSigner

from trainflow.errors import ClusterAccessDenied

TOKEN_PREFIX = "k8s-aws-v1."  # noqa: S105  (a prefix, not a token)
PRESIGNED_FOR_SECONDS = 60
"""Validity that the AWS CLI gives the presigned URL; the cluster accepts the token for 15 minutes."""


def bearer_token(session: Any, sts: Any, cluster: str) -> str:
    """A token as `aws eks get-token` makes it: a presigned STS GetCallerIdentity that names the cluster.

    Args:
        session: boto3's session, which has the credentials.
        sts: Its STS client, for the region and the endpoint.
        cluster: Name of the EKS cluster.

    Raises:
        ClusterAccessDenied: If the session lacks credentials.
    """
    credentials = session.get_credentials()
    if credentials is None:
        raise ClusterAccessDenied("There are no AWS credentials to log in to the cluster with.")
    signer = RequestSigner(
        sts.meta.service_model.service_id, sts.meta.region_name, "sts", "v4", credentials, session.events
    )
    url = signer.generate_presigned_url(
        {
            "method": "GET",
            "url": f"{sts.meta.endpoint_url}/?Action=GetCallerIdentity&Version=2011-06-15",
            "body": {},
            "headers": {"x-k8s-aws-id": cluster},
            "context": {},
        },
        region_name=sts.meta.region_name,
        expires_in=PRESIGNED_FOR_SECONDS,
        operation_name="",
    )
    return TOKEN_PREFIX + base64.urlsafe_b64encode(url.encode()).decode().rstrip("=")
