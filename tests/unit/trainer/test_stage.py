"""Staging against a real S3 protocol on loopback."""

from __future__ import annotations

import bz2
import errno
import gzip
import hashlib
import json
import lzma
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import zstandard

from tests.fakes.runs import spec_with
from tests.unit.trainer.conftest import BUCKET, dataset_archive, make_archive, make_rows
from trainer import stage
from trainer.data.shard_file import as_bytes
from trainer.data.shards import open_dataset
from trainer.runtime.environment import Environment
from trainer.runtime.errors import (
    ConfigInvalid,
    DatasetInvalid,
    DatasetNotFound,
    DestinationNotEmpty,
    StorageFailed,
    TrainerError,
)
from trainer.staging import staging_folder
from trainer.staging.transfer import Transfer
from trainflow.protocol import archives
from trainflow.spec.run_spec import parse_run_spec

URL = f"s3://{BUCKET}/corpus.tar"


@pytest.fixture
def destination(tmp_path: Path) -> Path:
    return tmp_path / "data" / "demo"


def because(error: TrainerError, cause: Exception) -> TrainerError:
    error.__cause__ = cause
    return error


def run_stage(destination: Path, *more: str, url: str = URL) -> Mapping[str, Any]:
    pod = Environment(data_dir=destination, run_dir=None, result_file=None)
    return stage.main(["--url", url, *more], pod)


def upload(s3: Any, content: bytes, key: str = "corpus.tar") -> str:
    return str(s3.put_object(Bucket=BUCKET, Key=key, Body=content)["ETag"]).strip('"')


def visible(folder: Path) -> list[str]:
    """What is in the folder but for locks and markers."""
    return sorted(path.name for path in folder.iterdir() if not path.name.endswith((".lock", ".ready")))


def digest_of(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def marked(destination: Path) -> dict[str, Any]:
    """What the marker says."""
    said: dict[str, Any] = json.loads((destination.parent / f".{destination.name}.ready").read_text())
    return said


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
    of_the_data = {key: value for key, value in said.items() if key not in ("skipped", "seconds")}
    shards = {str(path.relative_to(destination)): digest_of(path) for path in sorted(destination.rglob("*.hdf5"))}
    assert marked(destination) == {
        **of_the_data,
        "url": URL,
        "inode": destination.stat().st_ino,
        "shard_sha256": shards,
    }
    assert said["verified"] == "CRC32, which S3 keeps"
    names = {path.name for path in destination.rglob("*") if path.is_file()}
    assert names == {"vocab.txt", "demo_training_0.hdf5", "demo_training_1.hdf5"}
    assert visible(destination.parent) == ["demo"]


@pytest.mark.parametrize("key", ["corpus#1.tar", "a?b.tar", "100%.tar", "/twice.tar"])
def test_the_stager_brings_the_object_that_the_spec_names(s3: Any, destination: Path, key: str) -> None:
    url = f"s3://{BUCKET}/{key}"
    spec = parse_run_spec(spec_with(dataset={"url": url}))
    assert spec.dataset is not None and (spec.dataset.bucket, spec.dataset.key) == (BUCKET, key)
    etag = upload(s3, dataset_archive(num_shards=1), key)
    assert (run_stage(destination, url=url)["etag"], marked(destination)["url"]) == (etag, url)


@pytest.mark.parametrize("ending", archives.ENDINGS)
def test_every_archive_that_the_spec_accepts_is_staged(s3: Any, destination: Path, ending: str) -> None:
    compress = {"gzip": gzip.compress, "bzip2": bz2.compress, "xz": lzma.compress, "zstd": zstandard.compress}
    kind = next((kind for kind, endings in archives.COMPRESSED.items() if ending in endings), None)
    plain = dataset_archive(num_shards=1)
    upload(s3, compress[kind](plain) if kind else plain, key := f"corpus{ending}")
    assert run_stage(destination, url=f"s3://{BUCKET}/{key}")["num_shards"] == 1


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


def test_another_data_set_of_the_same_name_is_refused(s3: Any, destination: Path) -> None:
    upload(s3, dataset_archive(num_shards=2))
    run_stage(destination)
    upload(s3, dataset_archive(num_shards=3), key="other/corpus.tar")
    with pytest.raises(DestinationNotEmpty, match=rf"data set of {URL}.*dataset\.name"):
        run_stage(destination, url=f"s3://{BUCKET}/other/corpus.tar")
    assert len(open_dataset(destination).shards) == 2
    assert visible(destination.parent) == ["demo"]


def test_the_same_version_at_another_address_is_the_same_data_set(s3: Any, destination: Path) -> None:
    for key in ("corpus.tar", "copy/corpus.tar"):
        upload(s3, dataset_archive(), key=key)
    run_stage(destination)
    assert run_stage(destination, url=f"s3://{BUCKET}/copy/corpus.tar")["skipped"]


def test_a_data_set_that_lost_a_shard_is_staged_again(s3: Any, destination: Path) -> None:
    upload(s3, dataset_archive(num_shards=2))
    run_stage(destination)
    next(destination.rglob("*.hdf5")).unlink()
    assert run_stage(destination)["skipped"] is False


def test_the_archive_is_never_written_to_disk(s3: Any, destination: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    upload(s3, dataset_archive())
    seen: list[set[str]] = []
    unpack = stage.unpacking.unpack

    def watching(*args: Any, **kwargs: Any) -> None:
        unpack(*args, **kwargs)
        args[1].drain()
        seen.append({path.suffix for path in destination.parent.rglob("*") if path.is_file()})

    monkeypatch.setattr(stage.unpacking, "unpack", watching)
    run_stage(destination)
    assert seen == [{".hdf5", ".txt", ".lock", ""}]  # the last one is the record of completed files


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


@pytest.mark.lengthy
@pytest.mark.parametrize(("content", "words"), BAD_ARCHIVES.values(), ids=BAD_ARCHIVES)
def test_a_bad_archive_leaves_the_target_as_it_was(s3: Any, destination: Path, content: bytes, words: str) -> None:
    upload(s3, dataset_archive())
    run_stage(destination)
    before = marked(destination)
    upload(s3, content)
    with pytest.raises(DatasetInvalid) as caught:
        run_stage(destination)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)
    assert marked(destination) == before
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
        (f"s3://{BUCKET}/missing/", DatasetNotFound, "no object below"),
        ("s3://no-such-bucket/corpus.tar", DatasetNotFound, "no bucket 'no-such-bucket'"),
        ("https://example.com/corpus.tar", ConfigInvalid, "--sha256 is missing"),
        ("http://example.com/corpus.tar", ConfigInvalid, "--url is 'http://example.com/corpus.tar'"),
        (f"s3://{BUCKET}", ConfigInvalid, "s3://bucket/key"),
    ],
)
def test_a_url_that_leads_nowhere_is_named(
    s3: Any, destination: Path, url: str, error: type[TrainerError], words: str
) -> None:
    with pytest.raises(error, match=words):
        run_stage(destination, url=url)
    assert not destination.exists()


