"""A job is not ended while another pod than rank 0's prints what differs: Megatron prints on the last rank."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from lambdas.handlers import poll_job
from lambdas.logic.jobs import job_of
from tests.fakes.kubernetes_api import FakeKubernetesApi
from tests.fakes.runs import run_of
from tests.unit.lambdas.conftest import CONTEXT
from tests.unit.lambdas.test_backends import add_pod, stored, submit
from trainflow.deployment.backends import KUBERNETES_KINDS
from trainflow.errors import JobStalled
from trainflow.workflow.run import Stage

pytestmark = pytest.mark.usefixtures("aws")

HOUR = timedelta(hours=1)


def poll(cluster: FakeKubernetesApi, line: Callable[[int], str], *, printed: timedelta) -> Any:
    """The phase of a job whose rank 0 is silent for two hours, and whose last pod printed its last line so long ago."""
    run, now = run_of(), datetime.now(UTC)
    job = job_of(run, Stage.TRAINING, 1, artifacts_url="s3://artifacts/")
    submit(job)
    stored(cluster, job)["status"] = {"active": 2, "ready": 2, "startTime": (now - 3 * HOUR).isoformat()}
    add_pod(cluster, job, "rank-0", {"phase": "Running"}, **KUBERNETES_KINDS["job"].rank0)
    add_pod(cluster, job, "rank-1", {"phase": "Running"})
    stamps = [(now - printed - timedelta(minutes=40 - number)).isoformat() for number in range(41)]
    cluster.logs["rank-1"] = "".join(f"{stamp} {line(number)}\n" for number, stamp in enumerate(stamps))
    silent = {"last_step": 7, "progressed_at": (now - 2 * HOUR).isoformat()}
    event = {"run": run.model_dump(mode="json"), "job": job.ref.model_dump(mode="json"), "progress": silent}
    return poll_job.lambda_handler({**event, "phase": "running"}, CONTEXT)["phase"]


def test_a_job_whose_last_rank_prints_the_steps_goes_on(cluster: FakeKubernetesApi) -> None:
    assert poll(cluster, lambda number: f"iteration {number}/100", printed=0 * HOUR) == "running"


@pytest.mark.parametrize(
    ("line", "printed"),
    [(lambda number: f"iteration {number}/100", HOUR), (lambda number: f"waiting for rank 0: {number}", 0 * HOUR)],
    ids=["silent", "heartbeat"],
)
def test_a_job_all_of_whose_pods_only_wait_is_stalled(
    cluster: FakeKubernetesApi, line: Callable[[int], str], printed: timedelta
) -> None:
    with pytest.raises(JobStalled, match="has not logged a step after 7"):
        poll(cluster, line, printed=printed)
