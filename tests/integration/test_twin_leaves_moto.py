"""A twin's server that has stopped leaves moto as it found it: other tests use moto in the same process."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from typing import Any

import boto3
import moto.server  # noqa: F401  (loaded before the first comparison)
import pytest
from botocore.exceptions import ClientError
from moto import mock_aws
from moto.core.config import default_user_config

from local.aws.deployment import make_cluster
from local.aws.server import AwsServer
from local.aws.targets import Targets
from trainflow.nodes.offerings import VCPU_QUOTAS

REGION = "us-west-2"


def code_of_moto() -> dict[str, Any]:
    """Every function and class of moto's modules, and every attribute of these classes, by its full name."""
    return dict(_code_of_moto())


def _code_of_moto() -> Iterator[tuple[str, Any]]:
    for name, module in [*sys.modules.items()]:
        if name.partition(".")[0] == "moto" and module is not None:
            for attribute, value in vars(module).items():
                if callable(value):
                    yield f"{name}.{attribute}", value
                if isinstance(value, type) and value.__module__ == name:
                    yield from ((f"{name}.{attribute}.{each}", of) for each, of in vars(value).items() if _is_code(of))


def _is_code(value: object) -> bool:
    return callable(value) or isinstance(value, classmethod | staticmethod | property)


def a_server_that_has_stopped(*, with_stacks: bool = False) -> None:
    server = AwsServer(time_scale=100)
    server.start()
    make_cluster(server)
    if with_stacks:
        server.take_stacks()
    server.stop()


@pytest.mark.parametrize("with_stacks", [False, True])
def test_its_code_is_as_before(with_stacks: bool) -> None:
    a_server_that_has_stopped(with_stacks=True)  # what is imported on the way is compared, too
    before = code_of_moto()
    a_server_that_has_stopped(with_stacks=with_stacks)
    after = code_of_moto()
    assert sorted(name for name in before if after.get(name) is not before[name]) == []
    assert sorted(after.keys() - before.keys()) == []


def test_its_code_is_another_meanwhile() -> None:
    """Otherwise the comparison above would prove nothing."""
    a_server_that_has_stopped()
    before = code_of_moto()
    server = AwsServer(time_scale=100)
    server.start()
    try:
        assert len([name for name, value in code_of_moto().items() if value is not before.get(name)]) > 20
    finally:
        server.stop()


def test_its_settings_are_as_before() -> None:
    before = dict(default_user_config), dict(os.environ)
    server = AwsServer(time_scale=100)
    server.start()
    assert (dict(default_user_config), dict(os.environ)) != before
    server.stop()
    assert (dict(default_user_config), dict(os.environ)) == before


def test_a_rule_delivers_events_to_its_queue_again(monkeypatch: pytest.MonkeyPatch) -> None:
    a_server_that_has_stopped()
    monkeypatch.setattr(Targets, "send", lambda *_: pytest.fail("The twin delivers an event."))
    with mock_aws():
        sqs, bus = (boto3.client(service, region_name=REGION) for service in ("sqs", "events"))
        url = sqs.create_queue(QueueName="all")["QueueUrl"]
        arn = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
        bus.put_rule(Name="all", EventPattern=json.dumps({"source": ["trainflow"]}))
        bus.put_targets(Rule="all", Targets=[{"Id": "queue", "Arn": arn}])
        bus.put_events(Entries=[{"Source": "trainflow", "DetailType": "Test", "Detail": "{}"}])
        (message,) = sqs.receive_message(QueueUrl=url)["Messages"]
    assert json.loads(message["Body"])["source"] == "trainflow"


def test_there_are_no_more_quotas() -> None:
    asked = {"ServiceCode": "ec2", "QuotaCode": VCPU_QUOTAS["trn_on_demand"].code}
    server = AwsServer(time_scale=100)
    server.start()
    make_cluster(server)
    assert server.client("service-quotas").get_service_quota(**asked)["Quota"]["Value"] > 0
    server.stop()
    with mock_aws(), pytest.raises(ClientError, match="NoSuchResource"):
        boto3.client("service-quotas", region_name=REGION).get_service_quota(**asked)
