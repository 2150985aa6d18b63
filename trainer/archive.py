"""Unpack a tar archive from a stream into a folder, trusting nothing in it.

The archive is read once, front to back, and never lies on disk itself.
"""

from __future__ import annotations

import tarfile
import zlib
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Protocol, Self, cast

from trainer.errors import DatasetInvalid, StorageFailed


class Stream(Protocol):
    """Bytes that come in order."""

    def read(self, size: int = -1, /) -> bytes: ...


@dataclass(frozen=True)
class Unpacked:
    """What an archive held."""

    files: int
    bytes: int
    """Of the files, unpacked."""


class _CheckedMember(tarfile.TarInfo):
    """A member's header, read strictly.

    A tar file ends with blocks of zeros. Python takes the end of the stream and, behind the first member, a damaged
    header for that as well, so an archive that was cut off between two members would look complete.
    """

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> Self:
        if len(buf) < tarfile.BLOCKSIZE:
            raise tarfile.ReadError("its end is missing")
        try:
            return super().frombuf(buf, encoding, errors)
        except tarfile.HeaderError as error:
            if not any(buf):
                raise  # zeros: the proper end
            raise tarfile.ReadError(f"a member's header is damaged: {error}") from error


def unpack(stream: Stream, folder: Path, *, name: str) -> Unpacked:
    """Unpack everything into an existing, empty folder.

    Args:
        stream: The archive: tar, plain or compressed with gzip, bzip2 or xz.
        folder: Where to; nothing is ever written outside.
        name: What to call the archive in messages.

    Raises:
        DatasetInvalid: If it is no archive, is truncated, or holds a member that leaves the folder.
        StorageFailed: If the folder cannot be written.
    """
    files = num_bytes = 0
    try:
        with tarfile.open(fileobj=cast(Any, stream), mode="r|*", tarinfo=_CheckedMember) as archive:
            for member in archive:
                require_safe(member, folder, name=name)
                archive.extract(member, folder, filter="data")
                files += member.isfile()
                num_bytes += member.size if member.isfile() else 0
    except KeyError as error:
        raise DatasetInvalid(
            f"The archive {name} holds a hard link to a file that does not come before it ({error.args[0]}); "
            "pack the archive again without links."
        ) from error
    except (tarfile.TarError, EOFError, zlib.error) as error:
        raise DatasetInvalid(
            f"The archive {name} is truncated or no tar archive ({error}, after {files} files); "
            "make it again and upload it again."
        ) from error
    except OSError as error:
        raise StorageFailed(
            f"The archive {name} cannot be unpacked to {folder.parent} ({error}); "
            "make room there, or give a --destination that can be written."
        ) from error
    return Unpacked(files, num_bytes)


def require_safe(member: tarfile.TarInfo, folder: Path, *, name: str) -> None:
    """A member has to be a file, a folder or a link, and stay inside the folder.

    Raises:
        DatasetInvalid: Naming the member and what it does.
    """
    path = PurePosixPath(member.name)
    if path.is_absolute():
        raise _unsafe(name, member, "has an absolute path")
    if ".." in path.parts:
        raise _unsafe(name, member, "leaves the target folder with '..'")
    if not (member.isfile() or member.isdir() or member.issym() or member.islnk()):
        raise _unsafe(name, member, "is a device or pipe")
    try:
        tarfile.data_filter(member, str(folder))
    except tarfile.FilterError as error:
        what = f"is a link that leaves the target folder ({member.linkname!r})" if _links(member) else str(error)
        raise _unsafe(name, member, what) from error


def _links(member: tarfile.TarInfo) -> bool:
    return member.issym() or member.islnk()


def _unsafe(name: str, member: tarfile.TarInfo, what: str) -> DatasetInvalid:
    return DatasetInvalid(
        f"The member {member.name!r} of the archive {name} {what}; pack the archive again with files and folders below "
        "one top folder."
    )
