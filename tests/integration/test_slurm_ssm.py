"""Slurm's commands as Systems Manager would run them, in a shell of this machine, against a real Slurm."""

from __future__ import annotations

import json
import os
import resource
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lambdas.backends.slurm import ssm as slurm_ssm
from lambdas.backends.slurm.job_script import render
from lambdas.backends.slurm.ssm import SsmController
from lambdas.backends.slurm.status import is_over
from lambdas.logic.jobs import Job, job_of
from local.slurm.cluster import SlurmCluster
from local.slurm.configuration import SlurmSettings
from tests.fakes.runs import run_on
from tests.integration.test_local_slurm import limit_slurmd
from tests.waiting import PATIENCE
from trainflow.deployment.slurm import Partition, Site, SlurmJob
from trainflow.workflow.run import Stage

pytestmark = pytest.mark.slurm


PROGRAM = f"""#!{sys.executable}
import json, os, sys, time
if "--sleeps" in sys.argv:
    time.sleep(600)
with open(os.environ["TRAINFLOW_RESULT_FILE"], "w") as result:
    json.dump({{"argv": sys.argv, "environ": dict(os.environ)}}, result)
"""


class LocalSsm:
    """Runs what it is sent here and now, and passes on as much of the output as Systems Manager does."""

    exceptions = SimpleNamespace(InvocationDoesNotExist=KeyError)

    def __init__(self, environment: dict[str, str]) -> None:
        self._environment, self._done = environment, list[subprocess.CompletedProcess[str]]()

    def send_command(self, *, Parameters: dict[str, list[str]], **_: Any) -> dict[str, Any]:
        (command,) = Parameters["commands"]
        # Only root may run as another user, as Systems Manager's agent does; any other user has their own cluster here.
        words = shlex.split(command) if os.geteuid() == 0 else shlex.split(command)[4:]
        done = subprocess.run(words, env=self._environment, capture_output=True, text=True, timeout=60, check=False)
        self._done.append(done)
        return {"Command": {"CommandId": str(len(self._done) - 1)}}

    def get_command_invocation(self, *, CommandId: str, **_: Any) -> dict[str, Any]:
        done = self._done[int(CommandId)]
        return {
            "Status": "Failed" if done.returncode else "Success",
            "StandardOutputContent": done.stdout[: slurm_ssm.MAX_CHARACTERS],
            "StandardErrorContent": done.stderr,
        }


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SlurmCluster]:
    with SlurmCluster(SlurmSettings(num_nodes=2), log_dir=tmp_path_factory.mktemp("slurm")) as running:
        yield running


@pytest.fixture
def slurm(cluster: SlurmCluster, monkeypatch: pytest.MonkeyPatch) -> SsmController:
    ssm = LocalSsm(cluster.environment)
    monkeypatch.setattr(slurm_ssm, "client", lambda _: ssm)
    monkeypatch.setattr(slurm_ssm, "POLL_SECONDS", 0.0)
    return SsmController("i-0123456789abcdef0", user=cluster.user)


SUPERVISED = f"""#!/bin/sh
[ "$2" = trainer.supervisor ] || exit 0
export PYTHONPATH={Path.cwd()}
exec {sys.executable} "$@"
"""
"""Of our modules, only the supervisor of a gang's program starts another program."""


@pytest.fixture
def site(tmp_path: Path) -> Site:
    """Nodes with a program that prints its arguments, and with no program that uses S3."""
    (tmp_path / "venv/bin").mkdir(parents=True)
    (tmp_path / "program/trainer").mkdir(parents=True)
    for name, text in {"torchrun": PROGRAM, "python": SUPERVISED}.items():
        (tmp_path / "venv/bin" / name).write_text(text)
        (tmp_path / "venv/bin" / name).chmod(0o755)
    return Site(
        shared_folder=str(tmp_path / "shared"),
        environment=str(tmp_path / "venv"),
        program_folder=str(tmp_path / "program"),
    )


