"""Objects that a Slurm job writes to S3 below its run's prefix, because a Lambda function cannot mount a file system.

* `logs/<job>/<time>-<offset>.log`: the first node's output, in segments. The time is that of the last line, in
  microseconds; every line begins with its own. So a reader who knows a time lists only the newer segments.
* `tails/<job>-<index>.log`: the last lines of a node, the same way: of the first one always, of others if they failed.
* `jobs/<job>.json`: the job's record, which outlasts slurmctld's memory of the job by far.
"""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from trainflow.protocol.result import MAX_BYTES

EPOCH = datetime.fromtimestamp(0, UTC)

LOGS = "logs/"
TAILS = "tails/"
RECORDS = "jobs/"

MAX_RECORDED_NODES = 5
"""Failed nodes that a job's record describes in full: the first one is the cause, the others mostly its victims."""

MAX_OTHER_NODES = 1024
"""Most other nodes of a job's record; they take a tenth of a KiB each."""

MAX_RECORD_BYTES = 1024 * 1024
"""Most bytes of a record; the longest of ours has a third of it. Every program of a run may write objects there."""

MAX_SEGMENT_BYTES = 1024 * 1024
"""Most bytes of output in a segment, without the times."""

MAX_LOG_BYTES = 35 * MAX_SEGMENT_BYTES
"""Most bytes of a segment or of last lines that are read: an empty line has 34 bytes with its time."""

LATEST = 253_402_300_799 * 10**6
"""The last second of the year 9999, in microseconds since 1970: the last that `datetime` has."""

_SEGMENT = re.compile(r"([0-9]{20})-[0-9]{15}\.log")

DEADLINE_EXCEEDED = "DeadlineExceeded"
"""Reason of a job that Slurm ended at its time limit, in Kubernetes's word."""


@dataclass(frozen=True, kw_only=True)
class NodeRecord:
    """Result of the program of one node."""

    index: int
    node: str
    exit_code: int | None = None
    """None if it was ended together with the job."""
    message: str | None = None
    """The result that it left; else its last words, if it failed."""
    finished_at: datetime | None = None


@dataclass(frozen=True, kw_only=True)
class JobRecord:
    """Result of a job."""

    job_id: int
    spec_hash: str
    exit_code: int
    reason: str | None = None
    """Reason of the end, if the script knows more than its exit code."""
    started_at: datetime
    ended_at: datetime
    nodes: tuple[NodeRecord, ...]
    """The first one, and those that failed."""
    others: tuple[NodeRecord, ...] = ()
    """The remaining nodes, without messages; none in records of earlier versions."""


def record_to_bytes(record: JobRecord) -> bytes:
    """The record as it is kept."""
    text = json.dumps(asdict(record), ensure_ascii=False, default=datetime.isoformat)
    return text.encode(errors="replace")


def parse_record(content: str | bytes) -> JobRecord | None:
    """The record that an object holds; None if it holds none: every program of the run may write to the bucket."""
    try:
        said = json.loads(content)
        return JobRecord(
            job_id=_whole(said["job_id"]),
            spec_hash=_text(said["spec_hash"]),
            exit_code=_whole(said["exit_code"]),
            reason=_or_none(_text, said.get("reason")),
            started_at=_time(said["started_at"]),
            ended_at=_time(said["ended_at"]),
            nodes=tuple(map(_node, said["nodes"])),
            others=tuple(map(_node, said.get("others", ()))),
        )
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None


def log_folder(job: str) -> str:
    """Common prefix of the names of all segments of a job."""
    return f"{LOGS}{job}/"


def segment_name(job: str, *, stamp: int, end: int) -> str:
    """Name of a piece of the first node's log.

    Args:
        job: The job's name.
        stamp: Time of the piece's last line, in microseconds since 1970.
        end: Offset behind it in the file.
    """
    return f"{segments_from(job, stamp)}-{end:015d}.log"


def segments_from(job: str, stamp: int) -> str:
    """Name before that of every segment whose last line is not older: names sort as times do."""
    return f"{log_folder(job)}{stamp:020d}"


def segment_stamp(segment: str) -> int | None:
    """Time of a segment's last line, in microseconds since 1970, from its name or key; None for another object.

    Every program of the run may write objects there.
    """
    found = _SEGMENT.fullmatch(segment.rsplit("/", 1)[-1])
    return int(found[1]) if found and int(found[1]) <= LATEST else None


def tail_name(job: str, index: int) -> str:
    """Name of the last lines of a node."""
    return f"{TAILS}{job}-{index}.log"


def record_name(job: str) -> str:
    """Name of a job's record."""
    return f"{RECORDS}{job}.json"


def stamped(line: bytes, stamp: int) -> bytes:
    """A line of a log with its time, in microseconds since 1970, before it."""
    logged_at = (EPOCH + timedelta(microseconds=stamp)).isoformat(timespec="microseconds")
    return logged_at.encode() + b" " + line + b"\n"


def _node(said: dict[str, Any]) -> NodeRecord:
    return NodeRecord(
        index=_whole(said["index"]),
        node=_text(said["node"]),
        exit_code=_or_none(_whole, said.get("exit_code")),
        message=_or_none(_text, said.get("message")),
        finished_at=_or_none(_time, said.get("finished_at")),
    )


def _or_none(read: Any, value: object) -> Any:
    return None if value is None else read(value)


def _whole(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{value!r} is no whole number")
    return value


def _text(value: object) -> str:
    """The text; only the beginning of one that is longer than a result, and so not of ours."""
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is no text")
    return value[:MAX_BYTES]


def _time(value: object) -> datetime:
    found = datetime.fromisoformat(_text(value))
    if found.tzinfo is None:
        raise ValueError(f"{value!r} has no time zone")
    return found
