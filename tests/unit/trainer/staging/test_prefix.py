"""Objects below a prefix become files, whichever of them an earlier attempt brought."""

from __future__ import annotations

import base64
import zlib
from pathlib import Path

import pytest

from tests.unit.trainer.staging.object_server import ObjectServer
from trainer.runtime.errors import DatasetInvalid
from trainer.staging import prefix
from trainer.staging.completed_files import CompletedFiles, Entry
from trainer.staging.source import RemoteFile, open_source
from trainer.staging.stored_checksum import StoredChecksum
from trainer.staging.transfer import Transfer
from trainer.staging.writer import Writer

OBJECTS: dict[str, bytes | Path] = {"corpus/a": b"1" * 100, "corpus/b/c": b"", "corpus/d": b"3" * 9_000_000}


class Download:
    """One attempt at the objects of a server."""

    def __init__(self, server: ObjectServer, folder: Path) -> None:
        server.objects = dict(OBJECTS)
        self.files = open_source("s3://datasets/corpus/", unsigned=False, region=None, sha256=None).files
        self._folder = folder
        self.arrived: list[int] = []
        self.asked: list[str] = []
        self.checksums: dict[str, StoredChecksum] = {
            file.name: crc32_of(OBJECTS[f"corpus/{file.name}"])  # type: ignore[arg-type]
            for file in self.files
        }

    def stored(self, file: RemoteFile) -> StoredChecksum | None:
        self.asked.append(file.name)
        return self.checksums.get(file.name)

    def run(self) -> bool:
        data = self._folder / "data"
        transfer = Transfer(encrypted=False, region=None, renew=lambda file: file)
        with (
            CompletedFiles(self._folder / "journal", data, source="v1") as completed,
            Writer(data, completed=completed) as writer,
        ):
            return prefix.download(
                self.files,
                transfer,
                writer,
                completed,
                arrived=lambda chunk: self.arrived.append(len(chunk)),
                stored=self.stored,
            )

    def there(self) -> dict[str, bytes]:
        data = self._folder / "data"
        return {str(path.relative_to(data)): path.read_bytes() for path in data.rglob("*") if path.is_file()}


def crc32_of(content: bytes) -> StoredChecksum:
    return StoredChecksum(algorithm="CRC32", value=base64.b64encode(zlib.crc32(content).to_bytes(4, "big")).decode())


@pytest.fixture
def download(server: ObjectServer, tmp_path: Path) -> Download:
    return Download(server, tmp_path)


def test_every_object_is_brought_and_counted_and_compared(download: Download) -> None:
    assert download.run() is True
    assert download.there() == {name.removeprefix("corpus/"): content for name, content in OBJECTS.items()}
    assert sum(download.arrived) == 9_000_100
    assert sorted(download.asked) == ["a", "b/c", "d"]


@pytest.mark.parametrize("without", ["a", "d"])
def test_all_of_them_have_to_be_compared_to_count_as_verified(download: Download, without: str) -> None:
    del download.checksums[without]
    assert download.run() is False


def test_what_an_earlier_attempt_completed_is_neither_read_nor_asked_for(download: Download, tmp_path: Path) -> None:
    with CompletedFiles(tmp_path / "journal", tmp_path / "data", source="v1") as completed:
        (tmp_path / "data" / "d").write_bytes(b"3" * 9_000_000)
        completed.add(Entry("d", 9_000_000, None))
    assert download.run() is True
    assert sorted(download.asked) == ["a", "b/c"]
    assert sum(download.arrived) == 100


def test_an_object_that_is_damaged_is_named_and_becomes_no_file(download: Download) -> None:
    download.checksums["a"] = crc32_of(b"other")
    with pytest.raises(DatasetInvalid, match=r"s3://datasets/corpus/a .*CRC32 "):
        download.run()
    assert "a" not in download.there()
