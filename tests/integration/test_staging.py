"""Staging as a process of its own: killed and started again, twice at once, over TLS, and within its memory."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import tarfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest
import zstandard

from tests.unit.trainer.conftest import make_archive
from tests.unit.trainer.staging.object_server import ObjectServer, Read, certificate, serving
from trainer.staging.compression import END_BYTES

MIB = 2**20
FILES = {f"corpus/{name}.bin": random.Random(name).randbytes(3 * MIB) for name in "abcdefghijkl"}
MEMORY_LIMIT = 256 * MIB


@pytest.fixture
def server() -> Iterator[ObjectServer]:
    with serving(ObjectServer()) as started:
        yield started


TELLING_ITS_PEAK = """
import os, pathlib, sys
from trainer import stage
from trainer.runtime import program
status = program.run(stage.main, sys.argv[1:], os.environ)
print(pathlib.Path("/proc/self/status").read_text())
sys.exit(status)
"""
"""The peak that `wait4` gives counts what the test's own process had when it forked."""


def start(
    server: ObjectServer,
    destination: Path,
    url: str,
    *more: str,
    program: tuple[str, ...] = ("-m", "trainer.stage"),
    **environ: str,
) -> subprocess.Popen[str]:
    given = ["--url", url, "--destination", str(destination), "--min_shards", "0", *more]
    return subprocess.Popen(
        [sys.executable, *program, *given],
        env={
            **os.environ,
            "AWS_ENDPOINT_URL": server.url,
            "AWS_ACCESS_KEY_ID": "testing",
            "AWS_SECRET_ACCESS_KEY": "testing",
            "AWS_DEFAULT_REGION": "us-east-1",
            **environ,
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def result_of(process: subprocess.Popen[str]) -> Mapping[str, Any]:
    said, _ = process.communicate(timeout=300)
    assert process.returncode == 0, said
    result: Mapping[str, Any] = json.loads(said.splitlines()[-1])
    return result


def content_of(folder: Path) -> dict[str, bytes]:
    found = (path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in found}


def complete_in(place: Path) -> dict[str, tuple[int, int] | None]:
    """Files that are recorded as complete, and where each lies in the archive."""
    lines = (place / "journal").read_text().splitlines()[1:] if (place / "journal").exists() else []
    return {path: span for path, _size, span, *_ in map(json.loads, lines)}


def identities(folder: Path, names: Iterator[str] | set[str]) -> dict[str, tuple[int, int]]:
    """A file that is written again is another, or changed later."""
    stats = {name: (folder / name).stat() for name in names}
    return {name: (stat.st_ino, stat.st_mtime_ns) for name, stat in stats.items()}


def kill_in_the_middle(
    server: ObjectServer, destination: Path, url: str, hold_back: Callable[[Read], bool]
) -> dict[str, tuple[int, int] | None]:
    """Stage with a server that withholds some reads, and end the process without a word once something is complete.

    Returns:
        Files that are recorded as complete.
    """
    over = threading.Event()

    def withhold(read: Read, handler: BaseHTTPRequestHandler) -> bool:
        if not hold_back(read):
            return False
        over.wait(120)
        handler.hang_up()  # type: ignore[attr-defined]
        return True

    server.misbehave = withhold
    place = destination.parent / f".{destination.name}.staging"
    process = start(server, destination, url)
    while len(complete_in(place)) < 3 and process.poll() is None:
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    over.set()
    server.misbehave = lambda _read, _handler: False
    server.reads.clear()
    complete = complete_in(place)
    assert 3 <= len(complete) < len(FILES)
    assert not destination.exists()
    return complete


def test_a_killed_stager_continues_without_reading_what_is_complete(server: ObjectServer, tmp_path: Path) -> None:
    server.objects["corpus.tar"] = make_archive(FILES)
    destination, url = tmp_path / "demo", "s3://datasets/corpus.tar"
    complete = kill_in_the_middle(server, destination, url, lambda read: read.end > 20 * MIB)
    before = identities(tmp_path / ".demo.staging" / "data", set(complete))
    assert result_of(start(server, destination, url))["files"] == len(FILES)
    spans = [span for span in complete.values() if span is not None]
    assert len(spans) == len(complete)
    assert not [read for read in server.reads for start, end in spans if read.start < end and start < read.end]
    assert identities(destination, set(complete)) == before
    assert content_of(destination) == FILES


@pytest.mark.parametrize("compress", [gzip.compress, zstandard.compress], ids=["gz", "zst"])
def test_a_killed_stager_of_a_compressed_archive_does_not_write_again_what_is_complete(
    server: ObjectServer, tmp_path: Path, compress: Callable[[bytes], bytes]
) -> None:
    server.objects["corpus.tar.z"] = compress(make_archive(FILES))
    destination, url = tmp_path / "demo", "s3://datasets/corpus.tar.z"
    complete = kill_in_the_middle(
        server, destination, url, lambda read: read.end > 20 * MIB and read.end - read.start > END_BYTES
    )
    before = identities(tmp_path / ".demo.staging" / "data", set(complete))
    assert result_of(start(server, destination, url))["files"] == len(FILES)
    assert identities(destination, set(complete)) == before
    assert content_of(destination) == FILES


def test_a_killed_stager_of_a_prefix_does_not_read_again_what_is_complete(server: ObjectServer, tmp_path: Path) -> None:
    server.objects.update(FILES)
    destination, url = tmp_path / "demo", "s3://datasets/corpus/"
    complete = kill_in_the_middle(server, destination, url, lambda read: read.key > "corpus/g")
    result_of(start(server, destination, url))
    assert server.keys_read() == {key for key in FILES if key.removeprefix("corpus/") not in complete}
    assert content_of(destination) == {key.removeprefix("corpus/"): content for key, content in FILES.items()}


def test_a_stager_whose_role_was_refused_in_the_middle_does_not_read_again_what_is_complete(
    server: ObjectServer, tmp_path: Path
) -> None:
    server.objects.update(FILES)
    destination, url, place = tmp_path / "demo", "s3://datasets/corpus/", tmp_path / ".demo.staging"

    def refuse(read: Read, handler: BaseHTTPRequestHandler) -> bool:
        if read.key <= "corpus/g":
            return False
        while len(complete_in(place)) < 3:
            time.sleep(0.05)
        handler.refuse(403, "AccessDenied")  # type: ignore[attr-defined]
        return True

    server.misbehave = refuse
    process = start(server, destination, url)
    said, _ = process.communicate(timeout=300)
    assert process.returncode == 2
    assert "DatasetNotFound" in said
    complete = complete_in(place)
    assert 3 <= len(complete) < len(FILES)
    server.misbehave = lambda _read, _handler: False
    server.reads.clear()
    result_of(start(server, destination, url))
    assert server.keys_read() == {key for key in FILES if key.removeprefix("corpus/") not in complete}


def test_a_source_that_changed_since_the_kill_is_staged_from_its_beginning(
    server: ObjectServer, tmp_path: Path
) -> None:
    server.objects["corpus.tar"] = make_archive(FILES)
    destination, url = tmp_path / "demo", "s3://datasets/corpus.tar"
    kill_in_the_middle(server, destination, url, lambda read: read.end > 20 * MIB)
    others = {"corpus/z.bin": b"z" * MIB, "corpus/a.bin": FILES["corpus/a.bin"][::-1]}
    server.objects["corpus.tar"] = make_archive(others)
    result_of(start(server, destination, url))
    assert content_of(destination) == others


def test_of_two_stagers_one_downloads_and_the_other_finds_it_done(server: ObjectServer, tmp_path: Path) -> None:
    server.objects["corpus.tar"] = make_archive(FILES)
    both = [start(server, tmp_path / "demo", "s3://datasets/corpus.tar") for _ in range(2)]
    results = [result_of(process) for process in both]
    assert sorted(result["skipped"] for result in results) == [False, True]
    assert len(server.reads) == len({(read.start, read.end) for read in server.reads})
    assert content_of(tmp_path / "demo") == FILES


KILLED_BEFORE_A_RENAME = """
import os, signal, sys
from trainer import stage
from trainer.runtime import program
final, left = [".demo.staging/ready", "demo", ".demo.staging/data"], int(sys.argv.pop(1))
def dies(event, arguments):
    global left
    if event == "os.rename" and (str(arguments[0]).endswith(tuple(final)) or str(arguments[1]).endswith(final[0])):
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
sys.addaudithook(dies)
sys.exit(program.run(stage.main, sys.argv[1:], os.environ))
"""
"""Program that dies at one of the four last steps: the marker is complete, the old folder is removed, the new one is
moved there, the marker follows."""


@pytest.mark.parametrize("rename", [1, 2, 3, 4])
def test_a_stager_that_is_killed_while_it_replaces_a_data_set_never_passes_off_the_old_one_as_the_new(
    server: ObjectServer, tmp_path: Path, rename: int
) -> None:
    old, new = ({"corpus/a.bin": content * MIB} for content in (b"o", b"n"))  # as many files and bytes
    destination, url = tmp_path / "demo", "s3://datasets/corpus.tar"
    server.objects["corpus.tar"] = make_archive(old)
    result_of(start(server, destination, url))
    server.objects["corpus.tar"] = make_archive(new)
    killed = start(server, destination, url, program=("-c", KILLED_BEFORE_A_RENAME, str(rename)))
    killed.communicate(timeout=300)
    assert killed.returncode == -signal.SIGKILL
    assert content_of(destination) == {1: old, 2: old, 3: {}, 4: new}[rename]
    server.reads.clear()
    result = result_of(start(server, destination, url))
    assert result["skipped"] is (rename > 1)  # all was whole, so nothing is brought again
    assert all(read.start > MIB for read in server.reads)  # the archive's end at most
    assert content_of(destination) == new
    assert sorted(path.name for path in tmp_path.iterdir()) == [".demo.lock", ".demo.ready", "demo"]


def test_an_archive_from_the_web_is_followed_to_where_it_is_and_checked(tmp_path: Path) -> None:
    content = zstandard.compress(make_archive(FILES))
    server = ObjectServer()
    bundle, tls = certificate(tmp_path)
    with serving(server, tls=tls):
        server.objects["mirror/corpus.tar.zst"] = content
        server.redirects["corpus.tar.zst"] = f"{server.url}/datasets/mirror/corpus.tar.zst?signature=1"
        right = ("--sha256", hashlib.sha256(content).hexdigest())
        process = start(
            server, tmp_path / "demo", f"{server.url}/datasets/corpus.tar.zst", *right, AWS_CA_BUNDLE=str(bundle)
        )
        assert result_of(process)["etag"] == f"sha256:{right[1]}"
        assert not any(server.authorized)
        assert content_of(tmp_path / "demo") == FILES


def test_a_certificate_without_a_known_authority_is_refused(tmp_path: Path) -> None:
    _, tls = certificate(tmp_path)
    with serving(ObjectServer(), tls=tls) as server:
        server.objects["corpus.tar"] = b"x"
        process = start(server, tmp_path / "demo", f"{server.url}/datasets/corpus.tar", "--sha256", "0" * 64)
        said, _ = process.communicate(timeout=300)
    assert process.returncode == 2
    assert "DatasetNotFound" in said
    assert "certificate" in said


def plain_archive(path: Path) -> None:
    """1 GiB in 16 files."""
    noise = random.Random(0).randbytes(4 * MIB)
    shard = path.with_name("shard")
    with shard.open("wb") as file:
        for _ in range(16):
            file.write(noise)
    with tarfile.open(path, "w") as made:
        for number in range(16):
            made.add(shard, arcname=f"corpus/{number}.bin")
    shard.unlink()


def compressed_archive(path: Path) -> None:
    """384 MiB that are compressed with the widest window that zstd reads without being asked to."""
    parameters = zstandard.ZstdCompressionParameters.from_level(1, window_log=27)
    block = random.Random(0).randbytes(MIB) + b"\0" * MIB
    member = tarfile.TarInfo("corpus/a.bin")
    member.size = 384 * MIB
    with path.open("wb") as file, zstandard.ZstdCompressor(compression_params=parameters).stream_writer(file) as packed:
        packed.write(member.tobuf())
        for _ in range(member.size // len(block)):
            packed.write(block)
        packed.write(b"\0" * 10240)


@pytest.mark.parametrize(("name", "make"), [("a.tar", plain_archive), ("a.tar.zst", compressed_archive)])
def test_memory_stays_the_same_whatever_the_size(
    server: ObjectServer, tmp_path: Path, name: str, make: Callable[[Path], None]
) -> None:
    make(tmp_path / name)
    server.objects[name] = tmp_path / name
    process = start(
        server, tmp_path / "demo", f"s3://datasets/{name}", "--max_expansion", "1000", program=("-c", TELLING_ITS_PEAK)
    )
    said, _ = process.communicate(timeout=600)
    assert process.returncode == 0, said
    peak = int(said.split("VmHWM:")[1].split()[0]) * 1024
    unpacked = sum(path.stat().st_size for path in (tmp_path / "demo" / "corpus").iterdir())
    assert unpacked > 1.4 * MEMORY_LIMIT
    assert peak < MEMORY_LIMIT, f"{peak / MIB:.0f} MiB"
