"""Temporary folders of killed processes are removed by the next one, and those of no other process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from local import runtime_folder
from trainflow.client.owned_folder import OWNER, OwnedFolder, remove_abandoned

PROGRAM = """
import pathlib, sys
from trainflow.client.owned_folder import OwnedFolder
folder = OwnedFolder("trainflow-", dir=sys.argv[1])
pathlib.Path(folder.name, "pods").mkdir()
pathlib.Path(folder.name, "pods", "log").write_text("a line")
pathlib.Path(folder.name, "shared").symlink_to(sys.argv[1] + "/kept")
print(folder.name, flush=True)
sys.stdin.read()
"""


@contextmanager
def owner(base: Path) -> Iterator[tuple[subprocess.Popen[str], Path]]:
    """A process with a folder that holds a file, a folder, and a link to a folder that is somebody's."""
    (base / "kept").mkdir(exist_ok=True)
    (base / "kept" / "weights").touch()
    command = [sys.executable, "-c", PROGRAM, str(base)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        try:
            yield process, Path(process.stdout.readline().strip())
        finally:
            process.kill()


def left_by_a_killed_process(base: Path) -> Path:
    with owner(base) as (process, folder):
        process.send_signal(signal.SIGKILL)
        process.wait(30)
    assert (folder / "pods" / "log").is_file()
    return folder


def test_the_folder_of_a_killed_process_is_removed_by_the_next_one(tmp_path: Path) -> None:
    left = left_by_a_killed_process(tmp_path)
    with OwnedFolder("trainflow-lambda-", dir=str(tmp_path)) as own:
        assert not left.exists()
        assert Path(own).is_dir()
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]
    assert (tmp_path / "kept" / "weights").is_file(), "a link is removed, and what it leads to stays"


def test_the_folder_of_a_twin_that_was_killed_is_removed_by_the_next_twin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runtime_folder.tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(runtime_folder, "LONGEST_BASE", 1000)
    left = left_by_a_killed_process(tmp_path)
    with runtime_folder.create("trainflow-"):
        assert not left.exists()


def test_the_folders_of_living_processes_stay(tmp_path: Path) -> None:
    with owner(tmp_path) as (_, others), OwnedFolder(dir=str(tmp_path)) as own:
        remove_abandoned(tmp_path)
        assert (others / "pods" / "log").is_file()
        assert (Path(own) / OWNER).is_file()


@pytest.mark.parametrize("change", ["no owner", "another machine", "open to others", "a link"])
def test_a_folder_that_is_not_known_to_be_abandoned_stays(tmp_path: Path, change: str) -> None:
    left = left_by_a_killed_process(tmp_path)
    match change:
        case "no owner":
            (left / OWNER).unlink()
        case "another machine":
            (left / OWNER).write_text("another-machine")
        case "open to others":
            left.chmod(0o777)
        case "a link":
            left = left.rename(tmp_path / "elsewhere")
            (tmp_path / "trainflow-link").symlink_to(left)
    remove_abandoned(tmp_path)
    assert (left / "pods" / "log").is_file()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder to another user")
def test_the_folder_of_another_user_stays(tmp_path: Path) -> None:
    left = left_by_a_killed_process(tmp_path)
    os.chown(left, 65534, 65534)
    remove_abandoned(tmp_path)
    assert (left / "pods" / "log").is_file()
