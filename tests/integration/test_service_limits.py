"""Limits of the services around Step Functions: CloudWatch's for data points, and throttling on request."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from botocore.config import Config
from botocore.exceptions import ClientError

from local.aws import metric_limits
from local.aws.deployment import create_bucket
from local.aws.server import REGION, AwsServer
from local.aws.session import isolated_session


class Once:
    """Throttles the first request of an operation."""

    def __init__(self) -> None:
        self.codes: dict[tuple[str, str], str] = {}

    def __call__(self, service: str, operation: str) -> str | None:
        return self.codes.pop((service, operation), None)


@pytest.fixture(scope="module")
def plan() -> Once:
    return Once()


@pytest.fixture(scope="module")
def aws(plan: Once) -> Iterator[AwsServer]:
    server = AwsServer(time_scale=100, throttled=plan)
    server.start()
    create_bucket(server, "throttled")
    server.client("dynamodb").create_table(
        TableName="throttled",
        KeySchema=[{"AttributeName": "name", "KeyType": "HASH"}],
        AttributeDefinitions=[{"AttributeName": "name", "AttributeType": "S"}],
        BillingMode="PAY_PER_REQUEST",
    )
    yield server
    server.stop()


def client(aws: AwsServer, service: str, *, attempts: int) -> Any:
    return isolated_session().client(  # type: ignore[call-overload]
        service,
        endpoint_url=aws.endpoint,
        region_name=REGION,
        aws_access_key_id=aws.owner_credentials["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=aws.owner_credentials["AWS_SECRET_ACCESS_KEY"],
        config=Config(retries={"total_max_attempts": attempts}),
    )


def requests(aws: AwsServer, attempts: int) -> dict[tuple[str, str], Any]:
    """Requests by service and operation."""
    s3, table = client(aws, "s3", attempts=attempts), client(aws, "dynamodb", attempts=attempts)
    item = {"name": {"S": "a"}}
    return {
        ("s3", "PutObject"): lambda: s3.put_object(Bucket="throttled", Key="k", Body=b"x"),
        ("s3", "GetObject"): lambda: s3.get_object(Bucket="throttled", Key="k"),
        ("s3", "ListBucket"): lambda: s3.list_objects_v2(Bucket="throttled"),
        ("dynamodb", "PutItem"): lambda: table.put_item(TableName="throttled", Item=item),
        ("dynamodb", "DeleteItem"): lambda: table.delete_item(TableName="throttled", Key=item),
    }


@pytest.mark.parametrize("code", ["ProvisionedThroughputExceededException", "ThrottlingException"])
def test_a_throttled_request_has_the_error_of_its_service_and_is_answered_later(
    aws: AwsServer, plan: Once, code: str
) -> None:
    for (service, operation), request in requests(aws, attempts=1).items():
        plan.codes[service, operation] = "SlowDown" if service == "s3" else code
        with pytest.raises(ClientError) as throttled:
            request()
        found = throttled.value.response
        expected = ("SlowDown", 503) if service == "s3" else (code, 400)
        assert (found["Error"]["Code"], found["ResponseMetadata"]["HTTPStatusCode"]) == expected, operation
        request()
    assert plan.codes == {}


def test_a_client_of_boto3_tries_a_throttled_request_again(aws: AwsServer, plan: Once) -> None:
    for (service, operation), request in requests(aws, attempts=3).items():
        plan.codes[service, operation] = "SlowDown" if service == "s3" else "ThrottlingException"
        request()
    assert plan.codes == {}


def put(aws: AwsServer, *data: dict[str, Any]) -> None:
    aws.client("cloudwatch").put_metric_data(
        Namespace="test", MetricData=[{"MetricName": "m", "Value": 1.0, **each} for each in data]
    )


def test_cloudwatch_refuses_a_call_with_a_time_that_is_too_far_away(aws: AwsServer) -> None:
    now, margin = datetime.now(UTC), timedelta(minutes=1)
    earliest, latest = now - metric_limits.MAX_AGE, now + metric_limits.MAX_AHEAD
    put(aws, {"Timestamp": earliest + margin}, {"Timestamp": latest - margin}, {})
    for time, told in ((earliest - margin, "within the past two weeks"), (latest + margin, "two hours in the future")):
        with pytest.raises(ClientError, match=rf"InvalidParameterValue.*MetricData.member.2.Timestamp .*{told}"):
            put(aws, {}, {"Timestamp": time})


def test_cloudwatch_takes_150_values_of_a_metric_and_1000_metrics(aws: AwsServer) -> None:
    values = [float(number) for number in range(151)]
    cloudwatch = aws.client("cloudwatch")
    cloudwatch.put_metric_data(Namespace="test", MetricData=[{"MetricName": "m", "Values": values[:150]}])
    with pytest.raises(ClientError, match=r"InvalidParameterValue.*Values must not have a size greater than 150"):
        cloudwatch.put_metric_data(Namespace="test", MetricData=[{"MetricName": "m", "Values": values}])
    put(aws, *[{}] * 1000)
    with pytest.raises(ClientError, match=r"ValidationError.*size greater than 1000"):
        put(aws, *[{}] * 1001)


def test_cloudwatch_takes_a_call_of_one_megabyte(aws: AwsServer) -> None:
    names = [f"{number:04}{'x' * 900}" for number in range(1000)]
    text = json.dumps(names)
    assert len(text) < metric_limits.MOST_BYTES < 2 * len(text)
    assert len(gzip.compress(text.encode())) < 100_000
    plain = isolated_session().client(  # type: ignore[call-overload]
        "cloudwatch",
        endpoint_url=aws.endpoint,
        region_name=REGION,
        aws_access_key_id=aws.owner_credentials["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=aws.owner_credentials["AWS_SECRET_ACCESS_KEY"],
        config=Config(disable_request_compression=True),
    )
    dimensions = [{"Name": "d", "Value": "y" * 900}]
    large = [{"MetricName": name, "Dimensions": dimensions, "Value": 1.0} for name in names]
    with pytest.raises(ClientError, match="larger than 1000000 bytes"):
        plain.put_metric_data(Namespace="test", MetricData=large)
    put(aws, *large)  # compressed, as boto3 sends it


def test_cloudwatch_lists_a_metric_once_whatever_its_points(aws: AwsServer) -> None:
    cloudwatch = aws.client("cloudwatch")
    dimensions = [{"Name": "Deployment", "Value": "d"}, {"Name": "RunId", "Value": "r"}]
    points = [
        {"MetricName": "Loss", "Dimensions": order, "Value": value}
        for value in (1.0, 2.0)
        for order in (dimensions, dimensions[::-1])
    ]
    cloudwatch.put_metric_data(Namespace="Once", MetricData=[*points, {"MetricName": "Loss", "Value": 1.0}])
    listed = cloudwatch.list_metrics(Namespace="Once")["Metrics"]
    assert [sorted(each["Name"] for each in metric["Dimensions"]) for metric in listed] == [["Deployment", "RunId"], []]
    of_run = cloudwatch.list_metrics(Namespace="Once", Dimensions=[dimensions[1]])["Metrics"]
    assert of_run == listed[:1]


def test_cloudwatch_computes_percentiles_and_refuses_what_is_not_a_statistic(aws: AwsServer) -> None:
    client, now = aws.client("cloudwatch"), datetime.now(UTC).replace(second=0, microsecond=0)
    data = [{"MetricName": "Ranked", "Value": float(value), "Timestamp": now} for value in range(101)]
    client.put_metric_data(Namespace="Test", MetricData=data)

    def queried(stat: str) -> Any:
        metric = {"Metric": {"Namespace": "Test", "MetricName": "Ranked"}, "Period": 60, "Stat": stat}
        queries, times = [{"Id": "a", "MetricStat": metric}], {"StartTime": now, "EndTime": now + timedelta(minutes=1)}
        return client.get_metric_data(MetricDataQueries=queries, **times)["MetricDataResults"][0]["Values"]

    found = {stat: queried(stat) for stat in ("p50", "p99", "p99.5", "p100", "tm90", "Maximum")}
    assert found == {"p50": [50], "p99": [99], "p99.5": [99.5], "p100": [100], "tm90": [45], "Maximum": [100]}
    for stat in ("p101", "p", "x", "maximum"):
        with pytest.raises(ClientError, match="is not a valid statistic"):
            queried(stat)


def test_a_deleted_key_that_never_was_has_a_delete_marker_where_versions_are_kept(aws: AwsServer) -> None:
    create_bucket(aws, "versions-kept")
    client = aws.client("s3")
    client.put_bucket_versioning(Bucket="versions-kept", VersioningConfiguration={"Status": "Enabled"})
    deleted = client.delete_object(Bucket="versions-kept", Key="never")
    assert deleted["DeleteMarker"]
    (marker,) = client.list_object_versions(Bucket="versions-kept")["DeleteMarkers"]
    assert (marker["Key"], marker["VersionId"], marker["IsLatest"]) == ("never", deleted["VersionId"], True)
    assert "Contents" not in client.list_objects_v2(Bucket="versions-kept")
    client.put_object(Bucket="versions-kept", Key="never", Body=b"now")
    client.delete_object(Bucket="versions-kept", Key="never", VersionId=deleted["VersionId"])
    assert client.get_object(Bucket="versions-kept", Key="never")["Body"].read() == b"now"
    assert "DeleteMarkers" not in client.list_object_versions(Bucket="versions-kept")
