"""A linked folder's content is restored, and not downloaded."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.unit.trainer.staging.object_server import ObjectServer
from trainer import stage
from trainer.runtime.environment import Environment
from trainer.runtime.errors import ConfigInvalid, DatasetInvalid, DatasetNotFound, StorageFailed
from trainer.staging import linked, marker

LFS = """#!/bin/sh
# Lustre's command, as far as it is needed: a file is released while a file `.released` lies beside it, and one poll
# after it was asked for its content is there.
echo "$*" >> "$LFS_LOG"
command=$1; shift
for path in "$@"; do
  case $command in
    hsm_restore) [ -e "$path.released" ] && mv "$path.released" "$path.coming"; true;;
    hsm_state)
      if [ -e "$path.lost" ]; then echo "$path: (0x00000019) released exists lost archived, archive_id:1"
      elif [ -e "$path.released" ]; then echo "$path: (0x0000000d) released exists archived, archive_id:1"
      elif [ -e "$path.coming" ]; then rm "$path.coming"
        echo "$path: (0x0000000d) released exists archived, archive_id:1"
      else echo "$path: (0x00000009) exists archived, archive_id:1"; fi;;
  esac
done
"""


@pytest.fixture
def folder(tmp_path: Path, server: ObjectServer, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Three files of a linked prefix; the content of two of them is in the bucket only."""
    command = tmp_path / "bin" / "lfs"
    command.parent.mkdir()
    command.write_text(LFS)
    command.chmod(0o755)
    monkeypatch.setenv("PATH", f"{command.parent}:/usr/bin:/bin")
    monkeypatch.setenv("LFS_LOG", str(tmp_path / "log"))
    monkeypatch.setattr(linked, "SECONDS_BETWEEN_POLLS", 0.0)
    folder = tmp_path / "fsx" / "corpus"
    folder.mkdir(parents=True)
    for name, content in {"a": b"1", "b": b"22", "c": b"333"}.items():
        server.objects[f"corpus/{name}"] = content
        (folder / name).write_bytes(content)
    for name in ("b", "c"):
        hsm(folder, name, "released")
    return folder


def hsm(folder: Path, name: str, state: str) -> None:
    (folder / f"{name}.{state}").touch()


def commands(folder: Path) -> list[str]:
    """What Lustre's command was asked for, with the names of the files."""
    return Path(os.environ["LFS_LOG"]).read_text().replace(f"{folder}/", "").splitlines()


def run_stage(folder: Path, *more: str) -> Mapping[str, Any]:
    given = ["--url", "s3://datasets/corpus/", "--linked_folder", str(folder), "--min_shards", "0"]
    return stage.main([*given, *more], Environment(data_dir=None, run_dir=None, result_file=None))


def test_what_is_released_is_restored_and_nothing_is_downloaded(
    folder: Path, server: ObjectServer, capsys: pytest.CaptureFixture[str]
) -> None:
    said = run_stage(folder)
    assert [command for command in commands(folder) if "restore" in command] == ["hsm_restore b c"]
    assert server.reads == []
    assert (said["files"], said["bytes"], said["skipped"]) == (3, 6, False)
    assert json.loads((folder.parent / ".corpus.ready").read_text())["etag"] == said["etag"]
    assert {path.name for path in folder.iterdir()} == {"a", "b", "c"}
    assert "STAGE 6/6 bytes 3 files" in capsys.readouterr().out
    assert run_stage(folder)["skipped"]


