"""A file that is recorded as complete is complete after a crash."""

from __future__ import annotations

import ctypes
import os
import threading
from pathlib import Path

import pytest

from trainer.runtime.errors import StorageFailed
from trainer.staging.completed_files import CompletedFiles, Entry


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "data"


def completed_files(data: Path, source: str = "v1") -> CompletedFiles:
    return CompletedFiles(data.parent / "journal", data, source=source)


def keep(data: Path, *entries: Entry) -> None:
    """An attempt that completed these, and then died."""
    with completed_files(data) as kept:
        for entry in entries:
            (data / entry.path).write_bytes(b"x" * entry.size)
            kept.add(entry)


def test_what_was_complete_is_known_to_the_next_attempt(data: Path) -> None:
    keep(data, Entry("a", 3, (0, 1024)), Entry("b", 4, (1024, 2048)))
    again = completed_files(data)
    assert again.spans == {0: 1024, 1024: 2048}
    assert (again.num_files, again.num_bytes) == (2, 7)
    assert again.take("a", 3)
    assert not again.take("b", 5)


def test_the_folders_are_made_with_those_above_them(tmp_path: Path) -> None:
    keep(data := tmp_path / "deep" / "down" / "data", Entry("a", 3, None))
    assert completed_files(data).num_files == 1


def test_what_was_computed_of_a_complete_file_is_known_to_the_next_attempt(data: Path) -> None:
    """The record also holds members without a CRC, and files outside of any archive."""
    keep(
        data,
        Entry("a", 3, (0, 1024), crc=0, sha256="feed"),
        Entry("b", 4, (1024, 2048)),
        Entry("c", 5, None, sha256="beef"),
    )
    again = completed_files(data)
    assert again.crcs == {0: (1024, 0)}
    assert again.digests == {"a": "feed", "c": "beef"}
    assert [again.knows(path) for path in "abcd"] == [True, True, True, False]


def test_what_this_attempt_completes_is_counted_and_known_by_its_checksum(data: Path) -> None:
    keep(data, Entry("a", 3, None, sha256="feed"))
    with completed_files(data) as second:
        (data / "b").write_bytes(b"xx")
        second.add(Entry("b", 2, None, sha256="beef"))
        second.add(Entry("c", 1, None))
        assert (second.num_files, second.num_bytes) == (3, 3)
        assert second.digests == {"a": "feed", "b": "beef"}
        second.forget("a")
        assert second.digests == {"b": "beef"}


def test_a_record_that_is_no_text_is_as_none(data: Path) -> None:
    keep(data, Entry("a", 3, None))
    (data.parent / "journal").write_bytes(b"\xff\xfe")
    assert completed_files(data).num_files == 0


def test_a_file_is_on_record_before_the_attempt_ends(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    forced, fsync = threading.Event(), os.fsync

    def watched(descriptor: int) -> None:
        fsync(descriptor)
        forced.set()

    monkeypatch.setattr("trainer.staging.completed_files.SYNC_SECONDS", 0.01)
    with completed_files(data) as kept:
        monkeypatch.setattr(os, "fsync", watched)
        (data / "a").write_bytes(b"xxx")
        kept.add(Entry("a", 3, None))
        assert forced.wait(10)
        assert (data.parent / "journal").read_text().endswith('\n["a", 3, null, null, null]\n')


def test_half_a_line_is_ignored(data: Path) -> None:
    keep(data, Entry("a", 3, None), Entry("b", 4, None))
    lines = (data.parent / "journal").read_text()
    (data.parent / "journal").write_text(lines[:-7])
    again = completed_files(data)
    assert (again.take("a", 3), again.take("b", 4)) == (True, False)


def test_a_file_that_changed_is_not_complete(data: Path) -> None:
    keep(data, Entry("a", 3, None), Entry("b", 4, None))
    (data / "a").write_bytes(b"longer")
    (data / "b").unlink()
    assert completed_files(data).num_files == 0


def test_another_version_begins_with_an_empty_folder(data: Path) -> None:
    keep(data, Entry("a", 3, None))
    assert completed_files(data, source="v2").num_files == 0
    assert list(data.iterdir()) == []


def test_a_file_that_was_being_replaced_is_written_again_from_its_first_version_on(data: Path) -> None:
    keep(data, Entry("a", 3, (0, 1024)))
    with completed_files(data) as second:
        second.forget("a")
    assert completed_files(data).spans == {}


def test_of_a_path_that_came_twice_each_time_is_taken_once(data: Path) -> None:
    keep(data, Entry("a", 3, (0, 1024)), Entry("a", 3, (1024, 2048)))
    again = completed_files(data)
    assert [again.take("a", 3) for _ in range(3)] == [True, True, False]


def test_a_disk_that_refuses_to_keep_the_files_is_named_with_its_error(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel forces no file system to the disk through a descriptor that only names a path."""
    opened = os.open
    with pytest.raises(StorageFailed) as refused, completed_files(data) as kept:
        (data / "a").write_bytes(b"xxx")
        kept.add(Entry("a", 3, None))
        monkeypatch.setattr(os, "open", lambda path, _flags: opened(path, os.O_PATH))
    assert str(refused.value) == (
        f"The data set could not be forced to disk below {data} ([Errno 9] Bad file descriptor); check the file system "
        "and start again."
    )
    monkeypatch.undo()
    assert not completed_files(data).take("a", 3), "what did not reach the disk is not complete"


def test_an_unexpected_exception_of_the_thread_that_writes_the_record_is_raised_at_the_end(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_folder: Path) -> None:
        raise MemoryError("no room")

    with pytest.raises(MemoryError, match="no room"), completed_files(data) as completed:
        monkeypatch.setattr("trainer.staging.completed_files._force_to_disk", broken)
        completed.add(Entry("a", 3, None))


def test_where_no_single_file_system_can_be_forced_to_the_disk_all_are(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on macOS, whose C library has no `syncfs`."""
    forced: list[str] = []
    monkeypatch.setattr(ctypes, "CDLL", lambda *_name, **_options: object())
    monkeypatch.setattr(os, "sync", lambda: forced.append("all"))
    keep(data, Entry("a", 3, None))
    assert forced == ["all"]
