"""What runs hold without running: which of it is deleted, what it costs, and what is never touched."""

from __future__ import annotations

from datetime import timedelta

import pytest

from lambdas.logic.leftovers import GRACE, IN_FLIGHT, Owner, leftover_state, leftovers
from tests.fakes.runs import STARTED_AT, run_of, spec_with
from trainflow.deployment.functions import TASKS
from trainflow.workflow.leftovers import CLAIM, Execution, Held, HeldObject, LeftoverState
from trainflow.workflow.run_record import RunStatus
from trainflow.workflow.run_table import RunRow, row_of

NOW = STARTED_AT + timedelta(days=1)
TYPE = "trn1.32xlarge"


def row(*, on_success: bool = True, on_failure: bool = True, **changes: object) -> RunRow:
    spec = spec_with(teardown__on_success=on_success, teardown__on_failure=on_failure)
    return row_of(run_of(spec)).model_copy(update=changes)


def ended(status: RunStatus, *, ago: timedelta = GRACE, **fields: bool) -> Owner:
    return Owner(row=row(**fields), execution=Execution(status=status, ended_at=NOW - ago))


@pytest.mark.parametrize(
    ("owner", "state"),
    [
        (ended(RunStatus.SUCCEEDED), LeftoverState.LEFT),
        (ended(RunStatus.SUCCEEDED, on_failure=False), LeftoverState.LEFT),
        (ended(RunStatus.SUCCEEDED, on_success=False), LeftoverState.KEPT),
        (ended(RunStatus.FAILED), LeftoverState.LEFT),
        (ended(RunStatus.FAILED, on_success=False), LeftoverState.LEFT),
        (ended(RunStatus.FAILED, on_failure=False), LeftoverState.KEPT),
        (ended(RunStatus.TIMED_OUT), LeftoverState.LEFT),
        (ended(RunStatus.TIMED_OUT, on_failure=False), LeftoverState.KEPT),
        (ended(RunStatus.ABORTED), LeftoverState.LEFT),
        (ended(RunStatus.ABORTED, on_success=False, on_failure=False), LeftoverState.LEFT),
    ],
)
def test_what_an_ended_run_holds_is_left_unless_its_spec_keeps_it(owner: Owner, state: LeftoverState) -> None:
    assert leftover_state(owner, now=NOW) is state


def test_a_clean_up_under_way_has_time() -> None:
    almost = GRACE - timedelta(seconds=1)
    assert leftover_state(ended(RunStatus.ABORTED, ago=almost), now=NOW) is LeftoverState.ENDING
    assert leftover_state(ended(RunStatus.ABORTED), now=NOW) is LeftoverState.LEFT


def cleaned_up(status: RunStatus, *, ago: timedelta, after: timedelta = timedelta(seconds=2)) -> Owner:
    """A run whose row was written some time after the end of its execution."""
    ended_at = NOW - ago
    execution = Execution(status=RunStatus.ABORTED, ended_at=ended_at)
    return Owner(row=row(status=status, ended_at=ended_at + after), execution=execution)


def test_after_a_clean_up_only_functions_in_flight_have_time() -> None:
    almost = IN_FLIGHT - timedelta(seconds=1)
    assert leftover_state(cleaned_up(RunStatus.ABORTED, ago=almost), now=NOW) is LeftoverState.ENDING
    assert leftover_state(cleaned_up(RunStatus.ABORTED, ago=IN_FLIGHT), now=NOW) is LeftoverState.LEFT


@pytest.mark.parametrize(
    "owner",
    [
        cleaned_up(RunStatus.ABORTED, ago=IN_FLIGHT, after=timedelta(seconds=-2)),
        cleaned_up(RunStatus.FAILED, ago=IN_FLIGHT),
        cleaned_up(RunStatus.RUNNING, ago=IN_FLIGHT),
    ],
    ids=["the row is of an earlier end", "the row is of another end", "the row was reopened"],
)
def test_a_row_that_is_not_about_this_end_proves_no_clean_up(owner: Owner) -> None:
    assert leftover_state(owner, now=NOW) is LeftoverState.ENDING


def test_every_function_of_a_task_has_acted_when_its_time_is_over() -> None:
    assert all(timedelta(seconds=function.timeout_seconds) < IN_FLIGHT for function in TASKS)
    assert IN_FLIGHT < GRACE


