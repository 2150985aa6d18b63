"""Sets of packages: a folder each, named by the digests of its wheels. A set that is there is complete.

A set is made beside its place, marked last, and renamed. Of several processes that make one set, one unpacks and the
others wait for it (decision 92).
"""

from __future__ import annotations

import compileall
import hashlib
import json
import os
import re
import shutil
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from trainer.packages import wheels
from trainer.runtime.files import file_sha256
from trainer.runtime.workers import Worker

MARKER = "_PACKAGES.json"
"""File of a complete set: its wheels and its size. Its time is that of the last use."""

KEY = re.compile(r"[0-9a-f]{24}")
"""Name of a set."""

SECONDS_BETWEEN_SIGNS = 5.0
STALE_SECONDS = 60.0
"""A process that gives no sign for this time has been killed. Its clock is compared with no other one."""

POLL_SECONDS = 0.5


def set_key(digests: Iterable[str]) -> str:
    """Name of the set of the wheels with these SHA-256 digests."""
    return hashlib.sha256("\n".join(sorted(set(digests))).encode()).hexdigest()[:24]


def is_complete(place: Path) -> bool:
    """Whether a set is there."""
    return (place / MARKER).is_file()


def install(files: Sequence[Path], folder: Path, *, stale_seconds: float = STALE_SECONDS) -> Path:
    """The set of some wheels, unpacked if it is not there.

    Every wheel is copied before its digest is computed, so what is unpacked has this digest whoever else may write the
    file.

    Args:
        files: The wheels.
        folder: Folder of all sets.
        stale_seconds: Longest time without a sign of another process; then it counts as killed.

    Raises:
        CodeInvalid: If a file is not a wheel.
        OSError: If the folder cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder, prefix=".copies-", ignore_cleanup_errors=True) as temporary:
        copies = [_copy(file, Path(temporary)) for file in files]
        place = folder / set_key(file_sha256(copy) for copy in copies)
        made = folder / f".installing-{place.name}"
        while not is_complete(place):
            if _begin(made):
                with _signs(made):
                    _unpack(copies, made)
                    _publish(made, place)
            elif _is_abandoned(made, place, stale_seconds):
                remove(made)
    return place


def _copy(file: Path, folder: Path) -> Path:
    copy = folder / file.name
    source = os.open(file, os.O_RDONLY | os.O_NOFOLLOW)  # the file may be another program's
    with os.fdopen(source, "rb") as opened, copy.open("wb") as written:
        shutil.copyfileobj(opened, written, 1 << 20)
    return copy


def _begin(made: Path) -> bool:
    """Whether this process is the one that makes the set."""
    try:
        made.mkdir()
    except FileExistsError:
        return False
    return True


def _unpack(copies: Sequence[Path], made: Path) -> None:
    try:
        for copy in copies:
            wheels.unpack(copy, made)
        compileall.compile_dir(made, quiet=2, workers=1)
    except BaseException:
        remove(made)
        raise


def _publish(made: Path, place: Path) -> None:
    """Mark a set as complete, and let it appear at its place."""
    size = sum(path.lstat().st_size for path in made.rglob("*"))
    named = sorted(path.name.removesuffix(".dist-info") for path in made.glob("*.dist-info"))
    (made / MARKER).write_text(json.dumps({"bytes": size, "packages": named}), encoding="utf-8")
    try:
        made.rename(place)
    except OSError:
        remove(made)
        if not is_complete(place):
            raise


@contextmanager
def _signs(made: Path) -> Iterator[None]:
    """Give signs of life while a set is made."""
    ended = threading.Event()

    def signs() -> None:
        while not ended.wait(SECONDS_BETWEEN_SIGNS):
            with suppress(OSError):  # renamed already, or taken over
                os.utime(made)

    worker = Worker(signs, name="signs of life of an installation")
    worker.start()
    try:
        yield
    finally:
        ended.set()
        worker.join()
    worker.require_no_error()


def _is_abandoned(made: Path, place: Path, stale_seconds: float) -> bool:
    """Wait for another process; whether it has given no sign for too long."""
    seen, since = _sign(made), time.monotonic()
    while not is_complete(place):
        time.sleep(min(POLL_SECONDS, stale_seconds))
        found = _sign(made)
        if found is None:
            return False
        if found != seen:
            seen, since = found, time.monotonic()
        elif time.monotonic() - since >= stale_seconds:
            return True
    return False


def _sign(made: Path) -> int | None:
    """Time of the newest change that another process made; None if its folder is gone."""
    try:
        return made.stat().st_mtime_ns
    except OSError:
        return None


def remove(folder: Path) -> None:
    """Remove a folder, which no one sees half-removed at its place."""
    aside = folder.with_name(f".removed-{os.urandom(8).hex()}")
    with suppress(OSError):
        folder.rename(aside)
        shutil.rmtree(aside, ignore_errors=True)
