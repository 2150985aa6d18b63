"""Which Task state an invocation of a function comes from: requests to Lambda do not say it."""

from __future__ import annotations

import json
from typing import Any

from moto.core import DEFAULT_ACCOUNT_ID

from local.aws.histories import events_of


def state_of(event: Any, *, region: str) -> str | None:
    """Name of the Task state that waits for the answer to an event; None where none does.

    Args:
        event: What the function is given, which names the run, so that no two states have scheduled the same.
        region: Region of the executions.
    """
    from moto.stepfunctions.parser.models import stepfunctions_parser_backends

    backend = stepfunctions_parser_backends[DEFAULT_ACCOUNT_ID][region]
    for machine in list(backend.state_machines):
        for execution in list(machine.executions):
            if execution.status == "RUNNING" and (name := _state_that_asks(execution, event)):
                return name
    return None


def _state_that_asks(execution: Any, event: Any) -> str | None:
    """Present state of an execution, if it has scheduled the event."""
    is_scheduled = False
    for each in reversed(events_of(execution)):
        if each["type"] == "TaskScheduled" and not is_scheduled:
            is_scheduled = json.loads(each["taskScheduledEventDetails"]["parameters"]).get("Payload") == event
            if not is_scheduled:
                return None
        elif each["type"].endswith("StateExited"):
            return None
        elif each["type"].endswith("StateEntered"):
            return each["stateEnteredEventDetails"]["name"] if is_scheduled else None
    return None
