"""Uploads to S3 in signed chunks, by the examples that AWS has published."""

from __future__ import annotations

import io
from typing import Any

import pytest

from local.aws.access.chunks import are_chunks_signed
from local.aws.access.signatures import Signature, is_hash_known
from tests.hostile import EXAMPLES, damaged_bytes, require_total
from tests.unit.twin.test_signatures import EMPTY, request

SECRET = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"
SIZES = (65536, 1024, 0)
TRAILER = (
    b"x-amz-checksum-crc32c:sOO8/Q==\r\n"
    b"x-amz-trailer-signature:d81f82fc3505edab99d459891051a732e8730629a2e4a59689829ca17fe2e435\r\n"
)
CHUNKED, WITH_TRAILER = "STREAMING-AWS4-HMAC-SHA256-PAYLOAD", "STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER"
PUBLISHED = {
    CHUNKED: (
        "4f232c4386841ef735655705268965c44a0e4690baa4adea153f7db9fa80a0a9",
        (
            "ad80c730a21e5b8d04586a2213dd63b9a0e99e0e2307b0ade35a65485a288648",
            "0055627c9e194cb4542bae2aa5492e3c1575bbb81b612b7d234b86a503ef5497",
            "b6c6ea8a5354eaf15b3cb7646744f4275b71ea724fed81ceb9323e279d449df9",
        ),
        b"\r\n",
    ),
    WITH_TRAILER: (
        "106e2a8a18243abcf37539882f36619c00e2dfc72633413f02d3b74544bfeb8e",
        (
            "b474d8862b1487a5145d686f57f013e54db672cee1c953b3010fb58501ef5aa2",
            "1c1344b170168f8e65b41376b44b20fe354e373826ccbbe2c1d40a8cae51e5c7",
            "2ca2aba2005185cf7159c6277faf83795951dd77a3a99e6e65d5c9f85863f992",
        ),
        TRAILER + b"\r\n",
    ),
}
"""S3 API reference: the seed, the signatures of the chunks, and what follows them.

The examples of 'Transferring payload in multiple chunks' and of 'Signature calculations for trailing headers'.
"""


def body_of(form: str, *, letter: bytes = b"a") -> bytes:
    _seed, signatures, rest = PUBLISHED[form]
    chunks = [
        b"%x;chunk-signature=%s\r\n" % (size, signature.encode()) + (letter * size + b"\r\n" if size else b"")
        for size, signature in zip(SIZES, signatures, strict=True)
    ]
    return b"".join(chunks) + rest


def upload(form: str, body: bytes, *, length: str = "66560") -> dict[str, Any]:
    headers = {"HTTP_X_AMZ_CONTENT_SHA256": form, "HTTP_X_AMZ_DECODED_CONTENT_LENGTH": length}
    return request("/examplebucket/chunkObject.txt", body=body, REQUEST_METHOD="PUT", **headers)


def is_signed(environ: dict[str, Any], form: str, *, secret: str = SECRET, service: str = "s3") -> bool:
    signature = Signature(
        key="AKIAIOSFODNN7EXAMPLE",
        date="20130524",
        region="us-east-1",
        service=service,
        names=("host",),
        value=PUBLISHED[form][0],
        time="20130524T000000Z",
        seconds=None,
    )
    return are_chunks_signed(environ, signature, secret)


@pytest.mark.parametrize("form", PUBLISHED)
def test_the_published_examples_are_signed_and_stay_readable(form: str) -> None:
    environ = upload(form, body_of(form))
    assert is_signed(environ, form)
    assert environ["wsgi.input"].read() == body_of(form)
    assert not is_signed(upload(form, body_of(form)), form, secret="another")


CHANGES = {
    "another byte": lambda body: body.replace(b"\r\naaa", b"\r\nbaa", 1),
    "a byte more": lambda body: body.replace(b"aaa\r\n", b"aaab\r\n", 1),
    "a chunk less": lambda body: b"400;" + body.partition(b"400;")[2],
    "chunks in another order": lambda body: (
        b"400;" + body.partition(b"400;")[2].partition(b"0;")[0] + body.partition(b"400;")[0]
    ),
    "a chunk twice": lambda body: body.partition(b"400;")[0] * 2 + b"400;" + body.partition(b"400;")[2],
    "no last chunk": lambda body: body.partition(b"\r\n0;")[0] + b"\r\n",
    "a chunk after the last one": lambda body: body + body.partition(b"400;")[0],
    "text after the end": lambda body: body + b"more",
    "an unsigned chunk": lambda body: b"1\r\nb\r\n" + body,
    "an extension": lambda body: body.replace(b";chunk", b";x=1;chunk", 1),
    "a size with a sign": lambda body: b"+" + body,
    "no line after a chunk": lambda body: body.replace(b"aaa\r\n400", b"aaa--400", 1),
    "an end within a chunk": lambda body: body[:1000],
    "nothing": lambda _body: b"",
}


