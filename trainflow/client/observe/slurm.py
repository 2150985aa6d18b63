"""The jobs of a run on Slurm, as the observer sees pods: from what they leave in S3, which is all there is to see.

A job has a pod for its first node from its first line on, and one for each of its nodes once it has ended.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from botocore.exceptions import BotoCoreError, ClientError

from trainflow.client.artifacts import first_bytes
from trainflow.client.observe.cluster import LineStream
from trainflow.client.place import PlaceRefused
from trainflow.client.refusals import is_refusal, sentence_of
from trainflow.deployment.kubernetes_names import ATTEMPT_LABEL, FIRST_NODE_RANK_LABEL, JOB_LABEL, STAGE_LABEL
from trainflow.errors import ServiceUnavailable, TrainflowError
from trainflow.protocol import slurm_job
from trainflow.protocol.slurm_job import (
    EPOCH,
    MAX_LOG_BYTES,
    MAX_RECORD_BYTES,
    JobRecord,
    NodeRecord,
    parse_record,
)

if TYPE_CHECKING:
    from mypy_boto3_s3.client import S3Client

POLL_SECONDS = 1.0
"""Time between two polls of S3."""


class SlurmJobs:
    """`PodSource` of a run whose jobs are Slurm's."""

    def __init__(self, s3: S3Client, *, bucket: str, run_id: str) -> None:
        """Makes no request yet.

        Args:
            s3: boto3's client.
            bucket: Where the run's artifacts are.
            run_id: Which run.
        """
        self._s3, self._bucket, self._folder = s3, bucket, f"runs/{run_id}"
        self._job_name = re.compile(rf"{re.escape(run_id)}-[a-z]+-[0-9]{{1,4}}", re.ASCII)
        self._known: dict[str, dict[str, Any]] = {}

    def list_pods(self, selector: str) -> Mapping[str, Any]:
        """The run's pods; the selector says the same as the run's id."""
        del selector
        self._known = {pod["metadata"]["uid"]: pod for pod in self._pods()}
        return {"metadata": {"resourceVersion": "0"}, "items": list(self._known.values())}

    def watch_pods(self, selector: str, resource_version: str) -> LineStream:
        """Changes since the list, or since the watch before."""
        del selector, resource_version
        return _Stream(self._changes)

    def pod_log(self, pod: str, container: str, *, since: str | None, follow: bool) -> LineStream:
        """The lines of the first node; of another one its last lines."""
        del container
        job, _, index = pod.rpartition("-")
        if index != "0":
            return _Stream(lambda _: self._lines_of(f"{self._folder}/{slurm_job.TAILS}{pod}.log"))
        start = datetime.fromisoformat(since) if since else EPOCH
        return _Stream(lambda closed: self._log(self._log_folder(job), start, closed if follow else None))

    def _changes(self, closed: threading.Event) -> Iterator[str]:
        while not closed.wait(POLL_SECONDS):
            for pod in self._pods():
                uid = pod["metadata"]["uid"]
                if self._known.get(uid) != pod:
                    self._known[uid] = pod
                    yield json.dumps({"type": "MODIFIED", "object": pod})

    def _pods(self) -> Iterator[dict[str, Any]]:
        for job in self._jobs():
            record = self._record(job)
            if record is not None:
                nodes = sorted((*record.nodes, *record.others), key=lambda node: node.index)
                yield from (_ended_pod(job, node, record) for node in nodes)
            elif (began := next(self._segments(self._log_folder(job), EPOCH), None)) is not None:
                yield _pod(job, 0, phase="Running", state={"running": {"startedAt": _segment_time(began).isoformat()}})

    def _jobs(self) -> list[str]:
        """Names of the jobs that have said something, or have ended. A run's program can write other names there."""
        folders = self._list(f"{self._folder}/{slurm_job.LOGS}", delimiter="/", what="CommonPrefixes", field="Prefix")
        records = self._list(f"{self._folder}/{slurm_job.RECORDS}", what="Contents", field="Key")
        names = {folder.split("/")[-2] for folder in folders} | {key.split("/")[-1][:-5] for key in records}
        return sorted(name for name in names if self._job_name.fullmatch(name))

    def _log_folder(self, job: str) -> str:
        return f"{self._folder}/{slurm_job.log_folder(job)}"

    def _record(self, job: str) -> JobRecord | None:
        """The job's record; None while it has not ended."""
        content = self._content(f"{self._folder}/{slurm_job.record_name(job)}", MAX_RECORD_BYTES + 1)
        return parse_record(content) if len(content) <= MAX_RECORD_BYTES else None

    def _log(self, folder: str, start: datetime, closed: threading.Event | None) -> Iterator[str]:
        while True:
            for key in self._segments(folder, start):
                start = _segment_time(key) + timedelta(microseconds=1)
                yield from self._lines_of(key)
            if closed is None or closed.wait(POLL_SECONDS):
                return

    def _segments(self, folder: str, start: datetime) -> Iterator[str]:
        """Segments whose last line is from `start` or later; a name begins with that line's time."""
        after = f"{folder}{(start - EPOCH) // timedelta(microseconds=1):020d}"
        found = self._list(folder, after=after, what="Contents", field="Key")
        return (key for key in found if slurm_job.segment_stamp(key) is not None)

    def _lines_of(self, key: str) -> Iterator[str]:
        for line in self._content(key, MAX_LOG_BYTES).splitlines(keepends=True):
            yield line.decode(errors="replace")

    def _content(self, key: str, limit: int) -> bytes:
        """The first bytes of an object; empty if it does not exist."""
        try:
            return first_bytes(self._s3, self._bucket, key, limit=limit)
        except self._s3.exceptions.NoSuchKey:
            return b""
        except (BotoCoreError, ClientError) as error:
            raise _refused(error, f"s3://{self._bucket}/{key} cannot be read") from error

    def _list(self, prefix: str, *, what: str, field: str, delimiter: str = "", after: str = "") -> Iterator[str]:
        pages = self._s3.get_paginator("list_objects_v2").paginate(
            Bucket=self._bucket, Prefix=prefix, Delimiter=delimiter, StartAfter=after
        )
        try:
            for page in pages:
                found: Any = page.get(what, ())
                yield from (str(each[field]) for each in found)
        except (BotoCoreError, ClientError) as error:
            raise _refused(error, f"s3://{self._bucket}/{prefix} cannot be listed") from error


