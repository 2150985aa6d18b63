"""The drawing of the state machine: every working state has a box, and the current one is lit."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from recorded_runs import recorded
from replay import snapshot_at

from trainflow.page.workflow import layout, state_rows
from trainflow.record import cost
from trainflow.state_machines import definition
from trainflow.workflow.run_record import RunStatus

TRAINING = definition("training")
DRAWN = layout(TRAINING)


def test_every_state_that_works_has_a_box_of_its_own_place() -> None:
    working = {name for name, state in TRAINING["States"].items() if state["Type"] in ("Task", "Succeed", "Fail")}

    assert {box.name for box in DRAWN.boxes} == working
    assert max(Counter((box.column, box.row) for box in DRAWN.boxes).values()) == 1
    assert all(box.x + 158 <= DRAWN.width and box.y + 36 <= DRAWN.height for box in DRAWN.boxes)


def test_the_way_to_success_runs_down_one_column_in_the_order_of_the_text() -> None:
    way = [box.name for box in sorted(DRAWN.boxes, key=lambda box: box.row) if box.column == 0]

    assert way[:3] == ["ValidateRun", "Preflight", "StageData"]
    assert way[-1] == "RunSucceeded"
    assert {box.name for box in DRAWN.boxes if box.column == 1} >= {
        "ReleaseNodes",
        "DeleteJob",
        "NotifyRestart",
        "RunFailed",
    }


def test_arrows_lead_past_states_without_a_box() -> None:
    arrows = {(arrow.source, arrow.target): arrow.on_error for arrow in DRAWN.arrows}

    assert arrows["Preflight", "StageData"] is False
    assert arrows["Preflight", "CollectDiagnostics"] is True
    assert arrows["EnsureCapacity", "SubmitTraining"] is False
    assert DRAWN.leads_to["WaitForNodes"] == "EnsureCapacity"


def test_the_current_state_is_lit_and_has_its_time() -> None:
    run = recorded("succeeded")
    begin = run.history.events[0]["timestamp"]
    snapshot = snapshot_at(run, begin + (run.end - begin) * 0.8)

    rows = {row.name: row for row in state_rows(snapshot, DRAWN)}

    assert [row.name for row in rows.values() if row.tone == "current"] == ["WatchTraining"]
    assert rows["WatchTraining"].time.endswith("s")
    assert rows["ValidateRun"].tone == "done"
    assert rows["PublishArtifacts"].tone == "idle"


def test_a_wait_lights_the_state_that_polls_after_it() -> None:
    run = recorded("succeeded")
    begin = run.history.events[0]["timestamp"]
    snapshot = replace(snapshot_at(run, begin), state="WaitForNodes")

    assert [row.name for row in state_rows(snapshot, DRAWN) if row.tone == "current"] == ["EnsureCapacity"]


def test_a_failed_run_shows_where_it_ended() -> None:
    run = recorded("worker_failed")

    rows = state_rows(snapshot_at(run, run.end), DRAWN)

    assert [row.name for row in rows if row.tone == "failed"] == ["WatchTraining", "RunFailed"]
    assert not [row for row in rows if row.tone == "current"]


def test_without_a_definition_the_states_that_were_visited_are_listed() -> None:
    run = recorded("succeeded")

    rows = state_rows(snapshot_at(run, run.end), None)

    assert rows[0].name == "ValidateRun"
    assert snapshot_at(run, run.end).status is RunStatus.SUCCEEDED


def test_the_states_that_the_cost_begins_and_ends_with_are_in_the_text() -> None:
    assert {cost.ACQUISITION, *cost.RELEASES} <= set(TRAINING["States"])
