"""Faults by request: functions that crash or time out before they act or after it, as on Lambda, and requests that
services throttle."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Fault:
    """An invocation that fails."""

    error: str
    """Name that Step Functions reports, such as `Runtime.ExitError` or `Sandbox.Timedout`."""
    after_acting: bool = False
    """Whether the function does its work first; its answer is lost."""


@dataclass(frozen=True)
class Duplicate:
    """An event that is delivered twice: queues and EventBridge deliver at least once."""


FaultPlan = Callable[[str, Any], Fault | Duplicate | None]
"""Returns the fault of an invocation, for the function's name and the event; None for one that goes well. It is called
by several threads."""


def no_faults(_function: str, _event: Any) -> Fault | Duplicate | None:
    """The plan of a twin without faults."""
    return None


RequestPlan = Callable[[str, str], str | None]
"""Error code for a throttled request, by the service's name and the operation, as IAM names it; None for other
requests. It is called by several threads."""


def no_throttling(_service: str, _operation: str) -> str | None:
    """The plan of a twin whose services answer everything."""
    return None
