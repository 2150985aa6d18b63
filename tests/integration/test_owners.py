"""A run's owner and team, from the command that starts it to the sums of costs: in the twin, and as in an account."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import yaml

from local.aws.deployment import RUN_TABLE
from tests.integration.commands import Commands, account_of, client_of, until
from tests.integration.test_runs import steps_spec


@dataclass(frozen=True, kw_only=True)
class Owned:
    """A run of a team, which goes on."""

    here: Commands
    account: Commands
    run_id: str
    caller: str
    """ARN of the twin's credentials."""
    row: dict[str, Any]
    """Its item of the run table."""


@pytest.fixture(scope="module")
def owned(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Owned]:
    folder = tmp_path_factory.mktemp("owned")
    spec = {**steps_spec(max_steps=100_000, seconds_per_step=0.1), "team": "research", "project": "bert"}
    (folder / "spec.yaml").write_text(yaml.safe_dump(spec))
    here = Commands(folder)
    run_id = here("run", "spec.yaml", "--local", "--detach").split()[-1]
    try:
        until(lambda: here.json("status", run_id, "--local")["step"])
        settings = account_of(folder, run_id)
        yield Owned(
            here=here,
            account=Commands(folder, settings),
            run_id=run_id,
            caller=client_of(settings, "sts").get_caller_identity()["Arn"],
            row=client_of(settings, "dynamodb").get_item(TableName=RUN_TABLE, Key={"run_id": {"S": run_id}})["Item"],
        )
    finally:
        here("stop", run_id, "--local")


def test_a_run_has_its_owner_and_team_in_status_table_and_record(owned: Owned) -> None:
    status = owned.account.json("status", owned.run_id)
    assert status["owner"] == {"kind": "caller", "name": owned.caller}
    assert (status["team"], status["project"]) == ("research", "bert")
    assert owned.row["owner"] == {"M": {"kind": {"S": "caller"}, "name": {"S": owned.caller}}}
    assert owned.row["team"] == {"S": "research"}
    for command, at in ((owned.here, ("--local",)), (owned.account, ())):
        (unread,), (listed,) = (command.json("list", *at, *words) for words in ((), ("--owners",)))
        assert (unread["owner"], listed["owner"], listed["team"]) == (None, status["owner"], "research")
    (record,) = owned.account.json("report", owned.run_id)["runs"]
    assert (record["team"], record["spec"]["team"], "started_by" in record["spec"]) == ("research", "research", False)


def test_the_costs_of_the_twin_and_of_an_account_are_summed_up_alike_and_the_end_is_recorded(owned: Owned) -> None:
    for command, at in ((owned.here, ("--local",)), (owned.account, ())):
        (team,) = command.json("costs", *at)["groups"]
        assert (team["name"], team["runs"], team["running"]) == ("research", 1, [owned.run_id])
        assert team["node_hours"] > 0
        assert team["usd"] > 0
        (owner,) = command.json("costs", "--by", "owner", *at)["groups"]
        assert owner["name"] == owned.caller
    owned.here("stop", owned.run_id, "--local")
    (ended,) = owned.here.json("costs", "--local", "--by", "project")["groups"]
    assert (ended["name"], ended["running"]) == ("bert", [])
    assert ended["usd"] >= team["usd"]
    (listed,) = owned.here.json("list", "--local")
    assert (listed["team"], listed["owner"]["name"]) == ("research", owned.caller)
    mail = owned.here("messages", owned.run_id, "--local")
    assert f"Owner: {owned.caller}\nTeam: research\nProject: bert\n" in mail
