"""The Lambdas' way to the cluster, against a real API server: idempotence, refusals, log seams."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import lru_cache
from typing import Any

import pytest
from kubetwin.server import ApiServer

from lambdas.backends import volcano
from lambdas.backends.job import KIND, render
from lambdas.gateways import eks, kubernetes
from lambdas.gateways.kubernetes import KubernetesCluster
from lambdas.logic.jobs import Job, job_of
from tests.fakes.runs import run_of, spec_with
from trainflow.errors import ClusterUnavailable, InvalidRunSpec, JobConflict, JobNotFound
from trainflow.kubernetes.connection import from_endpoint
from trainflow.workflow.run import JobPhase, Stage

NAMESPACE = "training"


@pytest.fixture(scope="module")
def server() -> Iterator[ApiServer]:
    server = ApiServer()
    server.start()
    yield server
    server.stop()


def backend_for(endpoint: str, ca_pem: str, token: str) -> KubernetesCluster:
    with tempfile.NamedTemporaryFile("w", suffix=".pem", delete=False) as file:
        file.write(ca_pem)
    return KubernetesCluster(from_endpoint(endpoint, ca_file=file.name, token=token), namespace=NAMESPACE)


@pytest.fixture(scope="module")
def backend(server: ApiServer) -> KubernetesCluster:
    backend = backend_for(server.endpoint, server.ca_pem, server.admin_token)
    for path, kind, name in (
        ("/api/v1/namespaces", "Namespace", NAMESPACE),
        (f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts", "ServiceAccount", "training"),
    ):
        backend._api.call("POST", path, body={"apiVersion": "v1", "kind": kind, "metadata": {"name": name}})
    return backend


def test_a_job_that_the_cluster_refuses_is_explained_in_its_words(backend: KubernetesCluster) -> None:
    run = run_of(spec_with(compute__backend="volcano", compute__queue="nobodys"), run_id="refused")
    with pytest.raises(
        InvalidRunSpec, match=r"refuses the Job '.*': .*unable to find job queue: .*\"nobodys\" not found"
    ):
        backend.create(volcano.render(job_of(run, Stage.TRAINING, 1, artifacts_url="s3://a/")))


def job(run_id: str) -> Job:
    return job_of(run_of(run_id=run_id), Stage.TRAINING, 1, artifacts_url="s3://a/")


COLLECTIONS = {
    "Job": f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs",
    "Service": f"/api/v1/namespaces/{NAMESPACE}/services",
}


def names(backend: KubernetesCluster, kind: str) -> list[str]:
    found: list[Any] = backend._api.list(COLLECTIONS[kind], "app.kubernetes.io/managed-by=trainflow")
    return sorted(item["metadata"]["name"] for item in found)


def test_the_same_submit_twice_makes_one_job(backend: KubernetesCluster) -> None:
    same = job("twice-0123456789ab")
    backend.create(render(same))
    backend.create(render(same))
    assert [name for name in names(backend, "Job") if name.startswith("twice")] == [same.ref.name]


def test_another_job_of_the_same_name_is_a_conflict_and_changes_nothing(backend: KubernetesCluster) -> None:
    first = job("clash-0123456789ab")
    backend.create(render(first))
    with pytest.raises(JobConflict, match=rf"'{first.ref.name}'.*made from another"):
        backend.create(render(replace(first, image="another")))
    stored = backend._api.call("GET", f"{COLLECTIONS['Job']}/{first.ref.name}")
    assert stored["spec"]["template"]["spec"]["containers"][0]["image"] == first.image


def test_a_submit_that_broke_off_in_between_is_completed(backend: KubernetesCluster) -> None:
    broken_off = job("half-0123456789ab")
    backend.create(render(broken_off)[:1])
    backend.create(render(broken_off))
    assert broken_off.ref.name in names(backend, "Job")


def test_a_job_without_nodes_is_pending(backend: KubernetesCluster) -> None:
    pending = job("pending-0123456789ab")
    backend.create(render(pending))
    assert KIND.status(pending.ref, backend.job(pending.ref)).phase is JobPhase.PENDING


def test_cancelling_takes_the_runs_objects_only_and_can_be_repeated(backend: KubernetesCluster) -> None:
    mine, other = job("mine-0123456789ab"), job("other-0123456789ab")
    for each in (mine, other):
        backend.create(render(each))
        backend.claim_nodes(each.run_id, "trn1.32xlarge", 2)
    assert backend.claimed_nodes("trn1.32xlarge") == 4
    assert backend.cancel(mine.run_id) == [mine.ref.name]
    assert backend.cancel(mine.run_id) == []
    assert backend.claimed_nodes("trn1.32xlarge") == 2
    assert mine.ref.name not in names(backend, "Service")
    assert other.ref.name in names(backend, "Job")
    with pytest.raises(JobNotFound, match=mine.ref.name):
        backend.job(mine.ref)


def test_claiming_twice_counts_once(backend: KubernetesCluster) -> None:
    for _ in range(2):
        backend.claim_nodes("claim-0123456789ab", "trn1.2xlarge", 3)
    assert backend.claimed_nodes("trn1.2xlarge") == 3


def test_a_token_that_is_not_accepted_is_worth_a_retry(server: ApiServer) -> None:
    with pytest.raises(ClusterUnavailable, match=r"function's token.*401 Unauthorized"):
        backend_for(server.endpoint, server.ca_pem, "wrong").nodes("trn1.2xlarge")


class Eks:
    """What EKS and STS tell a function of the cluster; it changes while the function is warm."""

    def __init__(self, server: ApiServer) -> None:
        self.url, self.ca_pem, self.token = server.endpoint, server.ca_pem, server.admin_token

    def describe_cluster(self, _name: str) -> eks.ClusterEndpoint:
        return eks.ClusterEndpoint(url=self.url, ca_pem=self.ca_pem)


@pytest.fixture
def told(server: ApiServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[Eks]:
    told = Eks(server)
    monkeypatch.setattr(kubernetes.eks, "describe_cluster", lru_cache(told.describe_cluster))
    monkeypatch.setattr(kubernetes.eks, "bearer_token", lambda _cluster: told.token)
    kubernetes._forget_connection()
    yield told
    kubernetes._forget_connection()


def nodes() -> list[Any]:
    return list(kubernetes.connect("cluster", namespace=NAMESPACE).nodes("trn1.2xlarge"))


def digest_for_the_preflight() -> str | None:
    return kubernetes.examine("cluster", namespace=NAMESPACE).image_digest("probe")


@pytest.mark.parametrize("ask", [nodes, digest_for_the_preflight])
@pytest.mark.parametrize(
    ("field", "before", "sentence"),
    [
        ("token", "expired", "did not accept the function's token"),
        ("ca_pem", None, "certificate verify failed"),
        ("url", "https://127.0.0.1:9", "did not answer"),
    ],
)
def test_a_warm_function_asks_anew_for_what_led_to_a_refusal(
    server: ApiServer, told: Eks, field: str, before: str | None, sentence: str, ask: Callable[[], object]
) -> None:
    right = getattr(told, field)
    other = ApiServer()  # its certificates have an authority of their own
    other.start()
    setattr(told, field, before or other.ca_pem)
    other.stop()
    with pytest.raises(ClusterUnavailable, match=sentence):
        ask()
    setattr(told, field, right)
    assert not ask()


def test_a_cluster_that_does_not_answer_is_worth_a_retry(server: ApiServer) -> None:
    with pytest.raises(ClusterUnavailable, match="did not answer"):
        backend_for("https://127.0.0.1:9", server.ca_pem, "any").nodes("trn1.2xlarge")


def test_a_pod_that_is_not_there_has_no_log(backend: KubernetesCluster) -> None:
    assert list(backend.read_log("missing")) == []
    assert list(backend.follow_log("missing", since=None, longest_seconds=1.0)) == []
