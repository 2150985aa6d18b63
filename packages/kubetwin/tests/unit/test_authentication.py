from __future__ import annotations

import asyncio
import base64
import json
from datetime import UTC, datetime, timedelta
from urllib.parse import urlencode

import pytest
from kubetwin.access_entries import AccessEntries, role_of
from kubetwin.authentication import (
    ADMIN,
    ANONYMOUS,
    StaticTokenAuthenticator,
    StsAuthenticator,
    bearer_token,
    identify_with,
)
from kubetwin.tokens import AUDIENCE, ServiceAccountTokens

ENDPOINT = "http://localhost:5555"
ARN = "arn:aws:sts::123456789012:assumed-role/PollJob/session"
ANSWER = f"""<GetCallerIdentityResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/">
  <GetCallerIdentityResult><Arn>{ARN}</Arn><UserId>AROA:session</UserId><Account>123456789012</Account>
  </GetCallerIdentityResult></GetCallerIdentityResponse>"""


class FakeSts:
    """Answers every URL, and records the requests."""

    def __init__(self, answer: str = ANSWER) -> None:
        self.answer = answer
        self.asked: list[tuple[str, dict[str, str]]] = []

    def __call__(self, url: str, headers: dict[str, str]) -> bytes:
        self.asked.append((url, headers))
        return self.answer.encode()


def token(
    base: str = ENDPOINT, *, signed: str = "host;x-k8s-aws-id", age: timedelta = timedelta(0), **extra: str
) -> str:
    query = {
        "Action": "GetCallerIdentity",
        "X-Amz-SignedHeaders": signed,
        "X-Amz-Date": (datetime.now(UTC) - age).strftime("%Y%m%dT%H%M%SZ"),
        **extra,
    }
    url = f"{base}/?{urlencode(query)}"
    return "k8s-aws-v1." + base64.urlsafe_b64encode(url.encode()).decode().rstrip("=")


def test_a_presigned_token_is_fetched_with_the_clusters_name_and_identifies_the_caller() -> None:
    sts = FakeSts()
    user = StsAuthenticator(ENDPOINT, "twin", fetch=sts).authenticate(token())
    assert user is not None
    assert user.name == ARN
    assert "system:masters" in user.groups
    assert sts.asked[0][1]["x-k8s-aws-id"] == "twin"


def test_the_access_entry_decides_the_groups_and_a_caller_without_one_is_refused() -> None:
    def groups_of(arn: str) -> tuple[str, ...] | None:
        return ("example:watch",) if arn == ARN else None

    user = StsAuthenticator(ENDPOINT, "twin", fetch=FakeSts(), groups_of=groups_of).authenticate(token())
    assert user is not None
    assert user.groups == ("example:watch", "system:authenticated")
    other_role = FakeSts(ANSWER.replace("PollJob", "Other"))
    assert StsAuthenticator(ENDPOINT, "twin", fetch=other_role, groups_of=groups_of).authenticate(token()) is None


def test_access_entries_are_looked_up_by_the_role_of_a_session() -> None:
    asked = []

    def fetch(url: str, headers: dict[str, str]) -> bytes:
        asked.append((url, headers["Authorization"].split("/")[0]))
        return json.dumps({"accessEntry": {"kubernetesGroups": ["a", "b"]}}).encode()

    assert AccessEntries(ENDPOINT, "twin", access_key="KEY:SECRET", fetch=fetch).groups_of(ARN) == ("a", "b")
    where = f"{ENDPOINT}/clusters/twin/access-entries/arn%3Aaws%3Aiam%3A%3A123456789012%3Arole%2FPollJob"
    assert asked == [(where, "AWS4-HMAC-SHA256 Credential=KEY")]


def test_a_caller_without_an_access_entry_has_no_groups() -> None:
    def fetch(_url: str, _headers: dict[str, str]) -> bytes:
        raise OSError("404")

    assert AccessEntries(ENDPOINT, "twin", access_key="KEY:SECRET", fetch=fetch).groups_of(ARN) is None


def test_a_user_of_iam_is_a_principal_itself() -> None:
    assert role_of("arn:aws:iam::123456789012:user/alice") == "arn:aws:iam::123456789012:user/alice"


@pytest.mark.parametrize(
    "bad",
    [
        token("http://localhost:5556"),
        token("http://evil.example:5555"),
        token("https://localhost:5555"),
        token("http://localhost:5555/other"),
        token("http://localhost:5555@evil.example"),
        token(signed="host"),
        token(Action="AssumeRole"),
        token(age=timedelta(minutes=16)),
        "k8s-aws-v1.not*base64",
        "something-else",
    ],
)
def test_a_token_that_leads_elsewhere_is_refused_without_asking(bad: str) -> None:
    sts = FakeSts()
    assert StsAuthenticator(ENDPOINT, "twin", fetch=sts).authenticate(bad) is None
    assert sts.asked == []


def test_an_accepted_token_is_believed_for_a_while() -> None:
    sts = FakeSts()
    authenticator = StsAuthenticator(ENDPOINT, "twin", fetch=sts)
    presigned = token()
    assert authenticator.authenticate(presigned) == authenticator.authenticate(presigned)
    assert len(sts.asked) == 1


@pytest.mark.parametrize("answer", ["<ErrorResponse><Error/></ErrorResponse>", "no xml", ""])
def test_an_answer_without_a_caller_accepts_no_token(answer: str) -> None:
    assert StsAuthenticator(ENDPOINT, "twin", fetch=FakeSts(answer)).authenticate(token()) is None


def test_no_token_is_accepted_while_sts_does_not_answer() -> None:
    def refuse(_url: str, _headers: dict[str, str]) -> bytes:
        raise ConnectionRefusedError

    assert StsAuthenticator(ENDPOINT, "twin", fetch=refuse).authenticate(token()) is None


def test_a_token_is_accepted_by_one_of_the_authenticators_or_by_none() -> None:
    identify = identify_with([StaticTokenAuthenticator("secret")], [StaticTokenAuthenticator("other", user=ANONYMOUS)])
    assert asyncio.run(identify("secret")) == ADMIN
    assert asyncio.run(identify("other")) == ANONYMOUS
    assert asyncio.run(identify("neither")) is None


@pytest.mark.parametrize(
    ("header", "found"),
    [("Bearer abc", "abc"), ("bearer abc", "abc"), ("Basic abc", None), ("", None), ("Bearer ", None)],
)
def test_only_bearer_tokens_count(header: str, found: str | None) -> None:
    assert bearer_token(header) == found


def test_a_service_account_token_is_accepted_until_its_account_is_deleted() -> None:
    account = {"metadata": {"namespace": "ns", "name": "sub", "uid": "u1"}}
    accounts = {("ns", "sub"): account}
    tokens = ServiceAccountTokens(lambda namespace, name: accounts.get((namespace, name)))
    issued = tokens.issue(account, 600, [AUDIENCE])
    user = tokens.authenticate(issued)
    assert user is not None
    assert user.name == "system:serviceaccount:ns:sub"
    assert tokens.authenticate(issued[:-2] + "xx") is None
    assert [tokens.authenticate(other) for other in ("", "a.b.c", "é.é.é", issued.rpartition(".")[0] + ".")] == [
        None
    ] * 4
    assert tokens.authenticate(tokens.issue(account, 0, [AUDIENCE])) is None
    assert tokens.authenticate(tokens.issue(account, 600, ["other"])) is None
    accounts.clear()
    assert tokens.authenticate(issued) is None
