"""Record how a Slurm job ended, for the time after slurmctld has removed it: `python -m trainer.slurm.finish …`.

One JSON object in S3 has the exit code of every node, and the results of the first node and of a few failed nodes. The
last lines of the failed nodes are stored beside the log.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainer.runtime import arguments, program, s3
from trainer.runtime.environment import Environment
from trainer.runtime.errors import ConfigInvalid, StorageFailed
from trainer.slurm.place import TAIL_LINES, JobFolder, JobObjects
from trainer.slurm.ship import GIVES_UP_SECONDS
from trainflow.protocol.result import MAX_BYTES
from trainflow.protocol.s3_urls import S3Url
from trainflow.protocol.slurm_job import (
    DEADLINE_EXCEEDED,
    EPOCH,
    MAX_OTHER_NODES,
    MAX_RECORDED_NODES,
    JobRecord,
    NodeRecord,
    record_to_bytes,
    stamped,
)

if TYPE_CHECKING:
    from mypy_boto3_s3.client import S3Client

LAST_WORDS_BYTES = 2048
"""Bytes of the log that replace a missing result, as many as Kubernetes takes (`FallbackToLogsOnError`)."""

TAIL_BYTES = 256 * 1024
"""Bytes of a log that are searched for its last lines."""

RETRY_SECONDS = 2.0
"""Pause between two attempts to write to S3; they last as long as those of the log's shipper."""


@dataclass(frozen=True, kw_only=True)
class FinishConfig:
    """The job that has ended."""

    folder: Path
    """The job's folder on the shared file system."""
    job: str
    """The job's name."""
    url: str
    """Prefix of the run's artifacts, s3://bucket/prefix/."""
    exit_code: int
    """Exit code of the program on all nodes together, as srun reports it."""
    seconds: int
    """Time since the job started, in seconds."""
    warned_from: int
    """Earliest time of Slurm's SIGTERM before the time limit, in seconds after the start."""
    spec_hash: str
    """Hash of the job's spec."""
    num_nodes: int
    """Number of nodes of the job."""


def main(argv: Sequence[str], _environment: Environment) -> Mapping[str, Any] | None:
    """Write the record and the last lines."""
    config = arguments.parse(FinishConfig, argv, program="trainer.slurm.finish")
    if not os.environ.get("SLURM_JOB_ID", "").isdecimal():
        raise ConfigInvalid("SLURM_JOB_ID is missing; trainer.slurm.finish is a part of a Slurm job.")
    objects = JobObjects(s3.parse(config.url, option="url", key_required=False), config.job)
    folder, client, deadline = JobFolder(config.folder), s3.connect(), time.monotonic() + GIVES_UP_SECONDS
    nodes = told_nodes(folder, num_nodes=config.num_nodes, first_node=os.environ.get("SLURMD_NODENAME", ""))
    others = other_nodes(folder, num_nodes=config.num_nodes, told=nodes)
    for node in nodes:
        if node.index and node.exit_code:
            _put(client, objects.tail(node.index), _tail(folder.log(node.index)), deadline=deadline)
    ended = record(config, nodes, others, job_id=int(os.environ["SLURM_JOB_ID"]), ended_at=_end(folder))
    _put(client, objects.record, record_to_bytes(ended), deadline=deadline)
    return None


def _end(folder: JobFolder) -> datetime:
    """Time when the program had ended on all nodes; this program starts some seconds later."""
    try:
        return datetime.fromtimestamp(folder.ended.stat().st_mtime, UTC)
    except FileNotFoundError:
        return datetime.now(UTC)


def record(
    config: FinishConfig,
    nodes: Sequence[NodeRecord],
    others: Sequence[NodeRecord],
    *,
    job_id: int,
    ended_at: datetime,
) -> JobRecord:
    """The job's record, as the workflow reads it."""
    warned = config.exit_code != 0 and config.seconds >= config.warned_from
    return JobRecord(
        job_id=job_id,
        spec_hash=config.spec_hash,
        exit_code=config.exit_code,
        reason=DEADLINE_EXCEEDED if warned else None,
        started_at=ended_at - timedelta(seconds=config.seconds),
        ended_at=ended_at,
        nodes=tuple(nodes),
        others=tuple(others),
    )


def told_nodes(folder: JobFolder, *, num_nodes: int, first_node: str) -> list[NodeRecord]:
    """The first node, and the first nodes that failed."""
    known = [node for index in range(num_nodes) if (node := _node(folder, index)) is not None]
    failed = [node for node in known if node.exit_code]
    failed.sort(key=lambda node: (node.finished_at or EPOCH, node.index))
    first = next((node for node in known if node.index == 0), None)
    if first is None:
        message = _text(folder.result(0))
        first = NodeRecord(index=0, node=first_node, exit_code=None, message=message, finished_at=None)
    return [first, *(node for node in failed[:MAX_RECORDED_NODES] if node.index)]


def other_nodes(folder: JobFolder, *, num_nodes: int, told: Sequence[NodeRecord]) -> list[NodeRecord]:
    """The nodes that the record does not describe in full. The name is empty if a node's program was killed."""
    indexes = sorted(set(range(num_nodes)) - {node.index for node in told})[:MAX_OTHER_NODES]
    return [replace(_node(folder, index) or NodeRecord(index=index, node=""), message=None) for index in indexes]


def _node(folder: JobFolder, index: int) -> NodeRecord | None:
    """Files that one node left; None if its program was killed, or was not started."""
    said = _text(folder.exit(index))
    code, _, node = (said or "").strip().partition(" ")
    if not code.isdecimal():
        return None
    message = _text(folder.result(index))
    if message is None and code != "0":
        message = _last_bytes(folder.log(index), LAST_WORDS_BYTES).decode(errors="replace").strip() or None
    finished_at = datetime.fromtimestamp(folder.exit(index).stat().st_mtime, UTC)
    return NodeRecord(index=index, node=node, exit_code=int(code), message=message, finished_at=finished_at)


def _tail(log: Path) -> bytes:
    """The node's last lines, all with the time of the last write to its log."""
    lines = _last_bytes(log, TAIL_BYTES).removesuffix(b"\n").split(b"\n")[-TAIL_LINES:]
    written = int(log.stat().st_mtime * 1_000_000) if log.exists() else 0
    return b"".join(stamped(line, written) for line in lines)


def _last_bytes(file: Path, num_bytes: int) -> bytes:
    try:
        with file.open("rb") as opened:
            opened.seek(max(0, file.stat().st_size - num_bytes))
            return opened.read(num_bytes)
    except FileNotFoundError:
        return b""


def _text(file: Path) -> str | None:
    try:
        with file.open("rb") as opened:
            return opened.read(MAX_BYTES).decode(errors="replace") or None
    except FileNotFoundError:
        return None


def _put(client: S3Client, place: S3Url, content: bytes, *, deadline: float) -> None:
    from botocore.exceptions import BotoCoreError, ClientError

    while True:
        try:
            client.put_object(Bucket=place.bucket, Key=place.key, Body=content)
            return
        except (BotoCoreError, ClientError) as error:
            refusal = f"{place} cannot be written ({error}); give the nodes' role s3:PutObject there."
            if time.monotonic() > deadline:
                raise StorageFailed(refusal) from error
        print(refusal, file=sys.stderr, flush=True)
        time.sleep(RETRY_SECONDS)


if __name__ == "__main__":
    sys.exit(program.run(main, sys.argv[1:], os.environ))
