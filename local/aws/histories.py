"""GetExecutionHistory as Step Functions answers it: in pages, in either order, without data where none is asked for.

moto 5.2.5 answers every call with the whole history and searches each event for fifty members, so that following a run
took most of the twin's time.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, TypeVar

from local.aws.replacements import replace

DEFAULT_RESULTS = 100
"""Events of a page (API reference of Step Functions, 'GetExecutionHistory', `maxResults`)."""

DATA = frozenset({"input", "inputDetails", "output", "outputDetails"})
"""Members of an event's details that `includeExecutionData: false` leaves out."""


Event = TypeVar("Event")


def apply() -> None:
    """Answer in pages."""
    from moto.stepfunctions.exceptions import InvalidToken
    from moto.stepfunctions.responses import StepFunctionResponse

    def get_execution_history(self: Any) -> str:
        events = events_of(self.stepfunction_backend.describe_execution(self._get_param("executionArn")))
        try:
            page, token = page_of(
                events,
                after=self._get_param("nextToken"),
                max_results=self._get_int_param("maxResults") or DEFAULT_RESULTS,
                newest_first=self._get_bool_param("reverseOrder", False),
            )
        except ValueError as error:
            raise InvalidToken(str(error)) from None
        with_data = self._get_bool_param("includeExecutionData", True)
        answer: dict[str, Any] = {"events": [_as_answered(event, with_data=with_data) for event in page]}
        self.response_headers["Content-Type"] = "application/x-amz-json-1.0"
        return json.dumps({**answer, "nextToken": token} if token else answer)

    replace(StepFunctionResponse, "get_execution_history", get_execution_history)


def page_of(
    events: Sequence[Event], *, after: str | None, max_results: int, newest_first: bool
) -> tuple[Sequence[Event], str | None]:
    """A page of a history whose ids count from 1, and the token of the next page.

    Args:
        events: The history, oldest first.
        after: Token of the page; None for the first one. It names the page's first event, so that events which come
            meanwhile move none from one page to another.
        max_results: Most events of the page.
        newest_first: The order.

    Raises:
        ValueError: If the token belongs to another history.
    """
    first = len(events) if newest_first else 1
    if after is not None:
        if not after.isdecimal() or not 1 <= int(after) <= len(events):
            raise ValueError(f"nextToken: {after!r} is no page of this history.")
        first = int(after)
    if newest_first:
        last = max(0, first - max_results)
        return events[last:first][::-1], str(last) if last else None
    last = first + max_results
    return events[first - 1 : last - 1], str(last) if last <= len(events) else None


def events_of(execution: Any) -> list[dict[str, Any]]:
    """The history so far. Events do not change once they are in it."""
    environment = execution.exec_worker.env
    if environment is None:  # the execution has not started yet
        return []
    manager = environment.event_manager
    with manager._mutex:
        return list(manager._history_event_list)


def _as_answered(event: Mapping[str, Any], *, with_data: bool) -> dict[str, Any]:
    answered = {**event, "timestamp": datetime.fromisoformat(event["timestamp"]).timestamp()}
    if with_data:
        return answered
    return {
        name: {each: of for each, of in value.items() if each not in DATA} if isinstance(value, dict) else value
        for name, value in answered.items()
    }
