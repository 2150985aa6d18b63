"""Pack `workload.code`: the files of a folder, or of a commit, in an archive that is named by its content.

In a Git repository the files are those that Git knows or would add (`git ls-files -co --exclude-standard`), so
.gitignore is respected. Elsewhere they are all but Git's own, caches and virtual environments. The same files give the
same archive, and so the same digest.
"""

from __future__ import annotations

import errno
import gzip
import hashlib
import io
import os
import subprocess
import tarfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from trainflow.client.left_out import LeftOut, files_left_out, sentence
from trainflow.client.owned_folder import OwnedFolder
from trainflow.errors import InvalidRunSpec
from trainflow.spec.code import git_commit, packed_key, packed_sha256
from trainflow.spec.run_spec import RunSpec
from trainflow.spec.workload import Workload

MAX_MIB = 100
"""Most that the files of a program may have together, unpacked. Data belongs into data sets, which are staged once."""

NEVER_PACKED = frozenset({".git", "__pycache__", ".venv", "venv", "node_modules", ".trainflow"})
"""Names of folders that hold no code of the program's."""

LOGS = (".log", "nohup.out")
"""Ends of names of files that commands write while they run: with them the code would differ from start to start."""

FRESH = timedelta(days=1)
"""Archives of this age are uploaded again: a bucket that deletes old objects counts their time from then on."""

NUM_LARGEST = 3
"""Files that the sentence about too large a folder names."""


@dataclass(frozen=True, kw_only=True)
class PackedCode:
    """The archive of a program's files."""

    content: bytes
    sha256: str
    commit: str | None = None
    """Git commit of the files, with `-dirty` if they differ from it; None outside of a Git repository."""
    left_out: tuple[LeftOut, ...] = ()
    """Files that .gitignore keeps out, the largest first."""
    note: str | None = None
    """Sentence about those that the program may need; None without such files."""

    def named_in(self, spec: RunSpec, *, bucket: str) -> RunSpec:
        """The spec with the archive's URL in place of the folder or commit."""
        named: dict[str, Any] = {"code": f"s3://{bucket}/{packed_key(self.sha256)}", "code_commit": self.commit}
        if self.left_out:
            named["code_left_out"] = [each.name for each in self.left_out]
        return spec.model_copy(update={"workload": spec.workload.model_copy(update=named)})

    def upload(self, s3: Any, *, bucket: str) -> None:
        """Upload the archive, unless it is there already.

        Args:
            s3: A boto3 client of S3.
            bucket: The artifact bucket.
        """
        key = packed_key(self.sha256)
        found = s3.list_objects_v2(Bucket=bucket, Prefix=key, MaxKeys=1).get("Contents", ())
        if not any(datetime.now(UTC) - each["LastModified"] < FRESH for each in found):
            s3.put_object(Bucket=bucket, Key=key, Body=self.content, ContentType="application/gzip")


def pack(workload: Workload, *, beside: Path, leave_out: Iterable[Path] = ()) -> PackedCode | None:
    """Pack the code of a workload; None if nothing has to be packed.

    Args:
        workload: The spec's workload.
        beside: Folder of the spec's file, which a folder's path is relative to.
        leave_out: Folders that are not packed, such as those of earlier runs' records.

    Raises:
        InvalidRunSpec: If the code cannot be packed, or lacks the program; one sentence that names the field.
    """
    code = workload.code
    if code is None or packed_sha256(code) is not None:
        return None
    with _folder_of(code, beside=beside) as folder:
        left_out = {path.resolve() for path in leave_out}
        files = {name: path for name, path in code_files(folder) if not _is_below(path, left_out)}
        _require_program(workload, files)
        _require_size(code, files)
        ignored = files_left_out(folder, besides=leave_out)
        note = sentence(ignored, _program_source(workload, files))
        return replace(_packed(code, folder, files), commit=_current_commit(folder), left_out=ignored, note=note)


def require_code(workload: Workload, *, beside: Path) -> str | None:
    """Check that the folder of a workload's code can be packed; a commit is fetched when the run starts.

    Returns:
        A sentence about files that will not be packed and that the program may need; None without such files.

    Raises:
        InvalidRunSpec: See `pack`.
    """
    if workload.code is None or git_commit(workload.code) is not None:
        return None
    packed = pack(workload, beside=beside)
    return packed.note if packed is not None else None


