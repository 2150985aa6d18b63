"""Copy the first node's log to S3 while it grows: `python -m trainer.slurm.ship --folder DIR --job NAME --url s3://…/`.

The log is sent in segments of whole lines, each line with the time of its reading. A new process continues after one
that was killed: no line is lost or sent under two names. The memory does not grow with the log.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainer.runtime import arguments, program, s3
from trainer.runtime.environment import Environment
from trainer.runtime.errors import StorageFailed
from trainer.runtime.files import written_whole
from trainer.slurm.place import TAIL_LINES, JobFolder, JobObjects
from trainflow.protocol.s3_urls import S3Url
from trainflow.protocol.slurm_job import MAX_SEGMENT_BYTES, stamped

if TYPE_CHECKING:
    from mypy_boto3_s3.client import S3Client

LONGEST_LINE_IN_TAIL = 4096

FIRST_INTERVAL_SECONDS = 1.0
LAST_INTERVAL_SECONDS = 10.0
"""Pause between two polls: the output of short runs is sent at once; a run of two days makes some twenty thousand
objects."""

GIVES_UP_SECONDS = 60.0
"""Seconds after the program's end while failed requests to S3 are repeated."""


@dataclass(frozen=True, kw_only=True)
class ShipConfig:
    """The log, and its destination."""

    folder: Path
    """The job's folder on the shared file system."""
    job: str
    """The job's name."""
    url: str
    """Prefix of the run's artifacts, s3://bucket/prefix/."""


@dataclass(frozen=True)
class Segment:
    """A piece of the log."""

    start: int
    """Offset of its first byte."""
    end: int
    """Offset after its last byte."""
    first_stamp: int
    """Time of its first line, in microseconds since 1970; each further line has one more."""


class Shipper:
    """Records how much of the log has been sent.

    Each segment is recorded before it is sent. A process that takes over therefore sends the same segment again, under
    the same name, in case it did not arrive, and continues after it.
    """

    def __init__(
        self, client: S3Client, folder: JobFolder, objects: JobObjects, *, clock: Callable[[], float] = time.time
    ) -> None:
        self._client, self._folder, self._objects, self._clock = client, folder, objects, clock
        self._offset, self._stamp = 0, 0
        self._tail: deque[bytes] = deque(maxlen=TAIL_LINES)
        self._tail_is_due = False
        self._pending = _written_down(folder.shipping)

    def ship(self, *, all_of_it: bool = False) -> bool:
        """Send one segment of the lines that were written since.

        Args:
            all_of_it: Whether a last line without a line break is sent, too, because the program has ended.

        Returns:
            Whether there may be more lines.

        Raises:
            BotoCoreError, ClientError: If S3 refused the segment, or its answer is unknown; the next call sends the
            same segment.
        """
        if self._pending is not None:
            self._send(self._pending)
            return True
        content = self._read(self._offset, self._offset + MAX_SEGMENT_BYTES)
        is_full = len(content) == MAX_SEGMENT_BYTES
        length = content.rfind(b"\n") + 1 or (len(content) if all_of_it or is_full else 0)
        if not length:
            self._put_tail()
            return False
        first = max(int(self._clock() * 1_000_000), self._stamp + 1)
        self._pending = Segment(self._offset, self._offset + length, first)
        with written_whole(self._folder.shipping) as file:
            file.write(json.dumps(asdict(self._pending)).encode())
        self._send(self._pending)
        if not is_full:
            self._put_tail()
        return is_full or (all_of_it and length < len(content))

    def _send(self, segment: Segment) -> None:
        lines = self._read(segment.start, segment.end).removesuffix(b"\n").split(b"\n")
        last_stamp = segment.first_stamp + len(lines) - 1
        stamped_lines = [stamped(line, segment.first_stamp + number) for number, line in enumerate(lines)]
        self._put(self._objects.segment(stamp=last_stamp, end=segment.end), b"".join(stamped_lines))
        self._offset, self._stamp, self._pending = segment.end, last_stamp, None
        self._tail_is_due = True
        self._tail.extend(line[:LONGEST_LINE_IN_TAIL].removesuffix(b"\n") + b"\n" for line in stamped_lines)

    def _put_tail(self) -> None:
        if self._tail_is_due:
            self._put(self._objects.tail(0), b"".join(self._tail))
            self._tail_is_due = False

    def _read(self, start: int, end: int) -> bytes:
        try:
            with self._folder.log(0).open("rb") as file:
                file.seek(start)
                return file.read(end - start)
        except FileNotFoundError:
            return b""

    def _put(self, place: S3Url, content: bytes) -> None:
        self._client.put_object(Bucket=place.bucket, Key=place.key, Body=content, ContentType="text/plain")


def _written_down(file: Path) -> Segment | None:
    return Segment(**json.loads(file.read_text())) if file.exists() else None


def main(argv: Sequence[str], _environment: Environment) -> Mapping[str, Any] | None:
    """Send the log until the program has ended and all of its log is in S3."""
    config = arguments.parse(ShipConfig, argv, program="trainer.slurm.ship")
    folder = JobFolder(config.folder)
    objects = JobObjects(s3.parse(config.url, option="url", key_required=False), config.job)
    began, refused_since, shipper = time.monotonic(), None, None
    while True:
        has_ended = folder.ended.exists()  # read before the poll: the next poll finds what is written afterwards
        try:
            shipper = shipper or Shipper(s3.connect(), folder, objects)
            may_be_more, refused_since = shipper.ship(all_of_it=has_ended), None
        except _refusals() as error:
            refused_since = refused_since or time.monotonic()
            print(f"The log cannot be written below {objects.run} ({error}).", file=sys.stderr, flush=True)
            if has_ended and time.monotonic() - refused_since > GIVES_UP_SECONDS:
                raise StorageFailed(
                    f"The log is not below {objects.run} ({error}); give the nodes' role s3:PutObject there."
                ) from error
            may_be_more = False
        if has_ended and not may_be_more and refused_since is None:
            return None
        if not may_be_more:
            age = time.monotonic() - began
            time.sleep(min(LAST_INTERVAL_SECONDS, FIRST_INTERVAL_SECONDS + age / 60))


def _refusals() -> tuple[type[Exception], ...]:
    from botocore.exceptions import BotoCoreError, ClientError

    return (BotoCoreError, ClientError)


if __name__ == "__main__":
    sys.exit(program.run(main, sys.argv[1:], os.environ))
