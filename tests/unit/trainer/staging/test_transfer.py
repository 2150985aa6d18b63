"""Ranges arrive whole and in order, whatever the network does."""

from __future__ import annotations

import random
import re
import subprocess
import sys
import threading
import time
from dataclasses import replace
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest

from tests.unit.trainer.staging.object_server import ObjectServer, Read, certificate, serving
from tests.wording import wording
from trainer.runtime.errors import DatasetNotFound, StorageFailed
from trainer.staging import transfer
from trainer.staging.source import RemoteFile, open_source
from trainer.staging.transfer import Range, Transfer, cut_ranges

CONTENT = random.Random(0).randbytes(300_000)


@pytest.fixture(autouse=True)
def small_ranges(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transfer, "RANGE_BYTES", 10_000)
    monkeypatch.setattr(transfer, "FIRST_PAUSE_SECONDS", 0.0)


@pytest.fixture
def file(server: ObjectServer) -> RemoteFile:
    server.objects["corpus.tar"] = CONTENT
    return open_source("s3://datasets/corpus.tar", unsigned=False, region=None, sha256=None).files[0]


def reader(**more: Any) -> Transfer:
    return Transfer(encrypted=False, region="us-east-1", renew=lambda file: file, **more)


def fetched(file: RemoteFile) -> bytes:
    return b"".join(chunk for _, chunks in reader().fetch(cut_ranges(file)) for chunk in chunks)


def test_all_ranges_arrive_in_order_and_signed(server: ObjectServer, file: RemoteFile) -> None:
    assert fetched(file) == CONTENT
    assert len(server.reads) == 30
    assert all(server.authorized)


def test_of_what_is_complete_nothing_is_read(server: ObjectServer, file: RemoteFile) -> None:
    before = len(server.reads)
    assert list(reader().fetch([])) == []
    assert len(server.reads) == before


def test_no_range_is_read_further_ahead_than_there_is_room(server: ObjectServer, file: RemoteFile) -> None:
    answers = reader(bytes_in_flight=50_000).fetch(cut_ranges(file))
    for taken in range(1, 11):
        asked, _ = next(answers)
        assert max(read.end for read in server.reads) <= asked.start + 50_000, taken
    answers.close()


def test_a_connection_that_breaks_is_taken_up_again(server: ObjectServer, file: RemoteFile) -> None:
    broken: set[Read] = set()

    def hang_up_once(read: Read, handler: BaseHTTPRequestHandler) -> bool:
        first = read not in broken and read.start % 3 == 0
        broken.add(read)
        if first:
            handler.hang_up()  # type: ignore[attr-defined]
        return first

    server.misbehave = hang_up_once
    assert fetched(file) == CONTENT


def test_an_answer_that_ends_early_is_asked_for_again(server: ObjectServer, file: RemoteFile) -> None:
    seen: set[Read] = set()

    def cut_short_once(read: Read, handler: BaseHTTPRequestHandler) -> bool:
        if read.start != 20_000 or read in seen:
            return False
        seen.add(read)
        handler.send_response(206)
        handler.send_header("Content-Length", "10000")
        handler.send_header("Content-Range", f"bytes 20000-29999/{len(CONTENT)}")
        handler.end_headers()
        handler.wfile.write(CONTENT[20_000:24_000])
        handler.wfile.flush()
        handler.hang_up()  # type: ignore[attr-defined]
        return True

    server.misbehave = cut_short_once
    assert fetched(file) == CONTENT
    assert seen


def test_a_server_that_falls_silent_is_asked_again(
    server: ObjectServer, file: RemoteFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transfer, "STALLED_SECONDS", 0.5)
    over, seen = threading.Event(), set()

    def silent_once(read: Read, handler: BaseHTTPRequestHandler) -> bool:
        if read.start != 0 or read in seen:
            return False
        seen.add(read)
        over.wait(60)
        handler.hang_up()  # type: ignore[attr-defined]
        return True

    server.misbehave = silent_once
    try:
        assert fetched(file) == CONTENT
    finally:
        over.set()
    assert seen


