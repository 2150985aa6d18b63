"""Upload files to S3 in parallel, with a bounded amount of memory.

Small files are read whole, hashed and sent by workers. So an object is one state of its file, also if a program still
writes to it. Large files follow one after another, each in parallel parts (boto3's transfer manager), so that none
delays the small ones. An object that has the content of its file is not sent again.
"""

from __future__ import annotations

import hashlib
import os
import stat
import threading
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import TYPE_CHECKING, BinaryIO

from trainer.publication.names import problem_with
from trainer.publication.unpublished import Unpublishable, UnpublishedFiles
from trainer.publication.walking import FoundFile
from trainer.runtime.errors import StorageFailed
from trainer.runtime.files import MIB
from trainer.runtime.workers import Worker
from trainflow.protocol.s3_urls import S3Url

if TYPE_CHECKING:
    from mypy_boto3_s3.client import S3Client

CHECKSUM = "sha256"
"""Name of the objects' metadata field with the checksum of their content."""

NUM_WORKERS = 12
"""Uploads at a time. A PUT of S3 takes tens of milliseconds, and Python sends a few hundred a second."""

SMALL_BYTES = 4 << 20
"""Largest file that a worker reads whole: with all workers 48 MiB."""

PART_BYTES = 8 << 20
"""Size of the parts of larger files. The transfer manager raises it where S3's limit of 10,000 parts needs it."""

MAX_OBJECT_BYTES = 5 << 40
"""Largest object that is published. It was S3's own limit for multipart uploads, which is 48.8 TiB now (S3 user guide,
"Amazon S3 multipart upload limits")."""

SPARSE_BYTES, SPARSE_FACTOR = 1 << 30, 64
"""A file of this size is sparse if it is this many times larger than its blocks: sending its zeros would take hours.
Lustre can compress blocks too, and no text compresses by this factor."""

ONE_FILE_ONLY = ("KeyTooLongError", "InvalidURI", "InvalidArgument", "EntityTooLarge", "InvalidRequest")
"""Errors of S3 that are about one object, so that others may succeed."""


