"""Publishing a run's files to the twin's S3, beside one request after another as `aws s3 cp` without threads would do.

The twin's AWS is a process of its own. Both ways send the same small files in turns; then 15,000 files and one of 2 GiB
are published once, with the memory of the publisher. Each publisher is a process, and its start counts.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from benchmarks.result import BenchmarkFailed, Result, this_machine

BUCKET = "trainflow-publishing"
MIB = 2**20

ROUNDS = 3
NUM_COMPARED, NUM_MANY, SMALL_BYTES = 500, 15_000, 4096
LARGE_BYTES = 2 << 30

SERVER = f"""
import json, sys
from local.aws.server import AwsServer
aws = AwsServer(time_scale=60)
aws.start()
aws.client("s3").create_bucket(
    Bucket="{BUCKET}", CreateBucketConfiguration={{"LocationConstraint": "us-west-2"}}
)
print(json.dumps(aws.client_environment), flush=True)
sys.stdin.read()
aws.stop()
"""
"""The twin's AWS with one bucket, until its standard input ends."""

ONE_BY_ONE = f"""
import sys
from pathlib import Path
import boto3
from botocore.exceptions import ClientError
s3, folder, prefix = boto3.client("s3"), Path(sys.argv[1]), sys.argv[2]
for file in sorted(folder.rglob("*")):
    try:
        s3.head_object(Bucket="{BUCKET}", Key=prefix + file.name)
    except ClientError:
        s3.upload_file(str(file), "{BUCKET}", prefix + file.name)
"""
"""A request for each file whether it is there, and its upload."""


def run() -> Result:
    """Measures both ways in turns, and then many files and a large one.

    Raises:
        BenchmarkFailed: If a publisher fails, or the twin's AWS does not start.
    """
    with tempfile.TemporaryDirectory(prefix="trainflow-publishing-") as name, _twin() as environ:
        few, many = _small_files(Path(name, "few"), NUM_COMPARED), _small_files(Path(name, "many"), NUM_MANY)
        ours, one_by_one = list[float](), list[float]()
        for number in range(ROUNDS):
            ours.append(_measured(_ours(few, f"ours-{number}"), environ)[0])
            one_by_one.append(_measured((sys.executable, "-c", ONE_BY_ONE, str(few), f"one-{number}/"), environ)[0])
            print(f"round {number + 1}: {ours[-1]:.1f} s, {one_by_one[-1]:.1f} s", file=sys.stderr, flush=True)
        seconds, _ = _measured(_ours(many, "many"), environ)
        again, _ = _measured(_ours(many, "many"), environ)
        with (many / "model.bin").open("wb") as file:
            for _ in range(LARGE_BYTES // (8 * MIB)):
                file.write(os.urandom(8 * MIB))
        with_large, peak = _measured(_ours(many, "large"), environ)
    return Result(
        benchmark="publishing",
        ratios={"one_by_one": round(statistics.median(one_by_one) / statistics.median(ours), 2)},
        seconds={
            "ours": [round(each, 2) for each in ours],
            "one_by_one": [round(each, 2) for each in one_by_one],
            "many": round(seconds, 1),
            "many_again": round(again, 1),
            "many_and_large": round(with_large, 1),
        },
        machine=this_machine(),
        details={"compared": NUM_COMPARED, "many": NUM_MANY, "large_mib": LARGE_BYTES // MIB, "peak_mib": round(peak)},
    )


def _ours(folder: Path, prefix: str) -> Sequence[str]:
    url = f"s3://{BUCKET}/runs/{prefix}/"
    return (sys.executable, "-m", "trainer.publish", "--source", str(folder), "--url", url, "--checkpoints", "")


def _small_files(folder: Path, number: int) -> Path:
    folder.mkdir()
    for each in range(number):
        (folder / f"part-{each:05}.bin").write_bytes(os.urandom(SMALL_BYTES))
    return folder


def _measured(command: Sequence[str], environ: Mapping[str, str]) -> tuple[float, float]:
    """Seconds and peak resident memory in MiB of a publisher."""
    began = time.perf_counter()
    process = subprocess.Popen(command, env={**os.environ, **environ}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    assert process.stdout is not None
    said = process.stdout.read().decode(errors="replace")
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise BenchmarkFailed(f"'{' '.join(command[:3])} …' ended with {process.returncode}: {said[-1000:]}")
    return time.perf_counter() - began, usage.ru_maxrss / 1024


@contextmanager
def _twin() -> Iterator[Mapping[str, str]]:
    """Environment variables of the twin's AWS."""
    server = subprocess.Popen((sys.executable, "-c", SERVER), stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert server.stdin is not None and server.stdout is not None
    try:
        line = server.stdout.readline()
        if not line:
            raise BenchmarkFailed("The twin's AWS did not start.")
        yield json.loads(line)
    finally:
        server.stdin.close()
        server.wait()
