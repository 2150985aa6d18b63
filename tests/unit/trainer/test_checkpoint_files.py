"""A checkpoint is whole or not there."""

from __future__ import annotations

import hashlib
import json
import re
import resource
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.wording import wording
from trainer.checkpoints import checkpoint_files
from trainer.checkpoints.checkpoint_files import CheckpointFile, Record
from trainer.runtime.errors import CheckpointInvalid, StorageFailed
from trainer.runtime.files import written_whole

RECORD = {"samples_seen": 6, "first_loss": 9.0, "last_loss": 8.0, "model": {"hidden_size": 8}, "settings": {}}


def write(
    folder: Path, step: int, described: Mapping[str, Any] = RECORD, *, content: bytes = b"weights" * 100
) -> CheckpointFile:
    def weights(file: BinaryIO) -> None:
        file.write(content)

    return checkpoint_files.write(folder, weights, {**described, "step": step})


def replaced_by_a_folder(found: CheckpointFile) -> None:
    found.record_path.unlink()
    found.record_path.mkdir()


def newest(folder: Path) -> tuple[str | None, list[str]]:
    """Name of the checkpoint to go on from, and what was said of others."""
    said: list[str] = []
    found = checkpoint_files.newest_verified(folder, say=said.append)
    return (found.path.name if found else None), said


def test_the_newest_checkpoint_is_found_with_its_record(tmp_path: Path) -> None:
    write(tmp_path, 90)
    written = write(tmp_path, 100)
    assert checkpoint_files.newest_verified(tmp_path, say=print) == written
    assert written.path == tmp_path / "checkpoints" / "step-00000100.pt"
    assert written.record_path == tmp_path / "checkpoints" / "step-00000100.json"
    digest = hashlib.sha256(b"weights" * 100).hexdigest()
    document: dict[str, Any] = {"step": 100, **RECORD, "bytes": 700, "sha256": digest}
    text = json.dumps(document, separators=(",", ":")).encode()
    document["record_sha256"] = hashlib.sha256(text).hexdigest()
    assert written.record_path.read_text() == json.dumps(document, indent=2) + "\n", "people read it, too"


def test_no_folder_means_no_checkpoint(tmp_path: Path) -> None:
    assert newest(tmp_path / "missing") == (None, [])


@pytest.mark.lengthy
@given(st.integers(0, 699), st.integers(1, 255))
def test_one_flipped_bit_anywhere_is_noticed(tmp_path_factory: pytest.TempPathFactory, at: int, flip: int) -> None:
    folder = tmp_path_factory.mktemp("run")
    write(folder, 1)
    damaged = bytearray((path := write(folder, 2).path).read_bytes())
    damaged[at] ^= flip
    path.write_bytes(damaged)
    name, (said,) = newest(folder)
    assert name == "step-00000001.pt"
    assert "step-00000002.pt is skipped: its checksum does not match" in said


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda found: found.record_path.unlink(), r"it has no record beside it, so writing it was interrupted"),
        (lambda found: found.record_path.write_text("{"), r"its record cannot be read \(Expecting .+\)"),
        (
            lambda found: found.record_path.write_text("{}"),
            r"its record cannot be read \(it has no checksum of its own\)",
        ),
        (
            lambda found: found.record_path.write_text("[" * 100_000),
            r"its record cannot be read \(maximum recursion .+\)",
        ),
        (lambda found: found.record_path.write_text("[]"), r"its record cannot be read \(.+\)"),
        (lambda found: found.record_path.write_bytes(b"\xff\xfe"), r"its record cannot be read \(.+\)"),
        (replaced_by_a_folder, r"its record cannot be read \(\[Errno 21\] Is a directory: .+\)"),
        (lambda found: found.path.write_bytes(b"short"), r"it has 5 bytes and its record says 700"),
        (lambda found: found.path.unlink(), r"its record is there and the file is not"),
    ],
)
def test_what_a_crash_leaves_is_skipped(tmp_path: Path, damage: object, words: str) -> None:
    write(tmp_path, 1)
    damage(write(tmp_path, 2))  # type: ignore[operator]
    name, (said,) = newest(tmp_path)
    assert name == "step-00000001.pt"
    assert re.fullmatch(rf"The checkpoint step-00000002\.pt is skipped: {words}\.", said)


