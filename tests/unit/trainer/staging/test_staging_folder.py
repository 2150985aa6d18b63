"""A data set takes its place however often the stager is killed, and no marker describes other files than its own."""

from __future__ import annotations

import errno
import fcntl
import itertools
import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from trainer.runtime.errors import DestinationNotEmpty, StorageFailed
from trainer.staging import marker, staging_folder
from trainer.staging.marker import Marker
from trainflow.protocol.staging_line import WAITING

URL = "s3://datasets/corpus.tar"

STEPS = ("rename", "replace", "unlink", "rmdir")
"""Functions of the `os` module with which a stager changes files at the end."""


class KilledError(BaseException):
    """Nothing catches it, so it ends the stager where it is, as SIGKILL does."""


def staged(version: str) -> Marker:
    """A marker of one of two versions that differ in their content only."""
    return Marker(url=URL, etag=version, files=2, bytes=6, num_shards=None, num_samples=None)


def fill(folder: Path, version: str) -> None:
    folder.mkdir(parents=True)
    for name in "ab":
        (folder / name).write_text(version)


def made(destination: Path, version: str) -> None:
    """What a stager leaves that is killed as soon as all is whole."""
    work = staging_folder.Workplace(destination.parent / f".{destination.name}.staging")
    fill(work.data, version)
    marker.write(staged(version), work.data, work.marker)


def is_killed_before_step(number: int, destination: Path) -> bool:
    """Run the last steps, killed before one of them; whether they came to that step."""
    steps = itertools.count(1)

    def dying(step: Callable[..., None]) -> Callable[..., None]:
        def taken(*arguments: Any, **named: Any) -> None:
            if next(steps) == number:
                raise KilledError
            step(*arguments, **named)

        return taken

    with pytest.MonkeyPatch.context() as patched:
        for name in STEPS:
            patched.setattr(os, name, dying(getattr(os, name)))
        try:
            staging_folder.finish(destination)
        except KilledError:
            return True
    return False


def require_truth(destination: Path) -> None:
    """What a marker vouches for is what is there; and what is there is all of one version."""
    said = marker.read(destination)
    found = {path.read_text() for path in destination.iterdir()} if destination.is_dir() else set()
    assert found in (set(), {"old"}, {"new"})
    if said is not None and marker.is_complete(destination, said):
        assert found == {said.etag}
    if found == {"old"}:
        assert said == staged("old")


@pytest.mark.parametrize("before", ["nothing", "beside", "inside"])
def test_a_stager_killed_at_any_step_leaves_a_true_marker_and_the_next_one_completes_the_steps(
    tmp_path: Path, before: str
) -> None:
    number, was_killed = 0, True
    while was_killed:
        number += 1
        destination = tmp_path / str(number) / "demo"
        if before != "nothing":
            fill(destination, "old")
            beside = marker.marker_path(destination)
            marker.write(staged("old"), destination, beside if before == "beside" else destination / marker.INSIDE)
        made(destination, "new")
        was_killed = is_killed_before_step(number, destination)
        if before == "inside" and (destination / marker.INSIDE).exists():
            assert marker.read(destination) == staged("old")
        else:
            require_truth(destination)
        staging_folder.finish(destination)
        assert marker.read(destination) == staged("new")
        assert marker.is_about(marker.marker_path(destination), destination)
        require_truth(destination)
        assert not [path for path in (destination.parent / ".demo.staging").rglob("*") if path.is_file()]
    assert number > (3 if before == "nothing" else 6)


def test_two_kills_in_a_row_change_nothing(tmp_path: Path) -> None:
    for first in range(1, 6):
        for second in range(1, 6):
            destination = tmp_path / f"{first}-{second}" / "demo"
            fill(destination, "old")
            marker.write(staged("old"), destination, marker.marker_path(destination))
            made(destination, "new")
            for number in (first, second):
                is_killed_before_step(number, destination)
                require_truth(destination)
            staging_folder.finish(destination)
            assert marker.read(destination) == staged("new")
            require_truth(destination)


