"""Staging against a real S3 protocol on loopback."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.unit.trainer.conftest import BUCKET, dataset_archive, make_archive, make_rows
from trainer import source, stage
from trainer.environment import Environment
from trainer.errors import ConfigInvalid, DatasetInvalid, DatasetNotFound, DestinationNotEmpty, TrainerError
from trainer.s3 import Location
from trainer.shard_file import as_bytes
from trainer.shards import open_dataset

URL = f"s3://{BUCKET}/corpus.tar"


@pytest.fixture
def destination(tmp_path: Path) -> Path:
    return tmp_path / "data" / "demo"


def run_stage(destination: Path, *more: str, url: str = URL) -> Mapping[str, Any]:
    pod = Environment(data_dir=destination, run_dir=None, result_file=None)
    return stage.main(["--url", url, *more], pod)


def upload(s3: Any, content: bytes, key: str = "corpus.tar") -> str:
    return str(s3.put_object(Bucket=BUCKET, Key=key, Body=content)["ETag"]).strip('"')


def visible(folder: Path) -> list[str]:
    """What is in the folder but for the lock."""
    return sorted(path.name for path in folder.iterdir() if not path.name.endswith(".lock"))


@pytest.mark.parametrize("mode", ["w", "w:gz"])
def test_a_data_set_is_staged_checked_and_marked(s3: Any, destination: Path, mode: str) -> None:
    etag = upload(s3, dataset_archive(num_shards=2, num_samples=5, mode=mode))
    said = run_stage(destination)
    assert {key: said[key] for key in ("num_shards", "num_samples", "files", "skipped", "etag")} == {
        "num_shards": 2,
        "num_samples": 10,
        "files": 3,
        "skipped": False,
        "etag": etag,
    }
    assert open_dataset(destination).num_samples == 10
    marker = json.loads((destination / "_READY").read_text())
    assert marker == {key: value for key, value in said.items() if key not in ("skipped", "seconds")} | {"url": URL}
    assert visible(destination.parent) == ["demo"]


def test_the_same_archive_is_skipped_and_another_replaces_it(s3: Any, destination: Path) -> None:
    upload(s3, dataset_archive(num_shards=2))
    first = run_stage(destination)
    again = run_stage(destination)
    assert (again["skipped"], again["num_samples"], again["etag"]) == (True, first["num_samples"], first["etag"])
    upload(s3, dataset_archive(num_shards=3))
    replaced = run_stage(destination)
    assert (replaced["skipped"], replaced["num_shards"]) == (False, 3)
    assert len(open_dataset(destination).shards) == 3
    assert visible(destination.parent) == ["demo"]


def test_a_data_set_that_lost_a_shard_is_staged_again(s3: Any, destination: Path) -> None:
    upload(s3, dataset_archive(num_shards=2))
    run_stage(destination)
    next(destination.rglob("*.hdf5")).unlink()
    assert run_stage(destination)["skipped"] is False


def test_the_archive_is_never_written_to_disk(s3: Any, destination: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    upload(s3, dataset_archive())
    seen: list[set[str]] = []
    unpack = stage.archive.unpack

    def watching(*args: Any, **kwargs: Any) -> Any:
        unpacked = unpack(*args, **kwargs)
        seen.append({path.suffix for path in destination.parent.rglob("*") if path.is_file()})
        return unpacked

    monkeypatch.setattr(stage.archive, "unpack", watching)
    run_stage(destination)
    assert seen == [{".hdf5", ".txt", ".lock"}]


def shard_without(key: str) -> bytes:
    rows = make_rows(4)
    del rows[key]
    return as_bytes(rows)


BAD_ARCHIVES = {
    "truncated": (dataset_archive()[:-20480], "truncated"),
    "no archive": (b"this is no archive" * 100, "no tar archive"),
    "empty": (b"", "truncated or no tar archive"),
    "leaves the folder": (make_archive({"../evil": b"1"}), "'../evil'"),
    "absolute": (make_archive({"/tmp/evil": b"1"}), "'/tmp/evil'"),
    "no shards": (make_archive({"corpus/readme.txt": b"1"}), "no file named"),
    "missing key": (make_archive({"c/x_training_0.hdf5": shard_without("segment_ids")}), "'segment_ids'"),
    "no shard at all": (make_archive({"c/x_training_0.hdf5": b"text"}), "x_training_0.hdf5"),
}


@pytest.mark.parametrize(("content", "words"), BAD_ARCHIVES.values(), ids=BAD_ARCHIVES)
def test_a_bad_archive_leaves_the_target_as_it_was(s3: Any, destination: Path, content: bytes, words: str) -> None:
    upload(s3, dataset_archive())
    run_stage(destination)
    before = (destination / "_READY").read_text()
    upload(s3, content)
    with pytest.raises(DatasetInvalid) as caught:
        run_stage(destination)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)
    assert (destination / "_READY").read_text() == before
    assert open_dataset(destination).num_samples == 10
    assert visible(destination.parent) == ["demo"]


def test_fewer_shards_than_asked_for_are_refused_with_both_numbers(s3: Any, destination: Path) -> None:
    upload(s3, dataset_archive(num_shards=2))
    with pytest.raises(DatasetInvalid, match="holds 2 shards and --min_shards is 4"):
        run_stage(destination, "--min_shards", "4")
    assert not destination.exists()
    run_stage(destination)
    with pytest.raises(DatasetInvalid, match="holds 2 shards and --min_shards is 4"):
        run_stage(destination, "--min_shards", "4")


@pytest.mark.parametrize(
    ("url", "error", "words"),
    [
        (f"s3://{BUCKET}/missing.tar", DatasetNotFound, "has no object 'missing.tar'"),
        ("s3://no-such-bucket/corpus.tar", DatasetNotFound, "no bucket 'no-such-bucket'"),
        ("https://example.com/corpus.tar", ConfigInvalid, "--url is 'https://example.com/corpus.tar'"),
        (f"s3://{BUCKET}", ConfigInvalid, "s3://bucket/key"),
    ],
)
def test_a_url_that_leads_nowhere_is_named(
    s3: Any, destination: Path, url: str, error: type[TrainerError], words: str
) -> None:
    with pytest.raises(error, match=words):
        run_stage(destination, url=url)
    assert not destination.exists()


def test_somebody_elses_files_are_never_replaced(s3: Any, destination: Path) -> None:
    upload(s3, dataset_archive())
    destination.mkdir(parents=True)
    (destination / "thesis.txt").write_text("years of work")
    with pytest.raises(DestinationNotEmpty, match="nothing is replaced"):
        run_stage(destination)
    assert visible(destination) == ["thesis.txt"]


def test_an_empty_folder_may_be_taken(s3: Any, destination: Path) -> None:
    upload(s3, dataset_archive())
    destination.mkdir(parents=True)
    assert run_stage(destination)["num_shards"] == 2


def test_what_a_killed_stager_left_is_cleared_away(s3: Any, destination: Path) -> None:
    upload(s3, dataset_archive())
    (destination.parent / ".demo.staging-abc" / "corpus").mkdir(parents=True)
    run_stage(destination)
    assert visible(destination.parent) == ["demo"]


def test_without_a_destination_the_variable_is_named(s3: Any, outside_a_pod: Environment) -> None:
    with pytest.raises(ConfigInvalid, match="TRAINFLOW_DATA_DIR"):
        stage.main(["--url", URL], outside_a_pod)


class BreakingBody:
    """A connection that breaks after some bytes."""

    def __init__(self, body: Any, breaks_after: int) -> None:
        self._body = body
        self._left = breaks_after

    def read(self, size: int | None = None) -> bytes:
        if self._left <= 0:
            raise ConnectionResetError("reset by peer")
        data: bytes = self._body.read(min(size or self._left, self._left))
        self._left -= len(data)
        return data

    def close(self) -> None:
        self._body.close()


def test_a_broken_connection_is_taken_up_where_it_broke(s3: Any) -> None:
    content = dataset_archive(num_shards=3)
    etag = upload(s3, content)
    body = BreakingBody(s3.get_object(Bucket=BUCKET, Key="corpus.tar")["Body"], breaks_after=7000)
    stream = source.Source(s3, Location(BUCKET, "corpus.tar"), body, etag=etag, length=len(content))  # type: ignore[arg-type]
    assert b"".join(iter(lambda: stream.read(1000), b"")) == content
    stream.require_all_read()


def test_an_archive_replaced_while_it_is_read_is_not_mixed_up(s3: Any) -> None:
    etag = upload(s3, dataset_archive(num_shards=3))
    body = BreakingBody(s3.get_object(Bucket=BUCKET, Key="corpus.tar")["Body"], breaks_after=1000)
    stream = source.Source(s3, Location(BUCKET, "corpus.tar"), body, etag=etag, length=10)  # type: ignore[arg-type]
    upload(s3, dataset_archive(num_shards=4))
    with pytest.raises(DatasetNotFound, match="was replaced while"):
        while stream.read(1000):
            pass


def test_sigterm_in_the_middle_leaves_nothing_behind(s3: Any, destination: Path, tmp_path: Path) -> None:
    upload(s3, dataset_archive())
    result_file = tmp_path / "result.json"
    program = (
        "import os, signal, sys\n"
        "from trainer import program, stage\n"
        "stage.shards.open_dataset = lambda folder: os.kill(os.getpid(), signal.SIGTERM)\n"  # unpacked, not in place
        "sys.exit(program.run(stage.main, sys.argv[1:], os.environ))\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program, "--url", URL, "--destination", str(destination)],
        env={**os.environ, "TRAINFLOW_RESULT_FILE": str(result_file)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert ended.returncode == 128 + signal.SIGTERM
    assert json.loads(result_file.read_text())["error"] == "Terminated"
    assert visible(destination.parent) == []
    assert "Traceback" not in ended.stderr
