"""What a URL leads to: how large, of which version, and where to ask for it."""

from __future__ import annotations

import hashlib
import io
import re
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.response import StreamingBody
from botocore.stub import Stubber

from tests.unit.trainer.staging.object_server import ObjectServer, Read, certificate, serving
from tests.wording import wording
from trainer.runtime import s3
from trainer.runtime.errors import ConfigInvalid, DatasetInvalid, DatasetNotFound
from trainer.staging import source
from trainer.staging.source import Source, objects_below
from trainflow.protocol.s3_urls import S3Url


def open_source(url: str, *, unsigned: bool = False) -> Source:
    return source.open_source(url, unsigned=unsigned, region=None, sha256=None)


def test_a_prefix_is_every_object_below_it_with_relative_paths(server: ObjectServer) -> None:
    server.objects = {
        "corpus/b/ü &.bin": b"12",
        "corpus/a": b"1",
        "corpus/b/": b"",
        "corpus/_READY": b"{}",
        "corpus2/c": b"1",
    }
    found = open_source("s3://datasets/corpus/")
    assert [(file.name, file.size) for file in found.files] == [("a", 1), ("b/ü &.bin", 2)]
    assert (found.num_bytes, found.is_archive) == (3, False)
    assert found.files[1].address == f"{server.url}/datasets/corpus/b/%C3%BC%20%26.bin"


@pytest.mark.parametrize("changed", [{"corpus/a": b"2"}, {"corpus/b": b""}, {}], ids=["content", "one more", "gone"])
def test_a_prefix_has_another_version_as_soon_as_anything_below_it_changes(
    server: ObjectServer, changed: dict[str, bytes]
) -> None:
    server.objects = {"corpus/a": b"1", "corpus/c": b"3"}
    before = open_source("s3://datasets/corpus/").etag
    assert open_source("s3://datasets/corpus/").etag == before
    server.objects = {"corpus/c": b"3"} if not changed else {**server.objects, **changed}
    assert open_source("s3://datasets/corpus/").etag != before


@pytest.mark.parametrize("key", ["corpus/../evil", "corpus//a", "corpus/./a", "corpus/a//b"])
def test_a_key_that_is_no_path_is_refused(server: ObjectServer, key: str) -> None:
    server.objects = {key: b"1"}
    with pytest.raises(DatasetInvalid) as refused:
        open_source("s3://datasets/corpus/")
    assert str(refused.value) == (
        f"The object {key.removeprefix('corpus/')!r} below s3://datasets/corpus/ has no name that a file could have; "
        "rename or remove it."
    )


def test_an_empty_prefix_is_named(server: ObjectServer) -> None:
    with pytest.raises(DatasetNotFound) as refused:
        open_source("s3://datasets/corpus/")
    assert str(refused.value) == (wording("source.an_empty_prefix_is_named", "datasets", "correct"))


def test_an_empty_archive_is_named(server: ObjectServer) -> None:
    server.objects = {"a.tar": b""}
    with pytest.raises(DatasetInvalid) as refused:
        open_source("s3://datasets/a.tar")
    assert str(refused.value) == wording("source.an_empty_archive_is_named", "a.tar")


def test_an_archive_is_known_by_its_etag_and_read_at_the_address_of_its_key(server: ObjectServer) -> None:
    server.objects = {"corpora/a b~.tar": b"123"}
    found = open_source("s3://datasets/corpora/a b~.tar")
    etag = server.etag("corpora/a b~.tar")
    assert found == Source(
        url="s3://datasets/corpora/a b~.tar",
        etag=etag.strip('"'),
        files=(
            source.RemoteFile(
                name="a b~.tar",
                url="s3://datasets/corpora/a b~.tar",
                address=f"{server.url}/datasets/corpora/a%20b~.tar",
                size=3,
                etag=etag,
            ),
        ),
        is_archive=True,
        region="us-east-1",
    )


def test_an_object_below_a_prefix_is_known_by_its_own_etag_and_url(server: ObjectServer) -> None:
    server.objects = {"corpus/b/c": b"12"}
    found = open_source("s3://datasets/corpus/")
    assert found.files == (
        source.RemoteFile(
            name="b/c",
            url="s3://datasets/corpus/b/c",
            address=f"{server.url}/datasets/corpus/b/c",
            size=2,
            etag=server.etag("corpus/b/c"),
        ),
    )
    assert (found.url, found.region) == ("s3://datasets/corpus/", "us-east-1")
    assert found.etag == source.digest(found.files)


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("NoSuchBucket", "There is no bucket 'b'; correct the URL s3://b/k."),
        ("NoSuchKey", wording("source.what_s3_refuses_is_explained.1", "'b'", "'k'")),
        ("AccessDenied", wording("source.what_s3_refuses_is_explained.2", "GetObject")),
        ("SlowDown", wording("source.what_s3_refuses_is_explained.3", "SlowDown")),
    ],
)
def test_what_s3_refuses_is_explained(code: str, words: str) -> None:
    assert source.refusal(S3Url("b", "k"), code) == words