def test_files_of_others_are_never_replaced(s3: Any, destination: Path) -> None:
    upload(s3, dataset_archive())
    destination.mkdir(parents=True)
    (destination / "thesis.txt").write_text("years of work")
    with pytest.raises(DestinationNotEmpty, match="nothing is replaced"):
        run_stage(destination)
    assert visible(destination) == ["thesis.txt"]


def test_files_that_took_the_place_of_a_removed_data_set_are_not_replaced(s3: Any, destination: Path) -> None:
    upload(s3, dataset_archive())
    run_stage(destination)
    destination.rename(destination.with_name("moved"))
    destination.mkdir()
    (destination / "thesis.txt").write_text("years of work")
    with pytest.raises(DestinationNotEmpty, match="nothing is replaced"):
        run_stage(destination)
    assert visible(destination) == ["thesis.txt"]


def test_a_copy_of_a_data_set_with_its_marker_is_not_staged_again(s3: Any, destination: Path) -> None:
    upload(s3, dataset_archive())
    run_stage(destination)
    restored = destination.parent.parent / "restored"
    shutil.copytree(destination.parent, restored)
    assert run_stage(restored / destination.name)["skipped"]


def test_a_data_set_whose_marker_is_among_its_files_stays_and_the_marker_moves(s3: Any, destination: Path) -> None:
    """So earlier versions staged it."""
    upload(s3, dataset_archive())
    said = run_stage(destination)
    before = marked(destination)
    (destination / "_READY").write_text(json.dumps({key: before[key] for key in before if key != "inode"}))
    (destination.parent / ".demo.ready").unlink()
    again = run_stage(destination)
    assert (again["skipped"], again["etag"]) == (True, said["etag"])
    assert marked(destination) == before
    assert not (destination / "_READY").exists()


