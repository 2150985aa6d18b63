"""Functions that send messages are killed before and after each of their calls of AWS, and called again: everybody is
told once. Only a kill after the message was accepted, and before that is noted, repeats it."""

from __future__ import annotations

import itertools
import json
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import yaml
from botocore.client import BaseClient

from lambdas.gateways.runs import NoticeState
from lambdas.handlers import notifications
from lambdas.handlers.notifications import notify_once
from tests.fakes.kubernetes_api import FakeKubernetesApi
from tests.fakes.runs import SPEC, run_of, spec_with
from tests.unit.lambdas.conftest import CLUSTER, RUN_TABLE, Aws
from tests.unit.lambdas.test_clean_up import TYPE, clean, notified, status_of
from tests.unit.lambdas.test_start_run import DAYS, beside, deliver, end_all, scheduled, uploaded
from tests.unit.lambdas.test_survey_fleet import run_survey, seen_before
from trainflow.errors import ServiceUnavailable
from trainflow.nodes.instances import nodegroup_name
from trainflow.workflow.run_status import RunStatus
from trainflow.workflow.run_table import KEY, SURVEY_KEY, row_of

pytestmark = [pytest.mark.usefixtures("begun_history"), pytest.mark.lengthy]

SENDING_SECONDS = 0.1


class Killed(BaseException):
    """The process is gone: nothing catches it."""


class Calls:
    """The calls of AWS, one of which kills the process."""

    def __init__(self, answer: Callable[..., Any]) -> None:
        self._answer = answer
        self._left: int | None = None
        self._after = False
        self.made: list[str] = []

    def __call__(self, client: Any, operation: str, arguments: Any) -> Any:
        self.made.append(operation)
        is_last = self._left is not None and len(self.made) == self._left
        if is_last and not self._after:
            raise Killed
        try:
            return self._answer(client, operation, arguments)
        finally:
            if is_last:
                raise Killed

    def killed(self, work: Callable[[], object], *, at: int, after: bool) -> bool:
        """Do a work that is killed at a call, before AWS does what was asked for or after; False if it ends before."""
        self.made, self._left, self._after = [], at, after
        try:
            work()
        except Killed:
            return True
        finally:
            self._left = None
        return False


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Calls:
    monkeypatch.setattr(notifications, "SENDING_TIME", timedelta(seconds=SENDING_SECONDS))
    monkeypatch.setattr(notifications, "POLL_SECONDS", 0.01)
    calls = Calls(BaseClient._make_api_call)  # type: ignore[attr-defined]
    monkeypatch.setattr(BaseClient, "_make_api_call", lambda *arguments: calls(*arguments))
    return calls


Case = tuple[Callable[[], object], Callable[[], None]]
"""What is done, and an assertion of what it has come to."""


def assert_told_once(aws: Aws, calls: Calls, prepare: Callable[[str], Case]) -> None:
    """Kill a work at each of its calls and do it again: people have been told once.

    Args:
        aws: The account.
        calls: Its calls.
        prepare: Makes circumstances of their own for a work, by a name.
    """
    for number in itertools.count(1):
        for after in (False, True):
            work, check = prepare(f"{number}{'a' if after else 'b'}")
            before = len(aws.messages)
            if not calls.killed(work, at=number, after=after):
                assert number >= 5, f"it was killed at several calls: {calls.made}"
                return
            where = f"{'after' if after else 'before'} {calls.made}"
            repeated = calls.made[-1 if after else -2 :][0] == "Publish"
            for _ in range(2):
                work()
            assert len(aws.messages) - before == 1 + repeated, where
            check()


def test_a_refused_upload_is_told_once_and_explained_beside_it(aws: Aws, calls: Calls) -> None:
    def prepare(name: str) -> Case:
        key = f"runs/{name}.yaml"
        event = uploaded(aws, yaml.safe_dump(spec_with(compute__num_nodes=0)), key=key)

        def check() -> None:
            assert "must be at least 1" in beside(aws)[f"{key}.refused.txt"]

        return lambda: deliver(event), check

    assert_told_once(aws, calls, prepare)


def test_a_spec_that_has_run_before_is_told_once_and_explained_beside_it(aws: Aws, calls: Calls) -> None:
    deliver(uploaded(aws, yaml.safe_dump(SPEC)))
    end_all(aws)

    def prepare(name: str) -> Case:
        key = f"runs/{name}.yaml"
        event = uploaded(aws, yaml.safe_dump(SPEC), key=key)

        def check() -> None:
            assert "Nothing was started." in beside(aws)[f"{key}.refused.txt"]

        return lambda: deliver(event), check

    assert_told_once(aws, calls, prepare)


@pytest.mark.parametrize("overlap", ["skip", "queue"])
def test_a_schedule_whose_turn_it_is_not_is_told_once(aws: Aws, calls: Calls, overlap: str) -> None:
    aws.client("sqs").create_queue(QueueName="requests")

    def prepare(name: str) -> Case:
        spec = spec_with(name=f"bert-{name}")
        first, second = (
            json.dumps(json.loads(scheduled(spec, at=day, overlap=overlap)) | {"schedule": name}) for day in DAYS[:2]
        )
        deliver(first)
        runs = len(aws.executions())

        def check() -> None:
            assert len(aws.executions()) == runs

        return lambda: deliver(second), check

    assert_told_once(aws, calls, prepare)


