"""`trainflow doctor --place NAME` against a twin that is used as an account: one part is broken at a time."""

from __future__ import annotations

import contextlib
import io
import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import pytest
from kubetwin.client import ApiClient
from kubetwin.kubeconfig import load_connection

from local.twin import Twin
from trainflow.cli.doctor import doctor_of_place
from trainflow.cli.terminal import Console
from trainflow.kubernetes.api import KubernetesApi
from trainflow.kubernetes.connection import from_kubeconfig
from trainflow.protocol.pods import SERVICE_ACCOUNT

pytestmark = pytest.mark.lengthy

NAMESPACE = "/api/v1/namespaces/training"
NOBODY = "recipients of messages"
"""The twin keeps messages in a file, and has no subscription."""


class Broken:
    """Parts of a twin that can be broken and mended."""

    def __init__(self, twin: Twin) -> None:
        self.twin, self.client = twin, twin.client
        self.api = ApiClient(load_connection(twin.kubeconfig))

    @contextmanager
    def concurrency(self) -> Iterator[None]:
        name = "trainflow-PollJob"
        self.client("lambda").put_function_concurrency(FunctionName=name, ReservedConcurrentExecutions=0)
        yield
        self.client("lambda").delete_function_concurrency(FunctionName=name)

    @contextmanager
    def alias(self) -> Iterator[None]:
        lambda_, names = self.client("lambda"), {"FunctionName": "trainflow-SurveyFleet", "Name": "live"}
        version = lambda_.get_alias(**names)["FunctionVersion"]
        lambda_.delete_alias(**names)
        yield
        lambda_.create_alias(**names, FunctionVersion=version)

    @contextmanager
    def notification(self) -> Iterator[None]:
        s3 = self.client("s3")
        s3.put_bucket_notification_configuration(Bucket="trainflow-data", NotificationConfiguration={})
        yield
        whole: dict[str, Any] = {"EventBridgeConfiguration": {}}
        s3.put_bucket_notification_configuration(Bucket="trainflow-data", NotificationConfiguration=whole)

    @contextmanager
    def upload_rule(self) -> Iterator[None]:
        self.client("events").disable_rule(Name="trainflow-upload")
        yield
        self.client("events").enable_rule(Name="trainflow-upload")

    @contextmanager
    def clean_up_rule(self) -> Iterator[None]:
        self.client("events").disable_rule(Name="trainflow-clean-up")
        yield
        self.client("events").enable_rule(Name="trainflow-clean-up")

    @contextmanager
    def dead_letter(self) -> Iterator[None]:
        sqs = self.client("sqs")
        # The function that reports lost requests takes messages from the queue; without its connection they stay.
        url = sqs.get_queue_url(QueueName="trainflow-run-requests-dead-letters")["QueueUrl"]
        lambda_ = self.client("lambda")
        (mapping,) = [
            each
            for each in lambda_.list_event_source_mappings()["EventSourceMappings"]
            if each["EventSourceArn"].endswith("dead-letters")
        ]
        lambda_.update_event_source_mapping(UUID=mapping["UUID"], Enabled=False)
        sqs.send_message(QueueUrl=url, MessageBody="lost")
        yield
        sqs.purge_queue(QueueUrl=url)

    @contextmanager
    def schedule(self) -> Iterator[None]:
        scheduler = self.client("scheduler")
        found = scheduler.get_schedule(GroupName="trainflow", Name="survey-fleet")
        kept = ("Name", "GroupName", "ScheduleExpression", "FlexibleTimeWindow", "Target")
        same = {key: value for key, value in found.items() if key in kept}
        scheduler.update_schedule(**same, State="DISABLED")
        yield
        scheduler.update_schedule(**same, State="ENABLED")

    @contextmanager
    def alarm(self) -> Iterator[None]:
        cloudwatch, name = self.client("cloudwatch"), "trainflow-run-failed"
        cloudwatch.put_metric_alarm(
            AlarmName=name,
            ComparisonOperator="GreaterThanThreshold",
            EvaluationPeriods=1,
            MetricName="Runs",
            Namespace="Trainflow",
            Period=60,
            Threshold=1.0,
            Statistic="Sum",
        )
        cloudwatch.set_alarm_state(AlarmName=name, StateValue="ALARM", StateReason="a run has failed")
        yield
        cloudwatch.delete_alarms(AlarmNames=[name])

    @contextmanager
    def service_account(self) -> Iterator[None]:
        path = f"{NAMESPACE}/serviceaccounts/{SERVICE_ACCOUNT}"
        found = self.api.get(path)
        self.api.delete(path)
        yield
        self.api.create(path.rpartition("/")[0], {"metadata": {"name": found["metadata"]["name"]}})

    @contextmanager
    def function(self) -> Iterator[None]:
        self.client("lambda").delete_function(FunctionName="trainflow-Notify")
        yield

    @contextmanager
    def uploads(self) -> Iterator[None]:
        lambda_ = self.client("lambda")
        for mapping in lambda_.list_event_source_mappings()["EventSourceMappings"]:
            lambda_.delete_event_source_mapping(UUID=mapping["UUID"])
        yield

    @contextmanager
    def state_machine(self) -> Iterator[None]:
        assert self.twin.deployment is not None
        arn = self.twin.deployment.address.state_machine_arn
        self.client("stepfunctions").delete_state_machine(stateMachineArn=arn)
        yield


