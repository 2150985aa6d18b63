"""AWS Step Functions: starts executions of the training workflow and reads their status and history."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lambdas.gateways.aws import client, translated
from trainflow.record.history import ExecutionHistory, arn_of_execution
from trainflow.workflow.leftovers import Execution
from trainflow.workflow.run_record import RunStatus

EVENTS_PER_PAGE = 1000
"""Largest page of `GetExecutionHistory`."""

BULKY = {
    "stateEnteredEventDetails": "input",
    "stateExitedEventDetails": "output",
    "taskScheduledEventDetails": "parameters",
}
"""Fields of events that are dropped when they are read: copies of the run's state, several per window."""


@dataclass(frozen=True, kw_only=True)
class Started:
    """An execution that runs or has run."""

    arn: str
    is_new: bool
    """False if an execution of this name existed before."""


def start(state_machine_arn: str, *, name: str, document: str) -> Started:
    """Start an execution, or find the one of this name that was started before.

    Args:
        state_machine_arn: ARN of the training workflow.
        name: Name of the execution, which is the run's.
        document: Its input, in JSON.
    """
    sfn = client("stepfunctions")
    try:
        with translated("states:StartExecution"):
            answer = sfn.start_execution(stateMachineArn=state_machine_arn, name=name, input=document)
    except sfn.exceptions.ExecutionAlreadyExists:
        return Started(arn=arn_of_execution(state_machine_arn, name), is_new=False)
    return Started(arn=answer["executionArn"], is_new=True)


def status(execution_arn: str) -> RunStatus:
    """Status of an execution."""
    return _described(execution_arn).status


def describe(execution_arn: str) -> Execution | None:
    """An execution's status and end; None if Step Functions does not know it (any more, 90 days after its end)."""
    try:
        return _described(execution_arn)
    except client("stepfunctions").exceptions.ExecutionDoesNotExist:
        return None


def is_running(execution_arn: str) -> bool:
    """Whether an execution is running; one that Step Functions does not know (any more) is not."""
    found = describe(execution_arn)
    return found is not None and found.status is RunStatus.RUNNING


def _described(execution_arn: str) -> Execution:
    with translated("states:DescribeExecution"):
        # Input and output may be encrypted with a key that this function may not use.
        found = client("stepfunctions").describe_execution(executionArn=execution_arn, includedData="METADATA_ONLY")
    redriven_at = found.get("redriveDate")
    if found["status"] in ("RUNNING", "PENDING_REDRIVE"):
        return Execution(status=RunStatus.RUNNING, redriven_at=redriven_at)
    return Execution(status=RunStatus(found["status"]), ended_at=found.get("stopDate"), redriven_at=redriven_at)


def history(execution_arn: str) -> ExecutionHistory:
    """Every event of an execution, with the outputs of its tasks; at most 25,000 (Step Functions quotas)."""
    pages = client("stepfunctions").get_paginator("get_execution_history")
    with translated("states:GetExecutionHistory"):
        events = [
            _without_bulk(event)
            for page in pages.paginate(executionArn=execution_arn, PaginationConfig={"PageSize": EVENTS_PER_PAGE})
            for event in page["events"]
        ]
    return ExecutionHistory(arn=execution_arn, events=tuple(events))


def last_event(execution_arn: str) -> ExecutionHistory:
    """The newest event of an execution: its id is the number of events. One call, however long the history is."""
    with translated("states:GetExecutionHistory"):
        found = client("stepfunctions").get_execution_history(
            executionArn=execution_arn, reverseOrder=True, maxResults=1, includeExecutionData=False
        )
    newest = max(found["events"], key=lambda event: int(event["id"]))
    return ExecutionHistory(arn=execution_arn, events=(newest,))


def _without_bulk(event: Mapping[str, Any]) -> Mapping[str, Any]:
    for details, bulk in BULKY.items():
        if details in event:
            return {**event, details: {name: value for name, value in event[details].items() if name != bulk}}
    return event