def _refused(error: BotoCoreError | ClientError, what: str) -> TrainflowError:
    """The error for a caller who may not read S3, or gets no answer from it."""
    if is_refusal(error):
        return PlaceRefused(sentence_of(error))
    return ServiceUnavailable(f"{what}: {sentence_of(error)}")


class _Stream:
    """Lines of a generator, which ends when the event says that the stream was closed."""

    def __init__(self, lines: Any) -> None:
        self._closed = threading.Event()
        self._lines: Iterator[str] = lines(self._closed)

    def __iter__(self) -> Iterator[str]:
        return self._lines

    def close(self) -> None:
        self._closed.set()


def _segment_time(segment: str) -> datetime:
    return EPOCH + timedelta(microseconds=slurm_job.segment_stamp(segment) or 0)


def _ended_pod(job: str, node: NodeRecord, record: JobRecord) -> dict[str, Any]:
    exit_code = record.exit_code if node.exit_code is None else node.exit_code
    finished_at = node.finished_at or record.ended_at
    ended = {
        "exitCode": exit_code,
        "reason": "Completed" if exit_code == 0 else record.reason or "Error",
        # Slurm counts whole seconds, and another node's clock may differ: no pod ends before it begins.
        "startedAt": min(record.started_at, finished_at).isoformat(),
        "finishedAt": finished_at.isoformat(),
        "message": node.message,
    }
    phase = "Succeeded" if exit_code == 0 else "Failed"
    return _pod(job, node.index, phase=phase, state={"terminated": ended}, node=node.node or None)


def _pod(job: str, index: int, *, phase: str, state: dict[str, Any], node: str | None = None) -> dict[str, Any]:
    _, stage, attempt = job.rsplit("-", 2)
    labels = {STAGE_LABEL: stage, ATTEMPT_LABEL: attempt, JOB_LABEL: job, FIRST_NODE_RANK_LABEL: str(index)}
    return {
        "metadata": {"name": f"{job}-{index}", "uid": f"{job}-{index}", "labels": labels, "resourceVersion": "0"},
        "spec": {"nodeName": node, "containers": [{"name": stage}]},
        "status": {"phase": phase, "containerStatuses": [{"name": stage, "state": state}]},
    }
