"""Parallel ranged reads through the AWS Common Runtime, handed out in order, with bounded memory.

A range is requested only if there is room for the answer, so a slow reader slows the network down.
"""

from __future__ import annotations

import ctypes
import os
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import TimeoutError as NothingCame
from concurrent.futures import wait
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

from trainer.runtime.errors import DatasetNotFound, StorageFailed
from trainer.staging.source import RemoteFile

if TYPE_CHECKING:
    from awscrt.auth import AwsCredentials, AwsSigningConfig
    from awscrt.s3 import S3Client

RANGE_BYTES = 4 * 2**20
"""Long enough that the latency of a request does not matter, short enough that many ranges fit into the memory."""

BYTES_IN_FLIGHT = 32 * 2**20
"""Bytes requested and not yet taken: eight whole ranges. Each is in memory twice for a moment, in the runtime and in
Python."""

FEW_BYTES_IN_FLIGHT = 16 * 2**20
"""The same for compressed archives: one core decompresses, with a window of up to 128 MiB (zstd --long)."""

REQUESTS_IN_FLIGHT = 64
"""Requests at one time; for small objects, the latency limits the rate."""

THREADS = 1
"""Threads of the network, which copy what arrives. A second one gains less than it costs."""

THREADS_THAT_DECRYPT = 2

ATTEMPTS = 6
"""Attempts per range, in addition to those of the runtime itself."""

FIRST_PAUSE_SECONDS = 0.5
"""Pause before the second attempt; each further pause is twice as long."""

STALLED_SECONDS = 60.0
"""Seconds without an answer before a connection counts as broken, even if it is not closed."""

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, M_ARENA_MAX = -1, -3, -8
"""Parameters of glibc's `mallopt`."""

KEPT_BYTES = 128 * 2**20
"""More than is ever in flight, so freed memory stays with the process; it does not count against its limit by
itself."""

REPLACED, GONE, DENIED, UNSATISFIABLE = 412, 404, 403, 416


class Range(NamedTuple):
    """Bytes [start, end) of a file."""

    file: RemoteFile
    start: int
    end: int

    @property
    def length(self) -> int:
        return self.end - self.start


def cut_ranges(file: RemoteFile, start: int = 0, end: int | None = None) -> Iterator[Range]:
    """Cut a part of a file into ranges."""
    end = file.size if end is None else end
    for first in range(start, end, RANGE_BYTES):
        yield Range(file, first, min(first + RANGE_BYTES, end))


class Transfer:
    """Reads ranges of files that lie on servers of one kind."""

    def __init__(
        self,
        *,
        encrypted: bool,
        region: str | None,
        renew: Callable[[RemoteFile], RemoteFile],
        bytes_in_flight: int = BYTES_IN_FLIGHT,
    ) -> None:
        """
        Args:
            encrypted: Whether the files' addresses begin with https.
            region: Region to sign requests for; None not to sign them.
            renew: Returns a file with its current address before another attempt.
            bytes_in_flight: Bytes that may be requested and not yet taken.
        """
        self._client = _connect(encrypted=encrypted, region=region)
        self._renew = renew
        self._bytes_in_flight = bytes_in_flight

    def fetch(self, ranges: Iterable[Range]) -> Generator[tuple[Range, list[bytes]]]:
        """Iterate over the ranges with their bytes, in the order of the ranges.

        Raises:
            DatasetNotFound: If a file was replaced or removed meanwhile, or may not be read.
            StorageFailed: If the network or the server failed in every attempt.
        """
        coming = iter(ranges)
        following = next(coming, None)
        waiting: deque[_Request] = deque()
        in_flight = 0
        try:
            while following is not None or waiting:
                while following is not None and (
                    not waiting
                    or (in_flight + following.length <= self._bytes_in_flight and len(waiting) < REQUESTS_IN_FLIGHT)
                ):
                    waiting.append(_Request(self._client, following))
                    in_flight += following.length
                    following = next(coming, None)
                request = waiting[0]
                yield request.asked, self._answer(request)
                waiting.popleft()
                in_flight -= request.asked.length
        finally:
            for request in waiting:
                request.cancel()

    def _answer(self, request: _Request) -> list[bytes]:
        pause = FIRST_PAUSE_SECONDS
        for _ in range(ATTEMPTS - 1):
            try:
                return request.answer()
            except _Broken:
                time.sleep(pause)
                pause *= 2
                request.start_again(self._renew(request.asked.file))
        try:
            return request.answer()
        except _Broken as error:
            raise StorageFailed(
                f"The connection to {request.asked.file.url} broke {ATTEMPTS} times at byte {request.asked.start} "
                f"({error}); check the network and start again: what is complete stays."
            ) from error


class _Broken(Exception):
    """An attempt failed in a way that another attempt may not."""


