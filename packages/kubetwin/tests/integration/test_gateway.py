"""The gateway to a foreign cluster: tokens as on EKS outside, the caller and its groups inside."""

from __future__ import annotations

import base64
import json
import ssl
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kubetwin.authentication import AUTHENTICATED, MASTERS, User
from kubetwin.gateway import ClusterGateway, serving
from kubetwin.kubeconfig import KubeconfigError, load_connection, write_kubeconfig
from kubetwin.server import ApiServer

CALLERS = {"sesame": User("lambda", (MASTERS, AUTHENTICATED)), "reader": User("poll", ("example:read", AUTHENTICATED))}


class Tokens:
    """Accepts the tokens of `CALLERS`."""

    def authenticate(self, token: str) -> User | None:
        return CALLERS.get(token)


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterGateway]:
    server = ApiServer()
    server.start()
    kubeconfig = tmp_path_factory.mktemp("cluster") / "kubeconfig"
    write_kubeconfig(kubeconfig, endpoint=server.endpoint, ca_pem=server.ca_pem, token=server.admin_token)
    gateway = ClusterGateway(load_connection(kubeconfig), [Tokens()])
    gateway.start()
    yield gateway
    gateway.stop()
    server.stop()


def call(
    gateway: ClusterGateway, path: str, *, token: str | None = "sesame", body: Any = None, **headers: str
) -> tuple[int, dict[str, Any]]:
    headers = {name.replace("_", "-"): value for name, value in headers.items()}
    headers |= {"Content-Type": "application/json", **({"Authorization": f"Bearer {token}"} if token else {})}
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(gateway.endpoint + path, data=data, headers=headers)
    try:
        with urllib.request.urlopen(request, context=ssl.create_default_context(cadata=gateway.ca_pem)) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as refused:
        return refused.code, json.load(refused)


@pytest.mark.parametrize("token", [None, "wrong"])
def test_requests_without_a_valid_token_are_refused(gateway: ClusterGateway, token: str | None) -> None:
    status, answer = call(gateway, "/api/v1/namespaces", token=token)
    assert (status, answer["message"]) == (401, "Unauthorized")


REVIEW = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}


@pytest.mark.parametrize("token", CALLERS)
def test_requests_are_made_as_the_caller_with_its_groups(gateway: ClusterGateway, token: str) -> None:
    status, answer = call(gateway, "/apis/authentication.k8s.io/v1/selfsubjectreviews", token=token, body=REVIEW)
    assert status == 201
    found = answer["status"]["userInfo"]
    assert (found["username"], sorted(found["groups"])) == (CALLERS[token].name, sorted(CALLERS[token].groups))


def test_a_caller_has_the_rights_of_its_groups_and_not_those_of_the_kubeconfig(gateway: ClusterGateway) -> None:
    status, answer = call(gateway, "/api/v1/namespaces", token="reader")
    assert (status, answer["reason"]) == (403, "Forbidden")
    assert 'User "poll" cannot list resource "namespaces"' in answer["message"]


def test_a_caller_does_not_choose_whom_it_acts_as(gateway: ClusterGateway) -> None:
    chosen = {"Impersonate_User": "kubernetes-admin", "Impersonate_Group": MASTERS}
    assert call(gateway, "/api/v1/namespaces", token="reader", **chosen)[0] == 403


def test_objects_errors_and_queries_pass_unchanged(gateway: ClusterGateway) -> None:
    manifest = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c", "labels": {"a": "b"}}}
    collection = "/api/v1/namespaces/default/configmaps"
    assert call(gateway, collection, body=manifest)[0] == 201
    assert call(gateway, collection, body=manifest)[0] == 409
    status, found = call(gateway, f"{collection}?labelSelector=a%3Db")
    assert (status, [item["metadata"]["name"] for item in found["items"]]) == (200, ["c"])
    assert call(gateway, f"{collection}/missing")[1]["reason"] == "NotFound"


def test_watches_arrive_while_they_last(gateway: ClusterGateway) -> None:
    request = urllib.request.Request(
        f"{gateway.endpoint}/api/v1/namespaces?watch=1&timeoutSeconds=30",
        headers={"Authorization": "Bearer sesame"},
    )
    with urllib.request.urlopen(request, context=ssl.create_default_context(cadata=gateway.ca_pem)) as stream:
        assert json.loads(stream.readline())["type"] == "ADDED"


def test_the_gateway_is_described_as_an_eks_cluster_and_refuses_other_tokens(tmp_path: Path) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    with ApiServer() as server:
        write_kubeconfig(kubeconfig, endpoint=server.endpoint, ca_pem=server.ca_pem, token=server.admin_token)
        with serving(kubeconfig, sts_endpoint="http://localhost:1", cluster_name="c", access_key="KEY") as served:
            assert base64.b64decode(served.ca_data).decode() == served.ca_pem
            assert call(served, "/version", token=server.admin_token)[0] == 401
    with (
        pytest.raises(KubeconfigError),
        serving(tmp_path / "no", sts_endpoint="http://localhost:1", cluster_name="c", access_key="KEY"),
    ):
        pass
