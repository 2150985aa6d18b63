"""Slurm's REST API: versions, tokens, and what goes wrong on the way."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import jwt
import pytest
from urllib3.exceptions import NewConnectionError

from lambdas.errors import ClusterAccessDenied, ClusterUnavailable, JobRefused
from lambdas.gateways import slurm_api
from lambdas.gateways.slurm_api import RestController
from lambdas.models.slurm import Partition
from tests.unit.lambdas.conftest import Aws
from tests.unit.lambdas.test_slurm_forms import JOB, recorded

KEY = bytes(range(32))
UNKNOWN = {"errors": [{"description": "Failed while looking for jobs", "error_number": -1, "error": "Unspecified"}]}


@dataclass
class FakeServer:
    """slurmrestd: checks tokens as slurmctld does, and answers v0.0.38's way that something was wrong."""

    key: bytes = KEY
    answers: dict[str, tuple[int, Any]] = field(default_factory=dict)
    """By method and path below the version."""
    versions: tuple[int, ...] = (37, 38)
    is_down: bool = False
    asked: list[str] = field(default_factory=list)
    tokens: list[dict[str, Any]] = field(default_factory=list)

    def request(self, method: str, url: str, *, headers: dict[str, str], body: str | None) -> Any:
        if self.is_down:
            raise NewConnectionError(None, "Connection refused")  # type: ignore[arg-type]
        path = url.removeprefix("http://slurm:6820")
        self.asked.append(f"{method} {path}")
        status, document = self._answer(method, path, headers["X-SLURM-USER-TOKEN"])
        return SimpleNamespace(status=status, data=json.dumps(document).encode())

    def _answer(self, method: str, path: str, token: str) -> tuple[int, Any]:
        if path == "/openapi/v3":
            return 200, {"paths": {f"/slurm/v0.0.{version}/job/submit": {} for version in self.versions}}
        try:
            self.tokens.append(jwt.decode(token, self.key, algorithms=["HS256"], options={"verify_iat": False}))
        except jwt.InvalidTokenError:
            return 500, UNKNOWN
        version = f"/slurm/v0.0.{max(self.versions)}/"
        assert path.startswith(version), path
        return self.answers.get(f"{method} {path.removeprefix(version)}", (200, {"errors": [], "jobs": []}))


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> FakeServer:
    found = FakeServer()
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
    return RestController("http://slurm:6820/", key_secret="slurm-key", user="trainer", claims={"id": {"uid": 1001}})


def test_the_version_is_asked_for_once(slurm: RestController, server: FakeServer) -> None:
    slurm.jobs()
    slurm.jobs()
    assert server.asked == ["GET /openapi/v3", "GET /slurm/v0.0.38/jobs", "GET /slurm/v0.0.38/jobs"]


def test_a_server_of_an_unknown_version_is_refused_in_a_sentence(slurm: RestController, server: FakeServer) -> None:
    server.versions = (36,)
    with pytest.raises(ClusterAccessDenied, match="offers no version of Slurm's REST API"):
        slurm.jobs()


def test_a_token_says_who_and_for_ten_minutes_at_most(slurm: RestController, server: FakeServer) -> None:
    slurm.jobs()
    (claims,) = server.tokens
    assert claims["sun"] == "trainer"
    assert claims["id"] == {"uid": 1001}
    assert claims["exp"] - claims["iat"] == 600


def test_a_token_is_made_anew_before_it_ends(
    slurm: RestController, server: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    slurm.jobs()
    now = slurm_api.time.time()
    monkeypatch.setattr(slurm_api.time, "time", lambda: now + 500)
    slurm.jobs()
    first, second = server.tokens
    assert second["exp"] > first["exp"]


def test_a_token_that_is_refused_is_made_anew_once_with_the_key_of_today(
    slurm: RestController, server: FakeServer, keep_key: Callable[[bytes], None]
) -> None:
    slurm.jobs()
    server.key = bytes(32)
    with pytest.raises(ClusterUnavailable, match="or does not take the token for the user 'trainer'"):
        slurm.jobs()
    keep_key(server.key)
    assert slurm.jobs() == []


def test_a_submit_is_never_repeated_by_itself(slurm: RestController, server: FakeServer) -> None:
    server.answers["POST job/submit"] = (500, UNKNOWN)
    with pytest.raises(ClusterUnavailable):
        slurm.submit(JOB, after=[])
    assert server.asked.count("POST /slurm/v0.0.38/job/submit") == 1


@pytest.mark.parametrize(
    "answer",
    [
        (500, {"errors": [{"error_code": 2000, "error": "Invalid partition name specified"}]}),
        (400, {"errors": [{"error_number": -1, "description": "Invalid partition name specified"}]}),
    ],
)
def test_a_job_that_slurm_does_not_take_is_refused_in_its_words(
    slurm: RestController, server: FakeServer, answer: tuple[int, Any]
) -> None:
    server.answers["POST job/submit"] = answer
    with pytest.raises(JobRefused, match=r"^Slurm refuses the job '.*': Invalid partition name specified\.$"):
        slurm.submit(JOB, after=[])


def test_a_complaint_about_a_job_that_is_in_the_queue_is_no_refusal(slurm: RestController, server: FakeServer) -> None:
    complaint = {"error_code": 2015, "error": "Requested partition configuration not available now"}
    server.answers["POST job/submit"] = (200, {"errors": [complaint], "job_id": 6})
    slurm.submit(JOB, after=[])


def test_a_server_that_is_down_is_worth_a_retry(slurm: RestController, server: FakeServer) -> None:
    server.is_down = True
    with pytest.raises(ClusterUnavailable, match="Slurm's REST API at http://slurm:6820 did not answer"):
        slurm.jobs()


def test_an_unknown_job_is_none_and_may_be_cancelled(slurm: RestController, server: FakeServer) -> None:
    unknown = (500, {"errors": [{"error_number": 2017, "error": "Invalid job id specified"}]})
    server.answers |= {"GET job/9": unknown, "DELETE job/9": unknown}
    assert slurm.job(9) is None
    slurm.cancel(9)


def test_a_cancel_that_fails_is_told(slurm: RestController, server: FakeServer) -> None:
    server.answers["DELETE job/9"] = (500, UNKNOWN)
    with pytest.raises(ClusterUnavailable):
        slurm.cancel(9)


def test_a_partition_is_found_or_none(slurm: RestController, server: FakeServer) -> None:
    server.answers["GET partition/short"] = (200, recorded("partition-v0.0.38.json"))
    server.answers["GET partition/long"] = (500, {"errors": [{"error": "Invalid partition name", "errno": 2000}]})
    assert slurm.partition("short") == Partition(name="short", num_nodes=2, max_minutes=5)
    assert slurm.partition("long") is None


def test_who_cancelled_is_unknown_without_an_accounting_database(slurm: RestController, server: FakeServer) -> None:
    assert slurm.cancelled_by(9) is None
    assert server.asked == ["GET /openapi/v3"]
