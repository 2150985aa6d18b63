"""Amazon S3: records, logs and last lines of Slurm's jobs, because a Lambda function mounts no file system.

Written below `runs/<run id>/` of the artifact bucket by `trainer.slurm` on the first node of each job, in the form of
`trainflow.protocol.slurm_job`. slurmctld has neither logs nor results (decision 18).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from typing import Any

from lambdas.gateways import objects
from lambdas.gateways.aws import client, translated
from lambdas.gateways.kubernetes_objects import log_lines
from trainflow.observed.pod import Pod
from trainflow.protocol import slurm_job
from trainflow.protocol.slurm_job import (
    EPOCH,
    MAX_LOG_BYTES,
    MAX_RECORD_BYTES,
    MAX_RECORDED_NODES,
    JobRecord,
    NodeRecord,
    parse_record,
)
from trainflow.workflow.log_line import LogLine


def pod_name(job: str, index: int) -> str:
    """Name of a job's part on one of its nodes, in the form of the pods of other backends."""
    return f"{job}-{index}"


class JobFiles:
    """Files of the jobs of all runs."""

    def __init__(self, bucket: str) -> None:
        self._bucket = bucket

    def record(self, job: str) -> JobRecord | None:
        """The record of a job; None before its program has ended, or if the job was killed."""
        return self._record(_key(job, slurm_job.record_name(job)))

    def failed_nodes(self, run_id: str) -> list[Pod]:
        """A few failed nodes of the run's newest jobs."""
        failed: list[Pod] = []
        for key in self._newest(f"runs/{run_id}/{slurm_job.RECORDS}", limit=MAX_RECORDED_NODES):
            record = self._record(key)
            failed += failed_pods(key.rsplit("/", 1)[-1].removesuffix(".json"), record) if record else []
        return failed[:MAX_RECORDED_NODES]

    def pods_with_last_lines(self, run_id: str, *, limit: int) -> list[str]:
        """Parts of the run's newest jobs whose last lines are stored."""
        keys = self._newest(f"runs/{run_id}/{slurm_job.TAILS}", limit=limit)
        return [key.rsplit("/", 1)[-1].removesuffix(".log") for key in keys]

    def tail(self, pod: str, *, lines: int) -> list[LogLine]:
        """The last lines of a part of a job; none if they were not stored."""
        job, _, index = pod.rpartition("-")
        content = self._get(_key(job, slurm_job.tail_name(job, int(index)))) if index.isdecimal() else None
        return list(log_lines(_lines(content)))[-lines:] if content else []

    def log(self, job: str, *, since: datetime | None) -> Iterator[LogLine]:
        """The first node's lines, oldest first, read segment by segment on demand."""
        for key in self._segments(job, since or EPOCH):
            content = self._get(key)
            for line in log_lines(_lines(content)) if content else ():
                if since is None or line.logged_at >= since:
                    yield line

    def _segments(self, job: str, since: datetime) -> Iterator[str]:
        folder = _key(job, slurm_job.log_folder(job))
        first = _key(job, slurm_job.segments_from(job, (since - EPOCH) // timedelta(microseconds=1)))
        with translated("s3:ListObjectsV2"):
            pages = (
                client("s3")
                .get_paginator("list_objects_v2")
                .paginate(Bucket=self._bucket, Prefix=folder, StartAfter=first)
            )
            for page in pages:
                yield from (str(found["Key"]) for found in page.get("Contents", ()))

    def _newest(self, folder: str, *, limit: int) -> list[str]:
        with translated("s3:ListObjectsV2"):
            found = client("s3").list_objects_v2(Bucket=self._bucket, Prefix=folder).get("Contents", ())
        newest_first: Iterable[Any] = sorted(found, key=lambda each: each["LastModified"], reverse=True)
        return [str(each["Key"]) for each in newest_first][:limit]

    def _record(self, key: str) -> JobRecord | None:
        content = self._get(key, MAX_RECORD_BYTES + 1)
        return parse_record(content) if content and len(content) <= MAX_RECORD_BYTES else None

    def _get(self, key: str, limit_bytes: int = MAX_LOG_BYTES) -> bytes | None:
        """The object's first bytes; None if it does not exist. Every program of the run may write objects there."""
        return objects.read(self._bucket, key, version_id=None, limit_bytes=limit_bytes)


def failed_pods(job: str, record: JobRecord, *, reason: str | None = None) -> list[Pod]:
    """The nodes of a job whose program failed, the first to fail first.

    Args:
        job: The job's name.
        record: The job's record.
        reason: Slurm's reason, if it is known.
    """
    failed = sorted((node for node in record.nodes if node.exit_code), key=_order_of_end)
    return [_pod(job, node, reason) for node in failed]


def peer_pods(job: str, record: JobRecord) -> list[Pod]:
    """A few nodes of a job whose program ended with exit code 0, the first to end first."""
    ended = sorted((node for node in (*record.nodes, *record.others) if node.exit_code == 0), key=_order_of_end)
    return [_pod(job, node, None) for node in ended[:MAX_RECORDED_NODES]]


def _order_of_end(node: NodeRecord) -> tuple[bool, datetime | None, int]:
    return node.finished_at is None, node.finished_at, node.index


def _pod(job: str, node: NodeRecord, reason: str | None) -> Pod:
    return Pod(
        name=pod_name(job, node.index),
        index=node.index,
        node=node.node,
        phase="Failed" if node.exit_code else "Succeeded",
        exit_code=node.exit_code,
        end_reason=reason,
        termination_message=node.message,
        finished_at=node.finished_at,
    )


def _key(job: str, name: str) -> str:
    """Key of a job's file; the job's name is `<run id>-<stage>-<attempt>`."""
    return f"runs/{job.rsplit('-', 2)[0]}/{name}"


def _lines(content: bytes) -> list[bytes]:
    """Lines of an object; a carriage return is a character like any other."""
    return content.removesuffix(b"\n").split(b"\n")
