"""Signatures of requests at the twin's endpoint, by the examples that AWS has published."""

from __future__ import annotations

import hashlib
import io
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import quote, urlencode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from local.aws.access.signatures import is_genuine, other_body, signature_of

SECRET = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"
EMPTY = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"


def request(path: str, query: str = "", *, body: bytes = b"", **headers: str) -> dict[str, Any]:
    url = f"{path}?{query}" if query else path
    return {
        "REQUEST_METHOD": "GET",
        "PATH_INFO": path,
        "RAW_URI": url,
        "QUERY_STRING": query,
        "CONTENT_LENGTH": str(len(body)),
        "wsgi.input": io.BytesIO(body),
        **headers,
    }


def of_iam(**changes: Any) -> dict[str, Any]:
    """IAM user guide, 'Signature Version 4 signing' with Python: a list of users."""
    signed = "5d672d79c15b13162d9279b0855cfba6789a8edb4c82c400e06b5924a6f2b5d7"
    return (
        request(
            "/",
            "Action=ListUsers&Version=2010-05-08",
            HTTP_HOST="iam.amazonaws.com",
            CONTENT_TYPE="application/x-www-form-urlencoded; charset=utf-8",
            HTTP_X_AMZ_DATE="20150830T123600Z",
            HTTP_AUTHORIZATION="AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150830/us-east-1/iam/aws4_request, "
            f"SignedHeaders=content-type;host;x-amz-date, Signature={signed}",
        )
        | changes
    )


def of_s3(**changes: Any) -> dict[str, Any]:
    """S3 API reference, 'Signature calculations for the Authorization header': a part of an object."""
    signed = "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41"
    return (
        request(
            "/test.txt",
            HTTP_HOST="examplebucket.s3.amazonaws.com",
            HTTP_RANGE="bytes=0-9",
            HTTP_X_AMZ_CONTENT_SHA256=EMPTY,
            HTTP_X_AMZ_DATE="20130524T000000Z",
            HTTP_AUTHORIZATION="AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request,"
            f"SignedHeaders=host;range;x-amz-content-sha256;x-amz-date,Signature={signed}",
        )
        | changes
    )


def presigned(**changes: str) -> dict[str, Any]:
    """S3 API reference, 'Authenticating requests: using query parameters'."""
    query = {
        "X-Amz-Algorithm": "AWS4-HMAC-SHA256",
        "X-Amz-Credential": "AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request",
        "X-Amz-Date": "20130524T000000Z",
        "X-Amz-Expires": "86400",
        "X-Amz-SignedHeaders": "host",
        "X-Amz-Signature": "aeeed9bbccd4d02ee5c0109b86d86835f995330da4c265957d157751f604d404",
    }
    return request("/test.txt", urlencode(query | changes), HTTP_HOST="examplebucket.s3.amazonaws.com")


def put_to_s3(body: bytes = b"Welcome to Amazon S3.", **changes: Any) -> dict[str, Any]:
    """S3 API reference, 'Signature calculations for the Authorization header': an object is written."""
    signed = "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd"
    return (
        request(
            "/test%24file.text",
            body=body,
            REQUEST_METHOD="PUT",
            HTTP_HOST="examplebucket.s3.amazonaws.com",
            HTTP_DATE="Fri, 24 May 2013 00:00:00 GMT",
            HTTP_X_AMZ_CONTENT_SHA256="44ce7dd67c959e0d3524ffac1771dfbba87d2b6b4b4e99e42034a8b803f8b072",
            HTTP_X_AMZ_DATE="20130524T000000Z",
            HTTP_X_AMZ_STORAGE_CLASS="REDUCED_REDUNDANCY",
            HTTP_AUTHORIZATION="AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request,"
            "SignedHeaders=date;host;x-amz-content-sha256;x-amz-date;x-amz-storage-class,"
            f"Signature={signed}",
        )
        | changes
    )


TIMES: dict[Any, str] = {
    of_iam: "20150830T123600Z",
    of_s3: "20130524T000000Z",
    put_to_s3: "20130524T000000Z",
    presigned: "20130524T000000Z",
}
KEYS: dict[Any, str] = {**dict.fromkeys(TIMES, SECRET.replace("+", "/")), of_iam: SECRET}


