"""Plans of faults that tests and benchmarks share, and what people are sent meanwhile."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from local.aws import folder_buckets
from local.aws.faults import Duplicate, Fault, FaultPlan, no_faults
from local.aws.throttling import CODES
from local.twin import Twin
from trainflow.deployment.functions import EVENT_HANDLERS, TASKS
from trainflow.record.results import WITH_WARNINGS

FAULTS: Mapping[str, Fault] = {
    "crash-before": Fault(error="Runtime.ExitError"),
    "crash-after": Fault(error="Runtime.ExitError", after_acting=True),
    "timed-out-after": Fault(error="Sandbox.Timedout", after_acting=True),
    "no-snapshot": Fault(error="Lambda.SnapStartNotReadyException"),
    "unnamed": Fault(error="KeyError"),
}
TASK_FUNCTIONS = {function.name for function in TASKS}
EVENT_FUNCTIONS = {function.name for function in EVENT_HANDLERS}


class Plan:
    """The twin's plan, which is replaced for a while. Plans inside of it know functions by their names."""

    def __init__(self) -> None:
        self._current: FaultPlan = no_faults
        self._of_events: FaultPlan = no_faults
        self._doubles_events = False
        self.doubled = Counter[str]()
        """Number of events that each function was sent twice."""

    def __call__(self, function: str, event: Any) -> Fault | Duplicate | None:
        name = next((each for each in TASK_FUNCTIONS | EVENT_FUNCTIONS if function.endswith(f"-{each}")), None)
        if name in EVENT_FUNCTIONS and self._doubles_events:
            self.doubled[name] += 1
            return Duplicate()
        if name is None:
            return None
        return self._current(name, event) if name in TASK_FUNCTIONS else self._of_events(name, event)

    @contextmanager
    def events_doubled(self) -> Iterator[None]:
        """Deliver every event of a queue, a rule or a schedule twice inside the block."""
        self._doubles_events = True
        try:
            yield
        finally:
            self._doubles_events = False

    @contextmanager
    def replaced(self, plan: FaultPlan) -> Iterator[None]:
        """Follow another plan for the functions of states inside the block."""
        self._current = plan
        try:
            yield
        finally:
            self._current = no_faults

    @contextmanager
    def replaced_for_events(self, plan: FaultPlan) -> Iterator[None]:
        """Follow another plan for the functions of a queue, a rule or a schedule inside the block."""
        self._of_events = plan
        try:
            yield
        finally:
            self._of_events = no_faults


@contextmanager
def twin_with(plan: Plan, folder: Path, **options: Any) -> Iterator[Twin]:
    """A twin that follows a plan and has the demo's data set, inside the block.

    Args:
        plan: Its plan of faults.
        folder: Folder of the twin's home and logs.
        options: The twin's further arguments.
    """
    folder_buckets.ensure_demo_data(folder / "home" / "s3")
    with Twin(home=folder / "home", log_dir=folder / "logs", faults=plan, **options) as twin:
        yield twin


class FirstRequests:
    """A plan that throttles the first requests of every operation, while it is active."""

    def __init__(self) -> None:
        self._each, self._lock = 0, threading.Lock()
        self.met = Counter[tuple[str, str]]()
        """Number of throttled requests, by service and operation."""

    def __call__(self, service: str, operation: str) -> str | None:
        with self._lock:
            if self.met[service, operation] >= self._each:
                return None
            self.met[service, operation] += 1
        return CODES[service][0]

    @contextmanager
    def throttled(self, *, each: int) -> Iterator[None]:
        """Throttle inside the block.

        Args:
            each: Number of requests of each operation.
        """
        self.met.clear()
        self._each = each
        try:
            yield
        finally:
            self._each = 0


def repeated_call_key(function: str, event: Any) -> str:
    """Text that a call shares with its repetitions: a queue counts the deliveries of a message."""
    if isinstance(event, dict) and "Records" in event:
        event = [record["messageId"] for record in event["Records"]]
    return f"{function} {json.dumps(event, sort_keys=True)}"


class FirstTries:
    """A plan that lets the first try of every call fail; it is tried again with the same event."""

    def __init__(self, fault: Fault) -> None:
        self._fault, self._tried, self._lock = fault, set[str](), threading.Lock()
        self.met = Counter[str]()
        """Number of failures of each function."""

    def __call__(self, function: str, event: Any) -> Fault | None:
        call = repeated_call_key(function, event)
        with self._lock:
            if call in self._tried:
                return None
            self._tried.add(call)
            self.met[function] += 1
            return self._fault


class OneOfEach:
    """A plan that lets first tries of calls fail, each under another name, until every name was met."""

    def __init__(self, names: Sequence[str]) -> None:
        self._left, self._tried, self._lock = list(reversed(names)), set[str](), threading.Lock()
        self.met = dict[str, str]()
        """Function that failed, by the name of the error."""

    def __call__(self, function: str, event: Any) -> Fault | None:
        call = repeated_call_key(function, event)
        with self._lock:
            if call in self._tried or not self._left:
                return None
            self._tried.add(call)
            self.met[self._left[-1]] = function
            return Fault(error=self._left.pop())


class Blindness:
    """A plan that lets functions fail for a while, from the first call of one of them on."""

    def __init__(self, *functions: str, error: str, seconds: float) -> None:
        self._functions, self._fault, self._seconds = functions, Fault(error=error), seconds
        self._since: float | None = None
        self.failed = 0

    def __call__(self, function: str, _event: Any) -> Fault | None:
        if function not in self._functions:
            return None
        self._since = self._since or time.monotonic()
        if time.monotonic() > self._since + self._seconds:
            return None
        self.failed += 1
        return self._fault


class Mail:
    """Everything that the deployment's topic has sent."""

    def __init__(self, twin: Twin, name: str) -> None:
        self._sqs, sns = twin.client("sqs"), twin.client("sns")
        self._url = self._sqs.create_queue(QueueName=name)["QueueUrl"]
        found = self._sqs.get_queue_attributes(QueueUrl=self._url, AttributeNames=["QueueArn"])
        assert twin.deployment is not None, "the twin runs, with everything deployed"
        sns.subscribe(TopicArn=twin.deployment.topic_arn, Protocol="sqs", Endpoint=found["Attributes"]["QueueArn"])

    def subjects(self) -> list[str]:
        """Subjects of the messages since the last call.

        That a run ended "with warnings" is left out: the programs of these runs save nothing, and this is about the
        number of messages.
        """
        messages: list[Any] = []
        while found := self._sqs.receive_message(QueueUrl=self._url, MaxNumberOfMessages=10).get("Messages"):
            messages += found
        subjects = (json.loads(message["Body"])["Subject"] for message in messages)
        return [subject.removesuffix(WITH_WARNINGS) for subject in subjects]
