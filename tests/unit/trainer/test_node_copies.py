"""Checkpoints near memory: each node's own copies, and the background copy to the shared storage."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO

import pytest

from tests.unit.trainer.test_checkpoint_files import RECORD, write
from tests.unit.trainer.test_task import CONFIG, process_in
from trainer.checkpoints import checkpoint_files, node_copies
from trainer.checkpoints.checkpoint_files import CheckpointFile, Record
from trainer.checkpoints.node_copies import BackgroundCopy, NodeFolder, newest_common
from trainer.loop import training
from trainer.runtime.errors import StorageFailed


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / "checkpoints").glob("*"))


def steps(folder: Path) -> list[int]:
    """Steps of the complete checkpoints in a folder."""
    return sorted(checkpoint_files.complete_ones(folder))


@pytest.mark.parametrize(
    ("nodes", "step"),
    [
        ([], None),
        ([{}], None),
        ([{10: "a", 20: "b"}], 20),
        ([{10: "a", 20: "b"}, {10: "a", 20: "b"}], 20),
        ([{10: "a", 20: "b"}, {10: "a"}], 10),
        ([{20: "b", 30: "c"}, {10: "a", 20: "b"}], 20),
        ([{10: "a", 20: "b"}, {10: "a", 20: "other"}], 10),
        ([{10: "a"}, {20: "b"}], None),
        ([{10: "a"}, {}], None),
        ([{10: "a", 20: "b"}] * 3 + [{10: "a"}], 10),
    ],
)
def test_a_checkpoint_counts_only_if_all_nodes_have_the_same(nodes: Sequence[Mapping[int, str]], step: int) -> None:
    assert newest_common(nodes) == step


def test_a_checkpoint_of_a_killed_process_is_not_complete(tmp_path: Path) -> None:
    write(tmp_path, 1)
    write(tmp_path, 2).record_path.unlink()
    write(tmp_path, 3).path.write_bytes(b"short")
    write(tmp_path, 4).record_path.write_text("{")
    write(tmp_path, 5).path.unlink()
    assert steps(tmp_path) == [1]


def no_room(_folder: Path) -> CheckpointFile:
    raise StorageFailed("No room.") from OSError(28, "No space left on device")


def test_a_node_keeps_the_two_newest(tmp_path: Path) -> None:
    folder = NodeFolder(tmp_path)
    for step in (1, 2, 3):
        written = folder.write(lambda into, step=step: write(into, step), step=step)  # type: ignore[misc]
        assert written is not None
    assert steps(tmp_path) == [2, 3]


def test_a_folder_without_room_for_three_keeps_one_beside_the_new_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def into_room_for_two(folder: Path, step: int) -> CheckpointFile:
        return write(folder, step) if len(steps(folder)) < 2 else no_room(folder)

    folder = NodeFolder(tmp_path)
    for step in (1, 2, 3, 4):
        assert folder.write(lambda into, step=step: into_room_for_two(into, step), step=step)  # type: ignore[misc]
    assert steps(tmp_path) == [4]
    assert capsys.readouterr().out == ""


def test_a_full_folder_is_named_once_and_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = NodeFolder(tmp_path)
    assert folder.write(lambda into: write(into, 1), step=1)
    assert [folder.write(no_room, step=2), folder.write(lambda into: write(into, 3), step=3)] == [None, None]
    (said,) = capsys.readouterr().out.splitlines()
    assert "cannot take the checkpoint of step 2 ([Errno 28] No space left on device)" in said
    assert "checkpoint.keep_local.gib" in said
    assert steps(tmp_path) == [1]


def shared_copies(folder: Path, *, may_copy: threading.Event | None = None) -> BackgroundCopy:
    def copy(content: BinaryIO, record: Record) -> CheckpointFile:
        assert may_copy is None or may_copy.wait(30)
        return node_copies.copy_to_shared(content, record, folder)

    return BackgroundCopy(copy)


def test_a_copy_is_the_checkpoint_to_the_byte(tmp_path: Path) -> None:
    local = write(tmp_path / "node", 7)
    with shared_copies(tmp_path / "run") as copies:
        copies.submit(local)
    assert copies.newest == CheckpointFile(tmp_path / "run/checkpoints/step-00000007.pt", local.record)
    assert copies.newest.path.read_bytes() == local.path.read_bytes()
    assert copies.newest.record_path.read_bytes() == local.record_path.read_bytes()
    assert checkpoint_files.newest_verified(tmp_path / "run", say=print) == copies.newest


def test_a_checkpoint_that_still_waits_is_left_out_for_a_newer_one(tmp_path: Path) -> None:
    may_copy = threading.Event()
    with shared_copies(tmp_path / "run", may_copy=may_copy) as copies:
        copies.submit(write(tmp_path / "node", 1))
        while copies._waiting is not None:
            threading.Event().wait(0.01)
        for step in (2, 3):
            copies.submit(write(tmp_path / "node", step))
        checkpoint_files.keep_newest(tmp_path / "node", 0, until=3)
        copies.check()
        assert copies.newest is None
        may_copy.set()
    assert names(tmp_path / "node") == []
    assert steps(tmp_path / "run") == [1, 3], "one that was deleted meanwhile is copied as well"
    assert copies.newest is not None
    assert copies.newest.record.step == 3


def test_a_damaged_checkpoint_is_not_copied(tmp_path: Path) -> None:
    write(tmp_path / "run", 1)
    local = write(tmp_path / "node", 2)
    local.path.write_bytes(b"damaged" * 100)
    with (
        pytest.raises(StorageFailed, match=r"step 2 could not be copied .+ checksum"),
        shared_copies(tmp_path / "run") as c,
    ):
        c.submit(local)
    assert steps(tmp_path / "run") == [1]
    assert len(names(tmp_path / "run")) == 2


def test_a_copy_that_fails_leaves_the_checkpoints_before(tmp_path: Path) -> None:
    class Breaks:
        def __init__(self) -> None:
            self.parts = [b"half"]

        def read(self, _size: int) -> bytes:
            if not self.parts:
                raise OSError(5, "Input/output error")
            return self.parts.pop()

    before, record = write(tmp_path, 1), write(tmp_path / "node", 2).record
    with pytest.raises(StorageFailed, match=r"step 2 .*copied.*\[Errno 5\] Input"):
        node_copies.copy_to_shared(Breaks(), record, tmp_path)  # type: ignore[arg-type]
    assert names(tmp_path) == [before.record_path.name, before.path.name]


def test_an_error_of_a_copy_is_raised_at_the_next_look_and_does_not_replace_another(tmp_path: Path) -> None:
    def copy(_content: BinaryIO, _record: Record) -> CheckpointFile:
        raise StorageFailed("No room.")

    copies = BackgroundCopy(copy)
    copies.submit(write(tmp_path, 1))
    with pytest.raises(StorageFailed):
        copies.wait()
    copies.submit(write(tmp_path, 2))
    with pytest.raises(ZeroDivisionError), copies:
        raise ZeroDivisionError


def test_a_checkpoint_is_known_as_copied_by_its_record(tmp_path: Path) -> None:
    local = write(tmp_path / "node", 1)
    assert not checkpoint_files.is_copied(local.record, tmp_path / "run")
    write(tmp_path / "run", 1, content=b"another")
    assert not checkpoint_files.is_copied(local.record, tmp_path / "run")
    copied = write(tmp_path / "run", 1)
    assert checkpoint_files.is_copied(local.record, tmp_path / "run")
    copied.path.write_bytes(b"short")
    assert not checkpoint_files.is_copied(local.record, tmp_path / "run")


def trained(folder: Path, *, steps_this_run: int = -1, checkpoint_steps: int = 5) -> Mapping[str, object]:
    config = replace(CONFIG, steps_this_run=steps_this_run, checkpoint_steps=checkpoint_steps)
    result = training.train(replace(process_in(folder / "run", config=config), local_dir=folder / "node"))
    assert result is not None
    return result


def test_a_training_writes_to_its_node_first_and_ends_with_the_copy(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    result = trained(tmp_path, steps_this_run=12)
    assert steps(tmp_path / "node") == [10, 12]
    assert steps(tmp_path / "run")[-1] == 12
    assert result["checkpoint"] == str(tmp_path / "run/checkpoints/step-00000012.pt")
    reported = [json.loads(line) for line in capsys.readouterr().out.splitlines() if "trainflow_checkpoint" in line]
    assert reported[-1]["trainflow_checkpoint"]["step"] == 12


def test_a_restart_takes_the_nodes_checkpoint_and_copies_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The process before was killed in its copy."""
    trained(tmp_path, steps_this_run=12)
    for path in (tmp_path / "run/checkpoints").glob("step-00000012.*"):
        path.unlink()
    (tmp_path / "run/checkpoints/.step-00000012.pt.abc").write_bytes(b"half")
    result = trained(tmp_path, steps_this_run=1, checkpoint_steps=1000)
    assert (
        "Resuming from step-00000012.pt, from memory or disks of the nodes, after step 12." in capsys.readouterr().out
    )
    assert result["steps"] == 13
    assert [name for name in names(tmp_path / "run") if name.startswith(".")] == []


