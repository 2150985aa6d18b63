"""Nothing that an archive holds gets out of the folder, and nothing damaged gets in unnoticed."""

from __future__ import annotations

import bz2
import contextlib
import gzip
import io
import lzma
import os
import random
import resource
import tarfile
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import zstandard
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.unit.trainer.conftest import make_archive
from trainer.runtime.errors import DatasetInvalid, StorageFailed
from trainer.staging import unpacking
from trainer.staging.completed_files import CompletedFiles, Entry
from trainer.staging.stream import ReadStream
from trainer.staging.unpacking import safe_member
from trainer.staging.writer import Writer
from trainflow.protocol import archives


def unpack(content: bytes, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory() as beside, CompletedFiles(Path(beside) / "journal", folder, source="") as completed:
        stream = ReadStream(io.BytesIO(content))
        with Writer(folder, completed=completed) as writer:
            unpacking.unpack(stream, writer, completed, name="s3://b/corpus.tar")


def archive_with(member: tarfile.TarInfo) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as made:
        made.addfile(member)
    return buffer.getvalue()


def link(kind: bytes, target: str, name: str = "corpus/link") -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.type, member.linkname = kind, target
    return member


COMPRESSIONS: dict[str, Callable[[bytes], bytes]] = {
    "none": bytes,
    "gzip": gzip.compress,
    "bzip2": bz2.compress,
    "xz": lzma.compress,
    "zstd": zstandard.ZstdCompressor().compress,
    "zstd in frames": lambda content: b"".join(
        zstandard.ZstdCompressor().compress(content[at : at + 20_000]) for at in range(0, len(content), 20_000)
    ),
}


def test_every_compression_of_the_list_is_read() -> None:
    assert COMPRESSIONS.keys() - {"none", "zstd in frames"} == archives.COMPRESSED.keys()


@pytest.mark.parametrize("compress", COMPRESSIONS.values(), ids=COMPRESSIONS)
def test_files_arrive_whole_whatever_the_compression(tmp_path: Path, compress: Callable[[bytes], bytes]) -> None:
    members = {"corpus/a": b"x" * 100_000, "corpus/deep/b": b"", "corpus/vocab.txt": b"[PAD]\n"}
    unpack(compress(make_archive(members)), tmp_path)
    assert {
        path.relative_to(tmp_path).as_posix(): path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()
    } == members


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("../evil", "leaves the target folder with '..'"),
        ("corpus/../../evil", "leaves the target folder with '..'"),
        ("/etc/evil", "has an absolute path"),
    ],
)
def test_a_path_out_of_the_folder_is_refused_by_name(tmp_path: Path, name: str, what: str) -> None:
    with pytest.raises(DatasetInvalid) as caught:
        unpack(make_archive({"corpus/a": b"1", name: b"2"}), tmp_path / "in")
    assert str(caught.value) == (
        f"The member {name!r} of the archive s3://b/corpus.tar {what}; pack the archive again with files and "
        "folders below one top folder."
    )
    assert [path.name for path in tmp_path.iterdir()] == ["in"]


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE])
@pytest.mark.parametrize("target", ["../../evil", "/etc/passwd"])
def test_a_link_out_of_the_folder_is_refused(tmp_path: Path, kind: bytes, target: str) -> None:
    with pytest.raises(DatasetInvalid, match="is a link that leaves the target folder"):
        unpack(archive_with(link(kind, target)), tmp_path)


@pytest.mark.parametrize("kind", [tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE])
def test_devices_and_pipes_are_refused(tmp_path: Path, kind: bytes) -> None:
    with pytest.raises(DatasetInvalid, match="is a device or pipe"):
        unpack(archive_with(link(kind, "")), tmp_path)


@pytest.mark.parametrize("num_members", [1, 3, 40])
@pytest.mark.parametrize("mtime", ["nan", "inf", "-inf", "NaN"])
def test_a_time_that_is_not_a_number_is_refused_with_the_member_as_gnu_tar_does(
    tmp_path: Path, num_members: int, mtime: str
) -> None:
    with pytest.raises(DatasetInvalid, match=r"'corpus/0'.*modification.* -?(nan|inf)"):
        unpack(archive_of_times([mtime] * num_members), tmp_path)