def _program_source(workload: Workload, files: dict[str, Path]) -> bytes:
    """Source of the program; empty if it is not one of the files."""
    module = (workload.module or "").replace(".", "/")
    names = (workload.script, *(workload.command or ()), f"{module}.py", f"{module}/__main__.py")
    paths = [files[os.path.normpath(name)] for name in names if name and os.path.normpath(name) in files]
    return b"\n".join(path.read_bytes() for path in paths if path.is_file())


@contextmanager
def _folder_of(code: str, *, beside: Path) -> Iterator[Path]:
    commit = git_commit(code)
    if commit is None:
        folder = (beside / code).resolve()
        if not folder.is_dir():
            raise InvalidRunSpec(f"workload.code: there is no folder '{code}' beside the spec, in {beside.resolve()}.")
        yield folder
        return
    with OwnedFolder("trainflow-code-") as temporary:
        clone = Path(temporary) / "clone"
        _git("clone", "--quiet", "--no-checkout", commit.url, str(clone), code=code)
        _git("-C", str(clone), "checkout", "--quiet", "--detach", commit.commit, code=code)
        yield clone


def _git(*arguments: str, code: str) -> None:
    environment = {**os.environ, "GIT_TERMINAL_PROMPT": "0"}
    try:
        done = subprocess.run(
            ["git", *arguments], env=environment, capture_output=True, text=True, errors="replace", check=False
        )
    except OSError as error:
        raise InvalidRunSpec(f"workload.code is '{code}', for which `git` is needed ({error}); install it.") from None
    if done.returncode:
        last_line = (done.stderr.strip().splitlines() or ["git printed no error"])[-1]
        raise InvalidRunSpec(f"workload.code: '{code}' cannot be fetched ({last_line}).")


def _files(folder: Path) -> Iterator[tuple[str, Path]]:
    """Paths of the files and links below a folder, relative to it and as they are."""
    listed = _listed_by_git(folder)
    for name in sorted(_walk(folder) if listed is None else listed):
        path = folder / name
        if path.is_dir() and not path.is_symlink():  # a submodule, which Git lists as a whole
            yield from ((f"{name.rstrip('/')}/{inner}", path / inner) for inner in sorted(_walk(path)))
        elif path.is_symlink() or path.is_file():  # and not a file that was deleted and is still known to Git
            yield name, path


