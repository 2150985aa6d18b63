"""Requests as programs send them, and what the API server answers: options, patches, lists of former times."""

from __future__ import annotations

import gc
import json
import ssl
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from kubetwin.server import ApiServer
from kubetwin.store import LEAST_KEPT
from kubetwin_testing.cluster import eventually

MERGE, STRATEGIC = "application/merge-patch+json", "application/strategic-merge-patch+json"
APPLY = "application/apply-patch+yaml"


class Client:
    """Sends requests about one namespace, and keeps headers of the last answer."""

    def __init__(self, server: ApiServer, namespace: str) -> None:
        self.server, self.namespace = server, namespace
        self.headers: dict[str, str] = {}
        self._tls = ssl.create_default_context(cadata=server.ca_pem)

    def __call__(
        self, method: str, path: str, body: Any = None, *, kind: str = "application/json", accept: str = ""
    ) -> tuple[int, dict[str, Any]]:
        """Status and answer; `path` is below the namespace, or absolute."""
        place = path if path.startswith("/") else f"/api/v1/namespaces/{self.namespace}/{path}"
        data = None if body is None else body.encode() if isinstance(body, str) else json.dumps(body).encode()
        request = urllib.request.Request(self.server.endpoint + place, data=data, method=method)
        request.add_header("Authorization", f"Bearer {self.server.admin_token}")
        request.add_header("Content-Type", kind)
        request.add_header("User-Agent", "tester/1.0")
        request.add_header("Accept", accept or "application/json")
        try:
            with urllib.request.urlopen(request, context=self._tls) as answer:
                self.headers = {name.lower(): value for name, value in answer.headers.items()}
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as refused:
            return refused.code, json.load(refused)

    def refused(self, method: str, path: str, body: Any = None, **options: Any) -> tuple[int, str]:
        code, answer = self(method, path, body, **options)
        return code, str(answer.get("message", ""))


@pytest.fixture(scope="module")
def server() -> Iterator[ApiServer]:
    with ApiServer() as started:
        yield started


@pytest.fixture
def client(server: ApiServer) -> Client:
    made = Client(server, f"t-{uuid.uuid4().hex[:8]}")
    made("POST", "/api/v1/namespaces", {"metadata": {"name": made.namespace}})
    eventually(lambda: made("GET", "serviceaccounts/default")[0] == 200, "the default service account")
    return made