def test_a_write_that_fails_leaves_the_old_state_and_no_rest(tmp_path: Path) -> None:
    write(tmp_path, 1)

    def fails(file: BinaryIO) -> None:
        file.write(b"half")
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space left"):
        checkpoint_files.write(tmp_path, fails, {"step": 2, **RECORD})
    assert sorted(path.name for path in (tmp_path / "checkpoints").iterdir()) == [
        "step-00000001.json",
        "step-00000001.pt",
    ]


def test_a_file_that_the_disk_refuses_is_no_checkpoint_although_the_writer_of_weights_is_not_told(
    tmp_path: Path,
) -> None:
    """As torch.save would put an error of its own in the place of the disk's, it sees every byte accepted."""
    write(tmp_path, 1)
    accepted: list[int] = []

    def weights(file: BinaryIO) -> None:
        accepted.extend(file.write(b"weights" * 10_000) for _ in range(4))

    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))
    try:
        with pytest.raises(OSError, match="File too large"):
            checkpoint_files.write(tmp_path, weights, {"step": 2, **RECORD})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert accepted == [70_000] * 4
    assert newest(tmp_path) == ("step-00000001.pt", [])


def test_a_checkpoint_that_does_not_fit_is_skipped_like_a_damaged_one(tmp_path: Path) -> None:
    write(tmp_path, 1)
    write(tmp_path, 2)
    said: list[str] = []
    found = checkpoint_files.newest_verified(
        tmp_path, say=said.append, misfit=lambda record: "it is of another model" if record.step == 2 else None
    )
    assert found is not None
    assert found.record.step == 1
    assert said == [
        wording("checkpoint_files.a_checkpoint_that_does_not_fit_is_skipped_like_a_damaged_one", "skipped", "another")
    ]


def to_resume(folder: Path) -> CheckpointFile | None:
    return checkpoint_files.newest_to_resume(folder, say=print, misfit=lambda _: None)


def test_where_every_checkpoint_is_damaged_no_training_starts_again(tmp_path: Path) -> None:
    write(tmp_path, 1).path.write_bytes(b"short")
    write(tmp_path, 2).record_path.write_text("{")
    write(tmp_path, 3).record_path.unlink()  # a crash while the next was written
    before = {path: path.read_bytes() for path in (tmp_path / "checkpoints").iterdir()}
    with pytest.raises(CheckpointInvalid) as caught:
        to_resume(tmp_path)
    assert re.fullmatch(
        re.escape(f"No checkpoint in {tmp_path / 'checkpoints'} can be resumed from (step-00000002.pt: its record ")
        + r"cannot be read \(.+\); step-00000001\.pt: it has 5 bytes and its record says 700\); bring back what is "
        r"missing or damaged, give the arguments that it was made with, or start again with another --output_dir or "
        r"without that folder\.",
        str(caught.value),
    )
    assert {path: path.read_bytes() for path in (tmp_path / "checkpoints").iterdir()} == before


def test_a_crash_in_the_very_first_checkpoint_is_no_damage(tmp_path: Path) -> None:
    write(tmp_path, 1).record_path.unlink()
    (tmp_path / "checkpoints" / ".step-00000002.pt.k3j2h1").write_bytes(b"half")
    assert to_resume(tmp_path) is None
    assert to_resume(tmp_path / "missing") is None


