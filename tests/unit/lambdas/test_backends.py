"""What the workflow does with a job, the same on every backend."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from lambdas.backends.backend import Backend
from lambdas.backends.registry import BACKENDS
from lambdas.gateways.kubernetes import KubernetesCluster
from lambdas.handlers import ensure_capacity, locate_rank0, poll_job, tear_down
from lambdas.logic.jobs import Job, job_of
from tests.fakes.deployment import FakeDeployment
from tests.fakes.kubernetes_api import FakeKubernetesApi
from tests.fakes.runs import STARTED_AT, job_ref, run_on
from tests.unit.lambdas.conftest import ARTIFACT_BUCKET, CONTEXT, NAMESPACE, Aws
from trainflow.deployment.backends import KUBERNETES_KINDS, BackendName
from trainflow.deployment.kubernetes_names import JOB_LABEL, RUN_LABEL
from trainflow.errors import BackendNotInstalled, GangIncomplete, GangTooLarge, JobConflict, JobNotFound
from trainflow.workflow.run import Run, Stage
from trainflow.workflow.run_record import RunStatus
from trainflow.workflow.run_table import row_of

each_backend = pytest.mark.parametrize("backend", KUBERNETES_KINDS)
CUSTOM = [backend for backend in KUBERNETES_KINDS.values() if backend.software]


def gateway(cluster: FakeKubernetesApi) -> KubernetesCluster:
    return KubernetesCluster(cluster, namespace=NAMESPACE)


def backend_of(job: Job) -> Backend:
    return BACKENDS[job.ref.backend](FakeDeployment())


def submit(job: Job) -> None:
    backend_of(job).submit(job)


def training(run: Run, attempt: int = 1) -> Job:
    return job_of(run, Stage.TRAINING, attempt, artifacts_url="s3://artifacts/")


def stored(cluster: FakeKubernetesApi, job: Job) -> dict[str, Any]:
    (found,) = [
        manifest
        for (_, name), manifest in cluster.objects.items()
        if name == job.ref.name and manifest["kind"] == KUBERNETES_KINDS[job.ref.backend].kind
    ]
    return found


def add_pod(cluster: FakeKubernetesApi, job: Job, name: str, status: dict[str, Any], **labels: str) -> None:
    labels = {RUN_LABEL: job.run_id, JOB_LABEL: job.ref.name, **labels}
    cluster.add("pods", {"metadata": {"name": name, "labels": labels}, "spec": {}, "status": status})


@each_backend
def test_the_same_submit_twice_makes_one_job(cluster: FakeKubernetesApi, backend: BackendName) -> None:
    job = training(run_on(backend))
    submit(job)
    before = dict(cluster.objects)
    submit(job)
    assert cluster.objects == before


@each_backend
def test_another_job_of_the_same_name_is_a_conflict(cluster: FakeKubernetesApi, backend: BackendName) -> None:
    job = training(run_on(backend))
    submit(job)
    with pytest.raises(JobConflict, match=rf"'{job.ref.name}'.*another specification"):
        submit(replace(job, image="another"))


@pytest.mark.parametrize("backend", CUSTOM, ids=lambda backend: backend.name)
def test_a_backend_that_is_not_installed_is_named(cluster: FakeKubernetesApi, backend: Any) -> None:
    cluster.missing = {backend.group}
    with pytest.raises(BackendNotInstalled) as refused:
        submit(training(run_on(backend.name)))
    assert str(refused.value) == (
        f"compute.backend is '{backend.name}', but {backend.software} is not installed in the cluster: it does not "
        f"know {backend.plural}.{backend.group}."
    )


@each_backend
def test_tear_down_needs_no_backend_but_the_runs_own(cluster: FakeKubernetesApi, backend: BackendName) -> None:
    cluster.missing = {kind.group for kind in CUSTOM if kind.name != backend}
    mine, other = training(run_on(backend)), training(run_on(backend).model_copy(update={"run_id": "other-1"}))
    for job in (mine, other):
        submit(job)
    assert gateway(cluster).cancel(mine.run_id) == [mine.ref.name]
    assert gateway(cluster).cancel(mine.run_id) == []
    assert {name for _, name in cluster.objects} == {other.ref.name}


def test_pods_of_a_job_are_left_to_its_controller(cluster: FakeKubernetesApi) -> None:
    job = training(run_on("job"))
    submit(job)
    add_pod(cluster, job, "gone-with-its-job", {}, **{"trainflow/backend": "job"})
    gateway(cluster).cancel(job.run_id)
    assert cluster.names("pods") == ["gone-with-its-job"]


@each_backend
def test_a_missing_job_is_a_named_error(cluster: FakeKubernetesApi, backend: BackendName) -> None:
    with pytest.raises(JobNotFound, match="is not in the cluster"):
        backend_of(training(run_on(backend))).status(training(run_on(backend)).ref)


@each_backend
def test_rank_0_is_found_by_its_labels_and_with_one_call(cluster: FakeKubernetesApi, backend: BackendName) -> None:
    job = training(run_on(backend))
    others = {"batch.kubernetes.io/job-completion-index": "1", "volcano.sh/task-index": "1"}
    if backend != "pod":
        others |= {"training.kubeflow.org/replica-type": "worker"}
        add_pod(cluster, job, "a-worker", {"phase": "Running"}, **others)
    add_pod(cluster, job, "rank0", {"phase": "Running"}, **KUBERNETES_KINDS[backend].rank0)
    calls: list[str] = []
    answer = cluster.call_api

    def counted(path: str, *arguments: Any, **options: Any) -> Any:
        calls.append(path)
        return answer(path, *arguments, **options)

    cluster.call_api = counted  # type: ignore[method-assign]
    assert backend_of(job).rank0(job.ref) == "rank0"
    assert len(calls) == 1


def test_rank_0_of_an_elastic_job_is_in_the_pod_that_it_announced(aws: Aws, cluster: FakeKubernetesApi) -> None:
    run = run_on("pytorchjob", elastic=True)
    job = job_ref(run)
    event = {"run": run.model_dump(mode="json"), "job": job.model_dump(mode="json")}
    assert locate_rank0.lambda_handler(event, CONTEXT) == {"pod": None}
    key = f"runs/{run.run_id}/rank0/{job.name}"
    aws.client("s3").put_object(Bucket=ARTIFACT_BUCKET, Key=key, Body=f"{job.name}-worker-1".encode())
    assert locate_rank0.lambda_handler(event, CONTEXT) == {"pod": f"{job.name}-worker-1"}
    assert not cluster.used_in_namespace, "no pod is read"


def poll(run: Run, job: Job, **fields: Any) -> dict[str, Any]:
    progress = {"log": None}
    event = {"run": run.model_dump(mode="json"), "job": job.ref.model_dump(mode="json"), "progress": progress}
    return poll_job.lambda_handler(event | fields, CONTEXT)


@each_backend
def test_a_gang_that_does_not_come_together_is_given_up_with_the_clusters_words(
    aws: Aws, cluster: FakeKubernetesApi, backend: BackendName
) -> None:
    run = run_on(backend)
    job = training(run)
    submit(job)
    submitted_at = datetime.now(UTC) - timedelta(minutes=run.spec.limits.gang_timeout_minutes + 1)
    stored(cluster, job)["metadata"]["creationTimestamp"] = submitted_at.isoformat()
    words = "0/2 nodes are available: 2 Insufficient aws.amazon.com/neuron."
    condition = {"type": "PodScheduled", "status": "False", "message": words}
    add_pod(cluster, job, "waiting", {"phase": "Pending", "conditions": [condition]})
    with pytest.raises(GangIncomplete, match=r"Insufficient aws\.amazon\.com/neuron"):
        poll(run, job)
    assert poll(run, job, phase="running")["phase"] == "running", "a gang that has run is not incomplete any more"


def test_a_pod_that_cannot_pull_its_image_has_that_as_its_pending_reason(cluster: FakeKubernetesApi) -> None:
    job = training(run_on("job"))
    waiting = {"state": {"waiting": {"reason": "ImagePullBackOff", "message": "Back-off pulling image"}}}
    add_pod(cluster, job, "waiting", {"phase": "Pending", "containerStatuses": [waiting]})
    assert gateway(cluster).pending_reason(job.ref) == "ImagePullBackOff: Back-off pulling image"
    assert gateway(cluster).pending_reason(training(run_on("volcano")).ref) is None


@each_backend
def test_an_incomplete_gang_is_deleted_alone(aws: Aws, cluster: FakeKubernetesApi, backend: BackendName) -> None:
    run = run_on(backend)
    first, second = training(run), training(run, attempt=2)
    for job in (first, second):
        submit(job)
    gateway(cluster).claim_nodes(run.run_id, "trn1.32xlarge", 2)
    event = {"run": run.model_dump(mode="json"), "job": first.ref.model_dump(mode="json")}
    for _ in range(2):
        tear_down.lambda_handler(event, CONTEXT)
    assert {name for _, name in cluster.objects} == {second.ref.name, f"{run.run_id}-nodes"}


def test_two_executions_whose_names_make_one_run_id_do_not_share_it(aws: Aws) -> None:
    run = run_on("job")
    row = row_of(run)
    aws.table.begin(row)
    aws.table.begin(row)  # a second try of the same state
    other = row.model_copy(
        update={"execution_arn": row.execution_arn.upper(), "started_at": STARTED_AT + timedelta(hours=1)}
    )
    with pytest.raises(JobConflict, match="which has not ended"):
        aws.table.begin(other)
    aws.table.finish(row.run_id, status=RunStatus.SUCCEEDED, ended_at=datetime.now(UTC))
    aws.table.begin(other)
    assert aws.table.find(row.run_id) == other


def test_a_gang_that_can_never_fit_starts_no_node(aws: Aws, cluster: FakeKubernetesApi) -> None:
    run = run_on("job", num_nodes=17)
    aws.add_nodegroup("trn1.32xlarge")
    event = {"run": run.model_dump(mode="json"), "waiting_since": STARTED_AT.isoformat()}
    with pytest.raises(GangTooLarge, match=r"num_nodes is 17\b.*node group.*16 nodes"):
        ensure_capacity.lambda_handler(event, CONTEXT)
    assert aws.desired("trn1.32xlarge") == 0
