"""EC2's quotas, which moto 5.2.5 does not list: as large as the twin's node groups may become."""

from __future__ import annotations

from typing import Any

from local.aws.replacements import replace
from trainflow.nodes.instances import INSTANCE_TYPES


def serve(*, max_nodes: int) -> None:
    """Answer `servicequotas:GetServiceQuota` for EC2.

    Args:
        max_nodes: Largest size of each node group.
    """
    from moto.servicequotas.models import ServiceQuotasBackend

    get = ServiceQuotasBackend.get_service_quota
    vcpus = max_nodes * max(instance.vcpus for instance in INSTANCE_TYPES.values())

    def get_service_quota(self: Any, service_code: str, quota_code: str) -> dict[str, Any]:
        if service_code != "ec2":
            found: dict[str, Any] = get(self, service_code, quota_code)
            return found
        return {"ServiceCode": "ec2", "QuotaCode": quota_code, "Value": float(vcpus), "UsageMetric": USAGE}

    replace(ServiceQuotasBackend, "get_service_quota", get_service_quota)


USAGE = {
    "MetricNamespace": "AWS/Usage",
    "MetricName": "ResourceCount",
    "MetricDimensions": {"Service": "EC2", "Type": "Resource", "Resource": "vCPU"},
    "MetricStatisticRecommendation": "Maximum",
}
"""Metric with the use of a quota in Service Quotas; the twin does not publish values of it."""