def test_without_the_command_every_file_is_read_which_restores_it_too(
    folder: Path, server: ObjectServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    opened, open_ = [], Path.open

    def opening(path: Path, *arguments: Any, **named: Any) -> Any:
        opened.append(path)
        return open_(path, *arguments, **named)

    monkeypatch.setattr(Path, "open", opening)
    run_stage(folder)
    assert {folder / name for name in "abc"} <= set(opened)
    assert server.reads == []


def test_a_read_only_folder_stays_without_a_marker(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(marker, "write", refuse)
    assert run_stage(folder)["files"] == 3
    assert f"{folder.parent} may not be written to, so the next run checks every file again." in capsys.readouterr().out


def test_an_object_that_has_not_appeared_is_named(folder: Path, server: ObjectServer) -> None:
    server.objects["corpus/new"] = b"1"
    with pytest.raises(DatasetNotFound) as refused:
        run_stage(folder)
    assert str(refused.value) == (
        f"The object s3://datasets/corpus/new has not appeared as {folder / 'new'}; check that the folder is linked "
        "with the prefix, and import its names (a data repository task)."
    )


def test_a_file_of_another_size_than_its_object_is_named(folder: Path, server: ObjectServer) -> None:
    server.objects["corpus/a"] = b"longer"
    with pytest.raises(DatasetInvalid) as refused:
        run_stage(folder)
    assert str(refused.value) == (
        f"The file {folder / 'a'} has 1 bytes and s3://datasets/corpus/a has 6; import the object's new version, or "
        "export the file."
    )


def test_content_that_lustre_lost_is_named(folder: Path) -> None:
    hsm(folder, "a", "lost")
    with pytest.raises(StorageFailed) as failed:
        run_stage(folder)
    assert str(failed.value) == f"Lustre lost the content of {folder / 'a'}; upload the object again."


def test_a_command_that_fails_is_named_with_the_end_of_what_it_said(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "bin" / "lfs").write_text("#!/bin/sh\nprintf 'x%.0s' $(seq 300) >&2; echo not Lustre >&2; exit 3\n")
    with pytest.raises(StorageFailed) as failed:
        run_stage(folder)
    assert str(failed.value) == (
        f"`lfs hsm_state` ended with 3 ({'x' * 290}not Lustre); check that the folder is on Lustre and linked with the "
        "bucket."
    )


def test_a_file_that_cannot_be_read_is_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(StorageFailed) as failed:
        linked.restore([folder], restored=lambda _path: None)
    assert str(failed.value) == (
        f"{folder} cannot be read ([Errno 21] Is a directory: '{folder}'); check that the folder is linked with the "
        "bucket."
    )


def test_each_file_is_reported_once_and_what_stays_away_is_requested_again_in_small_commands(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A restore that failed leaves no message, so only a new request makes the file come."""
    monkeypatch.setattr(linked, "SECONDS_BETWEEN_POLLS", 5.0)
    monkeypatch.setattr(linked, "POLLS_BETWEEN_REQUESTS", 2)
    monkeypatch.setattr(linked, "BATCH", 2)
    paths, restored, pauses = [folder / name for name in "abc"], list[Path](), list[float]()

    def sleep(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 1:  # the first restore fails
            (folder / "c.coming").rename(folder / "c.released")

    linked.restore(paths, restored=restored.append, sleep=sleep)
    assert restored == [folder / name for name in "abc"]
    assert pauses == [5.0] * 4
    assert commands(folder) == [
        *("hsm_state a b", "hsm_state c", "hsm_restore b c"),
        "hsm_state b c",
        *("hsm_state b c", "hsm_restore c"),
        "hsm_state c",
        "hsm_state c",
    ]


def test_a_file_that_is_not_as_the_manifest_says_is_named(folder: Path, server: ObjectServer) -> None:
    server.objects["SUMS"] = b"".join(b"0" * 64 + b"  " + name + b"\n" for name in (b"a", b"b", b"c"))
    with pytest.raises(DatasetInvalid, match="'a' has SHA-256"):
        run_stage(folder, "--manifest_url", "s3://datasets/SUMS")


def test_only_a_prefix_can_be_linked(folder: Path) -> None:
    with pytest.raises(ConfigInvalid, match="--linked_folder goes with a prefix"):
        run_stage(folder, "--url", "s3://datasets/corpus.tar")