def accepts(environ: dict[str, Any], example: Any, *, after: timedelta = timedelta(0), secret: str = "") -> bool:
    signature = signature_of(environ)
    assert signature is not None
    signed_at = datetime.strptime(TIMES[example], "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
    return is_genuine(environ, signature, secret or KEYS[example], now=signed_at + after)


@pytest.mark.parametrize("example", TIMES)
def test_the_published_examples_are_genuine_and_no_other_secret_signs_them(example: Any) -> None:
    assert accepts(example(), example)
    assert not accepts(example(), example, secret="another")


@pytest.mark.parametrize(
    ("example", "changes"),
    [
        (of_iam, {"REQUEST_METHOD": "POST"}),
        (of_iam, {"RAW_URI": "/?Action=DeleteUser&Version=2010-05-08"}),
        (of_iam, {"HTTP_HOST": "sts.amazonaws.com"}),
        (of_iam, {"CONTENT_TYPE": "application/json"}),
        (of_iam, {"wsgi.input": io.BytesIO(b"more"), "CONTENT_LENGTH": "4"}),
        (of_s3, {"RAW_URI": "/other.txt"}),
        (of_s3, {"HTTP_X_AMZ_CONTENT_SHA256": "0" * 64}),
        (of_s3, {"HTTP_RANGE": "bytes=0-10"}),
        (presigned, {"X-Amz-Expires": "99999"}),
        (presigned, {"versionId": "1"}),
    ],
)
def test_a_request_that_was_changed_is_not(example: Any, changes: dict[str, Any]) -> None:
    assert not accepts(example(**changes), example)


@pytest.mark.parametrize(
    ("example", "after", "current"),
    [
        (of_iam, timedelta(minutes=14), True),
        (of_iam, timedelta(minutes=16), False),
        (of_iam, timedelta(minutes=-14), True),
        (of_iam, timedelta(minutes=-16), False),
        (presigned, timedelta(hours=23), True),
        (presigned, timedelta(hours=25), False),
    ],
)
def test_a_signature_is_valid_for_a_while(example: Any, after: timedelta, current: bool) -> None:
    assert accepts(example(), example, after=after) is current


def test_a_body_stays_readable_and_is_what_was_signed() -> None:
    environ = of_iam(CONTENT_LENGTH="4", **{"wsgi.input": io.BytesIO(b"text")})
    assert not accepts(environ, of_iam)
    assert environ["wsgi.input"].read() == b"text"


def of_other_body(environ: dict[str, Any]) -> str | None:
    signature = signature_of(environ)
    assert signature is not None
    return other_body(environ, signature)


def test_another_body_than_the_one_whose_hash_s3_was_told_is_noticed_and_stays_readable() -> None:
    environ = put_to_s3(b"Welcome to another S3.")
    assert of_other_body(environ) == hashlib.sha256(b"Welcome to another S3.").hexdigest()
    assert environ["wsgi.input"].read() == b"Welcome to another S3."
    told = put_to_s3()
    assert of_other_body(told) is None
    assert told["wsgi.input"].read() == b"Welcome to Amazon S3."
    hashed = told["HTTP_X_AMZ_CONTENT_SHA256"]
    assert of_other_body(put_to_s3(HTTP_X_AMZ_CONTENT_SHA256=hashed.upper())) is None


@pytest.mark.parametrize(
    "environ",
    [
        put_to_s3(HTTP_X_AMZ_CONTENT_SHA256="UNSIGNED-PAYLOAD"),
        put_to_s3(HTTP_X_AMZ_CONTENT_SHA256="STREAMING-AWS4-HMAC-SHA256-PAYLOAD"),
        of_iam(HTTP_X_AMZ_CONTENT_SHA256="0" * 64),
    ],
    ids=["unsigned", "in chunks", "to another service"],
)
def test_a_request_that_names_no_hash_of_its_whole_body_has_no_other_one(environ: dict[str, Any]) -> None:
    assert of_other_body(environ) is None


def test_the_host_has_to_be_signed() -> None:
    signature = signature_of(of_iam())
    assert signature is not None
    without = replace(signature, names=("x-amz-date",))
    assert not is_genuine(of_iam(), without, SECRET, now=datetime(2015, 8, 30, 12, 36, tzinfo=UTC))


@pytest.mark.parametrize(
    "header",
    [
        "",
        "Bearer abc",
        "AWS4-HMAC-SHA256",
        "AWS4-HMAC-SHA256 Credential=AKID, SignedHeaders=host, Signature=0",
        "AWS4-HMAC-SHA256 Credential=AKID/20150830/us-east-1/iam/aws4_request, SignedHeaders=host",
        "AWS4-HMAC-SHA256 Credential=AKID/20150830/us-east-1/iam/aws4_request, Signature=0",
        "AWS4-HMAC-SHA512 Credential=AKID/20150830/us-east-1/iam/aws4_request, SignedHeaders=host, Signature=0",
    ],
)
def test_what_is_no_signature_is_none(header: str) -> None:
    assert signature_of(request("/", HTTP_AUTHORIZATION=header)) is None


@pytest.mark.parametrize("time", ["", "yesterday", "20150830", "20150830T123600", "20150831T123600Z"])
def test_a_signature_without_its_own_time_is_not_genuine(time: str) -> None:
    assert not accepts(of_iam(HTTP_X_AMZ_DATE=time), of_iam)


TEXTS = st.text(st.characters(max_codepoint=255, exclude_characters="\r\n"), max_size=40)
PARTS = TEXTS | st.sampled_from(
    ["host", "20150830T123600Z", "AKID/20150830/us-east-1/iam/aws4_request", "60", "9" * 30]
)


@given(header=TEXTS, path=TEXTS, query=TEXTS, length=PARTS, fields=st.tuples(PARTS, PARTS, PARTS), time=PARTS)
def test_no_request_is_an_error(
    header: str, path: str, query: str, length: str, fields: tuple[str, str, str], time: str
) -> None:
    """Whatever a stranger sends, as a web server hands it on, is genuine or not."""
    names = ("Credential", "SignedHeaders", "Signature")
    said = ", ".join(f"{name}={value}" for name, value in zip(names, fields, strict=True))
    asked = urlencode(
        {f"X-Amz-{name}": value for name, value in zip(names, fields, strict=True)} | {"X-Amz-Date": time}
    )
    for authorization, asks in (
        (header, query),
        (f"AWS4-HMAC-SHA256 {said}", query),
        ("", f"{query}&{asked}&X-Amz-Expires={quote(length, encoding='latin-1')}"),
    ):
        environ = request(path, asks, HTTP_AUTHORIZATION=authorization, HTTP_HOST=header, HTTP_X_AMZ_DATE=time)
        environ["CONTENT_LENGTH"] = length
        signature = signature_of(environ)
        if signature is not None:
            assert not is_genuine(environ, signature, SECRET, now=datetime(2015, 8, 30, 12, 36, tzinfo=UTC))


@pytest.mark.parametrize("expires", ["", "0", "604801", "9" * 40, "-1", "1e9", "\u00b2"])
def test_a_presigned_request_is_valid_for_a_week_at_most(expires: str) -> None:
    signature = signature_of(presigned(**{"X-Amz-Expires": expires}))
    assert signature is not None
    assert signature.seconds == 0
