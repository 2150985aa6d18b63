"""Every moment of a run has words of its own: hung, waiting, starting and recovered runs can be told apart."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.wording import wording
from trainflow.observed.node_wait import NodeWait, read_node_wait
from trainflow.observed.pod import Pod
from trainflow.observed.run_state import RunState
from trainflow.observed.step import Step
from trainflow.observed.visit import Visit
from trainflow.page.figures import figures
from trainflow.protocol.checkpoint_line import CheckpointReport
from trainflow.record.situation import STATES, Kind, Situation, Tone, last_step_age, situation, usual_interval
from trainflow.state_machines import definition
from trainflow.workflow.blockage import Blockage
from trainflow.workflow.run_error import RunError
from trainflow.workflow.run_record import Restart
from trainflow.workflow.run_status import RunStatus

NOW = datetime(2026, 11, 27, 12, 0, tzinfo=UTC)


def steps(*ages: float, first: int = 1) -> tuple[Step, ...]:
    """Steps that were logged so many seconds ago."""
    return tuple(
        Step(
            logged_at=NOW - timedelta(seconds=age),
            epoch=None,
            step=first + at,
            loss=0.5,
            learning_rate=None,
            throughput=9.0,
        )
        for at, age in enumerate(ages)
    )


def pod(index: int = 0, phase: str = "Running", **fields: Any) -> Pod:
    started = {"started_at": NOW - timedelta(seconds=90)} if phase != "Pending" else {}
    return Pod(name=f"bert-training-{index}", stage="training", index=index, phase=phase, **{**started, **fields})


def run(state: str | None = "WatchTraining", status: RunStatus = RunStatus.RUNNING, **fields: Any) -> RunState:
    return RunState(run_id="bert-1", status=status, observed_at=NOW, state=state, **fields)


def training(*ages: float, **fields: Any) -> Situation:
    return situation(run(steps=steps(*ages), pods=(pod(),), **fields))


def restart(seconds_ago: float = 60, **fields: Any) -> Restart:
    given = {"stage": "training", "attempt": 1, "error": "NodeLost", "message": "", "last_step": 40, **fields}
    return Restart(at=NOW - timedelta(seconds=seconds_ago), **given)


def wait(ready: int = 0, **fields: Any) -> NodeWait:
    return NodeWait(instance_type="trn1.32xlarge", nodes_ready=ready, nodes_wanted=4, **fields)


FAILED = RunError(name="OutOfMemory", message="A pod needed more memory.", what_to_do="Ask for more.")


def test_every_state_of_the_workflow_has_one_meaning() -> None:
    listed = [state for states in STATES.values() for state in states]
    assert sorted(listed) == sorted(definition("training")["States"])


MOMENTS = {
    "its twin starts": (run(None, RunStatus.STARTING), Kind.STARTING, Tone.ACTIVE),
    "before the first state": (run(None), Kind.STARTING, Tone.ACTIVE),
    **{f"in {state}": (run(state), Kind.STARTING, Tone.ACTIVE) for state in sorted(STATES[Kind.STARTING])},
    **{f"in {state}": (run(state), Kind.STAGING, Tone.ACTIVE) for state in sorted(STATES[Kind.STAGING])},
    **{
        f"in {state}": (run(state), Kind.WAITING_FOR_NODES, Tone.WAITING)
        for state in sorted(STATES[Kind.WAITING_FOR_NODES])
    },
    **{f"in {state}": (run(state), Kind.COMPILING, Tone.ACTIVE) for state in sorted(STATES[Kind.COMPILING])},
    **{f"in {state}": (run(state), Kind.RECOVERING, Tone.WARNING) for state in sorted(STATES[Kind.RECOVERING])},
    **{f"in {state}": (run(state), Kind.STOPPING, Tone.ACTIVE) for state in sorted(STATES[Kind.STOPPING])},
    **{f"in {state}": (run(state), Kind.FINISHING, Tone.ACTIVE) for state in sorted(STATES[Kind.FINISHING])},
    **{f"in {state}": (run(state), Kind.FAILING, Tone.BAD) for state in sorted(STATES[Kind.FAILING])},
    "nodes start": (run("WaitForNodes", node_wait=wait(2)), Kind.WAITING_FOR_NODES, Tone.WAITING),
    "AWS has none": (run("WaitForNodes", node_wait=wait(shortage="no capacity")), Kind.WAITING_FOR_NODES, Tone.WAITING),
    "others hold them": (
        run("WaitForNodes", node_wait=wait(blockage=Blockage(maximum=4, held={"a": 2}, num_held=2))),
        Kind.QUEUED,
        Tone.WAITING,
    ),
    "the job is submitted": (run("SubmitTraining"), Kind.STARTING, Tone.ACTIVE),
    "pods wait": (run(pods=(pod(), pod(1, "Pending", waiting_reason="ErrImagePull"))), Kind.STARTING, Tone.ACTIVE),
    "no step yet": (run(pods=(pod(),)), Kind.TRAINING, Tone.ACTIVE),
    "it trains": (run(pods=(pod(),), steps=steps(3, 2, 1)), Kind.TRAINING, Tone.ACTIVE),
    "it hangs": (run(pods=(pod(),), steps=steps(602, 601, 600)), Kind.NO_STEP, Tone.WARNING),
    "slow steps": (run(pods=(pod(),), steps=steps(1500, 900, 300)), Kind.TRAINING, Tone.ACTIVE),
    "slow steps stop": (run(pods=(pod(),), steps=steps(4900, 4300, 3700)), Kind.NO_STEP, Tone.WARNING),
    "after a restart, nodes": (run("WaitForNodes", restarts=(restart(),)), Kind.RECOVERING, Tone.WARNING),
    "after a restart, pods": (run(restarts=(restart(),), steps=steps(90)), Kind.RECOVERING, Tone.WARNING),
    "after a restart, steps": (
        run(restarts=(restart(),), pods=(pod(),), steps=steps(3, 2, 1)),
        Kind.TRAINING,
        Tone.ACTIVE,
    ),
    "succeeded": (run(None, RunStatus.SUCCEEDED), Kind.SUCCEEDED, Tone.GOOD),
    "succeeded, restarted": (run(None, RunStatus.SUCCEEDED, restarts=(restart(),)), Kind.SUCCEEDED, Tone.GOOD),
    "succeeded, warned": (
        run(None, RunStatus.SUCCEEDED, warnings=("a file was lost",)),
        Kind.SUCCEEDED_WITH_WARNINGS,
        Tone.WARNING,
    ),
    "failed": (run(None, RunStatus.FAILED, error=FAILED), Kind.FAILED, Tone.BAD),
    "failed, unknown": (run(None, RunStatus.FAILED), Kind.FAILED, Tone.BAD),
    "stopped": (run(None, RunStatus.ABORTED), Kind.STOPPED, Tone.NEUTRAL),
    "timed out": (run(None, RunStatus.TIMED_OUT), Kind.TIMED_OUT, Tone.BAD),
}


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_moment_has_its_kind_and_its_colour(moment: str) -> None:
    observed, kind, tone = MOMENTS[moment]
    found = situation(observed)
    assert (found.kind, found.tone) == (kind, tone)
    assert found.headline
    assert found.sentence == "" or found.sentence.endswith((".", "!", "?"))


def test_a_queued_run_names_who_holds_the_nodes_its_place_and_the_end_of_the_wait() -> None:
    blockage = Blockage(maximum=16, held={"nap": 9, "b": 3, "c": 2, "d": 1}, num_held=15, ahead=("x",), num_ahead=1)
    asked = Visit(name="BeginToAskForNodes", kind="Pass", entered_at=NOW - timedelta(minutes=20))
    found = situation(run("WaitForNodes", node_wait=wait(blockage=blockage), states=(asked,)))
    assert found.sentence == (
        wording(
            "situation.a_queued_run_names_who_holds_the_nodes_its_place_and_the_end_of_the_wait",
            "trn1.32xlarge",
            "16",
            "12",
            "40",
        )
    )


def test_a_cluster_that_makes_nodes_by_itself_is_quoted() -> None:
    report = "karpenter: FailedScheduling: all available instance types exceed limits for nodepool."
    found = situation(run("WaitForNodes", node_wait=wait(1, pending_reason=report, shortage=report)))
    assert found.kind is Kind.WAITING_FOR_NODES
    assert found.sentence.count(report) == 1
    answer = {"instance_type": "t", "nodes_ready": 0, "nodes_wanted": 4, "pending_reason": report}
    read = read_node_wait(answer)
    assert read is not None and read.pending_reason == report


def test_a_run_behind_another_one_on_such_a_cluster_names_it_without_a_number_of_nodes() -> None:
    blockage = Blockage(maximum=None, held={"a": 2}, num_held=2, ahead=("b",), num_ahead=1)
    found = situation(run("WaitForNodes", node_wait=wait(blockage=blockage)))
    assert found.kind is Kind.QUEUED
    assert "a holds 2" in found.sentence and "1 run in line before it" in found.sentence
    assert "None" not in found.sentence
    answer = {"instance_type": "t", "nodes_ready": 0, "nodes_wanted": 4, "waits_for": blockage.as_json()}
    read = read_node_wait(answer)
    assert read is not None and read.blockage == blockage


@pytest.mark.parametrize(("given", "moment"), [(None, "12:40"), (30, "12:10"), (90.0, "13:10")])
def test_the_end_of_the_wait_is_the_specs(given: float | None, moment: str) -> None:
    asked = Visit(name="BeginToAskForNodes", kind="Pass", entered_at=NOW - timedelta(minutes=20))
    spec = {"limits": {"capacity_timeout_minutes": given}} if given else {}
    found = situation(run("WaitForNodes", node_wait=wait(1), states=(asked,), spec=spec))
    assert found.sentence.startswith(f"1 of 4 trn1.32xlarge are ready. The wait ends at {moment} UTC")


@pytest.mark.parametrize("ages", [(5.0, 4.0, 3.0), (62.0, 61.0, 59.0), (300.0,), (300.0, 290.0)])
def test_steps_that_are_recent_or_too_few_to_know_their_rhythm_are_no_reason_to_warn(ages: tuple[float, ...]) -> None:
    assert training(*ages).kind is Kind.TRAINING


def test_a_hung_run_says_since_when_and_what_is_usual() -> None:
    found = training(182.0, 181.0, 180.0, spec={"limits": {"stall_minutes": 30}})
    assert found.headline == "No step for 3 min 00 s"
    assert found.sentence == (
        wording("situation.a_hung_run_says_since_when_and_what_is_usual", "1.0", "limits.stall_minutes", "30")
    )
    assert found.to_do


def test_where_the_log_is_not_read_steps_come_with_the_polls_and_may_be_old() -> None:
    silent = run(pods=(pod(),), steps=steps(182.0, 181.0, 180.0))
    assert situation(replace(silent, trouble="The cluster cannot be reached.")).kind is Kind.TRAINING
    assert situation(replace(silent, pods=())).kind is Kind.TRAINING
    assert situation(replace(silent, pods=(), steps=steps(1002.0, 1001.0, 1000.0))).kind is Kind.NO_STEP


@pytest.mark.parametrize("size", [1, 2, 3, 5, 7])
def test_a_gang_that_starts_says_how_many_of_its_pods_run(size: int) -> None:
    pods = tuple(pod(index, "Pending" if index == size - 1 else "Running") for index in range(size))
    found = situation(run(pods=pods))
    assert found.sentence.startswith(f"{size - 1} of {size} pod")


def test_pods_of_an_earlier_attempt_do_not_count() -> None:
    pods = (pod(0, "Failed", attempt=1), pod(1, "Running", attempt=1), pod(0, "Running", attempt=2))
    assert situation(run(pods=pods)).sentence == wording("situation.pods_of_an_earlier_attempt_do_not_count", "30")


def test_a_recovering_run_names_what_was_lost_and_what_is_avoided() -> None:
    saved = CheckpointReport(step=30, num_bytes=1, saved_at=NOW - timedelta(minutes=2))
    found = situation(
        run(
            "WaitForNodes",
            restarts=(restart(),),
            steps=steps(90, first=40),
            checkpoints=(saved,),
            avoided_nodes=("node-b",),
            node_wait=wait(3),
        )
    )
    assert found.sentence == (
        wording(
            "situation.a_recovering_run_names_what_was_lost_and_what_is_avoided",
            "NodeLost",
            "40",
            "30",
            "trn1.32xlarge",
        )
    )


def test_a_run_that_recovered_and_succeeded_remembers() -> None:
    found = situation(run(None, RunStatus.SUCCEEDED, restarts=(restart(), restart()), avoided_nodes=("node-b",)))
    assert found.sentence == "Restarted 2 times after NodeLost; avoided node-b."


def test_a_failed_run_has_its_error_in_the_headline_and_what_to_do() -> None:
    found = situation(run(None, RunStatus.FAILED, error=FAILED))
    assert (found.headline, found.sentence, found.to_do) == ("Failed: OutOfMemory", FAILED.message, FAILED.what_to_do)


@pytest.mark.parametrize("ages", [(), (4.0,), (4.0, 2.0)])
def test_the_rhythm_is_known_from_three_steps_on(ages: Sequence[float]) -> None:
    assert usual_interval(run(steps=steps(*ages))) is None
    assert usual_interval(run(steps=steps(9, 4, 2, 0))) == timedelta(seconds=2)


@pytest.mark.parametrize(
    ("ages", "note"),
    [((4.0, 2.0), ""), ((9.0, 4.0, 2.0, 0.0), "usually every 2.0 s"), ((1.0, 1.0, 1.0, 0.0), "several a second")],
)
def test_the_page_names_the_usual_time_between_steps(ages: Sequence[float], note: str) -> None:
    assert figures(run(steps=steps(*ages)), None)[0].note == note


def test_the_age_of_the_newest_step_is_that_of_a_run_that_goes_on() -> None:
    assert last_step_age(run(steps=steps(7, 4))) == timedelta(seconds=4)
    assert last_step_age(run(steps=steps(-4))) == timedelta(), "clocks differ"
    assert last_step_age(run(None, RunStatus.FAILED, steps=steps(4))) is None
    assert last_step_age(run()) is None


@pytest.mark.parametrize("answer", [None, [], {}, {"instance_type": "a"}, {"instance_type": "a", "nodes_ready": "x"}])
def test_an_answer_that_is_not_complete_says_nothing(answer: Any) -> None:
    assert read_node_wait(answer) is None


def test_the_answer_of_ensure_capacity_is_read_as_it_was_written() -> None:
    blockage = Blockage(maximum=4, held={"a": 2}, num_held=2, ahead=("b",), num_ahead=1)
    answer = {"instance_type": "t", "nodes_ready": 0, "nodes_wanted": 4, "waits_for": blockage.as_json()}
    assert read_node_wait(answer) == NodeWait(instance_type="t", nodes_ready=0, nodes_wanted=4, blockage=blockage)
    assert read_node_wait({**answer, "waits_for": None}) == NodeWait(instance_type="t", nodes_ready=0, nodes_wanted=4)
