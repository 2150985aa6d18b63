"""Files are as they were given, of every size, or an error names what is wrong."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import random
import tempfile
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.waiting import PATIENCE
from trainer.runtime.errors import DatasetInvalid, StorageFailed
from trainer.staging import writer
from trainer.staging.completed_files import CompletedFiles, Entry
from trainer.staging.writer import BLOCK, BUFFER_BYTES, SMALL_BYTES, Writer

NOISE = random.Random(0).randbytes(BUFFER_BYTES * 2 + BLOCK + 1)


@contextmanager
def writing(folder: Path, checksums: Mapping[str, str] | None = None) -> Iterator[Writer]:
    with (
        tempfile.TemporaryDirectory() as beside,
        CompletedFiles(Path(beside) / "journal", folder, source="") as completed,
        Writer(folder, completed=completed, checksums=checksums) as made,
    ):
        yield made


def write(made: Writer, path: str, content: bytes, *, piece: int = 100_000) -> None:
    with made.file(Entry(path, len(content), None)) as file:
        for at in range(0, len(content), piece):
            file.write(memoryview(content)[at : at + piece])


@settings(deadline=None, max_examples=30)
@given(st.integers(0, len(NOISE)), st.integers(1000, BUFFER_BYTES + 1))
@example(0, 1000)
@example(SMALL_BYTES, 1000)
@example(SMALL_BYTES + 1, 1000)
@example(BUFFER_BYTES, BUFFER_BYTES)
@example(BUFFER_BYTES + 1, BUFFER_BYTES + 1)
@example(BUFFER_BYTES * 2 + BLOCK, 10_000)
def test_a_file_is_as_it_was_given_whatever_its_size(
    tmp_path_factory: pytest.TempPathFactory, size: int, piece: int
) -> None:
    folder = tmp_path_factory.mktemp("files")
    with writing(folder) as made:
        write(made, "deep/down/a", NOISE[:size], piece=piece)
    assert (folder / "deep/down/a").read_bytes() == NOISE[:size]


def test_a_file_system_without_a_way_past_the_page_cache_is_written_through_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_, refused = os.open, []

    def picky(path: Path, flags: int, *mode: int, **more: Any) -> int:
        if flags & os.O_DIRECT:
            refused.append(path)
            raise OSError(errno.EINVAL, "Invalid argument")
        return open_(path, flags, *mode, **more)

    monkeypatch.setattr(writer.os, "open", picky)
    with writing(tmp_path) as made:
        write(made, "a", NOISE)
    assert (tmp_path / "a").read_bytes() == NOISE
    assert refused == [tmp_path / "a"]


def test_a_file_system_that_refuses_to_bypass_the_page_cache_is_written_through_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pwrite, refused = os.pwrite, []

    def picky(descriptor: int, data: memoryview, offset: int) -> int:
        if fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_DIRECT:
            refused.append(offset)
            raise OSError(errno.EINVAL, "Invalid argument")
        return pwrite(descriptor, data, offset)

    monkeypatch.setattr(writer.os, "pwrite", picky)
    with writing(tmp_path) as made:
        write(made, "a", NOISE)
    assert (tmp_path / "a").read_bytes() == NOISE
    if not refused:
        pytest.skip("this file system knows no O_DIRECT at all")


def test_large_files_bypass_the_page_cache_where_the_file_system_can(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    try:
        os.close(os.open(tmp_path / "probe", os.O_WRONLY | os.O_CREAT | os.O_DIRECT))
    except OSError:
        pytest.skip("this file system knows no O_DIRECT")
    pwrite, direct = os.pwrite, []

    def watched(descriptor: int, data: memoryview, offset: int) -> int:
        direct.append(bool(fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_DIRECT))
        return pwrite(descriptor, data, offset)

    monkeypatch.setattr(writer.os, "pwrite", watched)
    with writing(tmp_path / "data") as made:
        write(made, "small", NOISE[:100])
        made.drain()
        write(made, "large", NOISE)
    assert direct == [False, True, True, True]


@pytest.mark.parametrize("size", [10, 10_000_000], ids=["small", "large"])
def test_a_full_disk_is_named_and_nothing_counts_as_complete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    def full(*_arguments: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(writer.os, "pwrite", full)
    with CompletedFiles(tmp_path / "journal", tmp_path / "data", source="") as completed:
        failed = pytest.raises(StorageFailed)
        with failed as refused, Writer(tmp_path / "data", completed=completed) as made:
            write(made, "a", NOISE[:size])
            write(made, "b", NOISE[:size])
        assert str(refused.value) == (
            f"The data set cannot be written to {tmp_path / 'data'} (No space left on device); make room there, or "
            "give a --destination that can be written."
        )
        assert isinstance(refused.value.__cause__, OSError)
        assert completed.num_files == 0


@pytest.mark.parametrize("num_files", [1, 3, 40, 200])
@pytest.mark.parametrize("size", [10, SMALL_BYTES + 1], ids=["small", "large"])
@pytest.mark.parametrize("error", [MemoryError("no room"), ValueError("not a time"), SystemExit(1)], ids=repr)
def test_an_unexpected_exception_of_a_thread_fails_the_data_set_and_names_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, num_files: int, size: int, error: BaseException
) -> None:
    def broken(*_arguments: object) -> int:
        raise error

    def write_all() -> None:
        with Writer(tmp_path / "data", completed=completed) as made:
            for number in range(num_files):
                write(made, f"{number}", NOISE[:size])
            made.drain()

    monkeypatch.setattr(writer.os, "fchmod", broken)
    with CompletedFiles(tmp_path / "journal", tmp_path / "data", source="") as completed, ThreadPoolExecutor(1) as pool:
        with pytest.raises(StorageFailed, match=rf"written \({type(error).__name__}: "):
            pool.submit(write_all).result(60)
        assert completed.num_files == 0


def test_one_unexpected_exception_among_many_files_is_not_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pwrite, calls = os.pwrite, []

    def broken_once(descriptor: int, data: memoryview, offset: int) -> int:
        calls.append(offset)
        if len(calls) == 3:
            raise MemoryError
        return pwrite(descriptor, data, offset)

    monkeypatch.setattr(writer.os, "pwrite", broken_once)
    with pytest.raises(StorageFailed, match="MemoryError"), writing(tmp_path / "data") as made:
        for name in "abcde":
            write(made, name, NOISE[:100])


def test_large_files_share_a_few_buffers_that_are_used_again(tmp_path: Path) -> None:
    """A disk that is slower than the network makes the network wait, and fills no memory."""
    with writing(tmp_path) as made, ThreadPoolExecutor(1) as others:
        first = made.buffer()
        made.return_buffer(first)
        assert made.buffer() is first
        taken = [first, *(others.submit(made.buffer).result(10) for _ in range(writer.NUM_BUFFERS - 1))]
        assert len({id(buffer) for buffer in taken}) == writer.NUM_BUFFERS
        one_more = others.submit(made.buffer)
        with pytest.raises(TimeoutError):
            one_more.result(0.2)
        made.return_buffer(taken[-1])
        assert one_more.result(10) is taken[-1]


def test_of_small_files_a_bounded_number_waits_for_a_disk_that_stands_still(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pwrite, goes_on, begun, given = os.pwrite, threading.Event(), threading.Semaphore(0), []

    def still(descriptor: int, data: memoryview, offset: int) -> int:
        begun.release()
        goes_on.wait(60)
        return pwrite(descriptor, data, offset)

    def give(made: Writer) -> None:
        for number in range(100):
            write(made, f"{number}", NOISE[:SMALL_BYTES], piece=SMALL_BYTES)
            given.append(number)

    monkeypatch.setattr(writer.os, "pwrite", still)
    with writing(tmp_path) as made, ThreadPoolExecutor(1) as others:
        all_given = others.submit(give, made)
        try:
            assert all(begun.acquire(timeout=PATIENCE) for _ in range(writer.THREADS)), "each thread writes a file"
            with pytest.raises(TimeoutError):
                all_given.result(0.5)
            assert len(given) <= 24, "and one more is in the making: 6.25 MiB"
        finally:
            goes_on.set()
        all_given.result(60)
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) == 100 * SMALL_BYTES


def test_what_is_not_as_the_manifest_says_is_named(tmp_path: Path) -> None:
    right = hashlib.sha256(NOISE).hexdigest()
    with writing(tmp_path / "good", {"a": right}) as made:
        write(made, "a", NOISE)
    with pytest.raises(DatasetInvalid, match="'a' has SHA-256"), writing(tmp_path / "bad", {"a": right}) as made:
        write(made, "a", NOISE[:-1])
    with pytest.raises(DatasetInvalid, match="does not name the file 'b'"), writing(tmp_path / "more", {}) as made:
        write(made, "b", NOISE)


@pytest.mark.parametrize("size", [10, SMALL_BYTES + 1], ids=["small", "large"])
def test_a_file_has_the_mode_and_time_of_its_member_and_else_those_of_any_file(tmp_path: Path, size: int) -> None:
    written = NOISE[:size]
    with writing(tmp_path) as made:
        write(made, "plain", written)
        with made.file(Entry("given", size, None), mode=0o755, mtime=1_700_000_000.5) as file:
            file.write(memoryview(written))
        with made.file(Entry("ancient", size, None), mtime=1e300) as file:
            file.write(memoryview(written))
    modes = {path.name: path.stat().st_mode & 0o7777 for path in tmp_path.iterdir()}
    assert modes == {"plain": 0o644, "given": 0o755, "ancient": 0o644}
    assert (tmp_path / "given").stat().st_mtime == 1_700_000_000.5
    assert (tmp_path / "ancient").read_bytes() == written


def test_the_checksum_of_a_file_is_recorded_where_it_is_wanted(tmp_path: Path) -> None:
    with CompletedFiles(tmp_path / "journal", tmp_path / "data", source="") as completed:
        with Writer(tmp_path / "data", completed=completed, digested=lambda path: path == "a") as made:
            write(made, "a", b"1")
            write(made, "b", b"2")
        with Writer(tmp_path / "data", completed=completed) as made:
            write(made, "c", b"3")
        assert completed.digests == {"a": hashlib.sha256(b"1").hexdigest()}


def test_a_path_that_is_no_files_is_the_data_sets_fault_and_named(tmp_path: Path) -> None:
    with (
        pytest.raises(DatasetInvalid) as refused,
        CompletedFiles(tmp_path / "journal", tmp_path / "data", source="") as completed,
        Writer(tmp_path / "data", completed=completed) as made,
    ):
        write(made, "x" * 300, b"1")
    assert str(refused.value) == (
        f"The data set holds {'x' * 200!r}, which cannot be a file beside its others (File name too long); rename or "
        "remove it in the data set."
    )
    assert isinstance(refused.value.__cause__, OSError)


def test_a_file_that_was_given_up_is_not_complete_and_frees_what_it_held(tmp_path: Path) -> None:
    """All buffers are there for the next files."""
    with CompletedFiles(tmp_path / "journal", tmp_path / "data", source="") as completed:
        with Writer(tmp_path / "data", completed=completed) as made:
            for size in (10, BUFFER_BYTES + 10):
                for number in range(writer.NUM_BUFFERS + 1):
                    with pytest.raises(ZeroDivisionError), made.file(Entry(f"{size}-{number}", size, None)) as file:
                        file.write(memoryview(NOISE[:5]))
                        raise ZeroDivisionError
            write(made, "whole", NOISE)
        assert completed.num_files == 1
    assert (tmp_path / "data" / "whole").read_bytes() == NOISE


def test_of_two_writes_of_a_path_the_second_begins_when_the_first_is_over(tmp_path: Path) -> None:
    with CompletedFiles(tmp_path / "journal", tmp_path / "data", source="") as completed:
        with Writer(tmp_path / "data", completed=completed) as made:
            write(made, "a", NOISE)
            write(made, "a", b"last")
        assert (tmp_path / "data" / "a").read_bytes() == b"last"
    assert CompletedFiles(tmp_path / "journal", tmp_path / "data", source="").take("a", 4)


def test_a_path_that_leads_through_a_link_is_not_followed_into_another_file(tmp_path: Path) -> None:
    (tmp_path / "outside").write_text("mine")
    with writing(tmp_path / "in") as made:
        (tmp_path / "in" / "a").symlink_to(tmp_path / "outside")
        write(made, "a", NOISE)
    assert (tmp_path / "outside").read_text() == "mine"
    assert (tmp_path / "in" / "a").read_bytes() == NOISE