def test_a_checkpoint_written_over_a_damaged_one_is_never_vouched_for_by_the_old_record(tmp_path: Path) -> None:
    write(tmp_path, 1)
    write(tmp_path, 2)

    def crash(file: BinaryIO) -> None:
        file.write(b"other weights")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        checkpoint_files.write(tmp_path, crash, {"step": 2, **RECORD})
    assert newest(tmp_path) == ("step-00000002.pt", [])
    write(tmp_path, 2, content=b"other weights")
    assert newest(tmp_path) == ("step-00000002.pt", [])


def test_a_node_that_reads_other_bytes_says_so(tmp_path: Path) -> None:
    found = write(tmp_path, 1)
    checkpoint_files.require_same_bytes(found)
    found.path.write_bytes(b"x" * 700)
    with pytest.raises(StorageFailed) as other:
        checkpoint_files.require_same_bytes(found)
    assert str(other.value) == (
        f"The checkpoint {found.path} has another content on this node than on that of rank 0, which verified it; "
        "check the mounts of the file system."
    )
    found.path.unlink()
    with pytest.raises(StorageFailed) as unread:
        checkpoint_files.require_same_bytes(found)
    assert str(unread.value) == (
        f"The checkpoint {found.path} cannot be read on this node ([Errno 2] No such file or directory: "
        f"'{found.path}'); check the mounts of the file system."
    )


def other_than(document: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """The same record with other values and the checksum that belongs to them."""
    fields = {name: value for name, value in document.items() if name != "record_sha256"} | changes
    return json.loads(Record(**fields).to_text())  # type: ignore[no-any-return]


def test_no_flipped_bit_of_a_record_goes_unnoticed(tmp_path: Path) -> None:
    settings = {"seed": 1, "learning_rate": 4e-05, "dataset": "100 samples (123456789abc)", "clip": None, "on": True}
    described = {**RECORD, "samples_seen": 4800, "settings": settings, "last_loss": float("nan")}
    found = write(tmp_path, 150, described)
    written = found.record_path.read_bytes()
    assert checkpoint_files.newest_verified(tmp_path, say=print) is not None
    unnoticed = []
    for position in range(8 * len(written)):
        damaged = bytearray(written)
        damaged[position // 8] ^= 1 << position % 8
        found.record_path.write_bytes(damaged)
        try:
            unnoticed.append((position, Record.read(found.record_path)))
        except CheckpointInvalid:
            continue
    assert len(written) > 400
    assert unnoticed == []


def test_a_damaged_record_that_looks_like_another_trainings_is_no_reason_to_stop(tmp_path: Path) -> None:
    write(tmp_path, 1)
    newest = write(tmp_path, 2)
    newest.record_path.write_bytes(newest.record_path.read_bytes().replace(b'"hidden_size": 8', b'"hidden_size": 9'))

    def misfit(record: Record) -> str | None:
        assert record.model == {"hidden_size": 8}, "a damaged record is compared with nothing"
        return None

    found = checkpoint_files.newest_to_resume(tmp_path, say=print, misfit=misfit)
    assert found is not None
    assert found.record.step == 1


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"step": 3}, "it says step 3"),
        ({"step": -2}, "it says step -2"),
        ({"samples_seen": -1}, "it says -1 samples after 2 steps"),
        ({"step": True}, "it says step True"),
    ],
)
def test_a_record_of_another_position_than_its_name_is_none(
    tmp_path: Path, changes: dict[str, Any], reason: str
) -> None:
    write(tmp_path, 1)
    found = write(tmp_path, 2)
    document = other_than(json.loads(found.record_path.read_text()), **changes)
    found.record_path.write_text(json.dumps(document, indent=2) + "\n")
    name, said = newest(tmp_path)
    assert name == "step-00000001.pt"
    assert said == [f"The checkpoint step-00000002.pt is skipped: its record cannot be read ({reason})."]


def test_initial_weights_have_seen_no_samples(tmp_path: Path) -> None:
    write(tmp_path, 0)
    assert newest(tmp_path)[0] is None
    write(tmp_path, 0, {**RECORD, "samples_seen": 0})
    assert newest(tmp_path)[0] == "step-00000000.pt"


