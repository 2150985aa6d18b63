"""The executions of a run: its own and the watch windows that it starts, read as they grow."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from botocore.exceptions import BotoCoreError, ClientError

from trainflow.client.refusals import is_refusal, sentence_of
from trainflow.record.history import ExecutionHistory, child_arns
from trainflow.workflow.run_record import RunStatus

if TYPE_CHECKING:
    from mypy_boto3_stepfunctions.client import SFNClient

EVENTS_PER_PAGE = 1000
"""Most events that `GetExecutionHistory` returns at once."""

NEW_EVENTS_PER_PAGE = 50
"""Events that a further poll asks for at once: a page is answered whole, however many of its events are known."""


class HistoryReader:
    """Reads the history of one execution; each poll reads only new events."""

    def __init__(self, stepfunctions: SFNClient, arn: str, *, with_data: bool) -> None:
        """Prepares the reader.

        Args:
            stepfunctions: boto3's client.
            arn: The execution.
            with_data: Whether to read inputs and outputs; those of a watch window's thousands of polls are too large.
        """
        self._stepfunctions = stepfunctions
        self._with_data = with_data
        self.history = ExecutionHistory(arn=arn, events=())

    def read(self) -> bool:
        """Reads what is new; whether there was anything.

        Raises:
            BotoCoreError, ClientError: If Step Functions does not answer, or not well.
        """
        if self.history.status is not RunStatus.RUNNING:
            return False
        fresh = self._events_after(self.history.num_events)
        if fresh:
            events = (*self.history.events, *(fresh[event_id] for event_id in sorted(fresh)))
            self.history = ExecutionHistory(arn=self.history.arn, events=events)
        return bool(fresh)

    def _events_after(self, last_id: int) -> dict[int, Any]:
        """Events by id, read from the newest backwards until a known one is met."""
        fresh: dict[int, Any] = {}
        pages = self._stepfunctions.get_paginator("get_execution_history").paginate(
            executionArn=self.history.arn,
            reverseOrder=True,
            includeExecutionData=self._with_data,
            PaginationConfig={"PageSize": NEW_EVENTS_PER_PAGE if last_id else EVENTS_PER_PAGE},
        )
        for page in pages:
            events = page["events"]
            fresh.update((event["id"], event) for event in events if event["id"] > last_id)
            if any(event["id"] <= last_id for event in events):
                break
        return fresh


class ExecutionTree:
    """A run's execution and its children."""

    def __init__(self, stepfunctions: SFNClient, arn: str) -> None:
        """Prepares the readers; makes no request yet."""
        self._stepfunctions = stepfunctions
        self._parent = HistoryReader(stepfunctions, arn, with_data=True)
        self._children: dict[str, HistoryReader] = {}
        self.trouble: str | None = None
        """Reason why Step Functions cannot be asked at the moment; for a missing permission, the sentence that names
        it."""
        self.is_refused = False
        """Whether the caller may not read: no later poll will be answered either."""

    @property
    def history(self) -> ExecutionHistory:
        """The run's own execution."""
        return self._parent.history

    @property
    def children(self) -> tuple[ExecutionHistory, ...]:
        """The watch windows, in their order."""
        return tuple(reader.history for reader in list(self._children.values()))

    def read(self, *, with_children: bool = True) -> bool:
        """Reads what is new of all of them; whether there was anything. Trouble is noted, not raised.

        Args:
            with_children: Whether to read the watch windows, too, whose polls are many events.
        """
        grew = False
        try:
            grew |= self._parent.read()
            for arn in child_arns(self.history) if grew and with_children else ():
                self._children.setdefault(arn, HistoryReader(self._stepfunctions, arn, with_data=False))
            for reader in self._children.values():
                grew |= reader.read()
            self.trouble, self.is_refused = None, False
        except (BotoCoreError, ClientError) as error:
            self.is_refused = is_refusal(error)
            self.trouble = f"{'' if self.is_refused else 'Step Functions cannot be asked: '}{sentence_of(error)}"
        return grew