def test_reading_that_is_given_up_waits_for_no_answer(server: ObjectServer, file: RemoteFile) -> None:
    over = threading.Event()

    def hold_all_but_the_first(read: Read, _handler: BaseHTTPRequestHandler) -> bool:
        if read.start > 0:
            over.wait(60)
        return False

    server.misbehave = hold_all_but_the_first
    # Few enough for the runtime's connections: of more, the first may have to wait for one of the others.
    answers = reader(bytes_in_flight=50_000).fetch(cut_ranges(file))
    next(answers)
    began = time.monotonic()
    try:
        answers.close()
        assert time.monotonic() - began < transfer.STALLED_SECONDS / 2
    finally:
        over.set()


def test_a_network_that_stays_broken_is_named(
    server: ObjectServer, file: RemoteFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transfer, "ATTEMPTS", 2)
    server.misbehave = lambda _read, handler: handler.hang_up() or True  # type: ignore[attr-defined]
    with pytest.raises(StorageFailed) as failed:
        fetched(file)
    assert re.fullmatch(
        r"The connection to s3://datasets/corpus\.tar broke 2 times at byte 0 \(.+\); check the network and start "
        r"again: what is complete stays\.",
        str(failed.value),
    )


def test_what_the_server_answered_in_the_last_attempt_is_named(
    server: ObjectServer, file: RemoteFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transfer, "ATTEMPTS", 2)
    server.misbehave = lambda _read, handler: handler.refuse(400, "BadDigest") or True  # type: ignore[attr-defined]
    with pytest.raises(StorageFailed, match=r"2 times.* byte 0 .*answers 400\)"):
        fetched(file)


@pytest.mark.parametrize("status", [404, 412, 416])
def test_an_object_that_is_gone_meanwhile_is_not_asked_for_again(
    server: ObjectServer, file: RemoteFile, status: int
) -> None:
    asked: list[Read] = []

    def gone(read: Read, handler: BaseHTTPRequestHandler) -> bool:
        asked.append(read)
        handler.refuse(status, "Gone")  # type: ignore[attr-defined]
        return True

    server.misbehave = gone
    with pytest.raises(DatasetNotFound, match=r"s3://datasets/corpus\.tar was replaced"):
        list(reader().fetch([Range(file, 0, 10)]))
    assert asked == [Read("corpus.tar", 0, 10)]


def test_another_attempt_is_made_at_the_address_that_is_good_by_then(server: ObjectServer, file: RemoteFile) -> None:
    """The address of an archive on the web may be signed for a few minutes: a refusal there may be of its age."""
    server.objects["fresh"] = CONTENT
    server.misbehave = lambda read, handler: (
        read.key == "corpus.tar" and (handler.refuse(403, "AccessDenied") or True)  # type: ignore[attr-defined]
    )
    signed = replace(file, address=f"{file.address}?signature=1", etag=None)
    renewed: list[RemoteFile] = []

    def renew(old: RemoteFile) -> RemoteFile:
        renewed.append(old)
        return replace(old, address=f"{server.url}/datasets/fresh?signature=2")

    brought = Transfer(encrypted=False, region=None, renew=renew).fetch([Range(signed, 5, 25)])
    assert [b"".join(chunks) for _asked, chunks in brought] == [CONTENT[5:25]]
    assert renewed == [signed]


