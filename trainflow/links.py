"""Addresses of a run's execution and files in the AWS console, for messages and the report."""

from __future__ import annotations

from urllib.parse import quote

from trainflow.protocol.s3_urls import parse_s3_url

CONSOLES = {"aws": "aws.amazon.com", "aws-us-gov": "amazonaws-us-gov.com", "aws-cn": "amazonaws.cn"}
"""Domain of the console by partition (AWS General Reference, partitions)."""


def execution_link(arn: str) -> str:
    """The page of an execution of Step Functions."""
    _, partition, _, region, _ = arn.split(":", 4)
    return f"{_console(partition, region)}/states/home?region={region}#/v2/executions/details/{arn}"


def object_link(url: str, execution_arn: str) -> str:
    """The page of an object in S3, for opening it in a browser.

    Args:
        url: s3://bucket/key.
        execution_arn: Any execution of the deployment, which contains partition and Region.
    """
    _, partition, _, region, _ = execution_arn.split(":", 4)
    place = parse_s3_url(url)
    if place is None:
        raise ValueError(f"{url!r} is not an S3 URL.")
    return f"{_console(partition, region)}/s3/object/{place.bucket}?region={region}&prefix={quote(place.key, safe='')}"


def _console(partition: str, region: str) -> str:
    host = "console" if partition != "aws" else f"{region}.console"
    return f"https://{host}.{CONSOLES.get(partition, CONSOLES['aws'])}"