@pytest.mark.parametrize("in_table", RunStatus)
def test_a_running_execution_is_never_touched_whatever_the_table_says_of_it(in_table: RunStatus) -> None:
    redriven = Owner(row=row(status=in_table, ended_at=STARTED_AT), execution=Execution(status=RunStatus.RUNNING))
    assert leftover_state(redriven, now=NOW) is None


@pytest.mark.parametrize("in_table", RunStatus)
def test_nothing_is_deleted_while_step_functions_cannot_be_asked(in_table: RunStatus) -> None:
    assert leftover_state(Owner(row=row(status=in_table), seen=False), now=NOW) is LeftoverState.UNSEEN


def test_a_run_that_the_table_does_not_have_is_never_touched() -> None:
    assert leftover_state(Owner(row=None), now=NOW) is LeftoverState.UNKNOWN


@pytest.mark.parametrize(
    ("owner", "state"),
    [
        (Owner(row=row()), LeftoverState.LEFT),
        (Owner(row=row(status=RunStatus.FAILED, ended_at=STARTED_AT)), LeftoverState.LEFT),
        (Owner(row=row(on_failure=False)), LeftoverState.KEPT),
        (Owner(row=row(status=RunStatus.ABORTED, on_failure=False)), LeftoverState.LEFT),
    ],
)
def test_an_execution_that_step_functions_has_forgotten_has_ended(owner: Owner, state: LeftoverState) -> None:
    assert leftover_state(owner, now=NOW) is state


def test_an_execution_that_has_just_begun_may_not_be_described_yet() -> None:
    assert leftover_state(Owner(row=row()), now=STARTED_AT + timedelta(seconds=5)) is LeftoverState.ENDING


def held(kind: str, name: str, **facts: object) -> Held:
    return Held(thing=HeldObject(kind=kind, name=name), run_id="bert", **facts)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("things", "num_nodes", "usd"),
    [
        ([held(CLAIM, "bert-nodes", instance_type=TYPE, num_nodes=3)], 3, 64.5),
        # The claim's nodes are those that the job's pods are on: they cost once.
        (
            [
                held(CLAIM, "bert-nodes", instance_type=TYPE, num_nodes=3),
                held("Job", "bert-training-1", nodes=frozenset({"a", "b", "c"})),
            ],
            3,
            64.5,
        ),
        (
            [held("Job", "bert-training-1", nodes=frozenset({"a"})), held("Pod", "x", nodes=frozenset({"a", "b"}))],
            2,
            43.0,
        ),
        ([held("Slurm job", "bert-training-1", num_nodes=None)], 2, 43.0),
        ([held("Job", "bert-stage-1"), held("Service", "bert-stage-1"), held("lease", "k")], 0, 0.0),
    ],
    ids=["claim", "claim and job", "pods", "Slurm", "small things"],
)
def test_leftovers_cost_the_nodes_that_stay_because_of_them(things: list[Held], num_nodes: int, usd: float) -> None:
    owner = Owner(
        row=row(instance_type=TYPE, num_nodes=2), execution=Execution(status=RunStatus.ABORTED, ended_at=STARTED_AT)
    )
    (found,) = leftovers(things, {"bert": owner}, now=NOW, region="us-west-2")
    assert (found.num_nodes, found.usd_per_hour) == (num_nodes, usd)
    assert found.instance_type == (TYPE if num_nodes else None)
    assert found.objects == tuple(each.thing for each in things)


def test_a_price_that_is_not_known_is_not_zero() -> None:
    things = [held(CLAIM, "bert-nodes", instance_type="trn2.48xlarge", num_nodes=1)]
    owner = Owner(row=row(), execution=Execution(status=RunStatus.ABORTED, ended_at=STARTED_AT))
    (found,) = leftovers(things, {"bert": owner}, now=NOW, region="us-west-2")
    assert found.usd_per_hour is None
    (small,) = leftovers([held("Service", "bert")], {"bert": owner}, now=NOW, region="nowhere")
    assert small.usd_per_hour == 0.0, "of no nodes, the price need not be known"


def test_running_runs_are_not_in_the_list() -> None:
    running = Owner(row=row(), execution=Execution(status=RunStatus.RUNNING))
    assert leftovers([held("Job", "bert-training-1")], {"bert": running}, now=NOW, region="us-west-2") == []