def _listed_by_git(folder: Path) -> list[str] | None:
    """Files that Git lists in a folder; None outside of a Git repository, or without Git."""
    listing = ["git", "-C", str(folder), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        done = subprocess.run(listing, capture_output=True, check=False)
    except OSError:
        return None
    if done.returncode:
        return None
    return sorted({os.fsdecode(name) for name in done.stdout.split(b"\0") if name})


def _current_commit(folder: Path) -> str | None:
    """Commit of a folder's files; None outside of a Git repository, without commits, or without Git."""

    def answer(*arguments: str) -> str | None:
        try:
            done = subprocess.run(["git", "-C", str(folder), *arguments], capture_output=True, text=True, check=False)
        except (OSError, UnicodeDecodeError):
            return None
        return done.stdout.strip() if done.returncode == 0 else None

    commit, changes = answer("rev-parse", "--verify", "HEAD"), answer("status", "--porcelain", "--", ".")
    return f"{commit}-dirty" if commit and changes else commit


def _walk(folder: Path) -> Iterator[str]:
    for parent, folders, names in os.walk(folder):
        links = [name for name in folders if Path(parent, name).is_symlink()]
        folders[:] = [name for name in folders if name not in NEVER_PACKED and name not in links]
        for name in (*names, *links):
            yield Path(parent, name).relative_to(folder).as_posix()


def code_files(folder: Path) -> Iterator[tuple[str, Path]]:
    """Files of a program below its folder, without a tool's files, logs and the output of this command.

    Yields:
        The path relative to the folder, and the path.
    """
    outputs = list(_outputs())
    for name, path in _files(folder):
        if not NEVER_PACKED & set(name.split("/")) and not name.endswith(LOGS) and not _is_among(path, outputs):
            yield name, path


def _outputs() -> Iterator[os.stat_result]:
    """The files that the standard output and error of this process are written to."""
    for descriptor in (1, 2):
        with suppress(OSError):
            yield os.fstat(descriptor)


def _is_among(path: Path, files: Iterable[os.stat_result]) -> bool:
    with suppress(OSError):
        found = path.stat()
        return any(os.path.samestat(found, file) for file in files)
    return False


def _is_below(path: Path, folders: Iterable[Path]) -> bool:
    place = path.parent.resolve() / path.name
    return any(place.is_relative_to(folder) for folder in folders)


def _require_program(workload: Workload, files: dict[str, Path]) -> None:
    """Require that the code contains the workload's program. Modules of other packages may be installed."""
    if workload.script is not None and os.path.normpath(workload.script) not in files:
        raise InvalidRunSpec(
            f"workload.script: there is no file '{workload.script}' among the {len(files)} files of workload.code "
            f"'{workload.code}'; correct the path, and see that .gitignore does not name it."
        )
    if workload.requirements is not None and os.path.normpath(workload.requirements) not in files:
        raise InvalidRunSpec(
            f"workload.requirements: there is no file '{workload.requirements}' in workload.code '{workload.code}'; "
            "correct the path."
        )
    if workload.module is None:
        return
    path = workload.module.replace(".", "/")
    if any(name.startswith(f"{path.split('/')[0]}/") for name in files) and not {
        f"{path}.py",
        f"{path}/__main__.py",
    } & set(files):
        raise InvalidRunSpec(
            f"workload.module: there is no module '{workload.module}' in workload.code '{workload.code}'; correct the "
            "name."
        )


def _require_size(code: str, files: dict[str, Path]) -> None:
    sizes = {name: path.lstat().st_size for name, path in files.items()}
    if sum(sizes.values()) > MAX_MIB << 20:
        largest: Sequence[str] = sorted(sizes, key=lambda name: -sizes[name])[:NUM_LARGEST]
        named = ", ".join(f"{name} ({sizes[name] / 2**20:.0f} MiB)" for name in largest)
        raise InvalidRunSpec(
            f"workload.code: '{code}' has {sum(sizes.values()) / 2**20:.0f} MiB, but at most {MAX_MIB} are packed; the "
            f"largest files are {named}: name them in .gitignore, or stage them as a data set."
        )


def _packed(code: str, folder: Path, files: dict[str, Path]) -> PackedCode:
    """The archive: members in the order of their names, without times and owners."""
    packed = io.BytesIO()
    with (
        gzip.GzipFile(fileobj=packed, mode="wb", filename="", mtime=0, compresslevel=6) as compressed,
        tarfile.open(fileobj=compressed, mode="w", format=tarfile.PAX_FORMAT) as archive,
    ):
        for name, path in files.items():
            member = tarfile.TarInfo(name)
            if path.is_symlink():
                member.type, member.linkname = tarfile.SYMTYPE, _target_inside(code, folder, name, path)
                archive.addfile(member)
                continue
            content = path.read_bytes()
            member.size, member.mode = len(content), 0o755 if os.access(path, os.X_OK) else 0o644
            archive.addfile(member, io.BytesIO(content))
    content = packed.getvalue()
    return PackedCode(content=content, sha256=hashlib.sha256(content).hexdigest())


def _target_inside(code: str, folder: Path, name: str, path: Path) -> str:
    target = os.readlink(path)  # noqa: PTH115  (as it is written)
    if _is_loop(path):
        raise InvalidRunSpec(
            f"workload.code: '{name}' in '{code}' is a link that leads back to itself ({target}); remove it, or name "
            "it in .gitignore."
        )
    if Path(target).is_absolute() or not (path.parent / target).resolve().is_relative_to(folder):
        raise InvalidRunSpec(
            f"workload.code: '{name}' in '{code}' is a link that leaves the folder ({target}); replace it by a copy, "
            "or name it in .gitignore."
        )
    return target


def _is_loop(link: Path) -> bool:
    try:
        link.stat()
    except OSError as error:  # `Path.resolve` reports a loop in another way in every version of Python
        return error.errno == errno.ELOOP
    return False