def test_a_record_without_a_checksum_of_its_own_is_not_accepted(tmp_path: Path) -> None:
    found = write(tmp_path, 1)
    document = json.loads(found.record_path.read_text())
    del document["record_sha256"]
    found.record_path.write_text(json.dumps(document, indent=2) + "\n")
    assert newest(tmp_path)[0] is None


def test_weights_whose_records_were_deleted_are_not_overwritten_by_a_new_training(tmp_path: Path) -> None:
    for step in (1, 2):
        write(tmp_path, step).record_path.unlink()
    with pytest.raises(CheckpointInvalid, match=r"00002\.pt: .*no record.*00001\.pt: .*no"):
        to_resume(tmp_path)
    write(tmp_path, 3)
    found = to_resume(tmp_path)
    assert found is not None
    assert found.record.step == 3


def kept(folder: Path) -> list[int]:
    weights, records = (
        sorted(int(path.stem.removeprefix("step-")) for path in (folder / "checkpoints").glob(pattern))
        for pattern in ("*.pt", "*.json")
    )
    assert weights == records
    return weights


def test_only_the_newest_are_kept(tmp_path: Path) -> None:
    for step in (1, 2, 3, 10):
        write(tmp_path, step)
    checkpoint_files.keep_newest(tmp_path, 2, until=10)
    assert kept(tmp_path) == [3, 10]


@pytest.mark.parametrize(("count", "left"), [(1, [10]), (-1, [1, 2, 3, 10])])
def test_one_may_be_kept_or_all(tmp_path: Path, count: int, left: list[int]) -> None:
    for step in (1, 2, 3, 10):
        write(tmp_path, step)
    checkpoint_files.keep_newest(tmp_path, count, until=10)
    assert kept(tmp_path) == left


def test_skipped_checkpoints_do_not_displace_those_that_can_be_resumed_from(tmp_path: Path) -> None:
    """100 and 120 are damaged, so the training went on from 80 and has just written 90."""
    for step in (70, 80, 90, 100, 120):
        write(tmp_path, step)
    checkpoint_files.keep_newest(tmp_path, 2, until=90)
    assert kept(tmp_path) == [80, 90, 100, 120]


def test_the_remains_of_a_killed_write_are_removed(tmp_path: Path) -> None:
    write(tmp_path, 1)
    (tmp_path / "checkpoints" / ".step-00000002.pt.k3j2h1").write_bytes(b"half")
    checkpoint_files.remove_remains(tmp_path)
    assert sorted(path.name for path in (tmp_path / "checkpoints").iterdir()) == [
        "step-00000001.json",
        "step-00000001.pt",
    ]


def test_what_somebody_else_removes_meanwhile_is_no_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for step in (1, 2):
        write(tmp_path, step)
    (tmp_path / "checkpoints" / ".step-00000003.pt.k3j2h1").write_bytes(b"half")
    unlink = Path.unlink

    def unlink_what_is_gone(path: Path, missing_ok: bool = False) -> None:
        unlink(path)
        unlink(path, missing_ok=missing_ok)

    with monkeypatch.context() as patched:
        patched.setattr(Path, "unlink", unlink_what_is_gone)
        checkpoint_files.keep_newest(tmp_path, 1, until=2)
        checkpoint_files.remove_remains(tmp_path)
    assert sorted(path.name for path in (tmp_path / "checkpoints").iterdir()) == [
        "step-00000002.json",
        "step-00000002.pt",
    ]


def test_a_file_is_replaced_in_one_step(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("old")
    with written_whole(path) as file:
        file.write(b"new")
        file.flush()
        assert path.read_text() == "old"
    assert path.read_text() == "new"
    assert [found.name for found in tmp_path.iterdir()] == ["file"]