class Uploads:
    """Uploads of one publication."""

    def __init__(self, client: S3Client, prefix: S3Url, skipped: UnpublishedFiles) -> None:
        """
        Args:
            client: Client of S3, which threads share.
            prefix: Prefix of all objects.
            skipped: Files that cannot be published are added to it.

        """
        self._client, self._prefix, self._skipped = client, prefix, skipped
        self._sizes = self._listed()
        self._lock = threading.Lock()
        self.num_objects = self.num_bytes = self.num_uploaded = 0
        """Files that are in S3 now, their size, and the number of those that were sent."""

    def upload(self, files: Iterable[FoundFile]) -> None:
        """Upload files, in any order; a file that cannot be published is skipped.

        Raises:
            StorageFailed: If S3 refuses every object, or does not answer.
        """
        source, large, stopped = iter(files), list[FoundFile](), threading.Event()
        for first in islice(source, 1):  # a bucket that refuses it is named after one request
            self._upload(first)

        def work() -> None:
            try:
                while not stopped.is_set() and (file := self._next(source)) is not None:
                    if file.size > SMALL_BYTES:
                        large.append(file)
                    else:
                        self._upload(file)
            except BaseException:
                stopped.set()
                raise

        workers = [Worker(work, name=f"upload-{number}") for number in range(NUM_WORKERS)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        for worker in workers:
            worker.require_no_error()
        for file in sorted(large, key=lambda each: (each.size, each.name)):
            self._upload(file)

    def _next(self, source: Iterator[FoundFile]) -> FoundFile | None:
        with self._lock:
            return next(source, None)

    def _upload(self, file: FoundFile) -> None:
        """Upload a file unless it is there, or skip it."""
        from boto3.exceptions import S3UploadFailedError
        from botocore.exceptions import BotoCoreError, ClientError

        target = self._prefix.below(file.name)
        reason = problem_with(file.name, prefix=target.key.removesuffix(file.name))
        if reason is not None:
            self._skip(file, reason)
            return
        try:
            with _opened(file.path) as content:
                self._send(file, content, target)
        except _NotPublishable as error:
            self._skip(file, str(error))
        except (S3UploadFailedError, ClientError, BotoCoreError) as error:
            self._after_refusal(file, target, error)
        except OSError as error:
            self._skip(file, f"it cannot be read ({error.strerror or error})")

    def _send(self, file: FoundFile, content: BinaryIO, target: S3Url) -> None:
        status = os.fstat(content.fileno())
        _require_publishable(status)
        body = content.read(status.st_size) if status.st_size <= SMALL_BYTES else None
        checksum = _checksum(content, status.st_size) if body is None else hashlib.sha256(body).hexdigest()
        size = status.st_size if body is None else len(body)
        is_sent = not self._is_there(target, size=size, checksum=checksum)
        if is_sent and body is not None:
            self._client.put_object(Bucket=target.bucket, Key=target.key, Body=body, Metadata={CHECKSUM: checksum})
        elif is_sent:
            self._send_in_parts(file, target, {CHECKSUM: checksum})
        with self._lock:
            self.num_objects, self.num_bytes = self.num_objects + 1, self.num_bytes + size
            self.num_uploaded += is_sent

    def _send_in_parts(self, file: FoundFile, target: S3Url, metadata: Mapping[str, str]) -> None:
        """Upload a large file. Parts are read from the file by its path, so none is held in memory."""
        from boto3.s3.transfer import TransferConfig

        self._client.upload_file(
            file.path,
            target.bucket,
            target.key,
            ExtraArgs={"Metadata": dict(metadata)},
            Config=TransferConfig(
                multipart_threshold=SMALL_BYTES, multipart_chunksize=PART_BYTES, max_concurrency=NUM_WORKERS
            ),
        )

    def _is_there(self, target: S3Url, *, size: int, checksum: str) -> bool:
        """Whether an object has this content. The listing answers for most: only one of the same size is asked for."""
        from botocore.exceptions import BotoCoreError, ClientError

        if self._sizes is not None and self._sizes.get(target.key) != size:
            return False
        try:
            there = self._client.head_object(Bucket=target.bucket, Key=target.key)
        except (ClientError, BotoCoreError):
            return False  # missing or not readable; the upload reports which
        return there["ContentLength"] == size and there["Metadata"].get(CHECKSUM) == checksum

    def _listed(self) -> dict[str, int] | None:
        """Sizes of the objects below the prefix by their keys; None if they cannot be listed."""
        from botocore.exceptions import BotoCoreError, ClientError

        pages = self._client.get_paginator("list_objects_v2").paginate(
            Bucket=self._prefix.bucket, Prefix=self._prefix.below("").key
        )
        try:
            return {found["Key"]: found["Size"] for page in pages for found in page.get("Contents", ())}
        except (ClientError, BotoCoreError):
            return None  # the first upload reports what is wrong

    def _after_refusal(self, file: FoundFile, target: S3Url, error: Exception) -> None:
        """Skip a file whose object S3 cannot hold, or that has changed meanwhile.

        Raises:
            StorageFailed: If the reason is not that file.
        """
        response = getattr(error, "response", None) or {}
        if response.get("Error", {}).get("Code") in ONE_FILE_ONLY:
            self._skip(file, f"S3 refuses it ({error})")
        elif _has_changed(file):
            self._skip(file, "it was changed while it was read")
        else:
            raise StorageFailed(
                f"{file.name} could not be uploaded to {target} ({error}); "
                "check that the bucket exists and that the pod's role has s3:PutObject on it."
            ) from error

    def _skip(self, file: FoundFile, reason: str) -> None:
        self._skipped.add(Unpublishable(file.name, reason, file.size))


class _NotPublishable(Exception):
    """The reason as a clause."""


def _opened(path: str) -> BinaryIO:
    """A file for reading. A pipe that has taken its place does not block."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW)
    return os.fdopen(descriptor, "rb")


def _require_publishable(status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise _NotPublishable("it is not a regular file")
    if status.st_size > SPARSE_BYTES and status.st_blocks * 512 * SPARSE_FACTOR < status.st_size:
        raise _NotPublishable("it is sparse: nearly all of it was never written")
    if status.st_size > MAX_OBJECT_BYTES:
        raise _NotPublishable(f"it is larger than {MAX_OBJECT_BYTES >> 40} TiB, the limit for a published file")


def _checksum(content: BinaryIO, size: int) -> str:
    """SHA-256 of the first bytes of a file, as many as it had when it was opened."""
    digest, left = hashlib.sha256(), size
    while left and (block := content.read(min(MIB, left))):
        digest.update(block)
        left -= len(block)
    if left:
        raise _NotPublishable("it became shorter while it was read")
    return digest.hexdigest()


def _has_changed(file: FoundFile) -> bool:
    try:
        return os.stat(file.path).st_size < file.size  # noqa: PTH116  (a string, as the walk gives it)
    except OSError:
        return True
