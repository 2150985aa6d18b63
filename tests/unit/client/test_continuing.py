"""Which runs can be continued, and what the new run's spec says of them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.fakes.runs import SPEC
from trainflow.client.continuing import CannotContinue, continued_spec, spec_continuing
from trainflow.errors import InvalidRunSpec
from trainflow.spec.run_spec import MAX_CONTINUED, parse_run_spec
from trainflow.workflow.run_record import RunRecord, RunStatus, StateVisit

BEGAN = datetime(2026, 11, 22, 8, tzinfo=UTC)


def record(*states: str, spec: dict[str, Any] = SPEC) -> RunRecord:
    visits = [StateVisit(name=name, entered_at=BEGAN) for name in states]
    return RunRecord(run_id="bert-2", status=RunStatus.FAILED, spec=spec, started_at=BEGAN, states=visits)


def test_the_new_spec_is_the_old_one_with_the_changes_and_the_runs_that_it_continues() -> None:
    earlier = {**SPEC, "resume_from": ["bert-1"]}
    spec = spec_continuing(record("SubmitTraining", spec=earlier), {"limits": {"stall_minutes": 7}})
    assert spec == parse_run_spec({**SPEC, "limits": {"stall_minutes": 7}, "resume_from": ["bert-2", "bert-1"]})


def test_a_long_line_of_runs_is_continued_from_its_newest() -> None:
    earlier = {**SPEC, "resume_from": [f"bert-{number}" for number in range(MAX_CONTINUED)]}
    continues = continued_spec("bert-x", earlier, status=RunStatus.ABORTED).resume_from
    assert (continues[:2], len(continues)) == (["bert-x", "bert-0"], MAX_CONTINUED)


def test_a_run_that_never_trained_has_no_checkpoint_unless_it_continued_another() -> None:
    with pytest.raises(CannotContinue, match=r"bert-2 .*training began.*no checkpoint"):
        spec_continuing(record("StageData"))
    assert spec_continuing(record("StageData", spec={**SPEC, "resume_from": ["bert-1"]})).resume_from == [
        "bert-2",
        "bert-1",
    ]


@pytest.mark.parametrize(
    ("status", "sentence"),
    [(RunStatus.RUNNING, "is still running; stop it first"), (RunStatus.SUCCEEDED, "has succeeded; say with --set")],
)
def test_a_run_that_goes_on_or_is_complete_is_refused(status: RunStatus, sentence: str) -> None:
    with pytest.raises(CannotContinue, match=f"The run bert-1 {sentence}"):
        continued_spec("bert-1", SPEC, status=status)


def test_changes_that_make_no_spec_name_the_field() -> None:
    with pytest.raises(InvalidRunSpec, match=r"bert-1 .*: compute\.num_nodes: .*least"):
        continued_spec("bert-1", SPEC, status=RunStatus.FAILED, changes={"compute": {"num_nodes": 0}})
    foreign = {**SPEC, "workload": {**SPEC["workload"], "module": "mine", "arguments": {}}}
    with pytest.raises(InvalidRunSpec, match=r"resume_from .*section checkpoint"):
        continued_spec("bert-1", foreign, status=RunStatus.FAILED)


def test_a_run_that_ended_at_its_deadline_is_continued_with_a_later_one() -> None:
    earlier = {**SPEC, "limits": {"deadline": "2026-11-22T10:00:00Z"}}
    with pytest.raises(InvalidRunSpec, match=r"limits\.deadline: 2026-11-22T10.*passed"):
        spec_continuing(record("SubmitTraining", spec=earlier))
    later = {"limits": {"deadline": (datetime.now(UTC) + timedelta(days=1)).isoformat()}}
    assert spec_continuing(record("SubmitTraining", spec=earlier), later).limits.deadline is not None
