"""Slurm's REST API: versions, tokens, and what goes wrong on the way."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import jwt
import pytest
from urllib3.exceptions import NewConnectionError

from lambdas.backends.slurm import slurmrestd as slurm_api
from lambdas.backends.slurm.cluster import connect
from lambdas.backends.slurm.forms import complaints, submission_form
from lambdas.backends.slurm.slurmrestd import RestController
from tests.unit.lambdas.conftest import Aws
from tests.unit.lambdas.test_slurm_forms import JOB, newer_job, recorded, some
from tests.wording import wording
from trainflow.deployment.slurm import Partition
from trainflow.errors import ClusterAccessDenied, ClusterUnavailable, JobRefused

KEY = bytes(range(32))
CLAIMS = {"uid": 1000, "gid": 1000, "id": {"shell": "/bin/bash"}}
UNKNOWN = {"errors": [{"description": "Failed while looking for jobs", "error_number": -1, "error": "Unspecified"}]}

OLD_JOB = recorded("jobs-v0.0.38.json")["jobs"][0] | {"user_id": 1000, "job_id": 12}
NEW_PARTITION = {
    "name": "short",
    "nodes": {"total": 2},
    "maximums": {"nodes": {"set": False, "infinite": True, "number": 0}, "time": some(5)},
    "partition": {"state": ["UP"]},
}


def wrong(number: int, words: str) -> dict[str, Any]:
    return {"errors": [{"error_number": number, "error": words, "description": words}]}


@dataclass(frozen=True)
class Dialect:
    """How slurmrestd says the same in its versions (slurmrestd's `operations.c`; v0.0.38's was seen)."""

    version: int
    no_token: tuple[int, Any]
    no_job: tuple[int, Any]
    no_partition: tuple[int, Any]
    refusal: tuple[int, Any]
    job: dict[str, Any]
    partition: Any


UP_TO_38 = Dialect(
    version=38,
    no_token=(500, UNKNOWN),
    no_job=(500, wrong(2017, "Invalid job id specified")),
    no_partition=(500, {"errors": [{"error": "Invalid partition name", "errno": 2000}]}),
    refusal=(500, {"errors": [{"error_code": 2000, "error": "Invalid partition name specified"}]}),
    job=OLD_JOB,
    partition=recorded("partition-v0.0.38.json"),
)
"""Slurm 22.05."""

UP_TO_44 = Dialect(
    version=44,
    no_token=(511, wrong(1007, "Protocol authentication error")),
    no_job=(404, wrong(2017, "Invalid job id specified")),
    no_partition=(422, wrong(9000, "Unable to find partition long")),
    refusal=(422, wrong(9000, "Invalid partition name specified")),
    job=newer_job(job_state=["RUNNING"]),
    partition={"errors": [], "partitions": [NEW_PARTITION]},
)
"""Slurm 25.11, which AWS PCS runs."""

UP_TO_43 = replace(UP_TO_44, version=43, no_token=(500, wrong(1007, "Protocol authentication error")))
"""Slurm 25.05."""


@dataclass
class FakeServer:
    """slurmrestd: checks tokens as slurmctld does, and answers in one version's way."""

    dialect: Dialect
    key: bytes = KEY
    answers: dict[str, tuple[int, Any]] = field(default_factory=dict)
    """Answers by method and path below the version."""
    versions: tuple[int, ...] = ()
    has_accounting: bool = False
    is_down: bool = False
    lists_at: str = "/openapi/v3"
    asked: list[str] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    bodies: list[str | None] = field(default_factory=list)
    tokens: list[dict[str, Any]] = field(default_factory=list)

    def request(self, method: str, url: str, *, headers: dict[str, str], body: str | None) -> Any:
        if self.is_down:
            raise NewConnectionError(None, "Connection refused")  # type: ignore[arg-type]
        path = url.removeprefix("http://slurm:6820")
        self.asked.append(f"{method} {path}")
        self.headers.append(headers)
        self.bodies.append(body)
        status, document = self._answer(method, path, headers["X-SLURM-USER-TOKEN"])
        return SimpleNamespace(status=status, data=json.dumps(document).encode())

    def _answer(self, method: str, path: str, token: str) -> tuple[int, Any]:
        newest = self.dialect.version
        if path.startswith("/openapi") and path != self.lists_at:
            return 404, {}
        if path == self.lists_at:
            paths = {f"/slurm/v0.0.{version}/job/submit": {} for version in self.versions or (37, newest)}
            accounting = {f"/slurmdb/v0.0.{newest}/job/{{job_id}}": {}} if self.has_accounting else {}
            return 200, {"paths": paths | accounting}
        try:
            self.tokens.append(jwt.decode(token, self.key, algorithms=["HS256"], options={"verify_iat": False}))
        except jwt.InvalidTokenError:
            return self.dialect.no_token
        kind, version, rest = path.removeprefix("/").split("/", 2)
        assert version == f"v0.0.{newest}", path
        asked = f"{method} {rest}" if kind == "slurm" else f"{method} {kind} {rest}"
        return self.answers.get(asked, (200, {"errors": [], "jobs": []}))


