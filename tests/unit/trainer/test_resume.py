"""A restarted program is given its newest complete checkpoint, the same one on every node."""

from __future__ import annotations

import io
import json
import os
import struct
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from safetensors.torch import save_file

from tests.fakes.plans import supervised
from trainer.checkpoints import file_formats
from trainer.checkpoints.patterns import find, is_complete
from trainflow.protocol.plan import Resume
from trainflow.protocol.resume_bounds import ResumeBound, bounds_text

SHOW = "import json, os, sys; print(json.dumps([sys.argv[1:], os.environ.get('TRAINFLOW_CHECKPOINT')]))"
WORDS = ("--resume", "{checkpoint}")


def complete(path: Path, *, marker: str | None = None, age: float = 0.0) -> bool:
    newest = max(file.stat().st_mtime for file in (path, *path.rglob("*")))
    return is_complete(path, marker=marker, settled_seconds=60, now=newest + age)


def resumed(
    run_dir: Path, path: str, decision: str = "training-2", passed_over: tuple[str, ...] = ()
) -> tuple[list[str], str | None, str]:
    step = Resume(path=path, words=WORDS, decision=decision, passed_over=passed_over)
    done = subprocess.run(
        supervised(sys.executable, "-c", SHOW, "--lr", "1", resume=step),
        env={**os.environ, "TRAINFLOW_RUN_DIR": str(run_dir)},
        capture_output=True,
        text=True,
        check=True,
    )
    *said, shown = done.stdout.splitlines()
    argv, variable = json.loads(shown)
    return argv, variable, "\n".join(said)


def test_a_run_without_a_checkpoint_begins_anew(tmp_path: Path) -> None:
    assert resumed(tmp_path, "step-{step}.pt") == (["--lr", "1"], None, "")


def test_the_highest_step_is_the_newest_and_one_that_was_being_written_is_passed_over(tmp_path: Path) -> None:
    for step in (9, 10, 100):
        torch.save({"step": step}, tmp_path / f"step-{step}.pt")
    whole = (tmp_path / "step-100.pt").read_bytes()
    (tmp_path / "step-100.pt").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "step-x.pt").touch()
    chosen = str(tmp_path / "step-10.pt")
    argv, variable, said = resumed(tmp_path, "step-{step}.pt")
    assert (argv, variable) == (["--lr", "1", "--resume", chosen], chosen)
    assert said.splitlines() == [
        f"{tmp_path}/step-100.pt is not complete and is passed over: it ends too early.",
        f"Resuming from {chosen}.",
        '{"trainflow_resumed": {"checkpoint": 10}}',
    ]


def test_of_checkpoints_without_a_step_the_workflow_is_told_the_time(tmp_path: Path) -> None:
    torch.save({}, tmp_path / "last.pt")
    os.utime(tmp_path / "last.pt", (1_700_000_000, 1_700_000_000))
    assert resumed(tmp_path, "last.pt")[2].splitlines()[1:] == ['{"trainflow_resumed": {"checkpoint": 1700000000}}']


def test_every_node_takes_the_checkpoint_that_the_first_one_took_and_the_next_attempt_decides_anew(
    tmp_path: Path,
) -> None:
    torch.save({}, tmp_path / "step-1.pt")
    first = resumed(tmp_path, "step-{step}.pt")
    torch.save({}, tmp_path / "step-2.pt")
    assert resumed(tmp_path, "step-{step}.pt") == first
    assert resumed(tmp_path, "step-{step}.pt", decision="training-3")[1] == str(tmp_path / "step-2.pt")


def test_nodes_that_decide_at_once_agree(tmp_path: Path) -> None:
    for step in range(5):
        torch.save({}, tmp_path / f"step-{step}.pt")
    with ThreadPoolExecutor() as pool:
        variables = list(pool.map(lambda _: resumed(tmp_path, "step-{step}.pt")[1], range(4)))
    assert variables == [str(tmp_path / "step-4.pt")] * 4
    assert [path.name for path in (tmp_path / ".trainflow").iterdir()] == ["training-2.json"]


