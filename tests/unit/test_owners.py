"""Owners of runs: from the caller, the schedule or the upload to the record; never from a spec."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from tests.fakes.runs import SPEC, spec_with
from tests.unit.cli.recorded_runs import recorded
from trainflow.cli.operate.shown import details_text
from trainflow.errors import InvalidRunSpec
from trainflow.record.history import ExecutionHistory
from trainflow.record.run_states import state_of_record
from trainflow.record.wording import owner_facts
from trainflow.report import render_report
from trainflow.spec.run_spec import parse_run_spec
from trainflow.workflow.owner import UNKNOWN, Owner, OwnerKind, owner_of_input, read_owner, spec_of_input
from trainflow.workflow.run_record import RunRecord

ANA = Owner(kind=OwnerKind.CALLER, name="arn:aws:iam::123456789012:user/team/ana")
OWNERS = (
    ANA,
    Owner(kind=OwnerKind.CALLER, name="arn:aws-cn:sts::123456789012:assumed-role/Research/ana@example.com"),
    Owner(kind=OwnerKind.CALLER, name="arn:aws:iam::123456789012:root"),
    Owner(kind=OwnerKind.SCHEDULE, name="nightly"),
    Owner(kind=OwnerKind.UPLOAD, name="123456789012"),
    Owner(kind=OwnerKind.UPLOAD, name="datasync.amazonaws.com"),
)


@pytest.mark.parametrize("owner", OWNERS, ids=lambda owner: owner.short)
def test_an_owner_is_a_field_beside_the_spec(owner: Owner) -> None:
    given = json.loads(json.dumps(owner.added_to(SPEC)))
    assert (owner_of_input(given), spec_of_input(given)) == (owner, SPEC)


def test_an_execution_that_was_started_without_the_client_has_no_owner() -> None:
    assert UNKNOWN.added_to(SPEC) == SPEC
    assert [owner_of_input(given) for given in (SPEC, None, [], "spec")] == [UNKNOWN] * 4


@pytest.mark.parametrize(
    "field",
    [
        "ana",
        {"kind": "caller"},
        {"kind": "caller", "name": "ana"},
        {"kind": "caller", "name": "arn:aws:iam::123456789012:user/ana\nStatus: SUCCEEDED"},
        {"kind": "caller", "name": f"arn:aws:iam::123456789012:user/{'a' * 1000}"},
        {"kind": "schedule", "name": "\x1b[31mnightly"},
        {"kind": "upload", "name": 123456789012},
        {"kind": "unknown", "name": ""},
        {"kind": [], "name": "nightly"},
        {"kind": "schedule", "name": "nightly", "team": "other"},
    ],
)
def test_a_malformed_owner_is_refused_in_an_input_and_unknown_in_a_record(field: Any) -> None:
    with pytest.raises(InvalidRunSpec, match=r"^started_by: .*`trainflow run`"):
        owner_of_input({**SPEC, "started_by": field})
    assert read_owner(field) == UNKNOWN


def test_a_spec_never_names_its_owner() -> None:
    with pytest.raises(InvalidRunSpec, match="started_by"):
        parse_run_spec(ANA.added_to(SPEC))


@pytest.mark.parametrize("name", ["Research", "a team", "ünits", "-a", "a" * 64, "a/b", 7])
@pytest.mark.parametrize("field", ["team", "project"])
def test_a_team_that_is_no_label_is_refused_with_its_field(field: str, name: Any) -> None:
    with pytest.raises(InvalidRunSpec, match=rf"^{field}: [^.]+\.$"):
        parse_run_spec(spec_with(**{field: name}))


def test_owners_in_words_are_short_in_columns() -> None:
    assert [owner.in_words for owner in (ANA, *OWNERS[3:], UNKNOWN)] == [
        "arn:aws:iam::123456789012:user/team/ana",
        "schedule nightly",
        "upload by account 123456789012",
        "upload by datasync.amazonaws.com",
        "unknown",
    ]
    assert [owner.short for owner in OWNERS[:3]] == ["user/team/ana", "assumed-role/Research/ana@example.com", "root"]


def started_by(owner: Owner, *, default_team: str | None = None, **fields: str) -> RunRecord:
    """The record of a run that was started so; `default_team` is the deployment's."""
    run = recorded("succeeded")
    first, *others = run.history.events
    spec = {**json.loads(first["executionStartedEventDetails"]["input"]), **fields}
    begun = {**first, "executionStartedEventDetails": {"input": json.dumps(owner.added_to(spec))}}
    events = [_with_team(event, default_team) for event in others]
    return run.record(history=ExecutionHistory(arn=run.history.arn, events=(begun, *events)))


def _with_team(event: Any, team: str | None) -> Any:
    """The event; of ValidateRun's answer, with this team in the run's spec."""
    details = event.get("taskSucceededEventDetails") or {}
    answer = json.loads(details.get("output") or "{}")
    run = answer.get("Payload", {}).get("run")
    if team is None or run is None:
        return event
    run["spec"] = {**SPEC, "team": team}
    return {**event, "taskSucceededEventDetails": {**details, "output": json.dumps(answer)}}


def test_the_record_has_the_owner_beside_a_spec_without_it() -> None:
    record = started_by(ANA, project="bert")
    assert (record.owner, record.team, record.project) == (ANA, None, "bert")
    assert "started_by" not in record.spec
    state = state_of_record(RunRecord.model_validate_json(record.model_dump_json()))
    assert (state.owner, state.team, state.project) == (ANA, None, "bert")
    assert owner_facts(state) == [("Owner", ANA.name), ("Project", "bert")]
    assert f"owner     {ANA.name}\nproject   bert\n" in details_text(state, record.started_at)
    assert f"<span>owner {ANA.name}</span><span>project bert</span>" in render_report(record, [])


def test_the_record_of_a_spec_without_a_team_has_the_default_of_the_deployment() -> None:
    assert started_by(ANA, default_team="research").team == "research"


def test_a_record_of_an_earlier_version_has_no_owner_and_no_team() -> None:
    document = recorded("succeeded").record().model_dump(mode="json", exclude={"owner", "team", "project"})
    record = RunRecord.model_validate(document)
    assert (record.owner, record.team, record.project) == (UNKNOWN, None, None)
    assert owner_facts(replace(state_of_record(record), team=None)) == []
    named = replace(state_of_record(record), team="unknown", project="unknown")
    assert owner_facts(named) == [("Team", "unknown"), ("Project", "unknown")], "names, and not an unknown owner"
