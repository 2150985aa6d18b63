from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.unit.trainer.conftest import BUCKET
from trainer import publish
from trainer.checkpoints import checkpoint_files
from trainer.runtime.environment import Environment
from trainer.runtime.errors import CheckpointNotFound, ConfigInvalid, StorageFailed

RECORD = {"samples_seen": 6, "first_loss": 9.0, "last_loss": 8.0, "model": {"hidden_size": 8}, "settings": {}}


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    for step in (10, 20):
        checkpoint_files.write(tmp_path, lambda file: file.write(b"weights") and None, {"step": step, **RECORD})
    (tmp_path / "tensorboard").mkdir()
    (tmp_path / "tensorboard" / "events.out.1").write_bytes(b"events")
    return tmp_path


def run_publish(run_dir: Path, url: str = f"s3://{BUCKET}/runs/demo-1/") -> Mapping[str, Any]:
    return publish.main(["--url", url], Environment(data_dir=None, run_dir=run_dir, result_file=None))


def keys(s3: Any) -> list[str]:
    return sorted(found["Key"] for found in s3.list_objects_v2(Bucket=BUCKET).get("Contents", []))


def test_the_newest_checkpoint_its_record_and_the_events_are_published(s3: Any, run_dir: Path) -> None:
    said = run_publish(run_dir)
    assert said["checkpoint"] == f"s3://{BUCKET}/runs/demo-1/checkpoints/step-00000020.pt"
    newest = (run_dir / "checkpoints" / "step-00000020.pt").stat()
    assert said["checkpoint_bytes"] == newest.st_size
    assert said["checkpoint_saved_at"] == pytest.approx(newest.st_mtime, abs=0.001)
    assert keys(s3) == [
        "runs/demo-1/checkpoints/step-00000020.json",
        "runs/demo-1/checkpoints/step-00000020.pt",
        "runs/demo-1/tensorboard/events.out.1",
    ]
    assert (said["objects"], said["uploaded"]) == (3, 3)
    assert said["bytes"] == sum(found["Size"] for found in s3.list_objects_v2(Bucket=BUCKET)["Contents"])


def test_publishing_again_sends_only_what_changed(s3: Any, run_dir: Path) -> None:
    run_publish(run_dir)
    assert run_publish(run_dir)["uploaded"] == 0
    (run_dir / "tensorboard" / "events.out.1").write_bytes(b"EVENTS")  # same size, other content
    again = run_publish(run_dir)
    assert (again["objects"], again["uploaded"]) == (3, 1)


def test_a_damaged_newest_checkpoint_is_skipped(s3: Any, run_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (run_dir / "checkpoints" / "step-00000020.pt").write_bytes(b"WEIGHTS")
    assert str(run_publish(run_dir)["checkpoint"]).endswith("step-00000010.pt")
    assert "step-00000020.pt is skipped: its checksum" in capsys.readouterr().out


def test_a_run_whose_checkpoints_are_all_damaged_is_named(s3: Any, run_dir: Path) -> None:
    for checkpoint in (run_dir / "checkpoints").glob("*.pt"):
        checkpoint.write_bytes(b"WEIGHTS")
    with pytest.raises(CheckpointNotFound, match="holds no verified checkpoint"):
        run_publish(run_dir)


def test_a_program_that_keeps_no_checkpoints_publishes_what_it_left(s3: Any, tmp_path: Path) -> None:
    assert run_publish(tmp_path) == {"objects": 0, "bytes": 0, "uploaded": 0, "checkpoint": None}
    (tmp_path / "model.pt").write_bytes(b"weights")
    said = run_publish(tmp_path)
    assert (said["checkpoint"], keys(s3)) == (None, ["runs/demo-1/model.pt"])


def test_a_missing_bucket_is_named(s3: Any, run_dir: Path) -> None:
    with pytest.raises(StorageFailed, match=r"no-such-bucket/x/.*/step-00000020\.pt"):
        run_publish(run_dir, "s3://no-such-bucket/x/")


def test_the_prefix_may_lack_its_slash_or_be_the_bucket_itself(s3: Any, run_dir: Path) -> None:
    assert run_publish(run_dir, f"s3://{BUCKET}/x")["checkpoint"] == f"s3://{BUCKET}/x/checkpoints/step-00000020.pt"
    assert run_publish(run_dir, f"s3://{BUCKET}")["checkpoint"] == f"s3://{BUCKET}/checkpoints/step-00000020.pt"


def test_a_source_or_url_that_is_none_is_named(outside_a_pod: Environment) -> None:
    with pytest.raises(ConfigInvalid, match="TRAINFLOW_RUN_DIR"):
        publish.main(["--url", "s3://b/x/"], outside_a_pod)
    with pytest.raises(ConfigInvalid, match="--url is 'x'"):
        publish.main(["--source", "x", "--url", "x"], outside_a_pod)


def own_checkpoints(run_dir: Path) -> None:
    for step in (1, 2, 3):
        folder = run_dir / f"checkpoint-{step}"
        folder.mkdir()
        (folder / "trainer_state.json").write_text("{}" if step < 3 else "{")
    (run_dir / ".trainflow").mkdir()
    (run_dir / ".trainflow" / "training-1.json").write_text("null")
    (run_dir / "notes.txt").write_text("n")


@pytest.mark.parametrize(
    ("options", "checkpoint", "published"),
    [
        (
            ["--checkpoints", "checkpoint-{step}"],
            f"s3://{BUCKET}/runs/demo-1/checkpoint-2",
            ["runs/demo-1/checkpoint-2/trainer_state.json", "runs/demo-1/notes.txt"],
        ),
        (
            ["--checkpoints", ""],
            None,
            [*(f"runs/demo-1/checkpoint-{step}/trainer_state.json" for step in (1, 2, 3)), "runs/demo-1/notes.txt"],
        ),
    ],
)
def test_of_another_programs_checkpoints_the_newest_complete_one_is_published(
    s3: Any, tmp_path: Path, options: list[str], checkpoint: str | None, published: list[str]
) -> None:
    own_checkpoints(tmp_path)
    place = Environment(data_dir=None, run_dir=tmp_path, result_file=None)
    said = publish.main(["--url", f"s3://{BUCKET}/runs/demo-1/", *options], place)
    assert said["checkpoint"] == checkpoint
    assert ("checkpoint_bytes" in said) == (checkpoint is not None)
    assert keys(s3) == published


def test_where_no_checkpoint_is_known_to_be_complete_all_are_published(
    s3: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One may have a format that is judged wrongly, and the model would be lost."""
    for step in (1, 2):
        (tmp_path / f"step-{step}.pt").write_bytes(b"PK half")
    place = Environment(data_dir=None, run_dir=tmp_path, result_file=None)
    said = publish.main(["--url", f"s3://{BUCKET}/runs/demo-1/", "--checkpoints", "step-{step}.pt"], place)
    assert said["checkpoint"] is None
    assert keys(s3) == ["runs/demo-1/step-1.pt", "runs/demo-1/step-2.pt"]
    assert f"{tmp_path}/step-2.pt is not complete: it ends too early.\n" in capsys.readouterr().out


def test_a_folder_checkpoints_of_another_program_needs_none_of_our_records(s3: Any, tmp_path: Path) -> None:
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "checkpoints" / "last.ckpt").write_bytes(b"x")
    place = Environment(data_dir=None, run_dir=tmp_path, result_file=None)
    publish.main(["--url", f"s3://{BUCKET}/runs/demo-1/", "--checkpoints", ""], place)
    assert keys(s3) == ["runs/demo-1/checkpoints/last.ckpt"]