@pytest.fixture(params=[UP_TO_38, UP_TO_43, UP_TO_44], ids=lambda dialect: f"v0.0.{dialect.version}")
def server(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> FakeServer:
    found = FakeServer(request.param)
    monkeypatch.setattr(slurm_api.urllib3, "PoolManager", lambda **_: found)
    return found


@pytest.fixture
def keep_key(aws: Aws) -> Iterator[Callable[[bytes], None]]:
    """Puts the key where the deployment has it; it is remembered from its first use on."""
    secrets = aws.client("secretsmanager")
    secrets.create_secret(Name="slurm-key", SecretString=base64.b64encode(KEY).decode())
    slurm_api._key.cache_clear()

    def keep(key: bytes) -> None:
        secrets.put_secret_value(SecretId="slurm-key", SecretString=base64.b64encode(key).decode())

    yield keep
    slurm_api._key.cache_clear()


@pytest.fixture
def slurm(server: FakeServer, keep_key: Callable[[bytes], None]) -> RestController:
    return RestController("http://slurm:6820/", key_secret="slurm-key", user="trainer", claims=CLAIMS)


def test_the_version_is_asked_for_once(slurm: RestController, server: FakeServer) -> None:
    slurm.jobs()
    slurm.jobs()
    jobs = f"GET /slurm/v0.0.{server.dialect.version}/jobs"
    assert server.asked == ["GET /openapi/v3", jobs, jobs]


@pytest.mark.parametrize("claims", ["", json.dumps(CLAIMS)], ids=["none", "of PCS"])
def test_a_deployments_cluster_is_asked_as_its_settings_say(
    server: FakeServer, keep_key: Callable[[bytes], None], claims: str
) -> None:
    connect_anew = connect.__wrapped__  # a warm Lambda keeps its connection
    settings = {"key_secret": "slurm-key", "user": "trainer", "claims": claims, "bucket": "artifacts"}
    cluster = connect_anew("http://slurm:6820", **settings)
    server.answers["GET jobs"] = (200, {"jobs": [server.dialect.job | {"user_name": "trainer"}]})
    assert cluster.is_stopped("another-run")
    assert not cluster.is_stopped("bert-0123456789ab")
    assert server.tokens[0]["sun"] == "trainer"
    assert server.tokens[0].get("uid") == (1000 if claims else None)


def test_a_server_of_an_unknown_version_is_refused_in_a_sentence(slurm: RestController, server: FakeServer) -> None:
    server.versions = (36,)
    with pytest.raises(ClusterAccessDenied) as refused:
        slurm.jobs()
    assert str(refused.value) == (
        wording("slurm_api.a_server_of_an_unknown_version_is_refused_in_a_sentence", "6820", "v0.0")
    )


def test_a_token_names_the_user_and_is_valid_for_ten_minutes_at_most(slurm: RestController, server: FakeServer) -> None:
    slurm.jobs()
    (claims,) = server.tokens
    assert claims["sun"] == "trainer"
    assert CLAIMS.items() <= claims.items()
    assert claims["exp"] - claims["iat"] == 600


def test_a_token_is_renewed_before_it_expires(
    slurm: RestController, server: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    slurm.jobs()
    now = slurm_api.time.time()
    monkeypatch.setattr(slurm_api.time, "time", lambda: now + 500)
    slurm.jobs()
    first, second = server.tokens
    assert second["exp"] > first["exp"]


def test_a_refused_token_is_renewed_once_with_the_current_key(
    slurm: RestController, server: FakeServer, keep_key: Callable[[bytes], None]
) -> None:
    slurm.jobs()
    server.key = bytes(32)
    says_why = server.dialect.version > 38
    why = "; ".join(words for _, words in complaints(server.dialect.no_token[1]))
    if says_why:
        sentence = (
            f"Slurm's REST API refused the token for the user 'trainer' ({why}): SLURM_KEY_SECRET has to hold the "
            "cluster's key."
        )
    else:
        sentence = (
            f"Slurm's REST API answered 500 ({why}): slurmctld does not answer it, or does not take the token for the "
            "user 'trainer'."
        )
    with pytest.raises(ClusterAccessDenied if says_why else ClusterUnavailable) as raised:
        slurm.jobs()
    assert str(raised.value) == sentence
    keep_key(server.key)
    assert slurm.jobs() == []


@pytest.mark.parametrize("kept", [{"SecretString": "no key!"}, {"SecretBinary": KEY}], ids=["text", "binary"])
def test_a_secret_without_a_key_is_a_named_error(slurm: RestController, aws: Aws, kept: dict[str, Any]) -> None:
    aws.client("secretsmanager").put_secret_value(SecretId="slurm-key", **kept)
    with pytest.raises(ClusterAccessDenied) as refused:
        slurm.jobs()
    assert str(refused.value) == (
        wording("slurm_api.a_secret_without_a_key_is_a_named_error", "'slurm-key'", "`base64 -w 0`")
    )


def test_a_key_may_be_wrapped_in_lines(slurm: RestController, aws: Aws, server: FakeServer) -> None:
    """`base64` breaks lines unless `-w 0` is set."""
    server.key = bytes(range(60))
    wrapped = base64.encodebytes(server.key).decode()
    assert wrapped.count("\n") == 2
    aws.client("secretsmanager").put_secret_value(SecretId="slurm-key", SecretString=wrapped)
    assert slurm.jobs() == []


def test_a_submit_is_never_repeated_by_itself(slurm: RestController, server: FakeServer) -> None:
    server.answers["POST job/submit"] = (500, UNKNOWN)
    with pytest.raises(ClusterUnavailable):
        slurm.submit(JOB, after=[])
    assert server.asked.count(f"POST /slurm/v0.0.{server.dialect.version}/job/submit") == 1


@pytest.mark.parametrize("malformed", [False, True])
def test_a_job_that_slurm_does_not_take_is_refused_in_its_words(
    slurm: RestController, server: FakeServer, malformed: bool
) -> None:
    same = (400, {"errors": [{"error_number": -1, "description": "Invalid partition name specified"}]})
    server.answers["POST job/submit"] = same if malformed else server.dialect.refusal
    with pytest.raises(JobRefused, match=r"': Invalid partition name specified\.$"):
        slurm.submit(JOB, after=[])


def test_a_complaint_about_a_job_that_is_in_the_queue_is_no_refusal(slurm: RestController, server: FakeServer) -> None:
    complaint = {"error_code": 2015, "error": "Requested partition configuration not available now"}
    server.answers["POST job/submit"] = (200, {"errors": [complaint], "job_id": 6})
    slurm.submit(JOB, after=[])


def test_a_server_that_is_down_is_worth_a_retry(slurm: RestController, server: FakeServer) -> None:
    server.is_down = True
    with pytest.raises(ClusterUnavailable, match=r"http://slurm:6820 .*answer.*refused"):
        slurm.jobs()


@pytest.mark.parametrize("status", [401, 403, 511])
def test_an_answer_of_a_gate_before_slurm_that_refuses_the_token_is_named(
    slurm: RestController, server: FakeServer, status: int
) -> None:
    server.answers["GET jobs"] = (status, {})
    with pytest.raises(ClusterAccessDenied) as refused:
        slurm.jobs()
    assert str(refused.value) == (
        wording("slurm_api.an_answer_of_a_gate_before_slurm_that_refuses_the_token_is_named", "'trainer'")
    )


@pytest.mark.parametrize("said", [None, [], "text", {"errors": []}, {"jobs": [{}]}], ids=str)
def test_an_answer_in_another_form_is_worth_a_retry(slurm: RestController, server: FakeServer, said: Any) -> None:
    server.answers["GET jobs"] = (200, said)
    with pytest.raises(ClusterUnavailable) as failed:
        slurm.jobs()
    missing = "job_id" if said == {"jobs": [{}]} else "jobs"
    assert str(failed.value) == (
        f"Slurm's REST API at http://slurm:6820 gave an answer that is not in a known form (KeyError: '{missing}'); "
        "check that nothing but Slurm answers there."
    )


@pytest.mark.parametrize("status", [400, 500])
def test_a_request_that_failed_is_repeated_once_with_a_new_token_and_version(
    slurm: RestController, server: FakeServer, status: int
) -> None:
    """The server may have been updated, and v0.0.38 gives no reason for a failure."""
    server.answers["GET jobs"] = (status, UNKNOWN)
    with pytest.raises(ClusterUnavailable):
        slurm.jobs()
    jobs = f"GET /slurm/v0.0.{server.dialect.version}/jobs"
    assert server.asked == ["GET /openapi/v3", jobs, "GET /openapi/v3", jobs]


def test_an_older_server_lists_its_versions_elsewhere(slurm: RestController, server: FakeServer) -> None:
    server.lists_at = "/openapi"
    assert slurm.jobs() == []
    assert server.asked[:2] == ["GET /openapi/v3", "GET /openapi"]


def test_a_server_that_lists_no_versions_is_worth_a_retry(slurm: RestController, server: FakeServer) -> None:
    server.lists_at = "/nowhere"
    with pytest.raises(ClusterUnavailable, match=r"REST API answered 404 .*slurmctld"):
        slurm.jobs()


def test_requests_name_the_user_and_have_their_body_as_json(slurm: RestController, server: FakeServer) -> None:
    server.answers["POST job/submit"] = (200, {"job_id": 6})
    slurm.submit(JOB, after=[7])
    sent = [{key: value for key, value in each.items() if "TOKEN" not in key} for each in server.headers]
    assert sent == [
        {"X-SLURM-USER-NAME": "trainer"},
        {"X-SLURM-USER-NAME": "trainer", "Content-Type": "application/json"},
    ]
    assert server.bodies[0] is None
    assert json.loads(server.bodies[1] or "") == submission_form(JOB, server.dialect.version, after=[7])


def test_an_unknown_job_is_none_and_may_be_cancelled(slurm: RestController, server: FakeServer) -> None:
    server.answers |= {"GET job/9": server.dialect.no_job, "DELETE job/9": server.dialect.no_job}
    assert slurm.job(9) is None
    slurm.cancel(9)


def test_a_cancel_that_fails_is_a_named_error(slurm: RestController, server: FakeServer) -> None:
    for done in (wrong(2017, "Invalid job id specified"), wrong(2021, "Job/step already completing or completed")):
        server.answers["DELETE job/9"] = (500, done)
        slurm.cancel(9)
    for refused in (UNKNOWN, wrong(2018, "Access denied")):
        server.answers["DELETE job/9"] = (500, refused)
        with pytest.raises(ClusterUnavailable):
            slurm.cancel(9)
    server.answers["DELETE job/9"] = (500, UNKNOWN)
    with pytest.raises(ClusterUnavailable, match=r" 500 \(Failed while looking for jobs\)"):
        slurm.cancel(9)


def test_a_partition_is_found_or_none(slurm: RestController, server: FakeServer) -> None:
    server.answers["GET partition/short"] = (200, server.dialect.partition)
    server.answers["GET partition/long"] = server.dialect.no_partition
    assert slurm.partition("short") == Partition(name="short", num_nodes=2, max_minutes=5)
    assert slurm.partition("long") is None
    server.answers["GET partition/long"] = (404, {})
    assert slurm.partition("long") is None


def test_all_partitions_are_one_call(slurm: RestController, server: FakeServer) -> None:
    server.answers["GET partitions"] = (200, server.dialect.partition)
    assert slurm.partitions() == [Partition(name="short", num_nodes=2, max_minutes=5)]


def test_who_cancelled_is_unknown_without_an_accounting_database(slurm: RestController, server: FakeServer) -> None:
    assert slurm.cancelled_by(9) is None
    assert server.asked == ["GET /openapi/v3"]


def test_who_cancelled_is_asked_of_the_accounting_database(slurm: RestController, server: FakeServer) -> None:
    server.has_accounting = True
    server.answers["GET slurmdb job/9"] = (200, {"errors": [], "jobs": [{"job_id": 9, "kill_request_user": "ada"}]})
    assert slurm.cancelled_by(9) == "ada"
    server.answers["GET slurmdb job/9"] = (200, {"errors": [], "jobs": [{"job_id": 9, "kill_request_user": ""}]})
    assert slurm.cancelled_by(9) is None
    server.answers["GET slurmdb job/9"] = (500, UNKNOWN)
    assert slurm.cancelled_by(9) is None


def test_a_running_job_is_understood(slurm: RestController, server: FakeServer) -> None:
    server.answers["GET job/12"] = (200, {"errors": [], "jobs": [server.dialect.job]})
    job = slurm.job(12)
    assert job is not None
    assert (job.job_id, job.name, job.states) == (12, JOB.name, {"RUNNING"})
    assert job.comment == JOB.comment
    assert job.started_at is not None


@pytest.mark.parametrize(("user_id", "user"), [(1000, "trainer"), (0, ""), (1001, "")])
def test_a_job_without_a_users_name_is_ours_by_the_tokens_number(
    slurm: RestController, server: FakeServer, user_id: int, user: str
) -> None:
    """AWS PCS knows no users by name."""
    nameless = server.dialect.job | {"user_name": "", "user_id": user_id}
    server.answers |= {name: (200, {"errors": [], "jobs": [nameless]}) for name in ("GET jobs", "GET job/12")}
    assert [job.user for job in slurm.jobs()] == [user]
    found = slurm.job(12)
    assert found is not None
    assert found.user == user


def test_a_name_that_slurm_gives_counts_whatever_its_number(slurm: RestController, server: FakeServer) -> None:
    server.answers["GET jobs"] = (200, {"errors": [], "jobs": [server.dialect.job | {"user_name": "ada"}]})
    assert [job.user for job in slurm.jobs()] == ["ada"]