def training(name: str, *, sleeps: bool = False) -> Job:
    arguments = {"sleeps": True} if sleeps else {"max_steps": 1}
    workload = {"module": "trainer.pretrain", "arguments": arguments}
    run = run_on("slurm", workload=workload, compute__queue="trn1").model_copy(update={"run_id": name})
    return job_of(run, Stage.TRAINING, 1, artifacts_url="s3://artifacts/")


def submit(slurm: SsmController, job: Job, site: Site) -> SlurmJob:
    (made,) = render(job, site, artifacts_url="s3://artifacts/")
    slurm.submit(made, after=[])
    (found,) = [each for each in slurm.jobs() if each.name == job.ref.name]
    assert found.comment == made.comment
    return found


def when(slurm: SsmController, job_id: int, condition: Callable[[SlurmJob], bool]) -> SlurmJob:
    deadline = time.monotonic() + PATIENCE
    while (found := slurm.job(job_id)) is not None and not condition(found):
        assert time.monotonic() < deadline, found
        time.sleep(0.2)
    assert found is not None
    return found


def test_a_gang_that_sbatch_was_given_runs_on_its_nodes_with_its_whole_environment(
    slurm: SsmController, site: Site
) -> None:
    job = training("told-0123456789ab")
    ended = when(slurm, submit(slurm, job, site).job_id, is_over)
    folder = Path(site.shared_folder) / "jobs" / job.ref.name
    assert ended.states == {"COMPLETED"}, (folder / "batch.log").read_text()
    for node in (0, 1):
        seen = json.loads((folder / f"{node}.result").read_text())
        argv, environ = seen["argv"], seen["environ"]
        given = dict(zip(argv[1::2], argv[2::2], strict=False))
        assert (given["--nnodes"], given["--node_rank"]) == ("2", str(node))
        assert given["--master_addr"] == environ["MASTER_ADDR"]
        assert environ["MASTER_ADDR"].startswith("127.")
        assert environ["NEURON_RT_ROOT_COMM_ID"].startswith(f"{environ['MASTER_ADDR']}:3")
        assert environ["PATH"].startswith(f"{site.environment}/bin:")
        assert environ["TRAINFLOW_RUN_DIR"] == f"{site.shared_folder}/runs/told-0123456789ab"


def test_a_job_may_lock_as_much_memory_as_slurmd_and_not_as_the_agent_that_submits_it(
    cluster: SlurmCluster, slurm: SsmController, site: Site, tmp_path: Path
) -> None:
    limit_slurmd(cluster, mebibytes=3)
    soft, hard = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    resource.setrlimit(resource.RLIMIT_MEMLOCK, (1024**2, hard))
    try:
        (made,) = render(training("locks-0123456789"), site, artifacts_url="s3://artifacts/")
        script = f"#!/bin/bash\nsrun --output {tmp_path}/%n.log /bin/bash -c 'ulimit -l'\n"
        slurm.submit(replace(made, script=script), after=[])
    finally:
        resource.setrlimit(resource.RLIMIT_MEMLOCK, (soft, hard))
    (job,) = [each for each in slurm.jobs() if each.name == made.name]
    when(slurm, job.job_id, is_over)
    assert [(tmp_path / f"{node}.log").read_text() for node in (0, 1)] == ["3072\n", "3072\n"]


def test_a_job_is_cancelled_and_remembered(slurm: SsmController, site: Site) -> None:
    job = training("sleeps-012345678", sleeps=True)
    job_id = submit(slurm, job, site).job_id
    running = when(slurm, job_id, lambda found: "RUNNING" in found.states)
    assert (running.nodes, running.started_at is not None) == ("n[0-1]", True)
    slurm.cancel(job_id)
    assert "CANCELLED" in when(slurm, job_id, is_over).states
    slurm.cancel(job_id)
    assert slurm.job(999_999) is None


def test_what_the_cluster_has_is_read_from_its_own_words(slurm: SsmController) -> None:
    assert slurm.partition("nope") is None
    assert slurm.partitions() == [
        Partition(name="trn1", num_nodes=2, is_default=True),
        Partition(name="short", num_nodes=2, max_minutes=5),
    ]
