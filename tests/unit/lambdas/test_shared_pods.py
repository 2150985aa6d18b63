"""Jobs whose pods have containers that the cluster injects: these neither end a job nor keep it running."""

from __future__ import annotations

from typing import Any

import pytest

from lambdas.backends.kubernetes.status import of_programs
from lambdas.handlers import poll_job
from tests.fakes.kubernetes_api import FakeKubernetesApi
from tests.fakes.runs import job_ref, run_on
from tests.unit.cli.test_containers import INJECTED, RUNNING, ended, pod
from tests.unit.lambdas.conftest import CONTEXT
from tests.unit.lambdas.test_backends import each_backend, stored, submit, training
from trainflow.deployment.backends import BackendName
from trainflow.deployment.kubernetes_names import JOB_LABEL, RUN_LABEL
from trainflow.errors import ScriptFailed
from trainflow.observed.job import JobStatus
from trainflow.workflow.run import JobPhase

IN_PROGRESS = (JobStatus(phase=JobPhase.RUNNING), JobStatus(phase=JobPhase.PENDING))
FAILED = JobStatus(phase=None, failure_reason="BackoffLimitExceeded", failure_message="has reached its limit")
SIZES = (1, 2, 3, 5, 7)


def gang(*codes: int | None, other: Any = RUNNING) -> list[dict[str, Any]]:
    return [pod(RUNNING if code is None else ended(code), other) for code in codes]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("status", [*IN_PROGRESS, FAILED])
def test_a_job_whose_programs_all_succeeded_has_succeeded_whatever_another_container_does(
    size: int, status: JobStatus
) -> None:
    job = job_of_size(size)
    assert of_programs(job, status, gang(*[0] * size)).phase is JobPhase.SUCCEEDED
    assert of_programs(job, status, gang(*[0] * (size - 1))) == status


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("status", IN_PROGRESS)
def test_one_program_that_failed_beside_a_running_container_fails_the_job(size: int, status: JobStatus) -> None:
    codes = [1, *[None] * (size - 1)]
    assert of_programs(job_of_size(size), status, gang(*codes)).phase is None


@pytest.mark.parametrize("status", [*IN_PROGRESS, FAILED])
def test_a_job_without_injected_containers_is_judged_by_its_own_object(status: JobStatus) -> None:
    assert of_programs(job_ref(run_on("job")), status, []) == status


@pytest.mark.parametrize("status", IN_PROGRESS)
def test_an_elastic_job_goes_on_after_a_program_that_failed(status: JobStatus) -> None:
    job = job_of_size(3).model_copy(update={"min_nodes": 2})
    assert of_programs(job, status, gang(0, 1, None)) == status


def job_of_size(size: int) -> Any:
    return job_ref(run_on("job")).model_copy(update={"num_nodes": size})


@each_backend
@pytest.mark.parametrize("injected", INJECTED)
@pytest.mark.usefixtures("aws")
def test_a_poll_reads_the_program_in_a_pod_that_an_agent_keeps_running(
    cluster: FakeKubernetesApi, backend: BackendName, injected: str
) -> None:
    run = run_on(backend)
    job = training(run)
    submit(job)
    failed = pod(ended(1, message="ValueError: no such file"), RUNNING, backend=backend, injected=injected)
    if backend == "pod":
        stored(cluster, job).update(spec=failed["spec"], status=failed["status"])
    else:
        failed["metadata"]["labels"] |= {RUN_LABEL: job.run_id, JOB_LABEL: job.ref.name}
        cluster.add("pods", failed)
    event = {"run": run.model_dump(mode="json"), "job": job.ref.model_dump(mode="json"), "progress": {}}
    with pytest.raises(ScriptFailed, match=r"code 1 .*Error.*: ValueError: no such"):
        poll_job.lambda_handler(event, CONTEXT)
