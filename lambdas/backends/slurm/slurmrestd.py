"""Slurm's REST API: slurmrestd, with a token that this module signs.

The token is a JSON web token that slurmctld checks with the shared key (auth/jwt); it names the user of the
jobs. The version is the newest that server and client support, from the server's own OpenAPI document.
"""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, TypeVar

import jwt
import urllib3
from urllib3.exceptions import HTTPError

from lambdas.backends.slurm.forms import (
    complaints,
    knows_accounting,
    newest_version,
    parse_job,
    parse_partition,
    submission_form,
    understood,
)
from lambdas.gateways.aws import client, translated
from trainflow.deployment.slurm import Partition, SlurmJob, Submission
from trainflow.errors import ClusterAccessDenied, ClusterUnavailable, JobRefused

TOKEN_LIFETIME_SECONDS = 600
RENEWED_BEFORE_SECONDS = 120
"""A token is renewed so many seconds before its end: more than any call takes, and than clocks differ."""

TIMEOUT = urllib3.Timeout(connect=5, read=20)
"""A Lambda that hangs costs a whole poll lap."""

AUTHENTICATION_ERROR = 1007
INVALID_PARTITION = 2000
INVALID_JOB_ID = 2017
ALREADY_DONE = 2021
"""Slurm's error numbers (slurm/slurm_errno.h)."""

NOT_AS_IT_IS = (400, 422)
"""HTTP statuses of requests that slurmrestd does not accept, unknown names included: 422 since Slurm 24.05."""

NOT_WITH_THIS_TOKEN = (401, 403, 511)
"""HTTP statuses of a token that is not accepted: by slurmrestd, or by slurmctld, which is 511 in newer versions."""

Read = TypeVar("Read")

REFUSALS = range(2000, 3000)
"""Errors about what was asked for. Others are about the connection to slurmctld, including refused tokens."""


@dataclass(frozen=True)
class _Server:
    """Capabilities of the server."""

    version: int
    has_accounting: bool


@dataclass(frozen=True)
class _Answer:
    status: int
    document: dict[str, Any]

    @property
    def refusal(self) -> tuple[int, str] | None:
        """Number and description of an error that refuses the request; None if the answer does not contain one."""
        return next((complaint for complaint in complaints(self.document) if complaint[0] in REFUSALS), None)


