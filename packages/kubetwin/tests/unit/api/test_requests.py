from __future__ import annotations

import asyncio

import pytest
from kubetwin.api.app import PIECE_BYTES, in_pieces
from kubetwin.api.authorization import Authorizer
from kubetwin.api.requests import RequestInfo, parse_boolean, parse_list_options, parse_request
from kubetwin.authentication import ADMIN, ANONYMOUS, AUTHENTICATED, User
from kubetwin.model.errors import ApiError
from kubetwin.store import Store
from starlette.responses import Response
from starlette.types import Message


@pytest.mark.parametrize(
    ("method", "path", "query", "expected"),
    [
        ("GET", "/api/v1/namespaces/a/pods", {}, ("list", "", "v1", "pods", "", "a", "")),
        ("GET", "/api/v1/namespaces/a/pods", {"watch": "1"}, ("watch", "", "v1", "pods", "", "a", "")),
        ("GET", "/api/v1/namespaces/a/pods/p/log", {}, ("get", "", "v1", "pods", "log", "a", "p")),
        ("DELETE", "/api/v1/namespaces/a", {}, ("delete", "", "v1", "namespaces", "", "a", "a")),
        ("PUT", "/api/v1/namespaces/a/finalize", {}, ("update", "", "v1", "namespaces", "finalize", "a", "a")),
        ("DELETE", "/apis/batch/v1/namespaces/a/jobs", {}, ("deletecollection", "batch", "v1", "jobs", "", "a", "")),
        ("PATCH", "/api/v1/nodes/n/status", {}, ("patch", "", "v1", "nodes", "status", "", "n")),
        ("POST", "/api/v1/namespaces", {}, ("create", "", "v1", "namespaces", "", "", "")),
    ],
)
def test_a_path_is_split_as_the_api_server_splits_it(
    method: str, path: str, query: dict[str, str], expected: tuple[str, ...]
) -> None:
    info = parse_request(method, path, query)
    found = (info.verb, info.group, info.version, info.resource, info.subresource, info.namespace, info.name)
    assert found == expected


@pytest.mark.parametrize("path", ["/version", "/api", "/apis/batch", "/api/v1", "/apis/batch/v1", "/nosuch"])
def test_other_paths_are_no_resources(path: str) -> None:
    assert not parse_request("GET", path, {}).is_resource


@pytest.mark.parametrize(
    ("text", "value"), [("true", True), ("True", True), ("1", True), ("false", False), ("0", False), (None, False)]
)
def test_a_boolean_is_read_in_the_notation_of_every_client(text: str | None, value: bool) -> None:
    assert parse_boolean(text) is value


def test_options_that_exclude_each_other_are_refused() -> None:
    with pytest.raises(ApiError, match="resourceVersionMatch is forbidden unless resourceVersion is provided"):
        parse_list_options({"resourceVersionMatch": "Exact"}, watch=False)
    with pytest.raises(ApiError, match="not allowed when using continue"):
        parse_list_options({"continue": "x", "resourceVersion": "5"}, watch=False)


@pytest.mark.parametrize(
    ("size", "sizes"),
    [
        (0, [0]),
        (PIECE_BYTES, [PIECE_BYTES]),
        (PIECE_BYTES + 1, [PIECE_BYTES, 1]),
        (2 * PIECE_BYTES, [PIECE_BYTES, PIECE_BYTES]),
    ],
)
def test_a_long_answer_is_sent_in_pieces(size: int, sizes: list[int]) -> None:
    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    answer = bytes(range(256)) * (size // 256) + b"." * (size % 256)
    asyncio.run(Response(answer)({"type": "http"}, _no_request, in_pieces(send)))
    start, *parts = sent
    assert start["type"] == "http.response.start"
    assert [len(part["body"]) for part in parts] == sizes
    assert b"".join(part["body"] for part in parts) == answer
    assert [part.get("more_body", False) for part in parts] == [True] * (len(sizes) - 1) + [False]


async def _no_request() -> Message:
    raise AssertionError("an answer reads no request")


def _store_with_binding() -> Store:
    store = Store()
    group = "rbac.authorization.k8s.io"
    rules = [{"verbs": ["create"], "apiGroups": ["batch"], "resources": ["jobs"]}]
    store.put(f"roles.{group}", {"metadata": {"name": "r", "namespace": "ns"}, "rules": rules})
    binding = {
        "metadata": {"name": "b", "namespace": "ns"},
        "roleRef": {"kind": "Role", "name": "r"},
        "subjects": [{"kind": "ServiceAccount", "name": "sub", "namespace": "ns"}],
    }
    store.put(f"rolebindings.{group}", binding)
    return store


def test_a_role_allows_what_it_names_and_nothing_else() -> None:
    authorizer = Authorizer(_store_with_binding())
    user = User("system:serviceaccount:ns:sub", (AUTHENTICATED,))
    allowed = RequestInfo("", "create", "batch", "v1", "jobs", "", "ns")
    decision = authorizer.decide(user, allowed)
    assert decision.allowed
    assert decision.reason == 'RBAC: allowed by RoleBinding "b/ns" of Role "r" to ServiceAccount "sub/ns"'
    for refused in (
        RequestInfo("", "list", "batch", "v1", "jobs", "", "ns"),
        RequestInfo("", "create", "batch", "v1", "jobs", "status", "ns"),
        RequestInfo("", "create", "batch", "v1", "jobs", "", "other"),
        RequestInfo("", "create", "", "v1", "pods", "", "ns"),
    ):
        assert not authorizer.decide(user, refused).allowed


def test_anonymous_clients_see_the_version_and_health_only() -> None:
    authorizer = Authorizer(Store())
    authorizer.check(ANONYMOUS, RequestInfo("/version", "get"))
    with pytest.raises(ApiError, match='User "system:anonymous" cannot get path "/api"'):
        authorizer.check(ANONYMOUS, RequestInfo("/api", "get"))
    authorizer.check(ADMIN, RequestInfo("/api", "get"))