class _Request:
    """One range that was requested, and the attempts to read it."""

    def __init__(self, client: S3Client, asked: Range) -> None:
        self.asked = asked
        self._client = client
        self.start_again(asked.file)

    def start_again(self, file: RemoteFile) -> None:
        """Request the whole range again; bytes that came before are dropped."""
        from awscrt.http import HttpHeaders, HttpRequest
        from awscrt.s3 import S3RequestType

        address = urlsplit(file.address)
        headers = [("Host", address.netloc), ("Range", f"bytes={self.asked.start}-{self.asked.end - 1}")]
        if file.etag is not None:
            headers.append(("If-Match", file.etag))
        path = f"{address.path}?{address.query}" if address.query else address.path
        chunks: list[bytes] = []
        asked = self.asked
        self._chunks = chunks
        # The callbacks must not refer to this request: such a cycle passes through C and would never be freed.
        self._running = self._client.make_request(
            type=S3RequestType.GET_OBJECT,
            request=HttpRequest("GET", path, HttpHeaders(headers)),
            on_headers=lambda status_code, headers, **_more: _require_ranged(asked, status_code, headers),
            on_body=lambda chunk, offset, **_more: chunks.append(chunk),
        )

    def answer(self) -> list[bytes]:
        """Wait for the bytes of the range.

        Raises:
            DatasetNotFound: If another attempt would fail in the same way.
            _Broken: If another attempt may succeed.
        """
        from awscrt.exceptions import AwsCrtError
        from awscrt.s3 import S3ResponseError

        url = self.asked.file.url
        try:
            self._running.finished_future.result(STALLED_SECONDS)
        except NothingCame as error:
            self.cancel()
            raise _Broken(f"nothing came for {STALLED_SECONDS:.0f} s") from error
        except S3ResponseError as error:
            if error.status_code in (REPLACED, GONE, UNSATISFIABLE):
                raise DatasetNotFound(f"{url} was replaced while it was being read; start again.") from error
            if error.status_code == DENIED and self.asked.file.address.partition("?")[0] == self.asked.file.address:
                raise DatasetNotFound(
                    f"{url} may not be read; check the URL, and give the pod's role s3:GetObject on it."
                ) from error
            raise _Broken(f"the server answers {error.status_code}") from error
        except (AwsCrtError, OSError) as error:
            raise _Broken(str(error)) from error
        if sum(map(len, self._chunks)) != self.asked.length:
            raise _Broken("it ended early")
        return self._chunks

    def cancel(self) -> None:
        """Cancel the request, and wait until none of its callbacks runs any more."""
        self._running.cancel()
        wait([self._running.finished_future], STALLED_SECONDS)


def _require_ranged(asked: Range, status_code: int, headers: list[tuple[str, str]]) -> None:
    found = {name.lower(): value for name, value in headers}.get("content-range", "")
    if status_code >= 300:
        return  # the runtime reports these errors itself
    if status_code != 206 or found.rpartition("/")[2] not in (str(asked.file.size), "*"):
        raise DatasetNotFound(
            f"{asked.file.url} gave {found or 'everything'} when asked for bytes {asked.start} to {asked.end} of "
            f"{asked.file.size}: it was replaced while it was being read, or its server knows no ranges; start again."
        )


def _connect(*, encrypted: bool, region: str | None) -> S3Client:
    from awscrt import io, s3

    # First: with threads of the runtime, an error here would be lost in their end.
    signing = _signing(region) if region else None
    _keep_freed_memory()
    threads = io.EventLoopGroup(THREADS_THAT_DECRYPT if encrypted else THREADS)
    return s3.S3Client(
        bootstrap=io.ClientBootstrap(threads, io.DefaultHostResolver(threads)),
        region=region or "us-east-1",
        signing_config=signing,
        tls_mode=s3.S3RequestTlsMode.ENABLED if encrypted else s3.S3RequestTlsMode.DISABLED,
        tls_connection_options=_trusting(os.environ.get("AWS_CA_BUNDLE")) if encrypted else None,
        part_size=RANGE_BYTES,
        max_active_connections_override=REQUESTS_IN_FLIGHT,
    )


def _keep_freed_memory() -> None:
    """Let ranges reuse the memory of the ranges before them.

    glibc releases large blocks to the system and allocates them again, which zeroes every page: at 2 GiB, 300,000
    page faults and a third of the processor's time. One arena, so that threads do not keep memory from each other.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        for option, value in ((M_MMAP_THRESHOLD, KEPT_BYTES), (M_TRIM_THRESHOLD, KEPT_BYTES), (M_ARENA_MAX, 1)):
            mallopt(option, value)


def _trusting(bundle: str | None) -> Any:
    from awscrt import io

    options = io.TlsContextOptions()
    if bundle:
        options.override_default_trust_store_from_path(None, bundle)
    return io.ClientTlsContext(options).new_connection_options()


def _signing(region: str) -> AwsSigningConfig:
    """Signatures with the credentials that botocore finds and renews, whatever kind of role the pod has."""
    import boto3
    from awscrt import s3
    from awscrt.auth import AwsCredentials, AwsCredentialsProvider

    held = boto3.Session().get_credentials()
    if held is None:
        raise DatasetNotFound("There are no AWS credentials; give the pod a role, or --no_sign_request true.")

    def present() -> AwsCredentials:
        frozen = held.get_frozen_credentials()
        return AwsCredentials(frozen.access_key, frozen.secret_key, frozen.token)

    provider = AwsCredentialsProvider.new_delegate(present)
    return s3.create_default_s3_signing_config(region=region, credential_provider=provider)
