"""A compiler that hangs does not hold the gang until its time limit, and one that works for long is left alone."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from kubernetes import client

from lambdas.handlers import poll_job
from lambdas.logic.jobs import job_of
from tests.fakes.kubernetes_api import FakeKubernetesApi
from tests.fakes.runs import run_of, spec_with
from tests.unit.lambdas.conftest import CONTEXT
from tests.unit.lambdas.test_backends import add_pod, stored, submit
from trainflow.deployment.backends import KUBERNETES_KINDS
from trainflow.errors import JobStalled
from trainflow.failures.error_table import error_list
from trainflow.workflow.run import Stage

pytestmark = pytest.mark.usefixtures("aws")


def poll(cluster: FakeKubernetesApi, *, started: timedelta, printed: timedelta | None, **limits: Any) -> Any:
    """The phase of a job that started and printed its last line so long ago."""
    run, now = run_of(spec_with(limits=limits)), datetime.now(UTC)
    job = job_of(run, Stage.PRECOMPILE, 1, artifacts_url="s3://artifacts/")
    submit(job)
    stored(cluster, job)["status"] = {"active": 2, "ready": 2, "startTime": (now - started).isoformat()}
    add_pod(cluster, job, "rank-0", {"phase": "Running"}, **KUBERNETES_KINDS["job"].rank0)
    if printed is not None:
        stamps = [(now - printed - timedelta(seconds=ago)).isoformat() for ago in (90, 0)]
        cluster.logs["rank-0"] = f"{stamps[0]} Compiling MODULE_1\n{stamps[1]} Compiler status PASS\n........"
    event = {"run": run.model_dump(mode="json"), "job": job.ref.model_dump(mode="json"), "progress": {}}
    return poll_job.lambda_handler({**event, "phase": "running"}, CONTEXT)["phase"]


HOUR = timedelta(hours=1)


def test_a_compiler_without_a_line_for_three_hours_hangs(cluster: FakeKubernetesApi) -> None:
    with pytest.raises(JobStalled, match=r" 180 minutes.*compiler"):
        poll(cluster, started=5 * HOUR, printed=3.1 * HOUR)
    assert JobStalled.__name__ in error_list("restarted"), "what has been compiled by then is in the cache"


def test_a_compiler_that_never_printed_a_line_hangs(cluster: FakeKubernetesApi) -> None:
    with pytest.raises(JobStalled):
        poll(cluster, started=3.1 * HOUR, printed=None)


@pytest.mark.parametrize(
    ("started", "printed"), [(40 * HOUR, 2.9 * HOUR), (2.9 * HOUR, None), (2.9 * HOUR, 2.9 * HOUR)]
)
def test_a_graph_may_take_hours_and_a_compilation_days(
    cluster: FakeKubernetesApi, started: timedelta, printed: timedelta | None
) -> None:
    """One graph of a large model takes an hour, without a line."""
    assert poll(cluster, started=started, printed=printed) == "running"


def test_a_spec_allows_more_silence_and_never_less(cluster: FakeKubernetesApi) -> None:
    assert poll(cluster, started=9 * HOUR, printed=2 * HOUR, stall_minutes=5) == "running"
    cluster.objects.clear()
    assert poll(cluster, started=9 * HOUR, printed=6 * HOUR, stall_minutes=480) == "running"


def test_a_compiler_is_not_judged_by_a_log_that_cannot_be_read(
    cluster: FakeKubernetesApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = cluster.call_api

    def call_api(path: str, method: str, **options: Any) -> Any:
        if path.endswith("/log"):
            raise client.ApiException(status=500, reason="Internal Server Error")
        return answer(path, method, **options)

    monkeypatch.setattr(cluster, "call_api", call_api)
    assert poll(cluster, started=5 * HOUR, printed=4 * HOUR) == "running"
