"""Decisions of the survey: nodes that are up, their cost, and the nodes to release."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lambdas.logic.fleet import Fleet, IdleNodes, survey, usd
from lambdas.logic.messages import idle_nodes_released
from tests.fakes.runs import STARTED_AT as NOW
from tests.fakes.runs import run_of, spec_with
from trainflow.nodes.instances import nodegroup_name
from trainflow.nodes.training_nodes import Claim, Nodegroup
from trainflow.workflow.run_record import RunStatus
from trainflow.workflow.run_table import LastSurvey, RunRow, row_of

BIG, SMALL = "trn1.32xlarge", "trn1.2xlarge"
IDLE_TIME = timedelta(minutes=30)
FIVE_MINUTES = timedelta(minutes=5)


def group(instance_type: str, desired: int, *, minimum: int = 0) -> Nodegroup:
    return Nodegroup(name=nodegroup_name(instance_type), desired=desired, minimum=minimum, maximum=16)


def claim(instance_type: str, num_nodes: int, *, run_id: str = "bert-0123456789ab") -> Claim:
    return Claim(name=f"{run_id}-nodes", run_id=run_id, instance_type=instance_type, num_nodes=num_nodes)


def surveyed(
    *groups: Nodegroup,
    claims: tuple[Claim, ...] = (),
    last: LastSurvey | None = None,
    now: datetime = NOW,
    region: str = "us-west-2",
) -> Fleet:
    return survey(groups, claims, last=last, now=now, idle_time=IDLE_TIME, region=region)


def ended(status: RunStatus, *, on_success: bool = True, on_failure: bool = True) -> RunRow:
    run = run_of(spec_with(teardown={"on_success": on_success, "on_failure": on_failure}))
    return row_of(run).model_copy(update={"status": status})


def test_nodes_of_every_group_are_up_joined_or_not() -> None:
    fleet = surveyed(group(BIG, 4), group(SMALL, 1), claims=(claim(BIG, 3),))
    assert (fleet.nodes_up, fleet.nodes_without_run) == (5, 2)


def test_a_run_that_waits_for_its_nodes_does_not_hide_others_idle_ones() -> None:
    assert surveyed(group(BIG, 0), group(SMALL, 1), claims=(claim(BIG, 8),)).nodes_without_run == 1


def test_nodes_cost_their_price_for_the_time_since_the_last_survey() -> None:
    last = LastSurvey(surveyed_at=NOW - FIVE_MINUTES)
    assert surveyed(group(BIG, 4), group(SMALL, 2), last=last).usd == pytest.approx((4 * 21.50 + 2 * 1.34375) / 12)
    assert usd(SMALL, 10, timedelta(hours=24), region="us-west-2") == pytest.approx(322.5)


def test_nodes_without_a_known_price_make_the_cost_unknown_and_not_wrong() -> None:
    last = LastSurvey(surveyed_at=NOW - FIVE_MINUTES)
    fleet = surveyed(group(BIG, 4), group("trn2.48xlarge", 1), last=last)
    assert (fleet.usd, fleet.unpriced) == (None, ("trn2.48xlarge",))
    at_zero = surveyed(group(BIG, 4), group("trn2.48xlarge", 0), last=last)
    assert (at_zero.usd, at_zero.unpriced) == (pytest.approx(4 * 21.50 / 12), ())
    assert usd("trn2.48xlarge", 1, timedelta(hours=1), region="us-east-2") == 35.76
    assert surveyed(group(BIG, 1), region="eu-north-1").usd is None, "prices of one region are not those of another"


def test_the_message_about_idle_nodes_states_an_unknown_price() -> None:
    idle = IdleNodes(instance_type="trn2.48xlarge", since=NOW)
    _, message = idle_nodes_released(idle, 2, region="us-west-2", now=NOW + FIVE_MINUTES)
    assert "No on-demand price of trn2.48xlarge in us-west-2 is known" in message
    assert "USD" not in message


def test_the_first_survey_costs_nothing_and_a_long_gap_is_not_guessed() -> None:
    assert surveyed(group(BIG, 4)).usd == 0
    assert surveyed(group(BIG, 1), last=LastSurvey(surveyed_at=NOW - timedelta(days=3))).usd == pytest.approx(21.50)
    assert surveyed(group(BIG, 1), last=LastSurvey(surveyed_at=NOW + FIVE_MINUTES)).usd == 0


def idle_at(*minutes: int, groups: tuple[Nodegroup, ...] = (group(BIG, 2),)) -> list[tuple[IdleNodes, ...]]:
    """What is idle at each of these minutes, one survey after the other."""
    last, found = None, []
    for minute in minutes:
        fleet = surveyed(*groups, last=last, now=NOW + timedelta(minutes=minute))
        last = fleet.memory
        found.append(fleet.idle)
    return found


def test_nodes_that_no_run_claims_are_given_back_after_the_time_that_is_set() -> None:
    idle = IdleNodes(instance_type=BIG, since=NOW)
    assert idle_at(0, 5, 29, 30, 35) == [(), (), (), (idle,), (idle,)]


def test_a_claim_ends_the_idle_time() -> None:
    last = LastSurvey(surveyed_at=NOW - FIVE_MINUTES, idle_since={BIG: NOW - timedelta(minutes=29)})
    claimed = surveyed(group(BIG, 2), claims=(claim(BIG, 2),), last=last)
    assert claimed.memory.idle_since == {}
    free_again = surveyed(group(BIG, 2), last=claimed.memory, now=NOW + FIVE_MINUTES)
    assert free_again.idle == ()
    assert free_again.memory.idle_since == {BIG: NOW + FIVE_MINUTES}


def test_nodes_beyond_the_claims_are_idle_although_a_run_claims_one() -> None:
    since = NOW - timedelta(days=1)
    fleet = surveyed(group(BIG, 8), claims=(claim(BIG, 1),), last=LastSurvey(surveyed_at=NOW, idle_since={BIG: since}))
    assert (fleet.idle, fleet.nodes_without_run) == ((IdleNodes(instance_type=BIG, since=since),), 7)


def test_nodes_below_a_groups_minimum_are_meant_to_stay() -> None:
    assert idle_at(0, 60, groups=(group(BIG, 2, minimum=2),)) == [(), ()]
    assert len(idle_at(0, 60, groups=(group(BIG, 3, minimum=2),))[1]) == 1


def test_groups_idle_each_for_itself() -> None:
    last = LastSurvey(surveyed_at=NOW - FIVE_MINUTES, idle_since={BIG: NOW - timedelta(hours=1)})
    fleet = surveyed(group(BIG, 1), group(SMALL, 1), last=last)
    assert [nodes.instance_type for nodes in fleet.idle] == [BIG]
    assert fleet.memory.idle_since == {BIG: NOW - timedelta(hours=1), SMALL: NOW}


@settings(deadline=None)
@given(
    desired=st.integers(0, 8),
    minimum=st.integers(0, 8),
    claims=st.lists(st.integers(1, 4), max_size=3),
    minutes=st.lists(st.integers(0, 120), max_size=6),
)
def test_no_claimed_node_is_ever_idle_and_the_count_is_never_negative(
    desired: int, minimum: int, claims: list[int], minutes: list[int]
) -> None:
    last = None
    for minute in sorted(minutes):
        fleet = surveyed(
            group(BIG, desired, minimum=minimum),
            claims=tuple(claim(BIG, nodes) for nodes in claims),
            last=last,
            now=NOW + timedelta(minutes=minute),
        )
        last = fleet.memory
        assert 0 <= fleet.nodes_without_run <= fleet.nodes_up == desired
        assert fleet.usd >= 0
        assert not (sum(claims) >= desired and fleet.idle)
        assert not (desired <= minimum and fleet.idle)
