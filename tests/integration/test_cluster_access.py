"""Who may do what in the twin's cluster: a role's access entry gives it a group, and RBAC gives the group its verbs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from kubetwin.access_entries import AccessEntries
from kubetwin.authentication import StsAuthenticator
from kubetwin.client import ApiClient, RequestRefused
from kubetwin.kubeconfig import load_connection, write_kubeconfig
from kubetwin.server import ApiServer

from lambdas.gateways.aws import client
from lambdas.gateways.eks import bearer_token
from local.aws import deployment
from local.aws.server import AwsServer
from local.shared_storage import grant, offer
from trainflow.deployment.functions import FUNCTIONS
from trainflow.deployment.kubernetes_access import Access

CLUSTER, NAMESPACE = deployment.CLUSTER_NAME, deployment.NAMESPACE
JOBS = f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs"


@pytest.fixture(scope="module")
def aws() -> Iterator[AwsServer]:
    server = AwsServer(time_scale=60)
    server.start()
    deployment.make_cluster(server)
    deployment.deploy(server)
    yield server
    server.stop()


@pytest.fixture(scope="module")
def server(aws: AwsServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    entries = AccessEntries(aws.endpoint, CLUSTER, access_key=":".join(aws.owner_credentials.values()))
    with ApiServer(authenticators=[StsAuthenticator(aws.endpoint, CLUSTER, groups_of=entries.groups_of)]) as server:
        admin = api(server, server.admin_token, tmp_path_factory.mktemp("admin"))
        offer(admin, tmp_path_factory.mktemp("volumes"), namespace=NAMESPACE)
        grant(admin, namespace=NAMESPACE)
        yield server


def api(server: ApiServer, token: str, folder: Path) -> ApiClient:
    write_kubeconfig(folder / "kubeconfig", endpoint=server.endpoint, ca_pem=server.ca_pem, token=token)
    return ApiClient(load_connection(folder / "kubeconfig"))


As = Callable[[str], ApiClient]


@pytest.fixture
def as_role(aws: AwsServer, server: ApiServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[As]:
    """Log in as functions do: with a role's credentials and a presigned request."""

    def log_in(role: str) -> ApiClient:
        for name, value in {**aws.client_environment, **aws.credentials_of(role, "tests")}.items():
            monkeypatch.setenv(name, value)
        client.cache_clear()
        return api(server, bearer_token(CLUSTER), tmp_path)

    yield log_in
    client.cache_clear()


@pytest.fixture
def as_function(aws: AwsServer, as_role: As) -> As:
    def log_in(name: str) -> ApiClient:
        function = aws.client("lambda").get_function_configuration(FunctionName=f"trainflow-{name}")
        return as_role(function["Role"])

    return log_in


def job(name: str) -> dict[str, Any]:
    container = {"name": "main", "image": "x", "command": ["true"]}
    template = {"spec": {"containers": [container], "restartPolicy": "Never"}}
    spec = {"suspend": True, "template": template}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": spec}


def test_functions_that_submit_or_watch_cannot_delete_a_job_and_those_that_clean_up_can(as_function: As) -> None:
    submitter = as_function("SubmitJob")
    submitter.create(JOBS, job("precious"))
    assert refused(lambda: submitter.delete(f"{JOBS}/precious"))

    watcher = as_function("PollJob")
    assert watcher.get(f"{JOBS}/precious")["metadata"]["name"] == "precious"
    assert refused(lambda: watcher.delete(f"{JOBS}/precious"))
    assert refused(lambda: watcher.create(JOBS, job("another")))

    cleaner = as_function("TearDown")
    assert [found["metadata"]["name"] for found in cleaner.get(JOBS)["items"]] == ["precious"]
    cleaner.delete(f"{JOBS}/precious")
    assert cleaner.get(JOBS)["items"] == []


def test_a_functions_rights_end_at_the_namespace(as_function: As) -> None:
    cleaner = as_function("CleanUp")
    assert refused(lambda: cleaner.get("/apis/batch/v1/namespaces/default/jobs"))
    assert refused(lambda: cleaner.get("/api/v1/namespaces/kube-system/configmaps"))


def test_no_function_reads_secrets(as_function: As) -> None:
    for function in FUNCTIONS:
        if function.access is not None:
            caller = as_function(function.name)
            assert refused(lambda caller=caller: caller.get(f"/api/v1/namespaces/{NAMESPACE}/secrets")), function.name


def test_a_function_without_an_entry_is_not_let_in(as_function: As) -> None:
    notifier = as_function("Notify")
    with pytest.raises(RequestRefused) as refusal:
        notifier.get(f"/api/v1/namespaces/{NAMESPACE}/pods")
    assert refusal.value.status == 401


def test_who_loses_the_entry_loses_the_way_in(aws: AwsServer, as_role: As) -> None:
    role, eks = "arn:aws:iam::123456789012:role/visitor", aws.client("eks")
    eks.create_access_entry(clusterName=CLUSTER, principalArn=role, kubernetesGroups=[Access.WATCH.value])
    assert as_role(role).get(f"/api/v1/namespaces/{NAMESPACE}/pods")["items"] == []
    eks.delete_access_entry(clusterName=CLUSTER, principalArn=role)
    with pytest.raises(RequestRefused) as refusal:
        as_role(role).get(f"/api/v1/namespaces/{NAMESPACE}/pods")
    assert refusal.value.status == 401


def refused(call: Callable[[], object]) -> bool:
    """Whether RBAC forbids it."""
    try:
        call()
    except RequestRefused as error:
        return error.status == 403
    return False