def test_a_restart_at_the_last_step_still_copies(tmp_path: Path) -> None:
    trained(tmp_path)
    for path in (tmp_path / "run/checkpoints").iterdir():
        path.unlink()
    result = trained(tmp_path)
    assert steps(tmp_path / "run") == [60]
    assert result["checkpoint"] == str(tmp_path / "run/checkpoints/step-00000060.pt")


def test_a_newer_shared_checkpoint_counts_more(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trained(tmp_path, steps_this_run=12)
    for path in (tmp_path / "node/checkpoints").glob("step-00000012.*"):
        path.unlink()
    trained(tmp_path, steps_this_run=1)
    assert "Resuming from step-00000012.pt, verified, after step 12." in capsys.readouterr().out


def test_a_damaged_newer_shared_checkpoint_leaves_the_nodes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trained(tmp_path, steps_this_run=12)
    for path in (tmp_path / "run/checkpoints").glob("*.pt"):
        path.write_bytes(b"damaged")
    for path in (tmp_path / "node/checkpoints").glob("step-00000012.*"):
        path.unlink()
    trained(tmp_path, steps_this_run=1)
    out = capsys.readouterr().out
    assert "step-00000012.pt is skipped: it has 7 bytes" in out
    assert "Resuming from step-00000010.pt, from memory or disks of the nodes, after step 10." in out


def test_a_lost_folder_of_the_node_leaves_the_shared_checkpoint(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trained(tmp_path, steps_this_run=12)
    (tmp_path / "node").rename(tmp_path / "lost")
    trained(tmp_path, steps_this_run=1)
    assert "Resuming from step-00000012.pt, verified, after step 12." in capsys.readouterr().out


def test_checkpoints_of_another_training_on_the_node_are_not_used(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trained(tmp_path, steps_this_run=12)
    write(tmp_path / "node", 20, RECORD)
    trained(tmp_path, steps_this_run=1)
    assert "Resuming from step-00000012.pt, verified, after step 12." in capsys.readouterr().out


def test_a_full_node_leaves_checkpoints_on_the_shared_storage(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "node").write_text("not a folder")
    result = trained(tmp_path, steps_this_run=12)
    assert steps(tmp_path / "run")[-1] == 12
    assert result["checkpoint"] == str(tmp_path / "run/checkpoints/step-00000012.pt")
    assert capsys.readouterr().out.count("Warning: this node's folder cannot take the checkpoint of step 5") == 1
