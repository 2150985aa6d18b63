"""Mails of a twin's deployment."""

from __future__ import annotations

import json
import time

from local.twin import Twin
from tests.waiting import wait_until
from trainflow.workflow.run_record import RunRecord


class Mails:
    """Mails that the owner of a deployment gets from now on."""

    def __init__(self, twin: Twin) -> None:
        assert twin.deployment is not None
        self._sqs = twin.client("sqs")
        self._queue: str = self._sqs.create_queue(QueueName=f"told-{time.monotonic_ns()}")["QueueUrl"]
        found = self._sqs.get_queue_attributes(QueueUrl=self._queue, AttributeNames=["QueueArn"])
        endpoint = found["Attributes"]["QueueArn"]
        twin.client("sns").subscribe(TopicArn=twin.deployment.topic_arn, Protocol="sqs", Endpoint=endpoint)
        self._text_by_subject: dict[str, str] = {}

    def end_of(self, record: RunRecord) -> str:
        """Text of the mail that reports a run's end.

        It is waited for and found by its subject: other mails are of runs beside it, or report on a busy machine that
        the run cannot be seen for a while.
        """
        outcomes = (record.status, record.error.name if record.error else record.status)
        subjects = tuple(f"Trainflow: {record.run_id} {outcome}" for outcome in outcomes)
        wait_until(lambda: self._newest(subjects) is not None)
        text = self._newest(subjects)
        assert text is not None
        return text

    def _newest(self, subjects: tuple[str, ...]) -> str | None:
        """Text of the newest mail so far whose subject begins with one of these."""
        for received in self._sqs.receive_message(QueueUrl=self._queue, MaxNumberOfMessages=10).get("Messages", ()):
            mail = json.loads(received["Body"])
            self._text_by_subject[mail["Subject"]] = mail["Message"]
        found = [text for subject, text in self._text_by_subject.items() if subject.startswith(subjects)]
        return found[-1] if found else None
