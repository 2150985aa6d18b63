"""Amazon EKS: where a cluster's API is, a token for it, and the size of its node groups."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import boto3
from botocore.signers import RequestSigner

from lambdas.gateways.aws import client, translated
from trainflow.errors import ClusterAccessDenied, NodegroupNotFound
from trainflow.models.training_nodes import Nodegroup

TOKEN_PREFIX = "k8s-aws-v1."  # noqa: S105  (a prefix, not a token)
PRESIGNED_FOR_SECONDS = 60
"""As the AWS CLI signs it; the cluster accepts the token for 15 minutes."""


@dataclass(frozen=True)
class ClusterEndpoint:
    """Where the Kubernetes API answers and which authority vouches for it."""

    url: str
    ca_pem: str


@lru_cache
def describe_cluster(name: str) -> ClusterEndpoint:
    """The cluster's endpoint, remembered as long as the Lambda is warm."""
    with translated("eks:DescribeCluster"):
        cluster = client("eks").describe_cluster(name=name)["cluster"]
    return ClusterEndpoint(
        url=cluster["endpoint"], ca_pem=base64.b64decode(cluster["certificateAuthority"]["data"]).decode()
    )


def bearer_token(cluster: str) -> str:
    """A token as `aws eks get-token` makes it: a presigned STS GetCallerIdentity that names the cluster."""
    sts = client("sts")
    session = boto3.session.Session()
    credentials = session.get_credentials()
    if credentials is None:
        raise ClusterAccessDenied("This function has no AWS credentials to log in to the cluster with.")
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


class Nodegroups:
    """The cluster's managed node groups."""

    def __init__(self, cluster: str) -> None:
        self._cluster = cluster

    def grow_to(self, nodegroup: str, num_nodes: int) -> int:
        """Raise the desired size to `num_nodes`, as far as the group's maximum allows; never lower it.

        Returns:
            The desired size afterwards.
        """
        found = self.size(nodegroup)
        wanted = min(num_nodes, found.maximum)
        if wanted <= found.desired:
            return found.desired
        self._set_desired_size(nodegroup, wanted)
        return wanted

    def release(self, nodegroup: str) -> int:
        """Let every node of the group go, down to its minimum; a group that is not there has none.

        Returns:
            How many nodes were given back.
        """
        try:
            found = self.size(nodegroup)
        except NodegroupNotFound:
            return 0
        if found.surplus:
            self._set_desired_size(nodegroup, found.minimum)
        return found.surplus

    def names(self) -> list[str]:
        """Every node group of the cluster."""
        with translated("eks:ListNodegroups"):
            pages = client("eks").get_paginator("list_nodegroups").paginate(clusterName=self._cluster)
            return [name for page in pages for name in page["nodegroups"]]

    def size(self, nodegroup: str) -> Nodegroup:
        """How large the group is.

        Raises:
            NodegroupNotFound: If the cluster has no such group.
        """
        found = self._describe(nodegroup)
        scaling = found["scalingConfig"]
        return Nodegroup(
            name=nodegroup,
            desired=int(scaling["desiredSize"]),
            minimum=int(scaling["minSize"]),
            maximum=int(scaling["maxSize"]),
            subnets=tuple(found.get("subnets") or ()),
            capacity_type=found.get("capacityType") or "ON_DEMAND",
        )

    def _describe(self, nodegroup: str) -> Any:
        eks = client("eks")
        try:
            with translated("eks:DescribeNodegroup"):
                description = eks.describe_nodegroup(clusterName=self._cluster, nodegroupName=nodegroup)
        except eks.exceptions.ResourceNotFoundException:
            raise NodegroupNotFound(
                f"The cluster '{self._cluster}' has no node group '{nodegroup}' for the spec's compute.instance_type."
            ) from None
        return description["nodegroup"]

    def _set_desired_size(self, nodegroup: str, num_nodes: int) -> None:
        with translated("eks:UpdateNodegroupConfig"):
            client("eks").update_nodegroup_config(
                clusterName=self._cluster, nodegroupName=nodegroup, scalingConfig={"desiredSize": num_nodes}
            )