def test_a_new_version_replaces_a_data_set_whose_marker_is_among_its_files(s3: Any, destination: Path) -> None:
    upload(s3, dataset_archive(num_shards=2))
    run_stage(destination)
    (destination.parent / ".demo.ready").rename(destination / "_READY")
    upload(s3, dataset_archive(num_shards=3))
    assert (run_stage(destination)["skipped"], len(open_dataset(destination).shards)) == (False, 3)
    assert not (destination / "_READY").exists()


def test_an_empty_folder_may_be_taken(s3: Any, destination: Path) -> None:
    upload(s3, dataset_archive())
    destination.mkdir(parents=True)
    assert run_stage(destination)["num_shards"] == 2


def test_what_a_killed_stager_left_is_cleared_away(s3: Any, destination: Path) -> None:
    upload(s3, dataset_archive())
    left = destination.parent / ".demo.staging" / "data" / "corpus"
    left.mkdir(parents=True)
    (left / "of_another_version").write_text("x")
    assert run_stage(destination)["files"] == 3
    assert visible(destination.parent) == ["demo"]


def test_without_a_destination_the_variable_is_named(s3: Any, outside_a_pod: Environment) -> None:
    with pytest.raises(ConfigInvalid, match="TRAINFLOW_DATA_DIR"):
        stage.main(["--url", URL], outside_a_pod)


