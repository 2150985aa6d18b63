"""Logs of pods in CloudWatch Logs, where they stay after the pods are gone, and for callers without the cluster.

The add-on amazon-cloudwatch-observability runs Fluent Bit on every node. It sends each line as a JSON object, with the
text in `log` and the pod's name in `kubernetes.pod_name`, to `/aws/containerinsights/<cluster>/application`. The group
has a stream for each container (github.com/aws-observability/helm-charts, charts/amazon-cloudwatch-observability,
values.yaml: application-log.conf).
"""

from __future__ import annotations

import json
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import chain
from typing import Any

from trainflow.client.place import LogNotFound
from trainflow.client.refusals import told

POLL_SECONDS = 5.0
"""Time between two polls of a log that is followed: Fluent Bit sends every five seconds (`Flush` in the chart)."""

LATE = timedelta(minutes=2)
"""Longest delay of an older line after the newest one: nodes send on their own, and try again after errors."""

NUM_REMEMBERED = 20_000
"""Events that are remembered to print none twice: two pages of the API."""


@dataclass(frozen=True, kw_only=True)
class PodFilter:
    """Selects the lines of one pod by its name."""

    name: str
    """Its name, or what the name begins with, before the characters that its controller adds."""
    is_whole: bool = False
    """Whether this is the whole name."""

    @property
    def pattern(self) -> str:
        """CloudWatch Logs' filter for its lines, which an asterisk may end (user guide, "Filter pattern syntax")."""
        return f'{{ $.kubernetes.pod_name = "{self.name}{"" if self.is_whole else "*"}" }}'

    def has(self, pod: str) -> bool:
        """Whether a pod of this name is the one."""
        return pod == self.name or (not self.is_whole and pod.rpartition("-")[0] == self.name)


class StoredLogs:
    """The log group of a cluster's pods."""

    def __init__(self, logs: Any, group: str) -> None:
        """Makes no request yet.

        Args:
            logs: A boto3 client of CloudWatch Logs.
            group: Name of the log group.
        """
        self._logs, self.group = logs, group

    def lines(
        self, pod: PodFilter, *, since: datetime, until: datetime | None, has_ended: Callable[[], bool] | None = None
    ) -> Iterator[str]:
        """The lines of a pod, in the order of their times.

        Args:
            pod: The pod.
            since: Time of the first line.
            until: Time of the last line; None for now.
            has_ended: Whether no more lines are written; None to read what is there, and end.

        Raises:
            LogNotFound: If lines of the pod, or the log group, do not exist.
            PlaceRefused: If the caller may not read it.
        """
        events = self._followed(pod, since, until, has_ended)
        try:
            first = next(events)
        except StopIteration:
            raise LogNotFound(f"CloudWatch Logs has no line of a pod {pod.name} in {self.group}.") from None
        return chain([first], events)

    def _followed(
        self, pod: PodFilter, since: datetime, until: datetime | None, has_ended: Callable[[], bool] | None
    ) -> Iterator[str]:
        seen: set[str] = set()
        order: deque[str] = deque()
        begin = newest = _milliseconds(since)
        while True:
            ended = has_ended is None or has_ended()  # asked before reading: then that is all
            for event in self._events(pod, begin, until):
                if event["eventId"] in seen:
                    continue
                seen.add(event["eventId"])
                order.append(event["eventId"])
                if len(order) > NUM_REMEMBERED:
                    seen.remove(order.popleft())
                newest = max(newest, event["timestamp"])
                yield _log_text(event["message"])
            if ended:
                return
            begin = max(begin, newest - round(LATE.total_seconds() * 1000))
            time.sleep(POLL_SECONDS)

    def _events(self, pod: PodFilter, begin: int, until: datetime | None) -> Iterator[dict[str, Any]]:
        """Events of the pod; a page may be empty although more follow."""
        token: str | None = None
        while True:
            page = self._page(pod, begin, until, token)
            yield from (event for event in page["events"] if pod.has(_pod_name(event["message"])))
            token = page.get("nextToken")
            if token is None:
                return

    @told
    def _page(self, pod: PodFilter, begin: int, until: datetime | None, token: str | None) -> dict[str, Any]:
        request: dict[str, Any] = {"logGroupName": self.group, "filterPattern": pod.pattern, "startTime": begin}
        request |= {"endTime": _milliseconds(until)} if until else {}
        request |= {"nextToken": token} if token else {}
        try:
            page: dict[str, Any] = self._logs.filter_log_events(**request)
        except self._logs.exceptions.ResourceNotFoundException:
            raise LogNotFound(
                f"There is no log group {self.group}: the deployment sends no logs of pods to CloudWatch "
                "(cluster.pod_logs), or they are older than it keeps them."
            ) from None
        return page


def _milliseconds(at: datetime) -> int:
    return round(at.timestamp() * 1000)


def _decoded(message: str) -> dict[str, Any]:
    try:
        found = json.loads(message)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _pod_name(message: str) -> str:
    kubernetes = _decoded(message).get("kubernetes")
    return str(kubernetes.get("pod_name", "")) if isinstance(kubernetes, dict) else ""


def _log_text(message: str) -> str:
    text = _decoded(message).get("log")
    return text.removesuffix("\n") if isinstance(text, str) else message
