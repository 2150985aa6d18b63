"""StopExecution as Step Functions answers it.

The service ends an execution at once, whatever its tasks still do: their answers come to nothing. moto 5.2.5 ends it
when the task that works has answered, makes a failed execution of one whose task's answer finds no next state, and
passes on neither the error nor the cause that it was given. All patches replace private functions: check them again
when moto's version is raised.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import datetime
from functools import wraps
from typing import Any

from local.aws.replacements import replace

START_SECONDS = 10
"""Longest time that the thread of a new execution may take to make its environment."""


def apply_all() -> None:
    """Apply every patch of this module but `once`, which `events.status_changes` uses to report ends."""
    _reasons()
    _at_once()
    _stays_stopped()


def _reasons() -> None:
    """Pass on the error and the cause that StopExecution is given."""
    from moto.stepfunctions.parser.backend.execution import Execution
    from moto.stepfunctions.responses import StepFunctionResponse

    answer, stop = StepFunctionResponse.stop_execution, Execution.stop
    given = threading.local()

    def stop_execution(self: Any) -> Any:
        given.reason = self._get_param("error"), self._get_param("cause")
        try:
            return answer(self)
        finally:
            given.__dict__.clear()

    def stop_for_a_reason(self: Any, stop_date: datetime, error: str | None, cause: str | None) -> None:
        # They are only those of the named execution, whose children are stopped in the same thread.
        given_error, given_cause = given.__dict__.pop("reason", (None, None))
        stop(self, stop_date=stop_date, error=error or given_error, cause=cause or given_cause)

    replace(StepFunctionResponse, "stop_execution", stop_execution)
    replace(Execution, "stop", stop_for_a_reason)


def _at_once() -> None:
    """End the execution in the call that stops it. The thread that awaits its task ends later and changes nothing."""
    from moto.stepfunctions.parser.api import HistoryEventType
    from moto.stepfunctions.parser.asl.eval.event.event_manager import EventHistoryContext
    from moto.stepfunctions.parser.backend.execution_worker import ExecutionWorker

    def stop(self: Any, stop_date: datetime, error: str | None, cause: str | None) -> None:
        environment = _environment(self)
        if not environment.is_running():
            return
        environment.set_stop(stop_date=stop_date, error=error, cause=cause)
        details = {"executionAbortedEventDetails": {"error": error, "cause": cause}}
        environment.event_manager.add_event(
            EventHistoryContext.of_program_start(), HistoryEventType.ExecutionAborted, details
        )
        self._execution_communication.terminated()

    replace(ExecutionWorker, "stop", stop)


def _environment(worker: Any) -> Any:
    """The environment of an execution, which its own thread makes and gives a first state."""
    deadline = time.monotonic() + START_SECONDS
    while worker.env is None or worker.env.program_state() is None:
        if time.monotonic() > deadline:
            raise TimeoutError(f"The execution did not begin within {START_SECONDS} s.")
        time.sleep(0.001)
    return worker.env


def _stays_stopped() -> None:
    """Ignore the result of the task of an execution that was stopped or has timed out: it ends only once, without an
    event of the task."""
    from moto.stepfunctions.parser.api import HistoryEventType
    from moto.stepfunctions.parser.asl.eval.environment import Environment
    from moto.stepfunctions.parser.asl.eval.event.event_manager import EventManager
    from moto.stepfunctions.parser.asl.eval.program_state import ProgramStopped

    def unless_stopped(present: Callable[..., None]) -> Callable[..., None]:
        @wraps(present)
        def end(self: Any, *arguments: Any, **named: Any) -> None:
            with self._state_mutex:  # an RLock, which the method takes again
                if not isinstance(self._program_state, ProgramStopped):
                    present(self, *arguments, **named)

        return end

    replace(Environment, "set_error", unless_stopped(Environment.set_error))
    time_out = unless_stopped(Environment.set_timed_out)

    def set_timed_out(self: Any) -> None:
        self.event_manager.is_timed_out = True
        time_out(self)

    replace(Environment, "set_timed_out", set_timed_out)

    add_event = EventManager.add_event
    adding = threading.Lock()
    ends = (HistoryEventType.ExecutionTimedOut, HistoryEventType.ExecutionAborted)

    def add_unless_stopped(self: Any, context: Any, event_type: Any, *arguments: Any, **named: Any) -> int:
        with adding:
            is_over = getattr(self, "is_timed_out", False) and event_type not in ends
            if is_over or getattr(self, "is_stopped", False):
                return int(context.last_published_event_id)
            self.is_stopped = event_type == HistoryEventType.ExecutionAborted
            return int(add_event(self, context, event_type, *arguments, **named))

    replace(EventManager, "add_event", add_unless_stopped)


def once(terminated: Callable[[Any], None]) -> Callable[[Any], None]:
    """Report an execution's end once: in the call that stops it, or in its own thread."""
    ending = threading.RLock()  # the end of a parent ends its children

    @wraps(terminated)
    def terminated_once(self: Any) -> None:
        with ending:
            if self.execution.status == "RUNNING":
                terminated(self)

    return terminated_once