def test_an_endpoint_that_does_not_answer_is_named(monkeypatch: pytest.MonkeyPatch, server: ObjectServer) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    monkeypatch.setattr(s3, "connect", lambda **_options: boto3.client("s3"))
    unanswered = 'Could not connect to the endpoint URL: "http://127.0.0.1:9/datasets'
    for url, what in (("s3://datasets/a.tar", "read"), ("s3://datasets/corpus/", "listed")):
        with pytest.raises(DatasetNotFound) as refused:
            open_source(url)
        assert str(refused.value).startswith(f"{url} cannot be {what} ({unanswered}")
        assert str(refused.value).endswith('"); check endpoint and credentials.')


def test_nothing_is_signed_for_a_public_bucket(server: ObjectServer) -> None:
    server.objects = {"a.tar": b"123"}
    assert open_source("s3://datasets/a.tar", unsigned=True).region is None
    assert server.authorized == [False]


def test_the_digest_of_a_prefix_is_that_of_its_list_for_ever() -> None:
    """Markers keep it: with another one, every data set of a prefix would be staged again."""
    files = tuple(
        source.RemoteFile(name=name, url="s3://b/k", address="", size=size, etag=etag)
        for name, size, etag in (("a", 1, "e"), ("b/c", 20, "f"))
    )
    assert source.digest(files) == hashlib.sha256(b"e 1 a\nf 20 b/c\n").hexdigest()


def test_an_archive_from_the_web_needs_a_checksum() -> None:
    with pytest.raises(ConfigInvalid) as refused:
        open_source("https://example.com/a.tar")
    assert str(refused.value) == (wording("source.an_archive_from_the_web_needs_a_checksum", "example.com", "a.tar"))


def test_addresses_are_those_of_the_buckets_region_and_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ENDPOINT_URL", raising=False)
    paris = s3.connect(unsigned=True, region="eu-west-3").meta.endpoint_url
    assert source.addresses_in("plain", paris) == "https://plain.s3.eu-west-3.amazonaws.com/"
    assert source.addresses_in("with.dots", paris) == "https://s3.eu-west-3.amazonaws.com/with.dots/"
    assert source.addresses_in("plain", "http://127.0.0.1:5000") == "http://127.0.0.1:5000/plain/"
    assert source.addresses_in("plain", "http://127.0.0.1:5000/") == "http://127.0.0.1:5000/plain/"


def test_an_address_on_the_web_that_is_not_encrypted_is_refused_with_where_it_leads(server: ObjectServer) -> None:
    server.objects = {"a.tar": b"123"}
    url = f"{server.url}/datasets/a.tar"
    file = source.RemoteFile(name="a.tar", url=url, address=url, size=0, etag=None)
    with pytest.raises(DatasetNotFound) as refused:
        source.resolved(file)
    assert str(refused.value) == f"{url} leads to {url}, which is not encrypted; give an https:// URL."


@pytest.fixture
def secure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ObjectServer]:
    """A server on the web, whose certificate is known."""
    bundle, tls = certificate(tmp_path)
    monkeypatch.setenv("AWS_CA_BUNDLE", str(bundle))
    with serving(ObjectServer(), tls=tls) as started:
        yield started


def on_the_web(server: ObjectServer, name: str) -> source.RemoteFile:
    url = f"{server.url}/datasets/{name}"
    return source.RemoteFile(name=name, url=url, address=url, size=0, etag=None)


def test_an_archive_on_the_web_is_read_where_its_redirects_lead(secure: ObjectServer) -> None:
    secure.objects["mirror/a.tar"] = b"1234"
    secure.redirects["a.tar"] = f"{secure.url}/datasets/mirror/a.tar?signature=1"
    found = source.resolved(on_the_web(secure, "a.tar"))
    assert (found.url, found.address) == (f"{secure.url}/datasets/a.tar", secure.redirects["a.tar"])
    assert (found.size, found.etag) == (4, secure.etag("mirror/a.tar"))


def test_several_redirects_in_a_row_are_followed(secure: ObjectServer) -> None:
    """As from a mirror list by way of a mirror to the store behind it."""
    secure.objects["5.tar"] = b"1234"
    secure.redirects.update({f"{hop}.tar": f"{secure.url}/datasets/{hop + 1}.tar" for hop in range(5)})
    assert source.resolved(on_the_web(secure, "0.tar")).address == f"{secure.url}/datasets/5.tar"


def test_redirects_in_a_circle_are_named(secure: ObjectServer) -> None:
    secure.redirects["a.tar"] = f"{secure.url}/datasets/a.tar"
    with pytest.raises(DatasetNotFound) as refused:
        source.resolved(on_the_web(secure, "a.tar"))
    assert re.fullmatch(
        re.escape(f"{secure.url}/datasets/a.tar")
        + r" cannot be read \(.*too many redirects.*\); check the URL and the network\.",
        str(refused.value),
    )