def config(name: str, **data: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


def test_the_pages_of_a_list_show_the_time_of_its_first_page(client: Client) -> None:
    for name in ("a", "b", "c"):
        client("POST", "configmaps", {**config(name), "metadata": {"name": name, "labels": {"my": "own"}}})
    _, first = client("GET", "configmaps?labelSelector=my&limit=1")
    client("DELETE", "configmaps/b")
    client("POST", "configmaps", {**config("d"), "metadata": {"name": "d", "labels": {"my": "own"}}})
    _, rest = client("GET", f"configmaps?labelSelector=my&continue={first['metadata']['continue']}")
    assert [item["metadata"]["name"] for item in rest["items"]] == ["b", "c"]
    assert rest["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]


def test_a_list_can_be_that_of_an_exact_version(client: Client) -> None:
    _, created = client("POST", "configmaps", config("a", k="before"))
    client("PUT", "configmaps/a", config("a", k="after"))
    version = created["metadata"]["resourceVersion"]
    _, then = client(
        "GET", f"configmaps?fieldSelector=metadata.name=a&resourceVersion={version}&resourceVersionMatch=Exact"
    )
    assert [item["data"] for item in then["items"]] == [{"k": "before"}]
    assert client.refused("GET", "configmaps?resourceVersion=0&resourceVersionMatch=Exact") == (
        422,
        'ListOptions.meta.k8s.io "" is invalid: resourceVersionMatch: Forbidden: '
        'resourceVersionMatch "Exact" is forbidden for resourceVersion "0"',
    )


def test_repeated_fields_are_warned_of_or_refused(client: Client) -> None:
    twice = '{"metadata":{"name":"twice"},"data":{"k":"1","k":"2"}}'
    code, message = client.refused("POST", "configmaps?fieldValidation=Strict", twice)
    assert (code, message.rpartition(": ")[2]) == (400, 'duplicate field "data.k"')
    assert client("POST", "configmaps", twice)[0] == 201
    assert client.headers["warning"] == '299 - "duplicate field \\"data.k\\""'


def test_a_patch_that_does_not_fit_the_type_is_invalid_and_shown(client: Client) -> None:
    client("POST", "configmaps", config("c", a="1"))
    code, message = client.refused("PATCH", "configmaps/c", {"data": {"a": 1}}, kind=MERGE)
    assert code == 422
    assert message.startswith(' "" is invalid: patch: Invalid value: "{')
    assert message.endswith("json: cannot unmarshal number into Go struct field ConfigMap.data of type string")
    code, message = client.refused("PATCH", "configmaps/c?fieldValidation=Strict", {"dat": {"a": "1"}}, kind=STRATEGIC)
    assert (code, message) == (
        422,
        ' "" is invalid: patch: Invalid value: "map[dat:map[a:1]]": strict decoding error: unknown field "dat"',
    )


@pytest.mark.parametrize(
    ("patch", "code", "words"),
    [
        ({"metadata": {"uid": "other"}}, 422, 'metadata.uid: Invalid value: "other": field is immutable'),
        ({"metadata": {"name": None}}, 400, "(c based on URL) was undeterminable: name must be provided"),
        ({"kind": "Other"}, 422, 'no kind "Other" is registered for version "v1"'),
        ({"metadata": {"finalizers": ["odd"]}}, 422, "name is neither a standard finalizer name nor is it fully"),
        ("x", 400, "json: cannot unmarshal string into Go value of type map[string]interface {}"),
    ],
)
def test_a_patch_that_may_not_be_is_refused(client: Client, patch: Any, code: int, words: str) -> None:
    client("POST", "configmaps", config("c", a="1"))
    answered, message = client.refused("PATCH", "configmaps/c", json.dumps(patch), kind=MERGE)
    assert answered == code
    assert words in message


def test_what_is_applied_is_checked_field_by_field(client: Client) -> None:
    applied = {**config("c"), "dat": {}, "immutable": "x"}
    code, message = client.refused("PATCH", "configmaps/c?fieldManager=m", applied, kind=APPLY)
    assert (code, message) == (
        500,
        "failed to create typed patch object (/c; /v1, Kind=ConfigMap): errors:\n"
        "  .dat: field not declared in schema\n"
        '  .immutable: expected boolean, got &value.valueUnstructured{Value:"x"}',
    )


def test_an_apply_conflicts_with_the_program_that_created_the_object(client: Client) -> None:
    client("POST", "configmaps", config("c", a="1"))
    code, message = client.refused("PATCH", "configmaps/c?fieldManager=m", config("c", a="2"), kind=APPLY)
    assert (code, message) == (409, 'Apply failed with 1 conflict: conflict with "tester" using v1: .data.a')
    assert client("PATCH", "configmaps/c?fieldManager=m&force=true", config("c", a="2"), kind=APPLY)[0] == 200


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (
            {"propagationPolicy": "Orphan", "orphanDependents": True},
            'propagationPolicy: Invalid value: "Orphan": orphanDependents and deletionPropagation cannot be both set',
        ),
        ({"propagationPolicy": "Odd"}, 'propagationPolicy: Unsupported value: "Odd"'),
    ],
)
def test_options_of_a_deletion_that_exclude_each_other_are_refused(
    client: Client, body: dict[str, Any], words: str
) -> None:
    client("POST", "configmaps", config("c"))
    code, message = client.refused("DELETE", "configmaps/c", body)
    assert code == 422
    assert words in message