def test_a_pattern_finds_what_it_names_and_nothing_else(tmp_path: Path) -> None:
    for name in ("ckpt/epoch=1-step=20.ckpt", "ckpt/epoch=0-step=100.ckpt", "ckpt/last.ckpt", "epoch=1-step=3.ckpt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    found = find("ckpt/epoch=*-step={step}.ckpt", tmp_path)
    assert [(each.path.name, each.step) for each in found] == [
        ("epoch=0-step=100.ckpt", 100),
        ("epoch=1-step=20.ckpt", 20),
    ]


@pytest.mark.parametrize("node", [1, 2, 3])
def test_any_folders_of_a_pattern_are_none_of_the_copies_for_other_nodes(tmp_path: Path, node: int) -> None:
    """Decision 90: they are newer than what they are copies of, and are not published."""
    for place in ("workspace/out", f".trainflow/workspace/{node}/out", "old/.trainflow"):
        (tmp_path / place / "checkpoint-10").mkdir(parents=True)
    found = sorted(str(each.path.relative_to(tmp_path)) for each in find("**/checkpoint-{step}", tmp_path))
    assert found == ["old/.trainflow/checkpoint-10", "workspace/out/checkpoint-10"]


def test_brackets_and_question_marks_of_a_pattern_stand_for_themselves(tmp_path: Path) -> None:
    (tmp_path / "run[1]").mkdir()
    for name in ("run[1]/ckpt-3?.pt", "run[1]/ckpt-3x.pt"):
        (tmp_path / name).touch()
    assert [each.path.name for each in find("run[1]/ckpt-{step}?.pt", tmp_path)] == ["ckpt-3?.pt"]


def test_without_a_number_the_newest_file_is_the_newest(tmp_path: Path) -> None:
    for age, name in enumerate(("b.ckpt", "a.ckpt", "c.ckpt")):
        (tmp_path / name).touch()
        os.utime(tmp_path / name, (1000 - age, 1000 - age))
    assert [each.path.name for each in find("*.ckpt", tmp_path)] == ["b.ckpt", "a.ckpt", "c.ckpt"]


@pytest.mark.parametrize("name", ["weights.pt", "model.ckpt", "model.safetensors"])
def test_a_file_is_complete_when_its_last_byte_is_there(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    tensors = {"weight": torch.arange(1000.0), "bias": torch.ones(3)}
    save_file(tensors, path) if path.suffix == ".safetensors" else torch.save(tensors, path)
    assert complete(path)
    whole = path.read_bytes()
    for length in (0, 1, 7, 8, 9, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:length])
        assert not complete(path), length


def test_what_is_said_about_tensors_is_none(tmp_path: Path) -> None:
    save_file({"weight": torch.ones(3)}, path := tmp_path / "model.safetensors", metadata={"format": "pt"})
    assert complete(path)


@pytest.mark.parametrize(
    "header",
    [
        b"{",
        b"[]",
        b'{"w": 1}',
        b'{"w": {}}',
        b'{"w": {"data_offsets": [0]}}',
        b'{"w": {"data_offsets": [0, "4"]}}',
        b'{"w": {"data_offsets": [0, 5]}}',
    ],
    ids=["half", "list", "no tensor", "no offsets", "one offset", "no number", "more than there is"],
)
def test_a_header_that_does_not_tell_where_tensors_are_is_none(tmp_path: Path, header: bytes) -> None:
    (path := tmp_path / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + bytes(4))
    assert not complete(path, age=1000)


def test_a_header_longer_than_any_is_none(tmp_path: Path) -> None:
    """It is not even read: what was overwritten may give any length."""
    (path := tmp_path / "model.safetensors").write_bytes(struct.pack("<Q", file_formats.MAX_HEADER + 1) + b"{}")
    assert not complete(path)


def test_a_file_without_tensors_is_complete(tmp_path: Path) -> None:
    save_file({}, path := tmp_path / "model.safetensors")
    assert complete(path)
    path.write_bytes(path.read_bytes()[:-1])
    assert not complete(path)


def test_a_folder_is_complete_when_all_its_files_are(tmp_path: Path) -> None:
    folder = tmp_path / "checkpoint-5"
    folder.mkdir()
    save_file({"w": torch.ones(4)}, folder / "model.safetensors")
    (folder / "trainer_state.json").write_text('{"global_step": 5')
    assert not complete(folder)
    (folder / "trainer_state.json").write_text('{"global_step": 5}')
    assert complete(folder)


def test_a_distributed_checkpoint_is_complete_with_its_metadata(tmp_path: Path) -> None:
    from torch.distributed import checkpoint

    checkpoint.save({"w": torch.ones(4)}, checkpoint_id=str(tmp_path / "step-1"), no_dist=True)
    assert complete(tmp_path / "step-1")
    (tmp_path / "step-1" / ".metadata").unlink()
    assert not complete(tmp_path / "step-1", age=1000)
    for file in (tmp_path / "step-1").iterdir():
        file.unlink()
    (tmp_path / "step-1" / ".metadata").touch()
    assert not complete(tmp_path / "step-1", age=1000), "it is being written"


def test_a_marker_alone_decides_where_the_spec_names_one(tmp_path: Path) -> None:
    folder = tmp_path / "step-1"
    folder.mkdir()
    (folder / "weights.npz").touch()
    assert not complete(folder, marker="DONE", age=1000)
    (folder / "DONE").touch()
    assert complete(folder, marker="DONE")


def test_an_unknown_format_is_complete_once_nothing_has_changed_for_a_while(tmp_path: Path) -> None:
    path = tmp_path / "weights.npz"
    path.write_bytes(b"123")
    assert not complete(path, age=59)
    assert complete(path, age=60)


def test_a_checkpoint_that_is_removed_while_it_is_judged_is_not_complete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    judge = file_formats.is_whole

    def judge_what_is_gone(file: Path) -> bool | None:
        file.unlink()
        return judge(file)

    monkeypatch.setattr(file_formats, "is_whole", judge_what_is_gone)
    torch.save({}, path := tmp_path / "weights.pt")
    assert not complete(path)


def test_an_empty_folder_is_no_checkpoint(tmp_path: Path) -> None:
    (tmp_path / "step-1").mkdir()
    assert not complete(tmp_path / "step-1", age=1000)


@given(st.binary(max_size=200), st.sampled_from(["a.safetensors", "a.pt", "a.json", "a.npz"]))
@example(b"\x80\x02", "a.pt")
@example(b"\x89HDF\r\n\x1a\n" + bytes(80), "a.h5")
@example(b"\x93NUMPY\x01\x00\x02\x00{}", "a.npy")
@example(bytes(257) + b"ustar", "a")
@example(b"[" * 100_000, "a.json")
def test_any_bytes_are_judged_without_an_error(content: bytes, name: str) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / name).write_bytes(content)
        complete(Path(folder) / name)