def test_a_public_file_is_read_without_credentials(
    server: ObjectServer, file: RemoteFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nowhere")
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nowhere")
    server.authorized.clear()
    unsigned = Transfer(encrypted=False, region=None, renew=lambda file: file)
    assert b"".join(chunk for _, chunks in unsigned.fetch(cut_ranges(file, 0, 4)) for chunk in chunks) == CONTENT[:4]
    assert server.authorized == [False]
    with pytest.raises(DatasetNotFound) as refused:
        reader()
    assert str(refused.value) == wording("transfer.a_public_file_is_read_without_credentials", "no_sign_request")


def test_each_pause_before_another_attempt_is_twice_as_long(
    server: ObjectServer, file: RemoteFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []
    over = threading.Event()
    monkeypatch.setattr(transfer, "FIRST_PAUSE_SECONDS", 0.5)
    monkeypatch.setattr(transfer, "ATTEMPTS", 4)
    monkeypatch.setattr(transfer, "STALLED_SECONDS", 0.2)
    monkeypatch.setattr(transfer.time, "sleep", pauses.append)
    server.misbehave = lambda _read, _handler: over.wait(60)
    try:
        with pytest.raises(StorageFailed, match=r"4 times.* byte 0 \(nothing came"):
            list(reader().fetch([Range(file, 0, 4)]))
    finally:
        over.set()
    assert pauses == [0.5, 1.0, 2.0]


def test_an_object_that_was_replaced_meanwhile_is_not_mixed_up(server: ObjectServer, file: RemoteFile) -> None:
    answers = reader(bytes_in_flight=20_000).fetch(cut_ranges(file))
    next(answers)
    server.objects["corpus.tar"] = CONTENT[::-1]
    with pytest.raises(DatasetNotFound) as refused:
        list(answers)
    assert str(refused.value) == wording("transfer.an_object_that_was_replaced_meanwhile_is_not_mixed_up", "corpus.tar")


def test_a_server_that_gives_everything_for_a_range_is_named() -> None:
    url = "https://data.example/a"
    asked = Range(RemoteFile(name="a", url=url, address=url, size=9, etag=None), 0, 4)
    with pytest.raises(DatasetNotFound) as refused:
        transfer._require_ranged(asked, 200, [])
    assert str(refused.value) == (
        f"{url} gave everything when asked for bytes 0 to 4 of 9: it was replaced while it was being read, or its "
        "server knows no ranges; start again."
    )
    with pytest.raises(DatasetNotFound, match="gave bytes 0-3/8 when asked for"):
        transfer._require_ranged(asked, 206, [("Content-Range", "bytes 0-3/8")])
    with pytest.raises(DatasetNotFound, match="gave everything when asked for"):
        transfer._require_ranged(asked, 206, [])
    transfer._require_ranged(asked, 206, [("Content-Range", "bytes 0-3/9")])
    transfer._require_ranged(asked, 503, [])


def test_without_an_etag_another_size_tells_that_a_file_was_replaced(server: ObjectServer, file: RemoteFile) -> None:
    answers = reader(bytes_in_flight=20_000).fetch(cut_ranges(replace(file, etag=None)))
    next(answers)
    server.objects["corpus.tar"] = CONTENT[:-1]
    with pytest.raises(DatasetNotFound, match="was replaced while"):
        list(answers)


def test_a_role_that_may_not_read_is_named(server: ObjectServer, file: RemoteFile) -> None:
    server.misbehave = lambda _read, handler: handler.refuse(403, "AccessDenied") or True  # type: ignore[attr-defined]
    with pytest.raises(DatasetNotFound) as refused:
        fetched(file)
    assert str(refused.value) == (wording("transfer.a_role_that_may_not_read_is_named", "corpus.tar", "GetObject"))


def test_a_file_on_an_encrypted_server_is_read_if_the_bundle_of_certificates_vouches_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bundle, tls = certificate(tmp_path)
    with serving(ObjectServer(), tls=tls) as secure:
        secure.objects["a.tar"] = CONTENT
        url = f"{secure.url}/datasets/a.tar"
        file = RemoteFile(name="a.tar", url=url, address=url, size=len(CONTENT), etag=None)

        monkeypatch.setenv("AWS_CA_BUNDLE", str(bundle))
        answers = Transfer(encrypted=True, region=None, renew=lambda file: file).fetch([Range(file, 7, 77)])
        assert b"".join(chunk for _asked, chunks in answers for chunk in chunks) == CONTENT[7:77]


FAULTS = """
import resource
from trainer.staging import transfer
{first}
def faults(): return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
def read(): [b"x" * transfer.RANGE_BYTES for _ in range(transfer.BYTES_IN_FLIGHT // transfer.RANGE_BYTES)]
read()
before = faults()
for _ in range(5): read()
print(faults() - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only the C library of Linux is told to keep its memory")
def test_memory_of_ranges_that_were_taken_is_there_for_the_next() -> None:
    def page_faults(first: str) -> int:
        program = FAULTS.format(first=first)
        return int(subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout)

    assert page_faults("transfer._keep_freed_memory()") < page_faults("") / 10