@pytest.mark.lengthy
def test_sigterm_in_the_middle_leaves_nothing_that_looks_like_a_data_set(
    s3: Any, destination: Path, tmp_path: Path
) -> None:
    upload(s3, dataset_archive())
    result_file = tmp_path / "result.json"
    program = (
        "import os, signal, sys\n"
        "from trainer import stage\n"
        "from trainer.runtime import program\n"
        "stage.marker.write = lambda *_: os.kill(os.getpid(), signal.SIGTERM)\n"  # unpacked, not in place
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
    assert visible(destination.parent) == [".demo.staging"]  # for the next attempt
    assert "Traceback" not in ended.stderr


def test_the_objects_below_a_prefix_are_a_data_set(s3: Any, destination: Path) -> None:
    for number in range(2):
        upload(s3, as_bytes(make_rows(5, seed=number)), key=f"wiki/part/demo_training_{number}.hdf5")
    upload(s3, b"[PAD]", key="wiki/vocab.txt")
    prefix = f"s3://{BUCKET}/wiki/"
    said = run_stage(destination, url=prefix)
    assert (said["files"], said["num_samples"], said["skipped"]) == (3, 10, False)
    assert (destination / "vocab.txt").read_bytes() == b"[PAD]"
    assert run_stage(destination, url=prefix)["skipped"]
    upload(s3, b"[UNK]", key="wiki/vocab.txt")
    assert not run_stage(destination, url=prefix)["skipped"]
    assert (destination / "vocab.txt").read_bytes() == b"[UNK]"


def test_a_data_set_of_other_files_is_not_opened(s3: Any, destination: Path) -> None:
    upload(s3, make_archive({"mnist/train-images-idx3-ubyte": b"1"}))
    assert run_stage(destination, "--min_shards", "0")["files"] == 1


def test_an_archive_has_to_have_the_checksum_that_was_given(s3: Any, destination: Path) -> None:
    content = dataset_archive()
    upload(s3, content)
    with pytest.raises(DatasetInvalid, match=r"has SHA-256 .* and --sha256 is 0000"):
        run_stage(destination, "--sha256", "0" * 64)
    assert visible(destination.parent) == []
    assert run_stage(destination, "--sha256", hashlib.sha256(content).hexdigest())["num_shards"] == 2


@pytest.mark.lengthy
@pytest.mark.parametrize("kind", ["archive", "prefix"])
def test_every_file_has_to_be_as_the_manifest_says(s3: Any, destination: Path, kind: str) -> None:
    files = {"c/a.bin": b"a" * 10, "c/b.bin": b"b" * 10}
    upload(s3, make_archive(files))
    for name, content in files.items():
        upload(s3, content, key=f"files/{name}")
    url = URL if kind == "archive" else f"s3://{BUCKET}/files/"
    checked = ("--min_shards", "0", "--manifest_url", f"s3://{BUCKET}/SUMS")

    def sums(**wrong: bytes) -> None:
        of = {**files, **{f"c/{name}.bin": content for name, content in wrong.items()}}
        lines = (f"{hashlib.sha256(content).hexdigest()}  {name}\n" for name, content in of.items())
        upload(s3, "".join(lines).encode(), key="SUMS")

    sums(b=b"other")
    with pytest.raises(DatasetInvalid, match=r"'c/b.bin' has SHA-256"):
        run_stage(destination, *checked, url=url)
    sums(c=b"one more")
    with pytest.raises(DatasetInvalid, match=r"does not hold 'c/c.bin'"):
        run_stage(destination, *checked, url=url)
    assert visible(destination.parent) == []
    sums()
    assert run_stage(destination, *checked, url=url)["files"] == 2


def test_what_was_not_checked_is_checked_when_a_run_asks_for_it(s3: Any, destination: Path) -> None:
    content = make_archive({"c/a.bin": b"a" * 10})
    upload(s3, content)
    upload(s3, f"{hashlib.sha256(b'a' * 10).hexdigest()}  c/a.bin\n".encode(), key="SUMS")
    upload(s3, f"{'0' * 64}  c/a.bin\n".encode(), key="WRONG")
    upload(s3, f"{hashlib.sha256(b'a' * 10).hexdigest()}  c/a.bin\n{'0' * 64}  c/b.bin\n".encode(), key="MORE")
    as_it_comes, digest = ("--min_shards", "0"), hashlib.sha256(content).hexdigest()
    assert run_stage(destination, *as_it_comes)["num_shards"] is None
    file = destination / "c" / "a.bin"
    identity = file.stat().st_ino

    for wrong, words in (
        (("--sha256", "0" * 64), f"has SHA-256 {digest} and --sha256 is 0000"),
        (("--manifest_url", f"s3://{BUCKET}/WRONG"), "'c/a.bin' has SHA-256"),
        (("--manifest_url", f"s3://{BUCKET}/MORE"), "does not hold 'c/b.bin'"),
        (("--min_shards", "1"), "set dataset.min_shards"),
    ):
        with pytest.raises(DatasetInvalid, match=words):
            run_stage(destination, *as_it_comes, *wrong)

    checked = run_stage(destination, *as_it_comes, "--sha256", digest, "--manifest_url", f"s3://{BUCKET}/SUMS")
    assert (checked["skipped"], checked["sha256"]) == (True, digest)
    assert marked(destination)["manifest"] == checked["manifest"]
    assert file.stat().st_ino == identity


def test_what_was_checked_once_is_not_read_again(s3: Any, destination: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shard = as_bytes(make_rows(5))
    content = make_archive({"c/x_training_0.hdf5": shard})
    upload(s3, content)
    upload(s3, f"{hashlib.sha256(shard).hexdigest()}  c/x_training_0.hdf5\n".encode(), key="SUMS")
    asked = ("--sha256", hashlib.sha256(content).hexdigest(), "--manifest_url", f"s3://{BUCKET}/SUMS")
    run_stage(destination, *asked)

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError

    for name in ("RemoteStream", "_require_contents", "_shards"):
        monkeypatch.setattr(stage, name, refuse)
    assert run_stage(destination, *asked)["skipped"]
    with pytest.raises(DatasetInvalid, match="--sha256 is 0000"):
        run_stage(destination, "--sha256", "0" * 64)


def test_shards_are_counted_when_a_run_needs_them_for_the_first_time(s3: Any, destination: Path) -> None:
    upload(s3, dataset_archive(num_shards=2))
    assert run_stage(destination, "--min_shards", "0")["num_shards"] is None
    again = run_stage(destination, "--min_shards", "2")
    assert (again["skipped"], again["num_shards"], again["num_samples"]) == (True, 2, 10)


@pytest.mark.parametrize(
    ("error", "is_kept"),
    [
        (DatasetNotFound("may not be read"), True),
        (DatasetInvalid("damaged"), False),
        (StorageFailed("the network broke"), True),
        (because(StorageFailed("disk"), OSError(errno.EIO, "")), True),
        (because(StorageFailed("disk"), OSError(errno.ENOSPC, "")), False),
        (because(StorageFailed("disk"), OSError(errno.EDQUOT, "")), False),
    ],
    ids=["denied", "damaged", "network", "EIO", "ENOSPC", "EDQUOT"],
)
def test_what_is_complete_stays_unless_it_is_damaged_or_the_disk_is_full(
    destination: Path, error: TrainerError, is_kept: bool
) -> None:
    with pytest.raises(type(error)), staging_folder.workplace(destination, url=URL) as work:
        raise error
    assert work.root.exists() is is_kept


def test_a_data_set_that_does_not_fit_is_refused_before_anything_is_written(
    s3: Any, destination: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    upload(s3, dataset_archive())
    monkeypatch.setattr(stage.shutil, "disk_usage", lambda _folder: SimpleNamespace(free=100))
    with pytest.raises(StorageFailed, match="has 100 left; make room"):
        run_stage(destination)
    assert visible(destination.parent) == []


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (("--sha256", "ABC"), "--sha256 is 'ABC'"),
        (("--min_shards", "-1"), "--min_shards is -1"),
        (("--sha256", "0" * 64, "--url", "s3://b/prefix/"), "give --manifest_url instead"),
    ],
)
def test_options_that_make_no_sense_are_named(destination: Path, given: tuple[str, ...], words: str) -> None:
    with pytest.raises(ConfigInvalid, match=words):
        run_stage(destination, *given)


@pytest.mark.parametrize("url", [URL, f"s3://{BUCKET}/corpus.tar.zst", f"s3://{BUCKET}/below/"])
def test_bytes_that_were_damaged_on_the_way_are_refused(
    s3: Any, destination: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = dataset_archive(num_shards=1, num_samples=50)
    if url.endswith("/"):
        upload(s3, as_bytes(make_rows(50)), key="below/demo_training_0.hdf5")
    else:
        content = zstandard.ZstdCompressor(level=1).compress(archive) if url.endswith("zst") else archive
        upload(s3, content, key=url.rpartition("/")[2])
    present = Transfer.fetch

    def damaged(self: Transfer, ranges: Any) -> Any:
        for asked, (first, *others) in present(self, ranges):
            middle = len(first) // 2
            yield asked, [first[:middle] + bytes([first[middle] ^ 1]) + first[middle + 1 :], *others]

    monkeypatch.setattr(Transfer, "fetch", damaged)
    with pytest.raises(DatasetInvalid):
        run_stage(destination, "--min_shards", "0", url=url)
    assert not destination.exists()


def test_what_is_not_verifiable_is_staged_with_a_warning(
    s3: Any, destination: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    upload(s3, dataset_archive(num_shards=1, num_samples=5))
    monkeypatch.setattr(stage.stored_checksum, "find", lambda *_, **__: None)
    assert run_stage(destination)["verified"] is None
    assert f"Warning: {URL} is not verifiable: S3 keeps no checksum of it" in capsys.readouterr().out


LARGE = bytes(70 * 2**20)
"""More than an archive may have however small it is."""


@pytest.mark.parametrize(
    "last",
    [b"", gzip.compress(b"\0")],
    ids=["as its end tells", "though its last part tells less"],
)
def test_an_archive_that_unpacks_to_more_than_is_allowed_is_refused(s3: Any, destination: Path, last: bytes) -> None:
    upload(s3, gzip.compress(make_archive({"corpus/zeros": LARGE}), 1) + last, key="bomb.tar.gz")
    url = f"s3://{BUCKET}/bomb.tar.gz"
    with pytest.raises(DatasetInvalid, match=r"67,108,864 bytes.*dataset\.max_expansion"):
        run_stage(destination, "--min_shards", "0", url=url)
    assert not destination.exists()
    run_stage(destination, "--min_shards", "0", "--max_expansion", "1000", url=url)
    assert (destination / "corpus" / "zeros").stat().st_size == 70 * 2**20


def test_what_an_archive_tells_to_be_too_much_is_not_even_begun(
    s3: Any, destination: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    upload(s3, gzip.compress(make_archive({"corpus/zeros": LARGE}), 1), key="bomb.tar.gz")
    unpacked: list[Any] = []
    monkeypatch.setattr(stage.unpacking, "unpack", lambda *_arguments, **_options: unpacked.append(1))
    with pytest.raises(DatasetInvalid, match="unpacks to more than"):
        run_stage(destination, "--min_shards", "0", url=f"s3://{BUCKET}/bomb.tar.gz")
    assert unpacked == []


@pytest.mark.parametrize(
    ("suffix", "compress"),
    [("zst", zstandard.ZstdCompressor().compress), ("gz", gzip.compress), ("xz", lzma.compress)],
    ids=["zstd", "gzip", "xz"],
)
def test_room_is_required_for_the_unpacked_size_that_an_archive_tells(
    s3: Any, destination: Path, monkeypatch: pytest.MonkeyPatch, suffix: str, compress: Callable[[bytes], bytes]
) -> None:
    content = make_archive({"corpus/zeros": bytes(10 * 2**20)})
    upload(s3, compress(content), key=f"zeros.tar.{suffix}")
    monkeypatch.setattr(stage.shutil, "disk_usage", lambda _: SimpleNamespace(free=2**20))
    with pytest.raises(StorageFailed, match=rf"\b{len(content)} bytes.*missing"):
        run_stage(destination, "--min_shards", "0", url=f"s3://{BUCKET}/zeros.tar.{suffix}")