def test_a_run_that_continues_others_begins_with_their_newest_checkpoint_and_goes_on_with_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    third, second, first = (tmp_path / name for name in ("third", "second", "first"))
    for folder in (third, second, first):
        folder.mkdir()
    monkeypatch.setenv("TRAINFLOW_RESUME_FROM", "second,first")
    for step in (1, 2):
        torch.save({}, first / f"step-{step}.pt")
    assert resumed(third, "step-{step}.pt", decision="training-1")[1] == str(first / "step-2.pt")
    torch.save({}, second / "step-3.pt")
    assert resumed(third, "step-{step}.pt", decision="training-2")[1] == str(second / "step-3.pt")
    torch.save({}, third / "step-1.pt")
    assert resumed(third, "step-{step}.pt", decision="training-3")[1] == str(third / "step-1.pt")


def test_a_run_does_not_begin_anew_when_what_it_continues_is_gone(tmp_path: Path) -> None:
    done = subprocess.run(
        supervised("true", resume=Resume(path="step-{step}.pt", decision="d")),
        env={**os.environ, "TRAINFLOW_RUN_DIR": str(tmp_path / "second"), "TRAINFLOW_RESUME_FROM": "first"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert f"there is no complete checkpoint in {tmp_path / 'first'}" in done.stderr


def test_a_checkpoint_that_could_not_be_opened_is_passed_over_until_it_is_written_again(tmp_path: Path) -> None:
    for step in (1, 2):
        torch.save({}, tmp_path / f"step-{step}.pt")
        os.utime(tmp_path / f"step-{step}.pt", (1000, 1000))
    assert resumed(tmp_path, "step-{step}.pt")[1] == str(tmp_path / "step-2.pt")
    _, chosen, said = resumed(tmp_path, "step-{step}.pt", "training-3", ("training-2",))
    assert chosen == str(tmp_path / "step-1.pt")
    assert said.splitlines()[0] == f"{tmp_path}/step-2.pt is passed over: an earlier attempt could not open it."
    assert (tmp_path / "step-2.pt").exists()
    torch.save({"again": True}, tmp_path / "step-2.pt")
    assert resumed(tmp_path, "step-{step}.pt", "training-4", ("training-2",))[1] == str(tmp_path / "step-2.pt")


def test_a_run_whose_only_checkpoint_cannot_be_opened_does_not_begin_anew(tmp_path: Path) -> None:
    torch.save({}, tmp_path / "step-1.pt")
    resumed(tmp_path, "step-{step}.pt")
    with pytest.raises(subprocess.CalledProcessError) as failed:
        resumed(tmp_path, "step-{step}.pt", "training-3", ("training-2",))
    assert failed.value.returncode == 2
    assert "There is no other complete checkpoint in " in failed.value.stderr


def test_the_workflow_is_given_the_checkpoint_and_the_one_before(tmp_path: Path) -> None:
    for step in (1, 2):
        torch.save({}, tmp_path / f"step-{step}.pt")
    done = subprocess.run(
        supervised("true", resume=Resume(path="step-{step}.pt", decision="d")),
        env={**os.environ, "TRAINFLOW_RUN_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    opening = {"path": f"{tmp_path}/step-2.pt", "before": f"{tmp_path}/step-1.pt"}
    assert json.loads(done.stderr) == {"trainflow_opening": opening}


def test_a_name_that_is_not_utf_8_is_printed_escaped(tmp_path: Path) -> None:
    (tmp_path / os.fsdecode(b"a\xe9-9.pt")).write_bytes(b"PK\x03\x04")
    (tmp_path / os.fsdecode(b"a\xe9-1.pt")).write_bytes(zipped())
    _, _, said = resumed(tmp_path, "*-{step}.pt")
    assert f"{tmp_path}/a\\xe9-9.pt is not complete and is passed over" in said
    assert f"Resuming from {tmp_path}/a\\xe9-1.pt." in said


def zipped() -> bytes:
    torch.save({}, buffer := io.BytesIO())
    return buffer.getvalue()


def test_of_a_link_the_program_is_given_the_path_behind_it(tmp_path: Path) -> None:
    torch.save({}, tmp_path / "step-1.pt")
    (tmp_path / "latest").symlink_to("step-1.pt")
    assert resumed(tmp_path, "latest")[1] == str(tmp_path / "step-1.pt")


def resumed_within(run_dir: Path, path: str, bound: ResumeBound) -> tuple[str | None, str]:
    """The checkpoint of the run `old` that the run `new` resumes from, and what was printed."""
    environment = {
        "TRAINFLOW_RUN_DIR": str(run_dir / "new"),
        "TRAINFLOW_RESUME_FROM": "old",
        "TRAINFLOW_RESUME_UNTIL": bounds_text({"old": bound}),
    }
    step = Resume(path=path, words=WORDS, decision="training-1")
    (run_dir / "new").mkdir(exist_ok=True)
    done = subprocess.run(
        supervised(sys.executable, "-c", SHOW, resume=step),
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    chosen = json.loads(done.stdout.splitlines()[-1])[1] if done.returncode == 0 else None
    return chosen, done.stdout + done.stderr


@pytest.mark.parametrize("path", ["ckpt/step_{step}.pt", "ckpt/*.pt"])
def test_checkpoints_behind_the_bound_of_an_earlier_run_are_passed_over_by_step_or_by_time(
    tmp_path: Path, path: str
) -> None:
    for step in (100, 200, 300):
        file = tmp_path / "old" / "ckpt" / f"step_{step}.pt"
        file.parent.mkdir(parents=True, exist_ok=True)
        torch.save({"step": step}, file)
        os.utime(file, (1000 + step, 1000 + step))
    chosen, said = resumed_within(tmp_path, path, ResumeBound(step=149, time=1150.0, reason="the loss was NaN"))
    assert chosen == str(tmp_path / "old" / "ckpt" / "step_100.pt")
    assert "step_300.pt is passed over: the loss was NaN." in said
    later, _ = resumed_within(tmp_path, path, ResumeBound(step=9, time=9.0, reason="x"))
    assert later == chosen, "the gang has decided"


def test_a_run_whose_earlier_checkpoints_are_all_behind_the_bound_does_not_begin_anew(tmp_path: Path) -> None:
    (tmp_path / "old" / "checkpoint-30").mkdir(parents=True)
    torch.save({}, tmp_path / "old" / "checkpoint-30" / "model.pt")
    chosen, said = resumed_within(tmp_path, "checkpoint-{step}", ResumeBound(step=20, reason="it is too new"))
    assert chosen is None
    assert "no complete checkpoint" in said
