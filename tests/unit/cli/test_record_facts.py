"""What the record tells beside states and jobs: restarts, cost, inputs and checkpoints."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from recorded_runs import recorded

from trainflow.nodes.prices import find_price
from trainflow.observed.step import Step
from trainflow.protocol.checkpoint_line import CheckpointReport
from trainflow.record.build import build_record
from trainflow.record.history import ExecutionHistory
from trainflow.record.steps import KeptSteps, kept_steps_of
from trainflow.workflow.run_record import Inputs, NodePrice, Restart, RunRecord, RunStatus, SavedCheckpoint, StateCost

START = datetime(2026, 11, 21, 9, 0, tzinfo=UTC)
ARN = "arn:aws:states:us-east-1:123456789012:execution:trainflow-training:bert-3f2a9c1b4d5e"
SHA256 = "ab" * 32
COMMIT = "c" * 40
SPEC: dict[str, Any] = {
    "name": "bert",
    "workload": {"image": "repository/bert:1", "code": f"s3://bucket/code/{SHA256}.tar.gz", "code_commit": COMMIT},
    "compute": {"instance_type": "trn1.32xlarge", "num_nodes": 2, "backend": "job"},
    "dataset": {"url": "s3://data/wiki.tar"},
}

Task = tuple[str, float, Any]
"""A state, the minutes that it takes, and its answer."""


def history_of(*tasks: Task, spec: Any = SPEC) -> ExecutionHistory:
    """An execution that passes through these states one after another, and has not ended."""
    started = {"type": "ExecutionStarted", "executionStartedEventDetails": {"input": json.dumps(spec)}}
    events: list[dict[str, Any]] = [{**started, "timestamp": START, "id": 1, "previousEventId": 0}]
    now = START
    for state, minutes, answer in tasks:
        output = json.dumps(answer if "Output" in answer else {"Payload": answer})
        entered = now
        now += timedelta(minutes=minutes)
        for at, kind, details in (
            (entered, "TaskStateEntered", {"stateEnteredEventDetails": {"name": state}}),
            (now, "TaskSucceeded", {"taskSucceededEventDetails": {"output": output}}),
            (now, "TaskStateExited", {"stateExitedEventDetails": {"name": state}}),
        ):
            number = len(events) + 1
            events.append({"timestamp": at, "type": kind, "id": number, "previousEventId": number - 1, **details})
    return ExecutionHistory(arn=ARN, events=tuple(events))


def record_of(history: ExecutionHistory, *, kept: KeptSteps | None = None, minutes: float = 600) -> RunRecord:
    return build_record(
        run_id="bert-3f2a9c1b4d5e",
        history=history,
        children=[],
        kept=kept or KeptSteps(),
        now=START + timedelta(minutes=minutes),
        status=RunStatus.SUCCEEDED,
    )


def nodes(ready: int, name: str = "trn1.32xlarge") -> dict[str, Any]:
    return {"ready": ready == 2, "nodes_ready": ready, "nodes_wanted": 2, "instance_type": name, "given_up": []}


def failed(error: str, *, step: int | None) -> dict[str, Any]:
    cause = json.dumps({"errorMessage": f"{error} of a worker.", "errorType": error})
    return {"Output": {"outcome": "failed", "error": {"Error": error, "Cause": cause}, "progress": {"last_step": step}}}


DONE = {"Output": {"outcome": "succeeded", "error": None, "progress": {"last_step": 90}}}


def test_each_restart_has_its_reason_and_how_far_the_job_had_come() -> None:
    history = history_of(
        ("WatchPrecompile", 10, failed("GangIncomplete", step=None)),
        ("DeleteJob", 1, {}),
        ("WatchPrecompile", 10, DONE),
        ("WatchTraining", 30, failed("WorkerFailed", step=40)),
        ("DeleteJob", 1, {}),
        ("WatchTraining", 30, failed("NodeLost", step=60)),
    )
    assert record_of(history).restarts == [
        Restart(
            stage="precompile",
            attempt=1,
            at=START + timedelta(minutes=10),
            error="GangIncomplete",
            message="GangIncomplete of a worker.",
        ),
        Restart(
            stage="training",
            attempt=2,
            at=START + timedelta(minutes=51),
            error="WorkerFailed",
            message="WorkerFailed of a worker.",
            last_step=40,
        ),
    ]


def test_the_avoided_nodes_are_those_of_the_newest_restart_or_request_for_nodes() -> None:
    tasks: list[Task] = [
        ("EnsureCapacity", 1, {**nodes(2), "avoided_nodes": []}),
        ("DeleteJob", 1, {"run": {"failed_nodes": {"avoided": ["a", "b"]}}}),
        ("EnsureCapacity", 1, {**nodes(1), "avoided_nodes": ["b"]}),
        ("DeleteJob", 1, {"run": {"failed_nodes": {"avoided": ["b", "c"]}}}),
        ("EnsureCapacity", 1, nodes(2)),
    ]
    avoided = [record_of(history_of(*tasks[:number])).avoided_nodes for number in range(len(tasks) + 1)]
    assert avoided == [[], [], ["a", "b"], ["b"], ["b", "c"], []], "functions of an early version tell none"


def test_nodes_cost_from_the_poll_that_finds_them_ready_until_they_are_released() -> None:
    price = find_price("trn1.32xlarge", region="us-east-1")
    assert price is not None
    history = history_of(
        ("StageData", 30, {"finished": True}),
        ("EnsureCapacity", 1, nodes(0)),
        ("EnsureCapacity", 1, nodes(1)),
        ("EnsureCapacity", 6, nodes(2)),
        ("WatchTraining", 60, DONE),
        ("TearDown", 3, {}),
        ("Notify", 5, {}),
    )
    cost = record_of(history).cost
    assert cost is not None
    assert cost.states == [
        StateCost(state="EnsureCapacity", instance_type="trn1.32xlarge", node_hours=0.1, usd=round(0.1 * price.usd, 4)),
        StateCost(state="WatchTraining", instance_type="trn1.32xlarge", node_hours=2.0, usd=2 * price.usd),
        StateCost(state="TearDown", instance_type="trn1.32xlarge", node_hours=0.1, usd=round(0.1 * price.usd, 4)),
    ]
    assert (cost.region, cost.node_hours) == ("us-east-1", 2.2)
    assert cost.usd == pytest.approx(2.2 * price.usd, abs=0.001)
    assert cost.prices == [
        NodePrice(instance_type="trn1.32xlarge", usd_per_hour=price.usd, as_of=price.as_of, source=price.source)
    ]


def test_nodes_that_stay_cost_until_the_run_ends() -> None:
    history = history_of(("EnsureCapacity", 0, nodes(2)), ("WatchTraining", 60, DONE))
    cost = record_of(history, minutes=60).cost
    assert cost is not None
    assert cost.node_hours == 2.0


def test_a_type_without_a_price_has_node_hours_and_no_cost() -> None:
    history = history_of(
        ("EnsureCapacity", 0, nodes(1, "trn9.huge")),
        ("ReleaseNodes", 6, {}),
        ("EnsureCapacity", 0, nodes(2)),
        ("WatchTraining", 60, DONE),
    )
    cost = record_of(history, minutes=66).cost
    assert cost is not None
    assert cost.usd is None
    assert [(state.state, state.instance_type, state.usd is None) for state in cost.states] == [
        ("ReleaseNodes", "trn9.huge", True),
        ("WatchTraining", "trn1.32xlarge", False),
    ]


def test_slurms_nodes_count_while_a_job_is_watched() -> None:
    spec = {**SPEC, "compute": {**SPEC["compute"], "backend": "slurm"}}
    history = history_of(
        ("EnsureCapacity", 0, nodes(2)), ("SubmitTraining", 6, {}), ("WatchTraining", 60, DONE), spec=spec
    )
    cost = record_of(history, minutes=100).cost
    assert cost is not None
    assert [state.state for state in cost.states] == ["WatchTraining"]


@pytest.mark.parametrize("name", ["rejected", "succeeded"])
def test_a_run_whose_history_tells_of_no_nodes_has_no_cost(name: str) -> None:
    assert recorded(name).record().cost is None


def test_the_inputs_are_named_by_their_digests() -> None:
    staged = {"etag": "e-1", "files": 3, "bytes": 1000, "sha256": SHA256, "manifest": None, "skipped": False}
    history = history_of(
        ("ValidateRun", 1, {"run": {"tools_image": "repository/trainflow:tools-1"}}),
        ("Preflight", 1, {"finished": True, "image_digest": "sha256:feed", "versions": {"torch": "2.9.0"}}),
        ("StageData", 1, {"finished": True, "dataset": staged}),
    )
    assert record_of(history).inputs == Inputs(
        image="repository/bert:1",
        image_digest="sha256:feed",
        code_url=f"s3://bucket/code/{SHA256}.tar.gz",
        code_sha256=SHA256,
        git_commit=COMMIT,
        packages={"torch": "2.9.0"},
        tools_image="repository/trainflow:tools-1",
        dataset_url="s3://data/wiki.tar",
        dataset_etag="e-1",
        dataset_sha256=SHA256,
        dataset_bytes=1000,
        dataset_files=3,
    )


@pytest.mark.parametrize("spec", [None, "x", [], {"workload": 7, "dataset": "s3://x", "compute": {"backend": []}}])
def test_a_spec_that_is_none_has_no_inputs(spec: Any) -> None:
    assert record_of(history_of(spec=spec)).inputs == Inputs()


@pytest.mark.parametrize(
    ("torn_down", "published_steps", "steps"),
    [({"trained_steps": 40}, None, 40), ({}, 40, 40), ({"trained_steps": None}, None, 35), ("unreadable", None, 35)],
    ids=["released before publishing", "nothing was torn down", "the program says none", "no answer"],
)
def test_the_steps_of_a_training_are_counted_by_its_program_or_else_the_last_that_it_logged(
    torn_down: Any, published_steps: int | None, steps: int
) -> None:
    answers = (("TearDown", 1, torn_down), ("PublishArtifacts", 1, {"trained_steps": published_steps}))
    history = history_of(("SubmitTraining", 0, {}), *answers)
    every_fifth = [Step(START, None, step, 2.0, None, None) for step in (30, 35)]
    training = record_of(history, kept=kept_steps_of(every_fifth)).training
    assert training is not None
    assert training.steps == steps


def saved(step: int, *, minutes: float, num_bytes: int | None = None) -> CheckpointReport:
    return CheckpointReport(step=step, num_bytes=num_bytes, saved_at=START + timedelta(minutes=minutes))


def published(**fields: Any) -> Sequence[Task]:
    return (("PublishArtifacts", 1, {"finished": True, "artifacts": {"checkpoint": "s3://b/step-20.pt", **fields}}),)


def test_the_newest_checkpoints_are_in_the_order_of_writing_and_the_last_has_its_url() -> None:
    reported = [saved(10, minutes=1), saved(20, minutes=2), saved(10, minutes=3), saved(20, minutes=4, num_bytes=7)]
    record = record_of(history_of(*published()), kept=kept_steps_of([], reported))
    assert record.checkpoints == [
        SavedCheckpoint(step=10, saved_at=START + timedelta(minutes=3)),
        SavedCheckpoint(step=20, saved_at=START + timedelta(minutes=4), size_bytes=7, url="s3://b/step-20.pt"),
    ]
    many = kept_steps_of([], [saved(step, minutes=step) for step in range(100)])
    assert [checkpoint.step for checkpoint in record_of(history_of(), kept=many).checkpoints] == list(range(80, 100))


def test_of_a_program_that_reports_none_the_published_checkpoint_is_known() -> None:
    fields = {"checkpoint_bytes": 9, "checkpoint_saved_at": START.timestamp()}
    assert record_of(history_of(*published(**fields))).checkpoints == [
        SavedCheckpoint(saved_at=START, size_bytes=9, url="s3://b/step-20.pt")
    ]


def test_steps_without_a_finite_loss_are_counted() -> None:
    losses = [2.0, 1.9, float("nan"), float("inf")]
    lines = [Step(START, None, step, loss, None, None) for step, loss in enumerate(losses, start=1)]
    record = record_of(history_of(("SubmitTraining", 1, {})), kept=kept_steps_of(lines))
    assert record.training is not None
    assert (record.training.non_finite_steps, record.training.first_non_finite_step) == (2, 3)
    assert record.metrics_published is not None
    assert record.metrics_published.non_finite == 2


def test_records_of_earlier_versions_are_read() -> None:
    old = recorded("succeeded").record().model_dump(mode="json")
    for name in ("restarts", "checkpoints", "inputs", "cost"):
        del old[name]
    for name in ("non_finite_steps", "first_non_finite_step"):
        del old["training"][name]
    del old["metrics_published"]["non_finite"]
    assert RunRecord.model_validate(old).restarts == []