def test_tables_come_in_the_version_that_is_requested(client: Client) -> None:
    client("POST", "configmaps", config("c"))
    for version in ("v1", "v1beta1"):
        _, shown = client("GET", "configmaps/c", accept=f"application/json;as=Table;g=meta.k8s.io;v={version}")
        assert (shown["kind"], shown["apiVersion"]) == ("Table", f"meta.k8s.io/{version}")


@pytest.mark.parametrize(
    ("asked", "kind"),
    [("", "PartialObjectMetadata"), ("None", None), ("Metadata", "PartialObjectMetadata"), ("Object", "ConfigMap")],
)
def test_a_row_of_a_table_has_as_much_of_its_object_as_is_asked_for(
    client: Client, asked: str, kind: str | None
) -> None:
    client("POST", "configmaps", config("c", k="v"))
    accept = "application/json;as=Table;g=meta.k8s.io;v=v1"
    path = f"configmaps?fieldSelector=metadata.name=c{f'&includeObject={asked}' if asked else ''}"
    [row] = client("GET", path, accept=accept)[1]["rows"]
    shown = row.get("object") or {}
    assert (shown.get("kind"), shown.get("data")) == (kind, {"k": "v"} if asked == "Object" else None)
    assert client.refused("GET", "configmaps?includeObject=All", accept=accept)[0] == 400


def test_objects_that_are_gone_leave_the_memory(server: ApiServer, client: Client) -> None:
    job = {
        "metadata": {"name": "many"},
        "spec": {
            "parallelism": 300,
            "completions": 300,
            "template": {
                "spec": {
                    "restartPolicy": "Never",
                    "nodeSelector": {"no": "where"},
                    "containers": [{"name": "c", "image": "i"}],
                }
            },
        },
    }
    jobs = f"/apis/batch/v1/namespaces/{client.namespace}/jobs"
    client("POST", jobs, job)
    eventually(lambda: len(client("GET", "pods")[1]["items"]) == 300, "the Job's pods")
    client("DELETE", f"{jobs}/many?propagationPolicy=Background")
    eventually(lambda: not client("GET", "pods")[1]["items"], "the pods are gone")
    store = server._store
    store.forget_old_changes(time.monotonic() + 1000)
    gc.collect()
    kept = sum(1 for each in gc.get_objects() if type(each) is dict and each.get("kind") == "Pod" and "status" in each)
    assert kept <= 2 * LEAST_KEPT + 10  # the changes that are always kept, each with the state before it


@pytest.mark.parametrize("name", ["default", "kube-system", "kube-public"])
def test_the_first_namespaces_stay(client: Client, name: str) -> None:
    assert client.refused("DELETE", f"/api/v1/namespaces/{name}") == (
        403,
        f'namespaces "{name}" is forbidden: this namespace may not be deleted',
    )


def test_a_token_is_for_at_most_2_to_the_32_seconds(client: Client) -> None:
    code, message = client.refused("POST", "serviceaccounts/default/token", {"spec": {"expirationSeconds": 2**33}})
    assert code == 422
    assert message.endswith("may not specify a duration larger than 2^32 seconds")


@pytest.mark.parametrize("kind", ["application/json", "application/vnd.kubernetes.protobuf"])
def test_a_kind_that_is_not_offered_is_refused_in_a_sentence_whatever_the_body(client: Client, kind: str) -> None:
    deployments = f"/apis/apps/v1/namespaces/{client.namespace}/deployments"
    assert client("GET", deployments)[1]["items"] == []
    assert client.refused("POST", deployments, "{}", kind=kind) == (
        405,
        "this cluster runs no Deployments: create a Pod, a Job or a JobSet",
    )
    assert client.refused("PATCH", f"{deployments}/d", "{}", kind=APPLY)[0] == 405
    assert client.refused("GET", f"{deployments}/d") == (404, 'deployments.apps "d" not found')