def test_files_that_came_after_a_kill_are_not_replaced(tmp_path: Path) -> None:
    destination = tmp_path / "demo"
    made(destination, "new")
    destination.mkdir()
    (destination / "thesis.txt").write_text("years of work")
    with pytest.raises(DestinationNotEmpty, match="nothing is replaced"):
        staging_folder.finish(destination)
    assert (destination / "thesis.txt").exists()
    assert not marker.marker_path(destination).exists()


def test_other_files_and_another_data_set_are_named_with_what_to_do(tmp_path: Path) -> None:
    destination = tmp_path / "demo"
    fill(destination, "old")
    with pytest.raises(DestinationNotEmpty) as unmarked, staging_folder.workplace(destination, url=URL):
        pass
    assert str(unmarked.value) == (
        f"The folder {destination} holds files and no marker beside it says that they were staged, so nothing is "
        "replaced; empty it, or give another --destination."
    )
    marker.write(staged("old"), destination, marker.marker_path(destination))
    with pytest.raises(DestinationNotEmpty) as other, staging_folder.workplace(destination, url="s3://other/b.tar"):
        pass
    assert str(other.value) == (
        f"The folder {destination} holds the data set of {URL}, which runs may be reading, so that of s3://other/b.tar "
        "does not replace it; give it a folder of its own with dataset.name (--destination), or remove the other."
    )
    with staging_folder.workplace(destination, url=URL) as place:
        assert place == staging_folder.Workplace(tmp_path / ".demo.staging")
    assert place.root.is_dir(), "what was completed stays for the next attempt"


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / ".demo.staging").write_text("a file where the folder should be")
    with pytest.raises(StorageFailed) as failed, staging_folder.workplace(tmp_path / "demo", url=URL):
        pass
    assert str(failed.value) == (
        f"The folder {tmp_path}/.demo.staging cannot be made ([Errno 17] File exists: '{tmp_path}/.demo.staging'); "
        "give another --destination."
    )
    (tmp_path / "file").touch()
    destination = tmp_path / "file" / "demo"
    with pytest.raises(StorageFailed) as unwritten, staging_folder.alone(destination):
        pass
    assert str(unwritten.value) == (
        f"--destination {destination} cannot be written ([Errno 17] File exists: '{tmp_path / 'file'}'); give another "
        "folder."
    )


def test_a_second_stager_says_that_it_waits_and_goes_on_when_the_first_is_done(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    destination, waits, order = tmp_path / "deep" / "down" / "demo", threading.Event(), list[str]()
    flock = staging_folder.fcntl.flock

    def watched(lock: Any, operation: int) -> None:
        if operation == fcntl.LOCK_EX:
            waits.set()
        flock(lock, operation)

    def second() -> None:
        with staging_folder.alone(destination):
            order.append("second")

    monkeypatch.setattr(staging_folder.fcntl, "flock", watched)
    with ThreadPoolExecutor(1) as others:
        with staging_folder.alone(destination):
            other = others.submit(second)
            assert waits.wait(10)
            order.append("first")
        other.result(10)
    assert order == ["first", "second"]
    assert capsys.readouterr().out == f"{WAITING}{destination}; waiting until it is done.\n"


def test_a_file_system_without_locks_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_lock: object, _operation: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(staging_folder.fcntl, "flock", refuse)
    with pytest.raises(StorageFailed) as failed, staging_folder.alone(tmp_path / "demo"):
        pass
    assert str(failed.value) == (
        f"The file system of {tmp_path / 'demo'} cannot lock a file (No locks available), so two runs could stage into "
        "one folder; mount it with the option `flock`."
    )


def test_a_marker_whose_data_set_was_removed_after_a_kill_vouches_for_nothing(tmp_path: Path) -> None:
    destination = tmp_path / "demo"
    made(destination, "new")
    work = tmp_path / ".demo.staging"
    (work / "data").rename(tmp_path / "removed")
    fill(destination, "own")
    staging_folder.finish(destination)
    assert marker.read(destination) is None
    assert not work.exists()
