"""Limits of a whole run: when one is reached, what the owner is told before, and how the run is stopped."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from lambdas.handlers import acquire_cache, ensure_capacity, notify, poll_job, stage_data, submit_job, tear_down
from lambdas.logic.jobs import job_of
from lambdas.logic.run_limits import first_bound, held, longest_job, require_within_limits, seconds_left, warning
from lambdas.logic.unreachable import unreachable_deadline
from tests.fakes.kubernetes_api import FakeKubernetesApi
from tests.fakes.runs import STARTED_AT, run_of, spec_with
from tests.unit.lambdas.conftest import CONTEXT, Aws
from tests.wording import wording
from trainflow.configuration.nodes import Nodegroup
from trainflow.errors import BudgetReached, DeadlineReached, InvalidRunSpec
from trainflow.nodes.instances import INSTANCE_TYPE_LABEL
from trainflow.nodes.prices import usd_per_hour
from trainflow.spec.limits import require_limits_ahead
from trainflow.spec.run_spec import parse_run_spec
from trainflow.workflow.run import MetricsCursor, Run, Spending, Stage
from trainflow.workflow.run_record import RunStatus
from trainflow.workflow.run_table import row_of

HOUR = timedelta(hours=1)
REGION = "us-west-2"
PRICE = 2 * (usd_per_hour("trn1.32xlarge", region=REGION) or 0.0)
"""USD an hour of the two nodes of the runs below."""


def limited(**limits: Any) -> Run:
    return run_of(spec_with(**{f"limits__{name}": value for name, value in limits.items()}))


def after(hours: float) -> datetime:
    return STARTED_AT + hours * HOUR


def test_without_a_limit_a_run_goes_on() -> None:
    run = run_of()
    assert first_bound(run, Spending(usd=1e6, usd_per_hour=1e6, since=STARTED_AT)) is None
    assert seconds_left(run, Spending(), now=after(9)) is None
    require_within_limits(run, now=after(8000))
    assert warning(run, Spending(), MetricsCursor(), now=after(8000)) is None


def test_a_run_ends_at_its_total_time_whatever_it_was_spent_on() -> None:
    run = limited(max_total_hours=10)
    require_within_limits(run, now=after(9.99))
    with pytest.raises(DeadlineReached, match=r"10\.00 .*step 7\b.*max_total_hours.* 10"):
        require_within_limits(run, now=after(10), progress=MetricsCursor(last_step=7))


def test_a_run_ends_at_its_deadline_in_any_zone() -> None:
    run = limited(deadline="2026-11-21T15:00:00+01:00")  # two hours after the start
    require_within_limits(run, now=after(1.99))
    with pytest.raises(DeadlineReached, match=r"limits\.deadline.*-21T15:00:00\+01:00"):
        require_within_limits(run, now=after(2))


def test_a_run_ends_when_its_nodes_have_cost_its_budget() -> None:
    run = limited(max_usd=10 * PRICE)
    before = Spending(usd=4 * PRICE, usd_per_hour=PRICE, since=after(5))
    require_within_limits(run, now=after(10.99), spending=before)
    with pytest.raises(BudgetReached, match=rf"{10 * PRICE:.2f} USD.*limits\.max_usd"):
        require_within_limits(run, now=after(11), spending=before)
    require_within_limits(run, now=after(500), spending=Spending())  # no node, no cost


def test_nodes_cost_from_the_poll_that_finds_them_ready_and_not_after_they_are_given_up() -> None:
    run = limited(max_usd=100)
    one = held(run, Spending(), nodes_ready=1, region=REGION, now=after(0))
    both = held(run, one, nodes_ready=9, region=REGION, now=after(1))
    none = held(run, both, nodes_ready=0, region=REGION, now=after(2))
    assert one.by(after(1)) == pytest.approx(PRICE / 2)
    assert none.by(after(50)) == pytest.approx(1.5 * PRICE), "no more nodes than the gang has"


def test_spares_cost_as_much_as_the_nodes_of_the_gang() -> None:
    run = run_of(spec_with(compute__spares=1))
    assert held(run, Spending(), nodes_ready=9, region=REGION, now=after(0)).usd_per_hour == pytest.approx(1.5 * PRICE)


def test_the_limit_that_comes_first_ends_the_run() -> None:
    run = limited(max_total_hours=10, max_usd=5 * PRICE, deadline="2026-11-21T20:00:00Z")
    spending = Spending(usd_per_hour=PRICE, since=after(1))
    found = first_bound(run, spending)
    assert found is not None
    assert (found.limit, found.at) == ("limits.max_usd", after(6))
    assert seconds_left(run, spending, now=after(5)) == 3600
    assert seconds_left(run, spending, now=after(7)) == 1, "never zero, which would be a poll without a pause"


def test_the_owner_is_warned_at_eighty_percent_with_a_forecast_by_the_rate_so_far() -> None:
    run = limited(max_usd=10 * PRICE)
    spending = Spending(usd_per_hour=PRICE, since=after(0))
    progress = MetricsCursor(first_step=1, first_step_at=after(0), last_step=41)
    assert warning(run, spending, progress, now=after(7.9)) is None
    told = warning(run, spending, progress, now=after(8))
    assert told is not None
    assert (told.limit, told.ends_at, told.usd) == ("limits.max_usd", after(10), round(8 * PRICE, 2))
    assert (told.last_step, told.total_steps) == (41, 100)
    # 40 steps in eight hours, 59 to go.
    assert told.trained_at == after(8 + 59 * 0.2)
    assert told.total_usd == pytest.approx((8 + 59 * 0.2) * PRICE, abs=0.01)


def test_without_steps_there_is_no_forecast() -> None:
    told = warning(limited(max_total_hours=10), Spending(), MetricsCursor(), now=after(9))
    assert told is not None
    assert (told.trained_at, told.total_usd) == (None, None)


def test_the_cluster_ends_a_job_that_the_workflow_cannot_end_soon_after_the_runs_limit() -> None:
    run = limited(max_total_hours=10)
    assert longest_job(run_of()) == timedelta(hours=72)
    assert longest_job(run) == 10 * HOUR + timedelta(minutes=15)
    assert longest_job(limited(max_total_hours=10, max_duration_hours=1)) == HOUR
    assert job_of(run, Stage.TRAINING, 1, artifacts_url="s3://a/").deadline_seconds == 10 * 3600 + 900


def test_what_is_left_of_the_run_bounds_a_job_that_is_submitted_late() -> None:
    spending = Spending(usd=4 * PRICE, usd_per_hour=PRICE, since=after(5))
    run = limited(max_total_hours=10, max_usd=6 * PRICE)
    assert longest_job(run, spending, submitted_at=after(6)) == HOUR + timedelta(minutes=15)
    assert longest_job(run, spending, submitted_at=after(8)) == timedelta(minutes=15), "and never less"
    assert longest_job(limited(max_total_hours=10), submitted_at=after(9)) == HOUR + timedelta(minutes=15)


def test_a_run_ends_at_its_limit_also_if_its_job_cannot_be_polled() -> None:
    spending = Spending(usd=4 * PRICE, usd_per_hour=PRICE, since=after(5))
    of_budget = unreachable_deadline(limited(max_usd=10 * PRICE), spending, submitted_at=after(6))
    assert of_budget.at == after(11)
    message = "The run reached limits.max_usd at 2026-11-21 23:00 UTC, when its job could not be polled."
    assert of_budget.limit == {"Error": "BudgetReached", "Cause": message}
    of_time = unreachable_deadline(limited(max_total_hours=10, max_usd=10 * PRICE), spending, submitted_at=after(6))
    assert of_time.at == after(10)
    assert of_time.limit is not None
    assert of_time.limit["Error"] == "DeadlineReached"
    of_job = unreachable_deadline(limited(max_total_hours=99, max_duration_hours=1), spending, submitted_at=after(6))
    assert (of_job.at, of_job.limit) == (after(7) + timedelta(minutes=30 + 15), None)


def test_the_warning_is_about_the_limit_that_ends_the_run() -> None:
    """Waiting counts for one limit and not for the other, so 80 % of the later one may be used up first."""
    run = limited(max_total_hours=100, max_usd=40 * PRICE)
    spending = Spending(usd_per_hour=PRICE, since=after(50))  # 80 hours are 80 % of the time; the budget ends at 90
    assert warning(run, spending, MetricsCursor(), now=after(81)) is None
    told = warning(run, spending, MetricsCursor(), now=after(82))
    assert told is not None
    assert (told.limit, told.ends_at) == ("limits.max_usd", after(90))


@pytest.mark.parametrize(
    ("limits", "sentence"),
    [
        (
            {"deadline": "2026-11-21T11:00:00Z"},
            wording(
                "run_limits.a_limit_with_which_a_run_cannot_start_is_refused_in_one_sentence.1",
                "limits.deadline",
                "2026",
                "00",
            ),
        ),
        (
            {"max_usd": 5},
            wording(
                "run_limits.a_limit_with_which_a_run_cannot_start_is_refused_in_one_sentence.2",
                "limits.max_usd",
                "trn1.2xlarge",
                "limits.max_total_hours",
                "prices.json",
            ),
        ),
    ],
)
def test_a_limit_with_which_a_run_cannot_start_is_refused_in_one_sentence(limits: Any, sentence: str) -> None:
    compute = {"instance_type": "trn1.2xlarge", "num_nodes": 1, "processes_per_node": 2}
    spec = parse_run_spec(spec_with(limits=limits, compute=compute))
    with pytest.raises(InvalidRunSpec) as refused:
        require_limits_ahead(spec, now=STARTED_AT, region="eu-west-9")
    assert str(refused.value) == sentence


@pytest.mark.parametrize("deadline", ["2026-11-21T11:00:00", "tomorrow"])
def test_a_deadline_without_a_zone_is_no_time(deadline: str) -> None:
    with pytest.raises(InvalidRunSpec, match=r"^limits\.deadline: "):
        parse_run_spec(spec_with(limits__deadline=deadline))


def event_of(run: Run, **fields: Any) -> dict[str, Any]:
    return {"run": run.model_dump(mode="json"), **fields}


def submission(run: Run) -> dict[str, Any]:
    submitted_at = datetime.now(UTC).isoformat()
    return event_of(run, stage="training", attempt=1, cache=None, submitted_at=submitted_at)


def begun(hours_ago: float, **limits: Any) -> Run:
    return limited(**limits).model_copy(update={"started_at": datetime.now(UTC) - hours_ago * HOUR})


@pytest.mark.usefixtures("aws", "cluster")
def test_a_run_that_waits_for_data_a_cache_or_nodes_reaches_its_limit_too() -> None:
    run = begun(2, max_total_hours=1)
    events = {
        stage_data: {},
        acquire_cache: {"image_digest": None, "lost_cache": None, "waiting_since": None},
        ensure_capacity: {"waiting_since": datetime.now(UTC).isoformat()},
    }
    for handler, fields in events.items():
        with pytest.raises(DeadlineReached):
            handler.lambda_handler(event_of(run, **fields), CONTEXT)


@pytest.mark.usefixtures("aws")
def test_a_poll_judges_the_limits_and_comes_back_no_later_than_they_are_reached(cluster: FakeKubernetesApi) -> None:
    run = begun(0.9, max_total_hours=0.904, poll_seconds=300)
    made = submit_job.lambda_handler(submission(run), CONTEXT)
    (found,) = (each for each in cluster.objects.values() if each["kind"] == "Job")
    found["status"] = {"active": 2, "ready": 2, "startTime": datetime.now(UTC).isoformat()}
    event = event_of(run, job=made["job"], progress={}, phase="running")
    answer = poll_job.lambda_handler(event, CONTEXT)
    assert answer["wait_seconds"] <= 15
    assert answer["warning"]["limit"] == "limits.max_total_hours"
    over = event_of(begun(2, max_total_hours=1), job=made["job"], progress={"last_step": 3}, phase="running")
    with pytest.raises(DeadlineReached, match="until step 3"):
        poll_job.lambda_handler(over, CONTEXT)
    found["status"] = {"succeeded": 2, "conditions": [{"type": "Complete", "status": "True"}]}
    assert poll_job.lambda_handler(over, CONTEXT)["phase"] == "succeeded", "what is done is done"


def test_the_owner_is_warned_once_with_what_to_do(aws: Aws) -> None:
    run = limited(max_usd=10)
    event = {
        "run_id": run.run_id,
        "execution_arn": run.execution_arn,
        "status": "RUNNING",
        "warning": {
            "limit": "limits.max_usd",
            "ends_at": "2026-11-21T22:00:00Z",
            "usd": 8.0,
            "last_step": 41,
            "total_steps": 100,
            "trained_at": "2026-11-22T07:48:00Z",
            "total_usd": 19.8,
        },
    }
    aws.table.begin(row_of(run))
    for _ in range(2):
        notify.lambda_handler(dict(event), CONTEXT)
    ((subject, text),) = aws.messages
    assert subject == f"Trainflow: {run.run_id} nears its limit"
    lines = text.splitlines()
    assert lines[1] == (
        wording("run_limits.the_owner_is_warned_once_with_what_to_do.1", "80", "limits.max_usd", "41", "100")
    )
    assert lines[2] == (wording("run_limits.the_owner_is_warned_once_with_what_to_do.2", "2026", "07", "48", "19.80"))
    assert f"trainflow resume {run.run_id} --set limits.max_usd=VALUE" in text
    row = aws.table.find(run.run_id)
    assert row is not None
    assert row.status is RunStatus.RUNNING, "a warning does not end the run"


def test_a_forecast_without_prices_names_no_cost(aws: Aws) -> None:
    run = limited(max_total_hours=10)
    warning = {"limit": "limits.max_total_hours", "ends_at": "2026-11-21T22:00:00Z", "usd": 0.0, "last_step": 41}
    warning |= {"total_steps": 100, "trained_at": "2026-11-21T21:48:00Z", "total_usd": None}
    aws.table.begin(row_of(run))
    event = {"run_id": run.run_id, "execution_arn": run.execution_arn, "status": "RUNNING", "warning": warning}
    notify.lambda_handler(event, CONTEXT)
    ((_, text),) = aws.messages
    assert text.splitlines()[2] == (wording("run_limits.a_forecast_without_prices_names_no_cost", "2026", "21", "48"))


def test_the_message_about_its_end_says_what_was_done_and_how_to_go_on(aws: Aws) -> None:
    run = run_of(spec_with(teardown__on_failure=False))
    aws.table.begin(row_of(run))
    event = {
        "run_id": run.run_id,
        "execution_arn": run.execution_arn,
        "status": "FAILED",
        "error": {"Error": "BudgetReached", "Cause": '{"errorType": "BudgetReached", "errorMessage": "Too dear."}'},
        "artifacts": {"url": "s3://a/", "checkpoint": "s3://a/step-7.pt"},
    }
    notify.lambda_handler(event, CONTEXT)
    ((subject, text),) = aws.messages
    assert subject == f"Trainflow: {run.run_id} BudgetReached"
    assert "What was done: the program was asked to save its state and end, its artifacts were published" in text
    assert f"What to do: Continue the run with a budget of its own: `trainflow resume {run.run_id}`." in text
    row = aws.table.find(run.run_id)
    assert row is not None
    assert not row.needs_nodes, "a limit is no failure to debug: nothing may go on costing money"


def test_nodes_are_released_when_the_programs_have_saved_their_state(aws: Aws, cluster: FakeKubernetesApi) -> None:
    run = run_of()
    labels = {"trainflow/run": run.run_id}
    submit_job.lambda_handler(submission(run), CONTEXT)
    pod = {"kind": "Pod", "metadata": {"name": "rank-0", "labels": labels}, "status": {"phase": "Running"}, "spec": {}}
    cluster.add("pods", pod)
    since = datetime.now(UTC)
    event = event_of(run, stopping_since=since.isoformat())
    answer = tear_down.lambda_handler(event, CONTEXT)
    assert (answer["finished"], answer["wait_seconds"] > 0, cluster.names("jobs")) == (False, True, [])
    late = event_of(run, stopping_since=(since - timedelta(minutes=6)).isoformat())
    assert tear_down.lambda_handler(late, CONTEXT)["finished"], "a pod on a lost node never ends"
    del cluster.objects["pods", "rank-0"]
    assert tear_down.lambda_handler(event, CONTEXT)["finished"]


def test_a_run_ends_before_the_capacity_block_of_its_nodes_does(aws: Aws, cluster: FakeKubernetesApi) -> None:
    now = datetime.now(UTC)
    run = run_of().model_copy(update={"started_at": now - HOUR})
    group = Nodegroup(
        instance_type="trn1.32xlarge",
        max_nodes=2,
        mode="capacity-block",
        reservation_id="cr-0123456789abcdef0",
        ends_at=now + timedelta(minutes=60),
    )
    aws.add_nodegroup("trn1.32xlarge", desired=2)
    labels = {INSTANCE_TYPE_LABEL: "trn1.32xlarge", **group.node_labels}
    cluster.add("nodes", {"kind": "Node", "metadata": {"name": "n1", "labels": labels}, "spec": {}, "status": {}})
    event = event_of(run, waiting_since=now.isoformat())
    spending = Spending.model_validate(ensure_capacity.lambda_handler(event, CONTEXT)["spending"])
    assert spending.nodes_end_at is not None
    assert abs(spending.nodes_end_at - now - timedelta(minutes=30)) < timedelta(seconds=2)
    require_within_limits(run, now=now + timedelta(minutes=19), spending=spending)
    with pytest.raises(DeadlineReached, match=r"nodes.*terminated"):
        require_within_limits(run, now=now + timedelta(minutes=20, seconds=1), spending=spending)
    told = warning(run, spending, MetricsCursor(), now=now + timedelta(minutes=10))
    assert told is not None
    assert told.limit is None


def test_only_a_capacity_block_has_an_end() -> None:
    with pytest.raises(ValueError, match=r"ends_at.*capacity block.*'on-demand'"):
        Nodegroup.model_validate({"instance_type": "trn1.2xlarge", "max_nodes": 1, "ends_at": "2027-01-31T11:30:00Z"})