def test_custom_kinds_are_recorded_as_established(client: Client) -> None:
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    _, found = client("GET", f"{path}/jobsets.jobset.x-k8s.io")
    assert found["spec"]["names"]["kind"] == "JobSet"
    assert ("Established", "True") in [(c["type"], c["status"]) for c in found["status"]["conditions"]]
    assert client.refused("DELETE", f"{path}/jobsets.jobset.x-k8s.io")[0] == 405


def test_a_number_that_is_none_in_the_options_of_a_deletion_is_refused(client: Client) -> None:
    client("POST", "configmaps", config("a"))
    code, message = client.refused("DELETE", "configmaps/a?gracePeriodSeconds=soon")
    assert (code, message) == (400, 'strconv.ParseInt: parsing "soon": invalid syntax')


def pod(name: str) -> dict[str, Any]:
    """A pod that no scheduler places."""
    spec = {"schedulerName": "nobody", "containers": [{"name": "c", "image": "busybox"}]}
    return {"metadata": {"name": name}, "spec": spec}


def test_a_pod_or_a_template_beyond_the_level_that_its_namespace_warns_of_is_told_so(client: Client) -> None:
    labels = {"pod-security.kubernetes.io/enforce": "baseline", "pod-security.kubernetes.io/warn": "restricted"}
    place = f"/api/v1/namespaces/{client.namespace}"
    assert client("PATCH", place, {"metadata": {"labels": labels}}, kind=MERGE)[0] == 200
    template = {"spec": {**pod("p")["spec"], "restartPolicy": "Never"}}
    job = {"metadata": {"name": "j"}, "spec": {"suspend": True, "template": template}}
    for path, body in (("pods", pod("p")), (f"/apis/batch/v1/namespaces/{client.namespace}/jobs", job)):
        assert client("POST", path, body)[0] == 201
        assert client.headers["warning"].startswith(
            '299 - "would violate PodSecurity \\"restricted:latest\\": allowPriv'
        )
    assert client("PATCH", "pods/p", {"metadata": {"labels": {"a": "b"}}}, kind=MERGE)[0] == 200
    assert "warning" not in client.headers, "it is as it was"
    privileged = pod("q")
    privileged["spec"]["containers"][0]["securityContext"] = {"privileged": True}
    assert client("POST", "pods", privileged)[0] == 403
    assert client("POST", "configmaps", config("c"))[0] == 201
    assert "warning" not in client.headers


@pytest.mark.parametrize(
    ("body", "answer"),
    [
        ({"target": {"name": "n"}}, (400, "name in URL does not match name in Binding object")),
        ({"metadata": {"name": "p"}}, (500, "target.name: Required value")),
        (
            {"metadata": {"name": "p"}, "target": {"name": "n", "kind": "Pod"}},
            (500, 'target.kind: Unsupported value: "Pod": supported values: "Node", "<empty>"'),
        ),
    ],
)
def test_a_binding_that_names_no_node_is_refused(client: Client, body: dict[str, Any], answer: tuple[int, str]) -> None:
    client("POST", "pods", pod("p"))
    assert client.refused("POST", "pods/p/binding", body) == answer


def test_an_eviction_has_the_name_and_the_preconditions_of_its_pod(client: Client) -> None:
    client("POST", "pods", pod("p"))
    assert client.refused("POST", "pods/p/eviction", {}) == (400, "name in URL does not match name in Eviction object")
    eviction = {"metadata": {"name": "p"}, "deleteOptions": {"preconditions": {"uid": "another"}}}
    code, message = client.refused("POST", "pods/p/eviction", eviction)
    assert (code, "the UID in the precondition (another) does not match the UID in record" in message) == (409, True)
    assert disruption(client) is None