MENDED: dict[str, Callable[[Broken], AbstractContextManager[None]]] = {
    "functions": Broken.concurrency,
    "aliases": Broken.alias,
    "events of uploads": Broken.notification,
    "rule for uploads": Broken.upload_rule,
    "rule for ended runs": Broken.clean_up_rule,
    "lost uploads": Broken.dead_letter,
    "schedules": Broken.schedule,
    "alarms": Broken.alarm,
    "service account": Broken.service_account,
}
GONE: dict[str, Callable[[Broken], AbstractContextManager[None]]] = {
    "rule for uploads": Broken.uploads,
    "functions": Broken.function,
    "state machine": Broken.state_machine,
}
"""Parts that stay broken, in an order in which the first broken one is seen."""


@pytest.fixture(scope="module")
def broken(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broken]:
    home, logs = tmp_path_factory.mktemp("home"), tmp_path_factory.mktemp("logs")
    with Twin(home=home, log_dir=logs, time_scale=1) as twin:
        yield Broken(twin)


def examined(broken: Broken) -> dict[str, dict[str, str]]:
    """The findings by their checks, as programs get them."""
    assert broken.twin.deployment is not None
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        status = doctor_of_place(
            broken.twin.deployment.address,
            client=broken.client,
            kubernetes=lambda: KubernetesApi(from_kubeconfig(broken.twin.kubeconfig)),
            console=Console(file=io.StringIO()),
            as_json=True,
        )
    found: list[dict[str, str]] = json.loads(printed.getvalue())["findings"]
    assert status == (1 if any(finding["outcome"] == "failed" for finding in found) else 0)
    return {finding["check"]: finding for finding in found}


def failed(found: dict[str, dict[str, Any]]) -> set[str]:
    return {check for check, finding in found.items() if finding["outcome"] == "failed"}


def test_a_whole_twin_lacks_only_an_address_for_messages(broken: Broken) -> None:
    assert failed(examined(broken)) == {NOBODY}


@pytest.mark.parametrize("check", MENDED)
def test_a_broken_part_is_named_until_it_is_mended(broken: Broken, check: str) -> None:
    with MENDED[check](broken):
        assert failed(examined(broken)) == {NOBODY, check}
    assert failed(examined(broken)) == {NOBODY}


def test_the_first_broken_part_is_what_to_begin_with(broken: Broken) -> None:
    assert broken.twin.deployment is not None
    for check, part in GONE.items():
        with part(broken):
            assert check in failed(examined(broken))
        printed = io.StringIO()
        doctor_of_place(
            broken.twin.deployment.address,
            client=broken.client,
            kubernetes=lambda: KubernetesApi(from_kubeconfig(broken.twin.kubeconfig)),
            console=Console(file=printed, width=200),
        )
        assert printed.getvalue().splitlines()[-1] == f"Begin with: {check}."
