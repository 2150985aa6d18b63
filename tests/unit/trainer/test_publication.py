"""Publishing of files with hostile names, kinds and sizes, and of many."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.trainer.conftest import BUCKET
from trainer import publish
from trainer.publication import uploading
from trainer.publication.names import MAX_KEY_BYTES, problem_with
from trainer.runtime.environment import Environment
from trainer.runtime.errors import StorageFailed
from trainflow.protocol.publication import SKIPPED, parse_unpublished
from trainflow.protocol.result import MAX_BYTES, success, to_bytes

PREFIX = "runs/demo-1/"


def run_publish(run_dir: Path, *options: str) -> Mapping[str, Any]:
    place = Environment(data_dir=None, run_dir=run_dir, result_file=None)
    return publish.main(["--url", f"s3://{BUCKET}/{PREFIX}", "--checkpoints", "", *options], place)


def names(s3: Any) -> list[str]:
    pages = s3.get_paginator("list_objects_v2").paginate(Bucket=BUCKET)
    return sorted(found["Key"].removeprefix(PREFIX) for page in pages for found in page.get("Contents", ()))


def not_utf8(folder: Path) -> None:
    (Path(os.fsdecode(os.fsencode(folder) + b"/latin\xe9.txt"))).write_bytes(b"x")


def not_utf8_folder(folder: Path) -> None:
    place = Path(os.fsdecode(os.fsencode(folder) + b"/caf\xe9"))
    place.mkdir()
    (place / "model.pt").write_bytes(b"x")


def deep(folder: Path) -> None:
    for _ in range(6):
        folder /= "d" * 200
    folder.mkdir(parents=True)
    (folder / "model.pt").write_bytes(b"x")


def sparse(folder: Path) -> None:
    with (folder / "sparse.bin").open("wb") as file:
        file.truncate(5 * 10**12)


def sock(folder: Path) -> None:
    here = Path.cwd()
    os.chdir(folder)  # the path of a socket has at most 108 bytes
    try:
        socket.socket(socket.AF_UNIX).bind("socket")
    finally:
        os.chdir(here)


def outside(folder: Path) -> None:
    (folder / "passwords").symlink_to("/etc/passwd")


HOSTILE: dict[str, tuple[Callable[[Path], object], str, str]] = {
    "not UTF-8": (not_utf8, r"latin\xe9.txt", "its name is not UTF-8"),
    "folder not UTF-8": (not_utf8_folder, r"caf\xe9/model.pt", "its name is not UTF-8"),
    "newline": (lambda folder: (folder / "a\nb").write_bytes(b"x"), r"a\nb", "its name has control characters"),
    "too long": (deep, "…" + ("/" + "d" * 200 + "/model.pt")[-99:], "its name is longer than S3's 1024 bytes"),
    "pipe": (lambda folder: os.mkfifo(folder / "pipe"), "pipe", "it is not a regular file"),
    "socket": (sock, "socket", "it is not a regular file"),
    "dangling link": (lambda folder: (folder / "link").symlink_to("gone"), "link", "it is a link to nothing"),
    "looping link": (lambda folder: (folder / "loop").symlink_to("loop"), "loop", "it is a link to nothing"),
    "link outside": (outside, "passwords", "it is a link to a place outside of the run's folder"),
    "sparse": (sparse, "sparse.bin", "it is sparse: nearly all of it was never written"),
    "our own name": (
        lambda folder: (folder / "run.json").write_bytes(b"{}"),
        "run.json",
        "the workflow's own object has this name",
    ),
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_hostile_file_is_skipped_and_named_and_holds_up_no_other(s3: Any, tmp_path: Path, kind: str) -> None:
    make, shown, reason = HOSTILE[kind]
    (tmp_path / "aaa.txt").write_bytes(b"before")
    make(tmp_path)
    (tmp_path / "zzz.txt").write_bytes(b"behind")
    said = run_publish(tmp_path)
    assert names(s3) == ["aaa.txt", "zzz.txt"]
    skipped = parse_unpublished(said, SKIPPED)
    assert skipped is not None and skipped.num_files == 1
    assert [(file.name, file.reason) for file in skipped.files] == [(shown, reason)]


def test_many_hostile_files_fit_the_result(s3: Any, tmp_path: Path) -> None:
    for number in range(20):
        (tmp_path / f"{'ü' * 80}\n{number}").write_bytes(b"x" * number)
    said = run_publish(tmp_path)
    skipped = parse_unpublished(said, SKIPPED)
    assert skipped is not None and (skipped.num_files, skipped.num_bytes) == (20, sum(range(20)))
    assert len(to_bytes(success(said))) < MAX_BYTES


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_files_and_folders_that_cannot_be_read_are_skipped(s3: Any, tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(b"x")
    (tmp_path / "secret").chmod(0)
    (tmp_path / "zzz.txt").write_bytes(b"behind")
    assert run_publish(tmp_path)[SKIPPED]["num_files"] == 1
    assert names(s3) == ["zzz.txt"]


@pytest.mark.parametrize("error", [PermissionError(13, "Permission denied"), FileNotFoundError(2, "No such file")])
def test_a_file_that_cannot_be_opened_is_skipped(
    s3: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: OSError
) -> None:
    """Mode 000, which root may read, and a file that vanishes after it was found."""
    for name in ("aaa", "mmm", "zzz"):
        (tmp_path / name).write_bytes(b"x")
    opened = uploading._opened

    def refuse(path: str) -> Any:
        if path.endswith("mmm"):
            raise error
        return opened(path)

    monkeypatch.setattr(uploading, "_opened", refuse)
    skipped = parse_unpublished(run_publish(tmp_path), SKIPPED)
    assert skipped is not None
    assert [(file.name, file.reason) for file in skipped.files] == [("mmm", f"it cannot be read ({error.strerror})")]
    assert names(s3) == ["aaa", "zzz"]


def test_a_file_that_grows_meanwhile_is_published_as_one_of_its_states(s3: Any, tmp_path: Path) -> None:
    small, large, stop = tmp_path / "small.log", tmp_path / "large.log", threading.Event()
    large.write_bytes(b"x" * (uploading.SMALL_BYTES * 3))
    small.write_bytes(b"x")

    def grow() -> None:
        while not stop.is_set():
            for path in (small, large):
                with path.open("ab") as file:
                    file.write(b"x" * 1000)

    writer = threading.Thread(target=grow)
    writer.start()
    try:
        said = run_publish(tmp_path)
    finally:
        stop.set()
        writer.join()
    assert (said["objects"], names(s3)) == (2, ["large.log", "small.log"])


def test_names_with_spaces_umlauts_and_emoji_are_published(s3: Any, tmp_path: Path) -> None:
    hard = ["-rf", " leading", "trailing ", "*?#%&+=", "back\\slash", "größe/mödel ☃ 😀.pt", "a'b\"c", "s" * 200]
    for name in hard:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"x")
    assert SKIPPED not in run_publish(tmp_path)
    assert names(s3) == sorted(hard)


def test_a_link_to_a_file_is_published_and_one_to_a_folder_is_not_followed(s3: Any, tmp_path: Path) -> None:
    (tmp_path / "step-2").mkdir()
    (tmp_path / "step-2" / "w.pt").write_bytes(b"two")
    (tmp_path / "latest").symlink_to("step-2")
    (tmp_path / "best.pt").symlink_to("step-2/w.pt")
    (tmp_path / "step-2" / "up").symlink_to("..")
    assert SKIPPED not in run_publish(tmp_path)
    assert names(s3) == ["best.pt", "step-2/w.pt"]
    assert s3.get_object(Bucket=BUCKET, Key=f"{PREFIX}best.pt")["Body"].read() == b"two"


def test_a_publication_that_was_killed_continues_and_sends_nothing_twice(s3: Any, tmp_path: Path) -> None:
    for number in range(40):
        (tmp_path / f"{number:02}").write_bytes(b"x" * number)
    (tmp_path / "large").write_bytes(b"x" * (uploading.SMALL_BYTES + 1))
    (tmp_path / "half").mkdir()
    run_publish(tmp_path)
    for number in range(0, 40, 2):
        s3.delete_object(Bucket=BUCKET, Key=f"{PREFIX}{number:02}")
    again = run_publish(tmp_path)
    assert (again["objects"], again["uploaded"]) == (41, 20)
    assert run_publish(tmp_path)["uploaded"] == 0


def test_the_newest_checkpoint_is_published_before_all_other_files(
    s3: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for step in (1, 2):
        (tmp_path / f"step-{step}").mkdir()
        (tmp_path / f"step-{step}" / "model.json").write_text("{}")
    (tmp_path / "aaa.txt").write_bytes(b"x")
    sent: list[str] = []
    send = uploading.Uploads._send

    def watch(self: Any, file: Any, *rest: Any) -> None:
        sent.append(file.name)
        send(self, file, *rest)

    monkeypatch.setattr(uploading.Uploads, "_send", watch)
    run_publish(tmp_path, "--checkpoints", "step-{step}")
    assert sent == ["step-2/model.json", "aaa.txt"]


def test_a_bucket_that_refuses_everything_ends_the_publication(s3: Any, tmp_path: Path) -> None:
    for number in range(30):
        (tmp_path / f"{number}").write_bytes(b"x")
    place = Environment(data_dir=None, run_dir=tmp_path, result_file=None)
    with pytest.raises(StorageFailed, match="no-such-bucket"):
        publish.main(["--url", "s3://no-such-bucket/x/"], place)


def test_an_object_that_s3_refuses_is_skipped(s3: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("aaa", "mmm", "zzz"):
        (tmp_path / name).write_bytes(b"x")
    send = uploading.Uploads._send

    def refuse(self: Any, file: Any, *rest: Any) -> None:
        if file.name == "mmm":
            raise ClientError({"Error": {"Code": "KeyTooLongError", "Message": "too long"}}, "PutObject")
        send(self, file, *rest)

    monkeypatch.setattr(uploading.Uploads, "_send", refuse)
    assert run_publish(tmp_path)[SKIPPED]["num_files"] == 1
    assert names(s3) == ["aaa", "zzz"]


@given(st.text(st.characters(codec=None), max_size=40))
def test_every_name_that_is_not_refused_is_a_key(name: str) -> None:
    if problem_with(name, prefix=PREFIX) is None:
        key = f"{PREFIX}{name}".encode()
        assert len(key) <= MAX_KEY_BYTES
        assert not any(part in (b"", b".", b"..") for part in key.split(b"/"))
        assert name.isprintable() or all(ord(each) >= 0x20 for each in name)


def test_a_key_of_exactly_the_longest_length_is_published() -> None:
    name = "x" * (MAX_KEY_BYTES - len(PREFIX))
    assert problem_with(name, prefix=PREFIX) is None
    assert problem_with(f"{name}x", prefix=PREFIX) is not None