@pytest.mark.parametrize("status", ["ABORTED", pytest.param("FAILED", marks=pytest.mark.slow)])
def test_a_run_that_was_cleaned_up_is_told_once(
    aws: Aws, calls: Calls, cluster: FakeKubernetesApi, status: str
) -> None:
    aws.add_nodegroup(TYPE)

    def prepare(name: str) -> Case:
        run = run_of(run_id=f"bert-{name}")
        aws.table.begin(row_of(run))

        def check() -> None:
            assert status_of(aws, run) is RunStatus(status)

        return lambda: clean(run, status), check

    assert_told_once(aws, calls, prepare)


def test_the_end_of_a_run_is_told_once(aws: Aws, calls: Calls) -> None:
    def prepare(name: str) -> Case:
        run = run_of(run_id=f"bert-{name}")
        aws.table.begin(row_of(run))

        def check() -> None:
            assert status_of(aws, run) is RunStatus.SUCCEEDED

        return lambda: notified(run, "SUCCEEDED"), check

    assert_told_once(aws, calls, prepare)


def test_idle_nodes_that_were_released_are_told_of_once(aws: Aws, calls: Calls, cluster: FakeKubernetesApi) -> None:
    """A survey that is killed is not repeated: the next one follows five minutes later."""
    aws.add_nodegroup(TYPE)

    def prepare(_name: str) -> Case:
        group = {"clusterName": CLUSTER, "nodegroupName": nodegroup_name(TYPE)}
        aws.client("eks").update_nodegroup_config(**group, scalingConfig={"desiredSize": 2})
        aws.client("dynamodb").delete_item(TableName=RUN_TABLE, Key={KEY: {"S": SURVEY_KEY}})
        seen_before(aws, idle_minutes=36)

        def check() -> None:
            assert aws.desired(TYPE) == 0

        return run_survey, check

    assert_told_once(aws, calls, prepare)


class Topic:
    """A channel that takes its time, or none."""

    def __init__(self) -> None:
        self.sent: list[str] = []
        self.accepts, self.asked = threading.Event(), threading.Event()
        self.error: BaseException | None = None

    def send(self, *, subject: str, message: str) -> None:
        self.asked.set()
        assert self.accepts.wait(30)
        if self.error is not None:
            raise self.error
        self.sent.append(f"{subject} {message}")


@pytest.fixture
def topic(monkeypatch: pytest.MonkeyPatch) -> Topic:
    topic = Topic()
    monkeypatch.setattr(notifications, "CHANNELS", (lambda: topic,))
    monkeypatch.setattr(notifications, "POLL_SECONDS", 0.01)
    return topic


def tell(aws: Aws) -> None:
    notify_once(aws.table, "arn:x", "its end", subject="Trainflow: x", message="ended")


def test_two_calls_at_the_same_time_send_one_message(aws: Aws, topic: Topic) -> None:
    """As when a queue or EventBridge delivers twice."""
    both = [threading.Thread(target=tell, args=(aws,)) for _ in range(2)]
    for each in both:
        each.start()
    assert topic.asked.wait(30)
    assert all(each.is_alive() for each in both), "one sends, the other one waits for it"
    topic.accepts.set()
    for each in both:
        each.join(30)
    assert topic.sent == ["Trainflow: x ended"]


def test_a_message_that_was_not_accepted_is_sent_by_the_next_call_at_once(aws: Aws, topic: Topic) -> None:
    topic.accepts.set()
    topic.error = ServiceUnavailable("The topic did not answer.")
    with pytest.raises(ServiceUnavailable):
        tell(aws)
    assert not aws.table.was_told("arn:x", "its end")
    now = datetime.now(UTC)
    claimed = aws.table.claim_notice("arn:x", "its end", now=now, until=now)
    assert claimed is NoticeState.CLAIMED, "without a wait"
    topic.error = None
    tell(aws)
    tell(aws)
    assert topic.sent == ["Trainflow: x ended"]


def test_a_claim_is_no_message(aws: Aws) -> None:
    """CleanUp asks whether the run has told its end itself."""
    now = datetime.now(UTC)
    for state, at in ((NoticeState.CLAIMED, 0), (NoticeState.BEING_SENT, 5), (NoticeState.CLAIMED, 11)):
        asked = now + timedelta(seconds=at)
        found = aws.table.claim_notice("arn:x", "its end", now=asked, until=asked + timedelta(seconds=10))
        assert (found, aws.table.was_told("arn:x", "its end")) == (state, False)
    aws.table.tell("arn:x", "its end", now=now)
    assert aws.table.was_told("arn:x", "its end")
    late = now + timedelta(days=1)
    assert aws.table.claim_notice("arn:x", "its end", now=late, until=late) is NoticeState.TOLD
