"""RedriveExecution as Step Functions answers it.

An execution of a standard workflow that failed, timed out or was stopped in the last 14 days enters its last state
again, with the same input, variables, definition and ARN, and with its retries counted anew. Its history goes on (Step
Functions developer guide, 'Restarting state machine executions with redrive'). moto 5.2.5 does not know the call.
Parallel and Map states begin anew here; the service keeps their branches that succeeded.

All patches replace private functions: check them again when moto's version is raised.
"""

from __future__ import annotations

import copy
import threading
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

from local.aws.replacements import replace

REDRIVABLE_FOR = timedelta(days=14)
MAX_OPEN = timedelta(days=365)
"""Longest time from an execution's start to its end, its redrives included (Step Functions developer guide, quotas)."""

MAX_EVENTS = 24_999
"""Events of a history that end the part that can be redriven (Step Functions API reference, RedriveExecution)."""


@dataclass(frozen=True, kw_only=True)
class Entered:
    """A state that an execution has entered, as it was then."""

    name: str
    input: Any
    variables: dict[str, Any]


def apply_all() -> None:
    """Apply every patch of this module."""
    _notes_what_is_entered()
    _redrives()
    _answers()
    _describes()


def _notes_what_is_entered() -> None:
    """Keep the newest state of each execution. What its task does before the end is not known to a redrive."""
    from moto.stepfunctions.parser.asl.component.state.state import CommonStateField

    present = CommonStateField._eval_body

    def eval_body(self: Any, env: Any) -> None:
        if not env.is_frame():
            variables = copy.deepcopy(env.variable_store._inner_scope)
            env.entered = Entered(name=self.name, input=env.states.get_input(), variables=variables)
        present(self, env)

    replace(CommonStateField, "_eval_body", eval_body)


def _redrives() -> None:
    """Give executions a method `redrive`, which `events.status_changes` replaces to report that they run again."""
    from moto.stepfunctions.parser.api import ExecutionStatus
    from moto.stepfunctions.parser.backend.execution import Execution

    def redrive(self: Any) -> None:
        before = self.exec_worker
        before._execution_communication = _NobodyListens()  # a task that outlived the end changes nothing any more
        worker = self._get_start_execution_worker()
        self.redrive_count, self.redrive_date = getattr(self, "redrive_count", 0) + 1, datetime.now(UTC)
        worker._execution_logic = partial(_go_on, worker, before.env, count=self.redrive_count, date=self.redrive_date)
        self.exec_worker, self.exec_status = worker, ExecutionStatus.RUNNING
        self.stop_date = self.error = self.cause = None
        worker.start()

    replace(Execution, "redrive", redrive)


class _NobodyListens:
    """Takes the place of what an execution's first thread reports its end to."""

    def terminated(self) -> None:
        """Report nothing."""


def _go_on(worker: Any, before: Any, *, count: int, date: datetime) -> None:
    """Run the definition from the state where it ended, in the thread of a redriven execution."""
    from moto.stepfunctions.parser.api import HistoryEventType
    from moto.stepfunctions.parser.asl.component.common.flow.start_at import StartAt

    program, env, entered = worker._get_evaluation_entrypoint(), worker._get_evaluation_environment(), before.entered
    env.event_manager = _continued(before.event_manager)
    env.states.reset(entered.input)
    env.variable_store._inner_scope.update(copy.deepcopy(entered.variables))
    time = date.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    env.states.context_object.context_object_data["Execution"].update(RedriveCount=count, RedriveTime=time)
    worker.env = env
    details = {"executionRedrivenEventDetails": {"redriveCount": count}}
    env.event_manager.add_event(env.event_history_context, HistoryEventType.ExecutionRedriven, details)
    program.start_at = StartAt(entered.name)
    program.eval(env)
    worker._execution_communication.terminated()


def _continued(before: Any) -> Any:
    """A manager of events that continues a history; the manager before it adds no more events."""
    from moto.stepfunctions.parser.asl.eval.event.event_manager import EventManager

    before.is_stopped = True  # see stopping.py
    manager = EventManager(cloud_watch_logging_session=before._cloud_watch_logging_session)
    manager._event_id_gen = before._event_id_gen
    manager._history_event_list = before._history_event_list
    return manager


def _reason_against(execution: Any) -> str | None:
    """The reason why an execution cannot be redriven, in the service's words; None if it can."""
    status = execution.status
    if status not in ("FAILED", "ABORTED", "TIMED_OUT"):
        return f"Execution is {status} and cannot be redriven"
    if execution.exec_worker is None or execution.exec_worker.env is None:
        return "Execution was not started"
    if datetime.now(UTC) - execution.start_date > MAX_OPEN:
        return "Execution has exceeded the max execution time"
    if datetime.now(UTC) - execution.stop_date > REDRIVABLE_FOR:
        return "Execution redrivable period exceeded"
    if len(execution.to_history_output()["events"]) >= MAX_EVENTS:
        return "Execution history event limit exceeded"
    return None


def redrive_fields(execution: Any) -> dict[str, Any]:
    """Number and time of an execution's redrives, whether it can be, and the reason if not."""
    reason = _reason_against(execution)
    return {
        "redriveCount": getattr(execution, "redrive_count", 0),
        "redriveDate": getattr(execution, "redrive_date", None),
        "redriveStatus": "NOT_REDRIVABLE" if reason else "REDRIVABLE",
        "redriveStatusReason": reason,
    }


def _answers() -> None:
    """Answer RedriveExecution. A repeated call with the same token answers as the first one."""
    from moto.core.exceptions import AWSError
    from moto.core.responses import ActionResult
    from moto.stepfunctions.responses import StepFunctionResponse

    class ExecutionNotRedrivable(AWSError):  # type: ignore[misc]
        TYPE = "ExecutionNotRedrivable"
        STATUS = 400

    one_at_a_time = threading.Lock()

    def redrive_execution(self: Any) -> Any:
        arn, token = self._get_param("executionArn"), self._get_param("clientToken")
        with one_at_a_time:
            execution = self.stepfunction_backend.describe_execution(arn)
            if token is None or token != getattr(execution, "redrive_token", None):
                if reason := _reason_against(execution):
                    raise ExecutionNotRedrivable(f"{arn}: {reason}.")
                execution.redrive()
                execution.redrive_token = token
            return ActionResult({"redriveDate": execution.redrive_date})

    replace(StepFunctionResponse, "redrive_execution", redrive_execution)


def _describes() -> None:
    """Say in DescribeExecution what `redrive_fields` gives."""
    from moto.core.responses import ActionResult
    from moto.stepfunctions.responses import StepFunctionResponse

    present = StepFunctionResponse.describe_execution

    def describe_execution(self: Any) -> Any:
        answer = present(self)
        execution = self.stepfunction_backend.describe_execution(self._get_param("executionArn"))
        redrive = {name: value for name, value in redrive_fields(execution).items() if value is not None}
        return ActionResult({**answer.result, **redrive})

    replace(StepFunctionResponse, "describe_execution", describe_execution)
