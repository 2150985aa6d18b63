"""What goes wrong with a real Slurm under a run, and many runs on it at once.

Tests with a twin of their own come first: two twins in one process share moto's account, and disturb each other.
"""

from __future__ import annotations

import json
import re
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path

import pytest
import urllib3

from benchmarks.many_runs import published_losses
from lambdas.backends.slurm import slurmrestd as slurm_api
from lambdas.backends.slurm.slurmrestd import RestController
from local.slurm.cluster import SlurmCluster
from local.slurm.configuration import SlurmSettings
from local.twin import Twin
from tests.integration.running import follow_run
from tests.integration.test_local_slurm import API
from tests.integration.test_many_runs import artifacts
from tests.integration.test_runs import steps_spec
from tests.integration.test_slurm_runs import (
    Run,
    assert_every_step_is_published_once,
    assert_nothing_is_left,
    during,
    on_slurm,
    workers,
)
from tests.waiting import wait_until
from trainflow.spec.run_spec import RunSpec
from trainflow.workflow.run_record import RunRecord

pytestmark = pytest.mark.slurm

OUTAGE_SECONDS = 60
NUM_RUNS = 50
NUM_NODES = 12
LIMIT_SECONDS = 1800
STEP = re.compile(r"\(0, (\d+)\) step_loss")


def runner(twin: Twin, folder: Path) -> Run:
    def run(spec: RunSpec, run_id: str) -> RunRecord:
        return follow_run(twin, spec, run_id, folder=folder / run_id)

    return run


def cluster_of(twin: Twin) -> SlurmCluster:
    assert twin.slurm is not None
    return twin.slurm


@pytest.mark.slow
def test_slurmrestd_may_be_gone_for_a_minute_and_no_step_is_lost(tmp_path: Path) -> None:
    """A minute of this machine and of the state machine alike: in this twin, time is not scaled."""
    settings, run_id = SlurmSettings(num_nodes=2), "outage-000000000"
    with Twin(home=tmp_path / "home", log_dir=tmp_path / "logs", time_scale=1, slurm=settings) as twin:
        slurm = cluster_of(twin)
        trained_on = []

        def take_rest_away() -> None:
            slurm.stop_rest()
            time.sleep(OUTAGE_SECONDS)
            trained_on.append(workers(run_id, 1)())
            slurm.start_rest()

        spec = on_slurm(steps_spec(max_steps=400))
        record = during(runner(twin, tmp_path), spec, run_id, when=workers(run_id, 1), do=take_rest_away)
        assert trained_on == [True]
        assert max(visit.attempts for visit in record.states) > 1  # the workflow did ask, and was refused
        assert (record.error, record.status) == (None, "SUCCEEDED")
        assert record.jobs["training"].attempts == 1
        assert record.training is not None
        assert record.training.steps == 400
        assert_every_step_is_published_once(record)
        assert_nothing_is_left(slurm, run_id)


@pytest.mark.slow
def test_fifty_runs_at_once_all_end_and_none_is_mixed_with_another(tmp_path: Path) -> None:
    """Each trains another number of steps, so that no run's record can be mistaken for another's.

    Most wait in Slurm's queue for a while: a machine of two processors is not fifty nodes at once. On as many nodes as
    runs, nine of fifty ended with States.Timeout and none with another error: all jobs started in one moment, and for a
    minute and a half no function got enough of the processors to return within its state's limit, a third of its own
    here.
    """
    settings = SlurmSettings(num_nodes=NUM_NODES, min_job_age_seconds=LIMIT_SECONDS, node_timeout_seconds=300)
    steps_of = {f"many-{number:012x}": number for number in range(1, NUM_RUNS + 1)}
    with Twin(home=tmp_path / "home", log_dir=tmp_path / "logs", time_scale=3, slurm=settings) as twin:
        slurm = cluster_of(twin)
        assert Counter(ended(twin, steps_of).values()) == {"SUCCEEDED": NUM_RUNS}

        submitted = Counter(slurm.command("squeue", "--noheader", "--states=all", "--format=%j").split())
        assert set(submitted.values()) == {1}
        assert {f"{run_id}-training-1" for run_id in steps_of} <= set(submitted)
        for run_id, steps in steps_of.items():
            count, total = published_losses(twin, run_id)
            assert count == steps
            assert total == pytest.approx(sum(9 - step / 100 for step in range(1, steps + 1)))
            kept = artifacts(twin, run_id)
            assert json.loads(kept["run.json"])["training"]["steps"] == steps
            log = "".join(text for name, text in sorted(kept.items()) if name.startswith(f"logs/{run_id}-training-1/"))
            assert [int(step) for step in STEP.findall(log)] == list(range(1, steps + 1))
        for run_id in steps_of:
            assert_nothing_is_left(slurm, run_id)


