"""Amazon EKS: endpoint of a cluster's API, tokens for it, and the size of its node groups."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import boto3
from botocore.exceptions import ClientError

from lambdas.gateways.aws import client, translated
from trainflow.errors import NodegroupNotFound
from trainflow.kubernetes import eks as kubernetes_eks
from trainflow.nodes.training_nodes import FailedLaunch, Nodegroup, ScalingGroup

MAX_ACTIVITIES = 20
"""Newest activities of an Auto Scaling group that are read. A group without capacity fails every few minutes."""


@dataclass(frozen=True)
class ClusterEndpoint:
    """URL of the Kubernetes API and the certificate of its authority."""

    url: str
    ca_pem: str


@lru_cache
def describe_cluster(name: str) -> ClusterEndpoint:
    """The cluster's endpoint, cached as long as the Lambda is warm."""
    with translated("eks:DescribeCluster"):
        cluster = client("eks").describe_cluster(name=name)["cluster"]
    return ClusterEndpoint(
        url=cluster["endpoint"], ca_pem=base64.b64decode(cluster["certificateAuthority"]["data"]).decode()
    )


def bearer_token(cluster: str) -> str:
    """A token for the cluster, made with the function's own credentials."""
    return kubernetes_eks.bearer_token(boto3.session.Session(), client("sts"), cluster)


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
        """Release the nodes of the group, down to its minimum; 0 if the group does not exist.

        Returns:
            Number of released nodes.
        """
        try:
            found = self.size(nodegroup)
        except NodegroupNotFound:
            return 0
        if found.surplus:
            self._set_desired_size(nodegroup, found.minimum)
        return found.surplus

    def names(self) -> list[str]:
        """Names of the cluster's node groups."""
        with translated("eks:ListNodegroups"):
            pages = client("eks").get_paginator("list_nodegroups").paginate(clusterName=self._cluster)
            return [name for page in pages for name in page["nodegroups"]]

    def size(self, nodegroup: str) -> Nodegroup:
        """The group with its current, smallest and largest size.

        Raises:
            NodegroupNotFound: If the group does not exist.
        """
        found = self._describe(nodegroup)
        scaling, groups = found["scalingConfig"], (found.get("resources") or {}).get("autoScalingGroups") or ()
        return Nodegroup(
            name=nodegroup,
            desired=int(scaling["desiredSize"]),
            minimum=int(scaling["minSize"]),
            maximum=int(scaling["maxSize"]),
            subnets=tuple(found.get("subnets") or ()),
            capacity_type=found.get("capacityType") or "ON_DEMAND",
            auto_scaling_group=groups[0]["name"] if groups else None,
        )

    def replace(self, instance_id: str) -> bool:
        """Terminate an instance of a group, which then starts another one. Safe to repeat.

        Returns:
            Whether it leaves, or has left; False if another change of the group is under way.
        """
        # "Instance Id not found - No managed instance found for instance ID" is a ValidationError.
        return self._terminate(instance_id, smaller=False) in (None, "ValidationError")

    def scaling_group(self, nodegroup: Nodegroup) -> ScalingGroup | None:
        """The Auto Scaling group of the node group; None if it does not exist."""
        if nodegroup.auto_scaling_group is None:
            return None
        with translated("autoscaling:DescribeAutoScalingGroups"):
            found = client("autoscaling").describe_auto_scaling_groups(
                AutoScalingGroupNames=[nodegroup.auto_scaling_group]
            )["AutoScalingGroups"]
        if not found:
            return None
        serving = (each["InstanceId"] for each in found[0]["Instances"] if each["LifecycleState"] == "InService")
        return ScalingGroup(desired=int(found[0]["DesiredCapacity"]), in_service=frozenset(serving))

    def remove(self, instance_id: str) -> bool:
        """Terminate an instance that is in service, and let its group be smaller by one.

        Returns:
            Whether it leaves; False if another change of the group is under way, or it has left.
        """
        return self._terminate(instance_id, smaller=True) is None

    def failed_launches(self, nodegroup: Nodegroup) -> list[FailedLaunch]:
        """The newest failed attempts to start an instance of the group.

        The group's health in EKS does not show this: it stays degraded after a failure, also without any nodes, until
        the group has grown once (aws/containers-roadmap, issue 2326). Auto Scaling's activities have a time.
        """
        if nodegroup.auto_scaling_group is None:
            return []
        with translated("autoscaling:DescribeScalingActivities"):
            answer = client("autoscaling").describe_scaling_activities(
                AutoScalingGroupName=nodegroup.auto_scaling_group, MaxRecords=MAX_ACTIVITIES
            )
        return [
            FailedLaunch(at=each["StartTime"], message=each.get("StatusMessage") or "")
            for each in answer["Activities"]
            if each["StatusCode"] == "Failed"
        ]

    def _terminate(self, instance_id: str, *, smaller: bool) -> str | None:
        """Terminate an instance of a group.

        Returns:
            Auto Scaling's error code if it refused, temporarily or permanently; None if it accepted.
        """
        try:
            with translated("autoscaling:TerminateInstanceInAutoScalingGroup"):
                client("autoscaling").terminate_instance_in_auto_scaling_group(
                    InstanceId=instance_id, ShouldDecrementDesiredCapacity=smaller
                )
        except ClientError as error:
            code = str(error.response["Error"]["Code"])
            if code not in ("ScalingActivityInProgress", "ValidationError"):
                raise
            return code
        return None

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
