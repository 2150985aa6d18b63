from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from botocore.exceptions import ClientError
from recorded_runs import RecordedRun, recorded

from trainflow.client.observe.executions import ExecutionTree, HistoryReader
from trainflow.workflow.run_record import RunStatus


class FakeStepFunctions:
    """Serves the recorded events up to a number, in pages and backwards as Step Functions does."""

    def __init__(self, run: RecordedRun, *, page_size: int = 7, obeys_order: bool = True) -> None:
        self._events = {one.arn: one.events for one in (run.history, *run.children)}
        self.visible = dict.fromkeys(self._events, 0)
        self._page_size = page_size
        self._obeys_order = obeys_order
        self.pages_served = 0
        self.asked: list[tuple[str, bool]] = []
        self.refusal: ClientError | None = None

    def get_paginator(self, operation: str) -> FakeStepFunctions:
        assert operation == "get_execution_history"
        return self

    def paginate(
        self, *, executionArn: str, reverseOrder: bool, includeExecutionData: bool, PaginationConfig: Any
    ) -> Iterator[dict[str, Any]]:
        if self.refusal is not None:
            raise self.refusal
        assert reverseOrder
        self.asked.append((executionArn, includeExecutionData))
        events = list(self._events[executionArn][: self.visible[executionArn]])
        if self._obeys_order:
            events.reverse()
        size = self._page_size if self._obeys_order else len(events) or 1
        for start in range(0, len(events), size):
            self.pages_served += 1
            yield {"events": events[start : start + size]}


def reader(client: FakeStepFunctions, arn: str) -> HistoryReader:
    return HistoryReader(client, arn, with_data=True)  # type: ignore[arg-type]


def test_a_growing_history_is_read_completely_and_in_order() -> None:
    run = recorded("succeeded")
    arn = run.history.arn
    for obeys_order in (True, False):
        client = FakeStepFunctions(run, obeys_order=obeys_order)
        history = reader(client, arn)
        for visible in (0, 1, 2, 30, 31, 90, len(run.history.events)):
            client.visible[arn] = visible
            history.read()
            assert history.history.events == run.history.events[:visible]


def test_only_pages_with_news_are_read() -> None:
    run = recorded("succeeded")
    arn = run.history.arn
    client = FakeStepFunctions(run)
    history = reader(client, arn)
    client.visible[arn] = 100
    history.read()
    client.pages_served = 0

    client.visible[arn] = 103
    history.read()

    assert client.pages_served == 1


def test_an_ended_execution_is_not_read_again() -> None:
    run = recorded("succeeded")
    client = FakeStepFunctions(run)
    client.visible[run.history.arn] = len(run.history.events)
    history = reader(client, run.history.arn)
    assert history.read()
    client.asked.clear()

    assert not history.read()
    assert client.asked == []
    assert history.history.status is RunStatus.SUCCEEDED


def test_children_are_found_and_read_without_their_data() -> None:
    run = recorded("succeeded")
    client = FakeStepFunctions(run)
    client.visible = dict.fromkeys(client.visible, 10**6)
    tree = ExecutionTree(client, run.history.arn)  # type: ignore[arg-type]

    assert tree.read()

    assert tree.history == run.history
    assert tree.children == run.children
    assert dict(client.asked) == {run.history.arn: True} | {child.arn: False for child in run.children}
    assert not tree.read()


def test_a_fault_of_step_functions_is_recorded_until_it_ends() -> None:
    run = recorded("succeeded")
    client = FakeStepFunctions(run)
    client.visible[run.history.arn] = 5
    tree = ExecutionTree(client, run.history.arn)  # type: ignore[arg-type]
    client.refusal = ClientError({"Error": {"Code": "ThrottlingException", "Message": "slow"}}, "GetExecutionHistory")

    assert not tree.read()
    assert tree.trouble is not None
    assert tree.trouble.startswith("Step Functions cannot be asked:")

    client.refusal = None
    assert tree.read()
    assert tree.trouble is None


def test_a_missing_permission_is_the_sentence_that_names_it() -> None:
    run = recorded("succeeded")
    client = FakeStepFunctions(run)
    client.visible[run.history.arn] = 5
    tree = ExecutionTree(client, run.history.arn)  # type: ignore[arg-type]
    said = {"Code": "AccessDeniedException", "Message": "User x is not authorized"}
    client.refusal = ClientError({"Error": said}, "GetExecutionHistory")

    assert not tree.read()
    sentence = "These credentials may not call states:GetExecutionHistory: User x is not authorized."
    assert (tree.trouble, tree.is_refused) == (sentence, True)

    client.refusal = None
    assert tree.read()
    assert (tree.trouble, tree.is_refused) == (None, False)
