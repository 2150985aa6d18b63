"""Facts about the AWS account: zones, instance types that they offer, quotas and their use.

Only preflight asks, and it continues without an answer. So these calls time out after seconds, and a refused or missing
answer is `Unknown`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any, TypeVar

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from trainflow.deployment.image_names import EcrImage
from trainflow.nodes.offerings import VcpuQuota
from trainflow.workflow.preflight import Quota, Unknown, Zone

SHORT_TIMEOUTS = Config(connect_timeout=3, read_timeout=8, retries={"total_max_attempts": 2})

USE_WINDOW = timedelta(minutes=20)
"""Usage metrics come every five minutes, and some minutes late."""

Answer = TypeVar("Answer")


NO_IMAGE = ("ImageNotFoundException", "RepositoryNotFoundException")


@lru_cache
def _client(service: str, region: str | None = None) -> Any:
    return boto3.client(service, region_name=region, config=SHORT_TIMEOUTS)  # type: ignore[call-overload]


def subnet_zones(subnets: Sequence[str]) -> tuple[Zone, ...] | Unknown:
    """The zones of subnets."""

    def ask() -> tuple[Zone, ...]:
        found = _client("ec2").describe_subnets(SubnetIds=list(subnets))["Subnets"]
        zones = {Zone(subnet["AvailabilityZoneId"], subnet["AvailabilityZone"]) for subnet in found}
        return tuple(sorted(zones, key=lambda zone: zone.id))

    return _asked("ec2:DescribeSubnets", ask)


def offering_zones(instance_type: str, zone_ids: Collection[str]) -> frozenset[str] | Unknown:
    """Those of the zones that offer the instance type, by id."""

    def ask() -> frozenset[str]:
        filters = {"instance-type": [instance_type], "location": sorted(zone_ids)}
        answer = _client("ec2").describe_instance_type_offerings(
            LocationType="availability-zone-id",
            Filters=[{"Name": name, "Values": values} for name, values in filters.items()],
        )
        return frozenset(offer["Location"] for offer in answer["InstanceTypeOfferings"])

    return _asked("ec2:DescribeInstanceTypeOfferings", ask)


def image_bytes(image: EcrImage) -> int | Unknown | None:
    """Compressed size of an image in ECR; None if ECR lacks it."""
    id_ = {"imageDigest": image.digest} if image.digest else {"imageTag": image.tag or "latest"}

    def ask() -> int | None:
        try:
            found = _client("ecr", image.region).describe_images(
                registryId=image.account, repositoryName=image.repository, imageIds=[id_]
            )
        except ClientError as error:
            if error.response["Error"]["Code"] in NO_IMAGE:
                return None
            raise
        return int(found["imageDetails"][0].get("imageSizeInBytes", 0))

    return _asked("ecr:DescribeImages", ask)


def vcpu_quota(quota: VcpuQuota, *, now: datetime | None = None) -> Quota | Unknown:
    """The quota of running vCPUs, and its use."""

    def ask() -> Quota:
        found = _client("service-quotas").get_service_quota(ServiceCode="ec2", QuotaCode=quota.code)["Quota"]
        in_use = _in_use(found.get("UsageMetric"), now=now or datetime.now(UTC))
        return Quota(name=quota.name, code=quota.code, limit=float(found["Value"]), in_use=in_use)

    return _asked("servicequotas:GetServiceQuota", ask)


def _in_use(metric: Any, *, now: datetime) -> float | Unknown:
    """Newest value of the metric that a quota names for its use; 0 without data points."""
    if not metric:
        return Unknown("Service Quotas names no metric of its use")

    def ask() -> float:
        points = _client("cloudwatch").get_metric_statistics(
            Namespace=metric["MetricNamespace"],
            MetricName=metric["MetricName"],
            Dimensions=[{"Name": name, "Value": value} for name, value in metric["MetricDimensions"].items()],
            StartTime=now - USE_WINDOW,
            EndTime=now,
            Period=300,
            Statistics=["Maximum"],
        )["Datapoints"]
        newest = max(points, key=lambda point: point["Timestamp"], default={"Maximum": 0.0})
        return float(newest["Maximum"])

    return _asked("cloudwatch:GetMetricStatistics", ask)


def _asked(call: str, ask: Callable[[], Answer]) -> Answer | Unknown:
    try:
        return ask()
    except ClientError as error:
        return Unknown(f"{call} answered {error.response['Error']['Code']}")
    except BotoCoreError as error:
        return Unknown(f"{call} did not answer ({type(error).__name__})")