def test_a_time_that_no_file_system_can_hold_is_left_out(tmp_path: Path) -> None:
    unpack(archive_of_times(["1e300", "-1e300", "1700000000.5"]), tmp_path)
    assert [(tmp_path / f"corpus/{number}").read_bytes() for number in range(3)] == [b"x"] * 3
    assert (tmp_path / "corpus/2").stat().st_mtime == 1700000000.5


def archive_of_times(times: Sequence[str]) -> bytes:
    """An archive of small files whose extended headers have these modification times."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as made:
        for number, time in enumerate(times):
            member = tarfile.TarInfo(f"corpus/{number}")
            member.size, member.pax_headers = 1, {"mtime": time}
            made.addfile(member, io.BytesIO(b"x"))
    return buffer.getvalue()


def test_a_symbolic_link_is_meant_from_its_own_folder_and_a_hard_link_from_the_archives(tmp_path: Path) -> None:
    unpack(archive_with(link(tarfile.SYMTYPE, "../beside")), tmp_path / "symbolic")
    assert (tmp_path / "symbolic" / "corpus" / "link").readlink() == Path("../beside")
    with pytest.raises(DatasetInvalid, match="is a link that leaves the target folder"):
        unpack(archive_with(link(tarfile.LNKTYPE, "../beside")), tmp_path / "hard")


def test_a_link_inside_the_folder_may_stay(tmp_path: Path) -> None:
    unpack(archive_with(link(tarfile.SYMTYPE, "a")), tmp_path)
    assert (tmp_path / "corpus" / "link").is_symlink()


path_parts = st.lists(st.sampled_from(["..", ".", "a", "b", "", "~", "c:\\x", "…"]), min_size=1, max_size=5)


@settings(deadline=None)
@given(path_parts, st.booleans())
@example(["..", "b"], False)
@example(["", "etc", ".."], True)
def test_whatever_the_path_nothing_is_written_outside(
    tmp_path_factory: pytest.TempPathFactory, parts: list[str], absolute: bool
) -> None:
    outside = tmp_path_factory.mktemp("outside")
    name = ("/" if absolute else "") + "/".join(parts) + "/file"
    try:
        unpack(make_archive({name: b"1"}), outside / "in")
    except DatasetInvalid as error:
        assert absolute or ".." in parts or name.startswith("/"), error
    assert [path.name for path in outside.iterdir()] == ["in"]


@pytest.mark.lengthy
@settings(deadline=None)
@given(st.lists(st.sampled_from(["..", "a", "corpus"]), min_size=1, max_size=4), st.booleans(), st.booleans())
def test_writing_through_a_link_never_leaves_the_folder(
    tmp_path_factory: pytest.TempPathFactory, parts: list[str], hard: bool, absolute: bool
) -> None:
    outside = tmp_path_factory.mktemp("outside")
    target = ("/" if absolute else "") + "/".join(parts)
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as made:
        made.addfile(link(tarfile.LNKTYPE if hard else tarfile.SYMTYPE, target))
        through = tarfile.TarInfo("corpus/link/evil")
        through.size = 1
        made.addfile(through, io.BytesIO(b"1"))
    with contextlib.suppress(DatasetInvalid, StorageFailed):
        unpack(buffer.getvalue(), outside / "in")
    assert [path.name for path in outside.iterdir()] == ["in"]


@settings(deadline=None)
@pytest.mark.skipif(not hasattr(tarfile, "data_filter"), reason="this Python has no filters to compare with")
@given(
    st.sampled_from([tarfile.REGTYPE, tarfile.DIRTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE]),
    st.lists(st.sampled_from(["..", ".", "real", "inward", "outward", ""]), min_size=1, max_size=4),
    st.lists(st.sampled_from(["..", ".", "real", "inward", "outward", "", "/"]), min_size=1, max_size=4),
    st.integers(0, 0o7777),
)
@example(tarfile.SYMTYPE, ["."], ["outward", ".."], 0)
def test_the_filter_is_at_least_as_strict_as_the_one_of_python(
    tmp_path_factory: pytest.TempPathFactory, kind: bytes, parts: list[str], target: list[str], mode: int
) -> None:
    folder = tmp_path_factory.mktemp("outside") / "in"
    (folder / "real").mkdir(parents=True)
    (folder / "inward").symlink_to("real")
    (folder / "outward").symlink_to("..")
    member = tarfile.TarInfo("/".join(parts))
    member.type, member.mode, member.linkname = kind, mode, "/".join(target)
    try:
        ours = safe_member(member, folder, name="a.tar")
    except DatasetInvalid:
        return
    theirs = tarfile.data_filter(member, str(folder))
    assert (ours.name, os.path.normpath(ours.linkname)) == (theirs.name, os.path.normpath(theirs.linkname))
    if ours.isreg():
        assert ours.mode == theirs.mode


def test_folders_are_made_for_what_lies_in_them_and_with_those_above_them(tmp_path: Path) -> None:
    folder = tarfile.TarInfo("corpus/empty/folder")
    folder.type = tarfile.DIRTYPE
    unpack(archive_with(folder), tmp_path / "in")
    assert (tmp_path / "in" / "corpus" / "empty" / "folder").is_dir()
    unpack(archive_with(link(tarfile.SYMTYPE, "a", name="corpus/new/link")), tmp_path / "again")
    assert (tmp_path / "again" / "corpus" / "new" / "link").readlink() == Path("a")


def test_only_from_the_first_link_on_does_a_file_wait_for_those_before_it(tmp_path: Path) -> None:
    """From then on, two paths may lead to one file."""
    in_order: list[bool] = []
    for content in (make_archive({"corpus/a": b"1"}), archive_with(link(tarfile.SYMTYPE, "a"))):
        folder = tmp_path / str(len(in_order))
        with (
            CompletedFiles(tmp_path / "journal", folder, source="") as completed,
            Writer(folder, completed=completed) as writer,
        ):
            unpacking.unpack(ReadStream(io.BytesIO(content)), writer, completed, name="s3://b/corpus.tar")
        in_order.append(writer.in_order)
    assert in_order == [False, True]


def test_a_link_that_is_unpacked_again_replaces_the_one_that_is_there(tmp_path: Path) -> None:
    for _ in range(2):
        unpack(archive_with(link(tarfile.SYMTYPE, ".")), tmp_path)
    assert (tmp_path / "corpus" / "link").readlink() == Path()


def test_a_path_too_long_to_be_followed_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DatasetInvalid, match="leaves the target folder"):
        unpack(make_archive({"/".join(["d" * 200] * 6): b"1"}), tmp_path)


WHOLE = make_archive({"corpus/a": b"a" * 3000, "corpus/b": b"b" * 700})
END = len(WHOLE.rstrip(b"\0"))


@settings(deadline=None)
@given(st.integers(0, END))
@example(512 + 3072)  # exactly between the two members
@example(512)
def test_a_truncated_archive_is_never_taken_for_a_whole_one(
    tmp_path_factory: pytest.TempPathFactory, length: int
) -> None:
    with pytest.raises(DatasetInvalid, match="truncated or no tar archive"):
        unpack(WHOLE[:length], tmp_path_factory.mktemp("truncated"))


@settings(deadline=None)
@given(st.integers(1, 400))
def test_a_truncated_compressed_archive_is_refused_unless_only_padding_is_missing(
    tmp_path_factory: pytest.TempPathFactory, missing: int
) -> None:
    folder, content = tmp_path_factory.mktemp("truncated"), random.Random(0).randbytes(1000)
    compressed = make_archive({"corpus/a": content}, mode="w:gz")
    try:
        unpack(compressed[:-missing], folder)
    except DatasetInvalid:
        return
    assert (folder / "corpus" / "a").read_bytes() == content
    assert missing < 100


@pytest.mark.parametrize("compress", COMPRESSIONS.values(), ids=COMPRESSIONS)
def test_an_archive_that_breaks_off_in_the_middle_is_the_data_sets_fault_whatever_the_compression(
    tmp_path: Path, compress: Callable[[bytes], bytes]
) -> None:
    compressed = compress(make_archive({"corpus/a": random.Random(0).randbytes(100_000)}))
    with pytest.raises(DatasetInvalid, match=r"s3://b/corpus\.tar .*truncated.*member"):
        unpack(compressed[: len(compressed) // 2], tmp_path)


@pytest.mark.parametrize("compress", [gzip.compress, bz2.compress, lzma.compress], ids=["gzip", "bzip2", "xz"])
def test_damage_in_the_middle_of_a_compressed_archive_is_the_data_sets_fault(
    tmp_path: Path, compress: Callable[[bytes], bytes]
) -> None:
    damaged = bytearray(compress(make_archive({"corpus/a": b"text of a corpus\n" * 5000})))
    middle = len(damaged) // 2
    damaged[middle : middle + 8] = bytes(each ^ 0xFF for each in damaged[middle : middle + 8])
    with pytest.raises(DatasetInvalid, match=r"s3://b/corpus\.tar .*truncated.*member"):
        unpack(bytes(damaged), tmp_path)


def test_a_damaged_header_in_the_middle_is_not_taken_for_the_end(tmp_path: Path) -> None:
    damaged = bytearray(WHOLE)
    damaged[512 + 3072 + 150] ^= 0xFF  # in the second member's checksum
    with pytest.raises(DatasetInvalid, match="header is damaged"):
        unpack(bytes(damaged), tmp_path)


@settings(deadline=None)
@given(st.binary(max_size=2000))
def test_what_is_no_archive_is_refused(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    if any(content):
        with pytest.raises(DatasetInvalid):
            unpack(content, tmp_path_factory.mktemp("none"))


def test_a_file_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    content, (_, hard) = make_archive({"corpus/a": b"1" * 400_000}), resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))
    try:
        with pytest.raises(StorageFailed, match=r"cannot be written .*File too large"):
            unpack(content, tmp_path / "in")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))


def test_of_a_path_that_comes_twice_the_last_one_counts(tmp_path: Path) -> None:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as made:
        for content in (b"a" * 400_000, b"b" * 300_000, b"c" * 10):
            member = tarfile.TarInfo("corpus/a")
            member.size = len(content)
            made.addfile(member, io.BytesIO(content))
    unpack(buffer.getvalue(), tmp_path)
    assert (tmp_path / "corpus" / "a").read_bytes() == b"c" * 10


class LateFirstFile(Writer):
    """Writes what belongs to the first path when a file of another path has been written, or after a while."""

    def __init__(self, folder: Path, *, completed: CompletedFiles) -> None:
        super().__init__(folder, completed=completed)
        self._first: str | None = None
        self._other = threading.Event()

    def do(self, job: Callable[[], None], entry: Entry) -> None:
        self._first = self._first or entry.path

        def late() -> None:
            self._other.wait(0.3)
            job()

        def early() -> None:
            job()
            self._other.set()

        super().do(late if entry.path == self._first else early, entry)


@pytest.mark.parametrize(
    ("compress", "spans"),
    [(bytes, {0: 1536, 1536: 3072}), (gzip.compress, {})],
    ids=["plain", "compressed"],
)
def test_the_next_attempt_knows_where_complete_members_of_a_plain_archive_are(
    tmp_path: Path, compress: Callable[[bytes], bytes], spans: dict[int, int]
) -> None:
    """It reads the others alone. A compressed archive is read from its beginning in any case."""
    folder, content = tmp_path / "in", make_archive({"a": b"a" * 1000, "b": b"b" * 600})
    with (
        CompletedFiles(tmp_path / "journal", folder, source="v1") as completed,
        Writer(folder, completed=completed) as writer,
    ):
        unpacking.unpack(ReadStream(io.BytesIO(compress(content))), writer, completed, name="s3://b/corpus.tar")
    again = CompletedFiles(tmp_path / "journal", folder, source="v1")
    assert (again.num_files, again.spans) == (2, spans)


@pytest.mark.parametrize("size", [10, 300_000], ids=["small", "large"])
def test_of_two_paths_that_lead_to_one_file_the_last_one_counts(tmp_path: Path, size: int) -> None:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as made:
        made.addfile(link(tarfile.SYMTYPE, "real"))
        for name, content in (("corpus/real/a", b"a" * size), ("corpus/link/a", b"b" * size)):
            member = tarfile.TarInfo(name)
            member.size = size
            made.addfile(member, io.BytesIO(content))
    folder = tmp_path / "in"
    with CompletedFiles(tmp_path / "journal", folder, source="") as completed:
        with LateFirstFile(folder, completed=completed) as writer:
            unpacking.unpack(ReadStream(io.BytesIO(buffer.getvalue())), writer, completed, name="s3://b/corpus.tar")
        assert completed.num_files == 2
    assert (folder / "corpus" / "real" / "a").read_bytes() == b"b" * size


def test_a_hard_link_shares_its_file_and_its_file_has_to_come_first(tmp_path: Path) -> None:
    content = make_archive({"corpus/a": b"a" * 300_000})[: 512 + 300_032]
    unpack(content + archive_with(link(tarfile.LNKTYPE, "corpus/a")), tmp_path / "in")
    assert (tmp_path / "in" / "corpus" / "link").read_bytes() == b"a" * 300_000
    with pytest.raises(DatasetInvalid, match="does not come before it"):
        unpack(archive_with(link(tarfile.LNKTYPE, "corpus/a")), tmp_path / "other")


def test_a_header_cannot_fill_the_memory(tmp_path: Path) -> None:
    greedy = link(tarfile.GNUTYPE_LONGNAME, "", name="././@LongLink")
    greedy.size = 2**40
    with pytest.raises(DatasetInvalid, match="bytes of header"):
        unpack(greedy.tobuf(tarfile.GNU_FORMAT), tmp_path)


def test_a_compressed_archive_is_read_to_its_checksum(tmp_path: Path) -> None:
    compressed = bytearray(make_archive({"corpus/a": b"a" * 1000}, mode="w:gz"))
    compressed[-6] ^= 0xFF  # in the checksum of all
    with pytest.raises(DatasetInvalid, match="CRC"):
        unpack(bytes(compressed), tmp_path)


@pytest.mark.parametrize(
    "names",
    [("a", "a/b"), ("a/b", "a"), (".",), ("./",), ("x" * 300,), (f"{'x' * 300}/a",)],
    ids=["below a file", "over a folder", "dot", "dot and slash", "long name", "long folder"],
)
def test_a_path_that_no_disk_could_hold_is_the_data_sets_fault(tmp_path: Path, names: tuple[str, ...]) -> None:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as made:
        for name in names:
            member = tarfile.TarInfo(name)
            member.size = 1
            made.addfile(member, io.BytesIO(b"1"))
    with pytest.raises(DatasetInvalid, match=r"rename|pack the archive again"):
        unpack(buffer.getvalue(), tmp_path / "in")


def test_a_folder_in_the_place_of_a_file_is_the_data_sets_fault(tmp_path: Path) -> None:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as made:
        made.addfile(tarfile.TarInfo("a"))
        folder = tarfile.TarInfo("a")
        folder.type = tarfile.DIRTYPE
        made.addfile(folder)
    with pytest.raises(DatasetInvalid) as refused:
        unpack(buffer.getvalue(), tmp_path / "in")
    assert str(refused.value) == (
        f"A member of the archive s3://b/corpus.tar cannot be made beside those before it ([Errno 17] File exists: "
        f"'{tmp_path / 'in' / 'a'}'); pack the archive again with files and folders of different names."
    )
