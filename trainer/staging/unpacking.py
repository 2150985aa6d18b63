"""Unpack a tar archive while it arrives, without trusting its content.

The archive is read once, from front to back, and is never stored on the disk.
"""

from __future__ import annotations

import copy
import math
import os
import tarfile
from pathlib import Path, PurePosixPath
from typing import Any, Self, cast

from trainer.runtime.errors import DatasetInvalid, StorageFailed
from trainer.staging.completed_files import CompletedFiles, Entry
from trainer.staging.compression import decompressed
from trainer.staging.stream import Stream
from trainer.staging.writer import LONGEST_QUOTED, Writer, is_of_the_name

LONGEST_PATH_BYTES = 1024
"""PATH_MAX of macOS; Linux has 4096."""


class _CheckedMember(tarfile.TarInfo):
    """A member's header, read strictly.

    A tar file ends with blocks of zeros. Python also takes the end of the stream and, after the first member, a damaged
    header for the end, so an archive that was cut off between two members would look complete.
    """

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> Self:
        if len(buf) < tarfile.BLOCKSIZE:
            raise tarfile.ReadError("its end is missing")
        try:
            return super().frombuf(buf, encoding, errors)
        except tarfile.HeaderError as error:
            if not any(buf):
                raise  # a block of zeros is the regular end
            raise tarfile.ReadError(f"a member's header is damaged: {error}") from error


def unpack(stream: Stream, writer: Writer, completed: CompletedFiles, *, name: str, most: int | None = None) -> None:
    """Unpack every member that an earlier attempt did not complete.

    Args:
        stream: The archive: tar, plain or compressed with gzip, bzip2, xz or zstd. A plain archive may leave out the
            stretches that the record of completed files names.
        writer: Writes the files; nothing is ever written outside its folder.
        completed: Which members an earlier attempt completed.
        name: What to call the archive in messages.
        most: Most bytes that a compressed archive may have without its compression; None for any number.

    Raises:
        DatasetInvalid: If the stream is not an archive, is truncated, or has a member outside of the folder.
        StorageFailed: If the folder cannot be written.
    """
    members = 0
    plain = stream if completed.spans else decompressed(stream, most=most)
    try:
        _skip_completed(plain, completed)
        with tarfile.TarFile(fileobj=cast(Any, plain), mode="r", tarinfo=_CheckedMember) as archive:
            # After the completed members, there may be nothing but the end of the archive.
            is_over = archive.firstmember is None  # type: ignore[attr-defined]
            while not is_over and (member := archive.next()) is not None:
                archive.members.clear()  # type: ignore[attr-defined]  # else a large number of members fills the memory
                safe = safe_member(member, writer.folder, name=name)
                if not member.isfile():
                    _make(safe, writer, name=name)
                elif not completed.take(path := str(PurePosixPath(member.name)), member.size):
                    span = (member.offset, archive.offset) if plain is stream else None
                    with writer.file(Entry(path, member.size, span), mode=safe.mode, mtime=safe.mtime) as file:
                        for piece in plain.pieces(member.size):
                            file.write(piece)
                        plain.skip_to(archive.offset)
                        file.note(crc=plain.cut())
                members += 1
                plain.skip_to(archive.offset)
                plain.cut()
                archive.offset = _skip_completed(plain, completed)
        if plain is not stream:
            plain.drain()  # the checksum of the compression follows the archive
    except (tarfile.TarError, ValueError, RecursionError) as error:
        raise DatasetInvalid(
            f"The archive {name} is truncated or no tar archive ({error}, after {members} members); "
            "make it again and upload it again."
        ) from error
    except OSError as error:
        if is_of_the_name(error):
            raise DatasetInvalid(
                f"A member of the archive {name} cannot be made beside those before it ({error}); pack the archive "
                "again with files and folders of different names."
            ) from error
        raise StorageFailed(
            f"The archive {name} cannot be unpacked to {writer.folder} ({error}); "
            "make room there, or give a --destination that can be written."
        ) from error


