"""Last lines of logs that the workflow keeps in the artifact bucket when it deletes a run's pods.

They are rank 0's and those of failed pods, at most a thousand of each, in `runs/<run id>/logs/<pod>.log`; each line
begins with its time (`lambdas.logic.diagnostics.kept_text`).
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

from trainflow.client.artifacts import artifacts_below, first_bytes
from trainflow.client.observe.logs import time_of
from trainflow.client.refusals import told
from trainflow.client.stored_logs import PodFilter
from trainflow.client.whole_files import write_text

MAX_BYTES = 16 * 1024 * 1024
"""Most bytes of a log that are read: twice a thousand lines of the longest kind that the workflow keeps."""


@told
def kept_lines(s3: Any, bucket: str, run_id: str, pod: PodFilter, *, since: datetime | None) -> Iterator[str] | None:
    """The last lines of a pod's log; None if the run kept none.

    Args:
        s3: A boto3 client of S3.
        bucket: The artifact bucket.
        run_id: The run.
        pod: The pod.
        since: Time of the first line; None for all that were kept.

    Raises:
        PlaceRefused: If the caller may not read them.
    """
    found = artifacts_below(s3, bucket, f"runs/{run_id}/logs/")
    key = next((log.key for log in found if pod.has(log.name.removesuffix(".log"))), None)
    if key is None:
        return None
    return _since(_text(s3, bucket, key), since)


def copy_logs(s3: Any, bucket: str, run_id: str, folder: Path) -> None:
    """Write all that a run has kept of its pods' logs to a folder, without the times."""
    for log in artifacts_below(s3, bucket, f"runs/{run_id}/logs/"):
        if "/" not in log.name and log.name.endswith(".log"):
            text = _text(s3, bucket, log.key)
            write_text(folder / log.name, "".join(f"{line}\n" for line in _since(text, None)))


def _text(s3: Any, bucket: str, key: str) -> str:
    return first_bytes(s3, bucket, key, limit=MAX_BYTES).decode(errors="replace")


def _since(text: str, since: datetime | None) -> Iterator[str]:
    for line in text.removesuffix("\n").split("\n"):
        written_at = time_of(line)
        if written_at is None:  # every program of the run may write objects there
            yield line
        elif since is None or written_at >= since:
            yield line.partition(" ")[2]