class RestController:
    """slurmctld behind slurmrestd. Implements `lambdas.backends.slurm.controller.Controller`."""

    def __init__(self, url: str, *, key_secret: str, user: str, claims: Mapping[str, Any] | None = None) -> None:
        """Prepare the connection, which the first request opens.

        Args:
            url: URL of slurmrestd.
            key_secret: Secrets Manager's name or ARN of the key for tokens, in base64.
            user: The user of the token, as whom the jobs run.
            claims: Further claims of a token: AWS PCS, which knows no users by name, needs their ids.
        """
        self._url, self._key_secret = url.rstrip("/"), key_secret
        self._user, self._claims = user, dict(claims or {})
        self._pool = urllib3.PoolManager(retries=False, timeout=TIMEOUT)
        self._token: tuple[str, float] | None = None
        self._server: _Server | None = None

    def submit(self, job: Submission, *, after: Sequence[int]) -> None:
        """One request, never repeated here: a caller without an answer reads the queue first."""
        answer = self._call("POST", "job/submit", body=submission_form(job, self._version, after=after), repeat=False)
        if answer.document.get("job_id"):
            return  # its complaints, such as a time limit above the partition's, are why it waits
        if answer.refusal or answer.status in NOT_AS_IT_IS:
            reason = "; ".join(words for _, words in complaints(answer.document))
            raise JobRefused(f"Slurm refuses the job '{job.name}': {reason}.")
        raise self._unavailable(answer)

    def jobs(self) -> list[SlurmJob]:
        """One call, as long as the queue."""
        return self._read(self._call("GET", "jobs"), "jobs", self._named)

    def job(self, job_id: int) -> SlurmJob | None:
        """One call of constant size."""
        answer = self._call("GET", f"job/{job_id}")
        if answer.status == 404 or (answer.refusal and answer.refusal[0] == INVALID_JOB_ID):
            return None
        return next(iter(self._read(answer, "jobs", self._named)), None)

    def cancel(self, job_id: int) -> None:
        """SIGTERM first, SIGKILL after Slurm's KillWait."""
        answer = self._call("DELETE", f"job/{job_id}")
        if answer.refusal is None or answer.refusal[0] not in (INVALID_JOB_ID, ALREADY_DONE):
            self._expected(answer)

    def partition(self, name: str) -> Partition | None:
        """One call."""
        answer = self._call("GET", f"partition/{name}")
        if answer.status in (404, *NOT_AS_IT_IS) or (answer.refusal and answer.refusal[0] == INVALID_PARTITION):
            return None
        return next(iter(self._read(answer, "partitions", parse_partition)), None)

    def partitions(self) -> list[Partition]:
        """One call."""
        return self._read(self._call("GET", "partitions"), "partitions", parse_partition)

    def cancelled_by(self, job_id: int) -> str | None:
        """Only the accounting database knows, and not every cluster has one."""
        version = self._version
        if self._server is None or not self._server.has_accounting:
            return None
        answer = self._request("GET", f"/slurmdb/v0.0.{version}/job/{job_id}")
        with understood(f"Slurm's accounting at {self._url}"):
            found = answer.document.get("jobs") or [{}]
            return str(found[-1].get("kill_request_user") or "") or None

    def _read(self, answer: _Answer, field: str, read: Callable[[Mapping[str, Any]], Read]) -> list[Read]:
        """The entries of an answer.

        Raises:
            ClusterUnavailable: If the server refuses, or the entries are in no known form.
        """
        document = self._expected(answer)
        with understood(f"Slurm's REST API at {self._url}"):
            return [read(found) for found in document[field]]

    def _named(self, found: Mapping[str, Any]) -> SlurmJob:
        """Fill in our user name if Slurm returns only our user id."""
        job = parse_job(found)
        ours = not job.user and found.get("user_id") is not None and found["user_id"] == self._claims.get("uid")
        return replace(job, user=self._user) if ours else job

    @property
    def _version(self) -> int:
        if self._server is None:
            self._server = self._negotiated()
        return self._server.version

    def _negotiated(self) -> _Server:
        answer = self._request("GET", "/openapi/v3")
        if answer.status == 404:
            answer = self._request("GET", "/openapi")
        paths = answer.document.get("paths")
        if answer.status != 200 or not isinstance(paths, dict):
            raise self._unavailable(answer)
        version = newest_version(paths)
        if version is None:
            raise ClusterAccessDenied(f"{self._url} offers no version of Slurm's REST API from v0.0.38 to v0.0.44.")
        return _Server(version, knows_accounting(paths, version))

    def _call(self, method: str, path: str, *, body: Any = None, repeat: bool = True) -> _Answer:
        """Send a request, and retry a failed one with a new token, because v0.0.38 gives no reason for a failure."""
        answer = self._request(method, f"/slurm/v0.0.{self._version}/{path}", body=body)
        if answer.status < 400 or answer.refusal or not repeat:
            return answer
        self._forget()
        return self._request(method, f"/slurm/v0.0.{self._version}/{path}", body=body)

    def _request(self, method: str, path: str, *, body: Any = None) -> _Answer:
        headers = {"X-SLURM-USER-NAME": self._user, "X-SLURM-USER-TOKEN": self._current_token()}
        if body is not None:
            headers["Content-Type"] = "application/json"
        content = json.dumps(body) if body is not None else None
        try:
            response = self._pool.request(method, f"{self._url}{path}", headers=headers, body=content)
            document = json.loads(response.data)
        except HTTPError as error:
            raise ClusterUnavailable(f"Slurm's REST API at {self._url} did not answer: {error}.") from error
        except (ValueError, RecursionError):
            document = {}
        return _Answer(response.status, document if isinstance(document, dict) else {})

    def _expected(self, answer: _Answer) -> dict[str, Any]:
        if answer.status >= 400:
            raise self._unavailable(answer)
        return answer.document

    def _unavailable(self, answer: _Answer) -> ClusterUnavailable | ClusterAccessDenied:
        self._forget()
        reason = "; ".join(words for _, words in complaints(answer.document)) or "no reason given"
        numbers = [number for number, _ in complaints(answer.document)]
        if answer.status in NOT_WITH_THIS_TOKEN or AUTHENTICATION_ERROR in numbers:
            return ClusterAccessDenied(
                f"Slurm's REST API refused the token for the user '{self._user}' ({reason}): SLURM_KEY_SECRET "
                "has to hold the cluster's key."
            )
        return ClusterUnavailable(
            f"Slurm's REST API answered {answer.status} ({reason}): slurmctld does not answer it, or does not take the "
            f"token for the user '{self._user}'."
        )

    def _current_token(self) -> str:
        now = time.time()
        if self._token is None or self._token[1] - now < RENEWED_BEFORE_SECONDS:
            expires = now + TOKEN_LIFETIME_SECONDS
            claims = {**self._claims, "iat": int(now), "exp": int(expires), "sun": self._user}
            self._token = jwt.encode(claims, _key(self._key_secret), algorithm="HS256"), expires
        return self._token[0]

    def _forget(self) -> None:
        """Drop token, key and version, since all may have changed on the server's side."""
        self._token = self._server = None
        _key.cache_clear()


@lru_cache
def _key(secret: str) -> bytes:
    with translated("secretsmanager:GetSecretValue"):
        found = client("secretsmanager").get_secret_value(SecretId=secret)
    try:
        return base64.b64decode("".join(found["SecretString"].split()), validate=True)
    except (KeyError, ValueError) as error:
        raise ClusterAccessDenied(
            f"The secret '{secret}' does not hold a key in base64; make it anew with `base64 -w 0` of the key."
        ) from error