def safe_member(member: tarfile.TarInfo, folder: Path, *, name: str) -> tarfile.TarInfo:
    """Check that a member is a file, a folder or a link inside of the folder, and drop its owner and unsafe modes.

    The checks are those of Python's `tarfile.data_filter` of 2025, which Python 3.11 has in its last releases only.

    Raises:
        DatasetInvalid: If it is not; the message names the member and the reason.
    """
    path = PurePosixPath(member.name)
    if not path.parts and not member.isdir():
        raise _unsafe(name, member, "has the name of the folder itself")
    if path.is_absolute():
        raise _unsafe(name, member, "has an absolute path")
    if ".." in path.parts:
        raise _unsafe(name, member, "leaves the target folder with '..'")
    if not (member.isfile() or member.isdir() or _links(member)):
        raise _unsafe(name, member, "is a device or pipe")
    if member.issparse() or member.size < 0:
        raise _unsafe(name, member, "does not say plainly how long it is")
    if not math.isfinite(member.mtime):  # GNU tar: "Malformed extended header: invalid mtime=nan", exit code 2
        raise _malformed(name, member, f"has the modification time {member.mtime}, which is not a time")
    safe = copy.copy(member)
    safe.mode = _safe_mode(member.mode)
    if not _stays_below(folder, folder / path):
        raise _unsafe(name, member, "leaves the target folder through a link")
    if _links(member):
        safe.linkname = os.path.normpath(member.linkname)
        beside = folder / path.parent if member.issym() else folder
        # Check the path as it is written, too: after a link, `..` leads to another folder than the text says.
        inside = all(_stays_below(folder, beside / target) for target in (member.linkname, safe.linkname))
        if safe.linkname.startswith("/") or not inside:
            raise _unsafe(name, member, f"is a link that leaves the target folder ({member.linkname!r})")
    return safe


def _safe_mode(mode: int) -> int:
    """Make a file's mode safe: its owner may read and write, no other user may write, and set-user-ID bits are
    cleared."""
    mode &= 0o755
    return (mode if mode & 0o100 else mode & ~0o111) | 0o600


def _stays_below(folder: Path, path: Path) -> bool:
    """Whether a path lies below the folder after every link in it is followed.

    A path that is too long for the operating system is refused: the links in it would not be followed (CVE-2025-4517).
    """
    inside, target = os.path.realpath(folder), os.path.realpath(path)
    return len(os.fsencode(target)) < LONGEST_PATH_BYTES and os.path.commonpath([inside, target]) == inside


def _make(member: tarfile.TarInfo, writer: Writer, *, name: str) -> None:
    """Make a folder or a link."""
    writer.drain()  # the target of a link has to be complete, and the file that a link replaces may still be written
    target = writer.folder / member.name
    if _links(member):
        writer.in_order = True  # from now on, two paths may lead to one file
        if target.is_symlink() or not target.is_dir():
            target.unlink(missing_ok=True)
    if member.isdir():
        target.mkdir(parents=True, exist_ok=True)
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    if member.issym():
        target.symlink_to(member.linkname)
        return
    linked = writer.folder / member.linkname
    if not linked.is_file():
        raise _unsafe(name, member, f"is a hard link to a file that does not come before it ({member.linkname!r})")
    os.link(linked, target)


def _skip_completed(stream: Stream, completed: CompletedFiles) -> int:
    """Skip members that an earlier attempt completed, and return the offset of the next one."""
    while (end := completed.spans.get(stream.tell())) is not None:
        stream.skip_to(end)
    return stream.tell()


def _links(member: tarfile.TarInfo) -> bool:
    return member.issym() or member.islnk()


def _malformed(name: str, member: tarfile.TarInfo, what: str) -> DatasetInvalid:
    return DatasetInvalid(
        f"The member {member.name[:LONGEST_QUOTED]!r} of the archive {name} {what}; correct the times of the files and "
        "pack the archive again."
    )


def _unsafe(name: str, member: tarfile.TarInfo, what: str) -> DatasetInvalid:
    return DatasetInvalid(
        f"The member {member.name[:LONGEST_QUOTED]!r} of the archive {name} {what}; pack the archive again with files "
        "and folders below one top folder."
    )
