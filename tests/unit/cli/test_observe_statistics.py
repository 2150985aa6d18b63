from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import boto3
import pytest
from moto import mock_aws
from mypy_boto3_cloudwatch.client import CloudWatchClient
from recorded_runs import recorded

from trainflow.client.observe.statistics import finest_period, read_statistics
from trainflow.observed.step import Step
from trainflow.record.published import compare

RUN_ID = "demo-3f2a9c1b4d5e"


@pytest.fixture
def cloudwatch(monkeypatch: pytest.MonkeyPatch) -> Iterator[CloudWatchClient]:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    monkeypatch.delenv("AWS_ENDPOINT_URL", raising=False)
    with mock_aws():
        yield boto3.client("cloudwatch", region_name="us-east-1")


def publish(cloudwatch: CloudWatchClient, steps: list[Step], *, run_id: str = RUN_ID, deployment: str = "twin") -> None:
    for start in range(0, len(steps), 100):
        cloudwatch.put_metric_data(
            Namespace="Trainflow",
            MetricData=[
                {
                    "MetricName": name,
                    "Dimensions": [{"Name": "Deployment", "Value": deployment}, {"Name": "RunId", "Value": run_id}],
                    "Timestamp": step.logged_at,
                    "Value": value,
                    "StorageResolution": 1,
                }
                for step in steps[start : start + 100]
                for name, value in (("StepLoss", step.loss), ("LearningRate", step.learning_rate))
            ],
        )


def test_published_steps_are_read_back_and_agree_with_the_log(cloudwatch: CloudWatchClient) -> None:
    lines = recorded("succeeded").lines
    publish(cloudwatch, lines)
    publish(cloudwatch, lines[:5], run_id="another")
    publish(cloudwatch, lines[:7], deployment="another")
    end = lines[-1].logged_at

    statistics = read_statistics(
        cloudwatch, RUN_ID, deployment="twin", start=lines[0].logged_at, end=end, now=end + timedelta(seconds=2)
    )

    published = compare(lines, statistics)
    assert published.model_dump() == {
        "datapoints": 200,
        "first_step": 1,
        "last_step": 200,
        "gaps": 0,
        "duplicates": 0,
        "log_rotations": 0,
        "moved": 0,
        "dropped": 0,
        "non_finite": 0,
        "unparsable_lines": 0,
    }


def test_a_lost_and_a_repeated_datum_are_found_through_cloudwatch(cloudwatch: CloudWatchClient) -> None:
    lines = recorded("succeeded").lines
    publish(cloudwatch, [*lines[:50], *lines[51:], lines[120]])
    end = lines[-1].logged_at

    statistics = read_statistics(cloudwatch, RUN_ID, deployment="twin", start=lines[0].logged_at, end=end, now=end)

    published = compare(lines, statistics)
    assert (published.datapoints, published.gaps, published.duplicates) == (200, 1, 1)


def test_a_longer_run_is_read_in_several_calls(cloudwatch: CloudWatchClient) -> None:
    first = recorded("succeeded").lines[0]
    lines = [
        Step(first.logged_at + timedelta(seconds=10 * step), 0, step, 5.0 - step / 500, 1e-4, 100.0)
        for step in range(1, 601)
    ]
    publish(cloudwatch, lines)

    statistics = read_statistics(
        cloudwatch,
        RUN_ID,
        deployment="twin",
        start=lines[0].logged_at,
        end=lines[-1].logged_at,
        now=lines[-1].logged_at,
    )

    assert len(statistics) == 600
    assert compare(lines, statistics).gaps == 0


@pytest.mark.parametrize(
    ("age", "seconds"),
    [
        (timedelta(minutes=2), 1),
        (timedelta(hours=4), 60),
        (timedelta(days=20), 300),
        (timedelta(days=100), 3600),
        (timedelta(days=1000), 3600),
    ],
)
def test_older_runs_are_read_in_the_periods_that_cloudwatch_still_has(age: timedelta, seconds: int) -> None:
    assert finest_period(age) == seconds


def test_a_run_without_data_gives_none(cloudwatch: CloudWatchClient) -> None:
    now = datetime.now(UTC)

    assert (
        read_statistics(cloudwatch, RUN_ID, deployment="twin", start=now - timedelta(minutes=1), end=now, now=now) == []
    )