def test_an_archive_on_the_web_is_known_by_its_checksum_and_has_the_name_that_its_url_ends_in(
    secure: ObjectServer,
) -> None:
    """The name tells whether and how the archive is compressed."""
    secure.objects["a.tar.gz"] = b"1234"
    url = f"{secure.url}/datasets/a.tar.gz"
    found = source.open_source(url, unsigned=False, region=None, sha256="feed")
    assert (found.url, found.etag, found.is_archive) == (url, "sha256:feed", True)
    [file] = found.files
    assert (file.name, file.url, file.size) == ("a.tar.gz", url, 4)


@pytest.mark.parametrize(
    ("etag", "kept"), [('"1"', '"1"'), ('W/"1"', None), (None, None)], ids=["strong", "weak", "none"]
)
def test_only_a_strong_etag_is_asked_for_again(secure: ObjectServer, etag: str | None, kept: str | None) -> None:
    """A weak one matches no range: every read of the archive would be refused."""

    def answer(_read: Read, handler: BaseHTTPRequestHandler) -> bool:
        handler.send_response(206)
        for name, value in {"ETag": etag, "Content-Range": "bytes 0-0/4", "Content-Length": "1"}.items():
            if value is not None:
                handler.send_header(name, value)
        handler.end_headers()
        handler.wfile.write(b"1")
        return True

    secure.objects["a.tar"] = b"1234"
    secure.misbehave = answer
    assert source.resolved(on_the_web(secure, "a.tar")).etag == kept


def test_an_archive_that_the_web_does_not_have_or_gives_whole_only_is_named(secure: ObjectServer) -> None:
    with pytest.raises(DatasetNotFound, match=r"a\.tar .*server answers 404"):
        source.resolved(on_the_web(secure, "a.tar"))

    def whole(_read: Read, handler: BaseHTTPRequestHandler) -> bool:
        handler.send_response(200)
        handler.send_header("Content-Length", "4")
        handler.end_headers()
        handler.wfile.write(b"1234")
        return True

    secure.objects["a.tar"] = b"1234"
    secure.misbehave = whole
    with pytest.raises(DatasetNotFound) as refused:
        source.resolved(on_the_web(secure, "a.tar"))
    assert str(refused.value) == (
        f"The server of {secure.url}/datasets/a.tar does not answer ranged reads; copy the archive into a bucket and "
        "give its s3:// URL."
    )


def test_a_bucket_of_another_region_is_read_and_signed_for_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ENDPOINT_URL", raising=False)
    for name, value in {
        "AWS_ACCESS_KEY_ID": "a",
        "AWS_SECRET_ACCESS_KEY": "b",
        "AWS_DEFAULT_REGION": "us-east-1",
    }.items():
        monkeypatch.setenv(name, value)
    connect, asked = s3.connect, []

    def connect_stubbed(*, unsigned: bool, region: str | None) -> Any:
        asked.append(region)
        client = connect(unsigned=unsigned, region=region)
        stub = Stubber(client)
        if region is None:
            stub.add_response("head_bucket", {"BucketRegion": "eu-west-3"}, {"Bucket": "corpora"})
        else:
            body = StreamingBody(io.BytesIO(b"1"), 1)
            stub.add_response("get_object", {"Body": body, "ContentRange": "bytes 0-0/3", "ETag": '"e"'})
        stub.activate()
        return client

    monkeypatch.setattr(s3, "connect", connect_stubbed)
    found = open_source("s3://corpora/a.tar")
    assert asked == [None, "eu-west-3"]
    assert (found.region, found.files[0].address) == ("eu-west-3", "https://corpora.s3.eu-west-3.amazonaws.com/a.tar")


@pytest.mark.parametrize("forbidden", [False, True], ids=["may be read", "may not be read"])
def test_s3_is_asked_where_a_bucket_is(monkeypatch: pytest.MonkeyPatch, forbidden: bool) -> None:
    monkeypatch.delenv("AWS_ENDPOINT_URL", raising=False)
    client = boto3.client("s3", region_name="us-east-1", aws_access_key_id="a", aws_secret_access_key="b")
    with Stubber(client) as stub:
        if forbidden:
            headers = {"HTTPHeaders": {"x-amz-bucket-region": "eu-west-3"}}
            stub.add_client_error("head_bucket", "403", http_status_code=403, response_meta=headers)
        else:
            stub.add_response("head_bucket", {"BucketRegion": "eu-west-3"}, {"Bucket": "b"})
        assert s3.bucket_region(client, "b") == "eu-west-3"


def test_objects_that_may_not_be_listed_are_named_with_the_permission_that_is_missing() -> None:
    client = boto3.client("s3", region_name="us-east-1", aws_access_key_id="a", aws_secret_access_key="b")
    with Stubber(client) as stub:
        stub.add_client_error("list_objects_v2", "AccessDenied", http_status_code=403)
        with pytest.raises(DatasetNotFound) as refused:
            objects_below(
                client, s3.parse("s3://corpora/wiki/", option="--url", key_required=True), "https://corpora.example/"
            )
    assert str(refused.value) == (
        wording("source.objects_that_may_not_be_listed_are_named_with_the_permission_that_is_missing", "ListBucket")
    )
