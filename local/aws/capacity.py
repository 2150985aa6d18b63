"""Reports, as Auto Scaling does, instance types that the twin's EC2 cannot start.

moto 5.2.5 answers `autoscaling:DescribeScalingActivities` with an empty list, and the Auto Scaling groups of its node
groups are only names.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from datetime import UTC, datetime
from typing import Any

from local.aws.replacements import replace

MESSAGE = (
    "Could not launch On-Demand Instances. InsufficientInstanceCapacity - We currently do not have sufficient {} "
    "capacity in the Availability Zone you requested. Launching EC2 instance failed."
)
"""Words of Auto Scaling: aws/containers-roadmap, issue 2204."""


def serve(without: Collection[str]) -> None:
    """Report failed launches of every node group that wants nodes of these types."""
    from moto.autoscaling.responses import AutoScalingResponse
    from moto.core.responses import ActionResult

    def describe_scaling_activities(self: Any) -> Any:
        group = self._get_param("AutoScalingGroupName")
        return ActionResult({"Activities": list(_failed_launches(group, without))})

    replace(AutoScalingResponse, "describe_scaling_activities", describe_scaling_activities)


def _failed_launches(group: str, without: Collection[str]) -> Iterator[dict[str, Any]]:
    """The last launch of an Auto Scaling group: a failure of now, if its type lacks capacity."""
    from moto.eks.models import eks_backends

    now = datetime.now(UTC)
    for backend in (region for account in eks_backends.values() for region in account.values()):
        for nodegroup in (one for cluster in backend.clusters.values() for one in cluster.nodegroups.values()):
            names = [each["name"] for each in nodegroup.resources["autoScalingGroups"]]
            instance_type = nodegroup.instance_types[0]
            if group in names and instance_type in without and int(nodegroup.scaling_config["desiredSize"]):
                yield {
                    "ActivityId": nodegroup.uuid,
                    "AutoScalingGroupName": group,
                    "Cause": "An instance was started in response to a difference between desired and actual capacity.",
                    "StartTime": now,
                    "EndTime": now,
                    "StatusCode": "Failed",
                    "StatusMessage": MESSAGE.format(instance_type),
                    "Progress": 100,
                }