def ended(twin: Twin, steps_of: dict[str, int]) -> dict[str, str]:
    """Start all runs, wait for all, and say how each ended."""
    assert twin.deployment is not None
    states, machine = twin.client("stepfunctions"), twin.deployment.address.state_machine_arn
    arns = {}
    for run_id, steps in steps_of.items():
        spec = steps_spec(max_steps=steps)
        spec["compute"]["num_nodes"] = 1
        arns[run_id] = states.start_execution(
            stateMachineArn=machine, name=run_id, input=on_slurm(spec).model_dump_json()
        )["executionArn"]
    statuses = dict.fromkeys(steps_of, "RUNNING")
    deadline = time.monotonic() + LIMIT_SECONDS
    while "RUNNING" in statuses.values() and time.monotonic() < deadline:
        time.sleep(1)
        for run_id in [run_id for run_id, status in statuses.items() if status == "RUNNING"]:
            statuses[run_id] = states.describe_execution(executionArn=arns[run_id])["status"]
    return statuses


@pytest.fixture(scope="module")
def twin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Twin]:
    home, logs = tmp_path_factory.mktemp("home"), tmp_path_factory.mktemp("logs")
    with Twin(home=home, log_dir=logs, time_scale=60, slurm=SlurmSettings(num_nodes=3)) as running:
        yield running


@contextmanager
def drained(slurm: SlurmCluster) -> Iterator[list[str]]:
    """Nodes put in here by name take no new jobs; at the end they take them again."""
    names: list[str] = []
    yield names
    for name in names:
        slurm.command("scontrol", "update", f"nodename={name}", "state=resume")


def drain(slurm: SlurmCluster, name: str) -> None:
    slurm.command("scontrol", "update", f"nodename={name}", "state=drain", "reason=fan")


@pytest.mark.slow
def test_a_job_whose_node_is_drained_goes_on_to_its_end(twin: Twin, tmp_path: Path) -> None:
    slurm, run_id = cluster_of(twin), "drained-00000000"
    states: list[str] = []
    with drained(slurm) as names:

        def drain_its_first_node() -> None:
            names.append(slurm.command("squeue", "--noheader", "--format=%B").strip())
            drain(slurm, names[0])
            states.append(slurm.command("sinfo", "--noheader", f"--nodes={names[0]}", "--format=%T").strip())

        record = during(
            runner(twin, tmp_path),
            on_slurm(steps_spec(max_steps=50)),
            run_id,
            when=workers(run_id, 1),
            do=drain_its_first_node,
        )
        assert states == ["draining"]
        assert (record.error, record.status) == (None, "SUCCEEDED")
        assert record.jobs["training"].attempts == 1
        assert record.training is not None
        assert record.training.steps == 50
        assert_every_step_is_published_once(record)
        assert_nothing_is_left(slurm, run_id)


@pytest.mark.slow
def test_a_gang_for_which_nodes_are_drained_never_starts_and_says_why(twin: Twin, tmp_path: Path) -> None:
    slurm, run_id = cluster_of(twin), "pending-00000000"
    spec = on_slurm(steps_spec(max_steps=1), gang_timeout_minutes=0.5, max_restarts=0)
    with drained(slurm) as names:
        for name in ("n0", "n1"):  # the small programs have the third one
            drain(slurm, name)
            names.append(name)
        record = runner(twin, tmp_path)(spec, run_id)
    assert record.error is not None
    assert (record.status, record.error.name) == ("FAILED", "GangIncomplete")
    what, _, why = record.error.message.partition(" minutes: ")
    beginning, _, waited = what.rpartition(" ")
    assert beginning == f"The job '{run_id}-training-1' did not have its 2 pods running after"
    assert float(waited) >= 0.5, "the limit, and what the poll came later"
    assert why == "nodes that it needs are down, drained or reserved: ReqNodeNotAvail, UnavailableNodes:n[0-1]"
    assert_nothing_is_left(slurm, run_id)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SlurmCluster]:
    with SlurmCluster(SlurmSettings(num_nodes=1), log_dir=tmp_path_factory.mktemp("slurm")) as running:
        yield running


@pytest.mark.parametrize("renewed_before", [1, -3600], ids=["by our clock", "when Slurm refuses it"])
def test_a_token_that_has_expired_is_renewed(
    cluster: SlurmCluster, monkeypatch: pytest.MonkeyPatch, renewed_before: int
) -> None:
    """The token expires; in the second case, our clock is an hour behind Slurm's, and we consider the token valid."""
    monkeypatch.setattr(slurm_api, "_key", lru_cache(lambda _: cluster.jwt_key))
    monkeypatch.setattr(slurm_api, "TOKEN_LIFETIME_SECONDS", 5)
    monkeypatch.setattr(slurm_api, "RENEWED_BEFORE_SECONDS", renewed_before)
    slurm = RestController(cluster.rest_url, key_secret="slurm-key", user=cluster.user)
    assert slurm.partition("trn1") is not None
    expired = slurm._token
    assert expired is not None
    headers = {"X-SLURM-USER-NAME": cluster.user, "X-SLURM-USER-TOKEN": expired[0]}
    wait_until(
        lambda: urllib3.request("GET", f"{cluster.rest_url}{API}/jobs", headers=headers).status >= 400,
    )

    assert slurm.partition("trn1") is not None
    assert slurm._token != expired