@pytest.mark.parametrize("form", PUBLISHED)
@pytest.mark.parametrize("change", CHANGES)
def test_a_body_that_was_changed_is_not_signed(form: str, change: str) -> None:
    changed = CHANGES[change](body_of(form))
    assert changed != body_of(form)
    assert not is_signed(upload(form, changed), form)


@pytest.mark.parametrize("length", ["", "66561", "66559", "-1", "x", "9" * 5000])
def test_the_length_of_the_object_is_that_of_its_chunks(length: str) -> None:
    assert not is_signed(upload(CHUNKED, body_of(CHUNKED), length=length), CHUNKED)


@pytest.mark.parametrize(
    ("trailer", "signed"),
    [
        (b"\r\n" + TRAILER + b"\r\n", True),
        (TRAILER, True),
        (TRAILER.replace(b"\r\n", b"\n\r\n", 1), True),
        (TRAILER.replace(b"crc32c:", b"crc32c: "), True),
        (TRAILER.replace(b"sOO8", b"sOO9"), False),
        (TRAILER.replace(b"crc32c", b"crc32"), False),
        (b"x-amz-meta-a:b\r\n" + TRAILER, False),
        (TRAILER.partition(b"x-amz-trailer")[0], False),
        (TRAILER.replace(b"d81f", b"d81e"), False),
        (TRAILER + b"\r\nmore", False),
        (b"\r\n", False),
    ],
)
def test_the_headers_after_the_chunks_are_signed_too(trailer: bytes, signed: bool) -> None:
    body = body_of(WITH_TRAILER).removesuffix(TRAILER + b"\r\n") + trailer
    assert is_signed(upload(WITH_TRAILER, body), WITH_TRAILER) is signed


def test_a_request_without_signed_chunks_has_none_to_check() -> None:
    for form in (EMPTY, "UNSIGNED-PAYLOAD", "STREAMING-UNSIGNED-PAYLOAD-TRAILER"):
        environ = upload(form, b"text")
        assert is_signed(environ, CHUNKED)
        assert isinstance(environ["wsgi.input"], io.BytesIO)
    assert is_signed(upload(CHUNKED, b"text"), CHUNKED, service="sts")


@pytest.mark.parametrize("examples", EXAMPLES)
def test_whatever_is_sent_as_chunks_is_signed_or_not(examples: int) -> None:
    """None of these signatures is one, whatever stands around them."""
    last = f"0;chunk-signature={'0' * 64}\r\n\r\n"
    first = f"1;chunk-signature={'0' * 64}\r\na\r\n"

    def judged(body: bytes) -> None:
        for form in PUBLISHED:
            assert not is_signed(upload(form, body, length="0"), form)

    require_total(judged, damaged_bytes(last, first + last), examples=examples)


@pytest.mark.parametrize(
    ("named", "known"),
    [
        ("", True),
        (EMPTY, True),
        ("UNSIGNED-PAYLOAD", True),
        ("STREAMING-UNSIGNED-PAYLOAD-TRAILER", True),
        (CHUNKED, True),
        (WITH_TRAILER, True),
        ("STREAMING-AWS4-ECDSA-P256-SHA256-PAYLOAD", False),
        ("STREAMING-HMAC-SHA256-PAYLOAD", False),
        ("tjnVEQ5UTP/DL91eAGOmew==", False),
        (EMPTY[1:], False),
    ],
)
def test_what_stands_for_a_hash_is_one_of_s3s_words(named: str, known: bool) -> None:
    environ = upload(named, b"")
    of_s3 = Signature(key="k", date="d", region="r", service="s3", names=("host",), value="v", time="t", seconds=None)
    assert is_hash_known(environ, of_s3) is known