def test_an_evicted_pod_says_so_until_it_has_ended(client: Client) -> None:
    _, made = client("POST", "pods", pod("p") | {"metadata": {"name": "p", "finalizers": ["example.com/kept"]}})
    version = made["metadata"]["resourceVersion"]
    eviction = {"metadata": {"name": "p"}, "deleteOptions": {"preconditions": {"resourceVersion": version}}}
    client("POST", "pods/p/eviction?dryRun=All", eviction)
    assert disruption(client) is None
    client("POST", "pods/p/eviction", eviction)
    assert disruption(client) == ("True", "EvictionByEvictionAPI", "Eviction API: evicting")
    assert client("GET", "events?fieldSelector=involvedObject.name=p")[1]["items"] == []


def disruption(client: Client) -> tuple[str, str, str] | None:
    _, found = client("GET", "pods/p")
    conditions = found["status"].get("conditions") or []
    disrupted = (each for each in conditions if each["type"] == "DisruptionTarget")
    return next(((each["status"], each["reason"], each["message"]) for each in disrupted), None)


@pytest.mark.parametrize(
    ("bound", "answer"),
    [
        ({"kind": "Pod", "apiVersion": "v1", "name": "none"}, (404, 'pods "none" not found')),
        (
            {"kind": "Pod", "apiVersion": "v1", "name": "p", "uid": "x"},
            (409, "the UID in the bound object reference (x)"),
        ),
        ({"kind": "Job", "apiVersion": "batch/v1", "name": "x"}, (400, "to object of type batch/v1, Kind=Job")),
    ],
)
def test_a_token_is_bound_to_a_pod_that_exists(client: Client, bound: dict[str, Any], answer: tuple[int, str]) -> None:
    client("POST", "pods", pod("p"))
    code, message = client.refused("POST", "serviceaccounts/default/token", {"spec": {"boundObjectRef": bound}})
    assert (code, answer[1] in message) == (answer[0], True)


@pytest.mark.parametrize(
    ("review", "spec", "answer"),
    [
        (
            "authorization.k8s.io/v1/selfsubjectaccessreviews",
            {},
            (422, "exactly one of nonResourceAttributes or resou"),
        ),
        (
            "authorization.k8s.io/v1/selfsubjectaccessreviews",
            {"resourceAttributes": {}, "nonResourceAttributes": {"path": "/"}},
            (422, '{"Path":"/","Verb":""}: cannot be specified in combination with resourceAttributes'),
        ),
        (
            "authorization.k8s.io/v1/subjectaccessreviews",
            {"resourceAttributes": {}},
            (422, 'spec.user: Invalid value: "": at least one of user or group must be specified'),
        ),
        ("authorization.k8s.io/v1/selfsubjectrulesreviews", {}, (400, "no namespace on request")),
        ("authentication.k8s.io/v1/tokenreviews", {}, (400, "token is required for TokenReview in authentication")),
    ],
)
def test_a_review_that_asks_for_nothing_is_refused(
    client: Client, review: str, spec: dict[str, Any], answer: tuple[int, str]
) -> None:
    code, message = client.refused("POST", f"/apis/{review}", {"spec": spec})
    assert (code, answer[1] in message) == (answer[0], True)


def test_a_stream_without_an_upgrade_is_refused_after_its_pod_was_looked_up(client: Client) -> None:
    client("POST", "pods", pod("p"))
    assert client.refused("GET", "pods/none/exec") == (404, 'pods "none" not found')
    assert client.refused("GET", "pods/p/exec?container=d") == (400, "container d is not valid for pod p")
    assert client.refused("GET", "pods/p/exec") == (400, "pod p does not have a host assigned")


def test_an_update_with_a_version_that_is_no_number_is_an_error(client: Client) -> None:
    client("POST", "configmaps", config("a"))
    changed = {**config("a"), "metadata": {"name": "a", "resourceVersion": "new"}}
    assert client.refused("PUT", "configmaps/a", changed) == (500, 'strconv.ParseUint: parsing "new": invalid syntax')
