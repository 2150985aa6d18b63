"""Report files that a program wrote to its working folder, which are deleted with the pod:
`python -m trainer.lost_files --folder DIR --began SECONDS --node_rank N --num_nodes N …`.

A working folder below the run's folder is kept, and is not searched (decision 90). That of a program of the image, or
with `kept_gib: 0`, is deleted with the pod. So its files that are newer than the program's start are named in a line of
the log (`trainflow.protocol.lost_files`), which the workflow reads. In the pod's own folders (that of the code, the
home folder, temporary files) only models are searched.

A file is newer if both its content and its entry in the file system were changed after the start. An unpacked archive
has old times of change, and a file that was there before has an old entry, so neither is taken for a result.

In pods `trainer.supervisor` calls this module, since it outlives the program; a Slurm job starts it as a program. It
never makes the training fail, and takes a few seconds at most, whatever is in the folder.
"""

from __future__ import annotations

import heapq
import os
import re
import stat
import sys
import tempfile
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from trainer.runtime import arguments, program
from trainer.runtime.environment import Environment
from trainer.runtime.files import shown, written_whole
from trainer.runtime.node import SHARED_NOTES
from trainer.runtime.workers import Worker
from trainflow.protocol import variables
from trainflow.protocol.lost_files import (
    LostFile,
    LostFiles,
    lost_files_line,
    merged,
    parse_lost_files_line,
    printable,
)

SEARCH_SECONDS = 5.0
"""Longest search of a working folder; 100,000 files take less than a second on a local disk."""

OTHER_NODES_SECONDS = 5.0
"""Longest time that node 0 waits for the reports of the other nodes, after a program that has succeeded."""

LONGEST_SECONDS = SEARCH_SECONDS + OTHER_NODES_SECONDS + 5.0
"""A report is given up after this time: storage that hangs must not keep a pod from ending."""

POLL_SECONDS = 0.05

MAX_COMPARED = 1000
"""Most files of a node that are compared by name with those of other nodes, the largest."""

MAX_REPORT_BYTES = 1 << 20
"""Most bytes of another node's report; a thousand files take a tenth of it."""

NAMED_OF_A_FAILURE = 3
"""Most files that are named after a failure: the program's error message has to stay near the end of the log."""

IGNORED_FOLDERS = frozenset(
    {
        *("__pycache__", ".git", ".hg", ".svn", ".venv", "node_modules", ".ipynb_checkpoints"),
        *(".cache", ".config", ".local", ".pytest_cache", ".mypy_cache", ".ruff_cache"),
        *(".nv", ".triton", ".keras", ".matplotlib", ".ipython", "torch_compile_debug"),
    }
)
"""Folders of caches and settings, which hold no results."""

_IGNORED = re.compile(
    r"""
    .*\.py[co]                                # Python's bytecode
    | core(\.\d+)?                            # dumps of a process that was killed
    | .*\.lock                                # of a library that several processes use at once
    | \.nfs[0-9a-f]+ | \.fuse_hidden[0-9a-f]+ # deleted files that are still open
    | log-neuron-cc\.txt                      # these and the folders neuronxcc-… are left by Neuron's compiler
    | global_metric_store\.json
    | .*PostSPMDPassesExecutionDuration\.txt
    """,
    re.VERBOSE,
)
_IGNORED_FOLDER = re.compile(r"neuronxcc-.*|.*\.egg-info")

MODELS = (
    *(".pt", ".pth", ".ckpt", ".bin", ".safetensors", ".distcp", ".onnx"),
    *(".npz", ".npy", ".h5", ".hdf5", ".pkl", ".tar"),
)
"""Ends of the files that are reported in the home folder and in that of temporary files, where libraries leave much."""

_TEMPORARY = re.compile(r"tmp[a-z0-9_]{8}|(torchelastic_|pymp-|error-).*")
"""Names that Python, torchrun and our own programs give to what they make in TMPDIR, which may be the working folder
itself in a Slurm job."""


@dataclass(frozen=True, kw_only=True)
class LostFilesConfig:
    """The folder, and the place of this node in its gang."""

    folder: Path
    """Working folder of the program."""
    began: float
    """Time before the program started, in seconds since 1970, by the clock of the folder's file system."""
    node_rank: int = 0
    """Number of this node, from 0."""
    num_nodes: int = 1
    """Nodes of the gang."""
    exit_code: int = 0
    """Exit code of the program."""


@dataclass(frozen=True, kw_only=True)
class Gang:
    """The nodes whose files are reported in one line."""

    node: str
    """Name of this node in its gang."""
    num_nodes: int
    """Nodes that report, at least."""
    speaks: bool
    """Whether the workflow may read this node's log."""
    folder: Path | None
    """Folder that the nodes share; None without one."""
    attempt: str
    """Attempt of the job: reports of earlier ones are passed over."""


@dataclass(frozen=True, kw_only=True)
class Kept:
    """Places whose files are kept, or are not results."""

    kept: tuple[Path, ...]
    """Folders that outlast the pod."""
    temporary: tuple[Path, ...] = ()
    """Folders for temporary files."""


def main(argv: Sequence[str], environment: Environment) -> None:
    """Report the files of a program that has ended."""
    config = arguments.parse(LostFilesConfig, argv, program="trainer.lost_files")
    gang = gang_of(
        os.environ, environment, node=str(config.node_rank), num_nodes=config.num_nodes, speaks=config.node_rank == 0
    )
    began, not_searched = round(config.began * 1e9), places(os.environ, environment)
    report(config.folder, began, gang, not_searched, succeeded=config.exit_code == 0)


def gang_of(environ: Mapping[str, str], environment: Environment, *, node: str, num_nodes: int, speaks: bool) -> Gang:
    """The gang of this node.

    Args:
        environ: Environment variables.
        environment: The same, read.
        node: Name of this node in its gang.
        num_nodes: Nodes of the gang, the fewest of an elastic one.
        speaks: Whether the workflow may read this node's log.
    """
    shared = None if environment.run_dir is None else environment.run_dir / SHARED_NOTES
    attempt = environ.get(variables.ATTEMPT, "1")
    return Gang(node=node, num_nodes=num_nodes, speaks=speaks, folder=shared, attempt=attempt)


def places(environ: Mapping[str, str], environment: Environment, volumes: Iterable[Path] = ()) -> Kept:
    """The places of a pod that are not searched.

    Args:
        environ: Environment variables.
        environment: The same, read.
        volumes: Volumes of the spec.
    """
    scratch = environ.get(variables.SCRATCH_DIR)
    kept = (environment.run_dir, environment.data_dir, environment.cache_dir, *volumes)
    return Kept(
        kept=tuple(path for path in kept if path is not None),
        temporary=(Path(tempfile.gettempdir()), *((Path(scratch),) if scratch else ())),
    )


def beginning(folder: Path) -> int:
    """The time now by the clock of a folder's file system, in nanoseconds since 1970.

    A network file system has the clock of its server. Where the folder cannot be written, this machine's clock counts.
    """
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            return os.fstat(file.fileno()).st_mtime_ns
    except OSError:
        return time.time_ns()


def private_folders(environ: Mapping[str, str]) -> tuple[Path, ...]:
    """Folders of a pod, beside the working folder, where programs leave models: they are deleted with it."""
    home = environ.get("HOME", "")
    return (*((Path(home),) if home.strip("/") else ()), Path(tempfile.gettempdir()))


def report(
    folder: Path, began: int, gang: Gang, not_searched: Kept, *, succeeded: bool, others: Sequence[Path] = ()
) -> None:
    """Search the folder, and print the line if files of this node or another one are lost. Never raises, nor hangs.

    Args:
        folder: Working folder of the program.
        began: Time when the program started, by the clock of the folder's file system.
        gang: The gang.
        not_searched: Places that are not searched.
        succeeded: Whether the program ended with 0. If not, the other nodes may never report.
        others: Further folders, which are searched for models.
    """
    search = partial(_report, folder, began, gang, not_searched, succeeded=succeeded, others=others)
    worker = Worker(search, name="lost files")
    worker.start()
    worker.join(LONGEST_SECONDS)
    if worker.error is not None:  # the program has ended, and its exit code is what counts
        print(f"trainer.lost_files: {type(worker.error).__name__}: {worker.error}", file=sys.stderr, flush=True)


def _report(
    folder: Path, began: int, gang: Gang, not_searched: Kept, *, succeeded: bool, others: Sequence[Path]
) -> None:
    deadline = time.monotonic() + SEARCH_SECONDS
    found_here = [lost_files(folder, began, not_searched, deadline=deadline)]
    beside = Kept(kept=(*not_searched.kept, folder))
    found_here += [lost_files(place, began, beside, deadline=deadline, only=MODELS) for place in others]
    own = merged(each for each in found_here if each is not None)
    found = own if gang.num_nodes == 1 else _merged_reports(own, gang, wait=succeeded)
    if found is not None and gang.speaks:
        named = {} if succeeded else {"most_named": NAMED_OF_A_FAILURE}
        os.write(1, f"{lost_files_line(found, **named)}\n".encode())


# Decision 76: a run that succeeded must not lose its model without a word.
def lost_files(
    folder: Path, began: int, not_searched: Kept, *, deadline: float, only: tuple[str, ...] = ()
) -> LostFiles | None:
    """The files of a folder that are newer than a moment; None without any, and for a folder that is kept.

    Args:
        folder: Working folder of the program.
        began: The moment, by the clock of the folder's file system.
        not_searched: Places that are not searched.
        deadline: Time of `time.monotonic` when the search stops.
        only: Ends of names; the files are reported with their full paths then. Empty for all files.
    """
    root = os.path.realpath(folder)
    if any(_is_within(root, os.path.realpath(place)) for place in not_searched.kept):
        return None
    skipped = frozenset(os.path.realpath(place) for place in (*not_searched.kept, *not_searched.temporary))
    num_files = num_bytes = 0
    largest: list[tuple[int, str]] = []
    is_partial = False
    for path, status in _files(root, skipped, is_temporary=bool(only) or root in skipped):
        if time.monotonic() > deadline:
            is_partial = True
            break
        if status is None or not is_new(status, began) or not path.endswith(only or ""):
            continue
        num_files, num_bytes = num_files + 1, num_bytes + status.st_size
        (heapq.heappush if len(largest) < MAX_COMPARED else heapq.heappushpop)(largest, (status.st_size, path))
    if not num_files:
        return None
    named = (
        LostFile(name=_shown(path, None if only else root), num_bytes=size)
        for size, path in sorted(largest, key=lambda file: (-file[0], file[1]))
    )
    return LostFiles(num_files=num_files, num_bytes=num_bytes, largest=tuple(named), is_partial=is_partial)


def is_new(status: os.stat_result, began: int) -> bool:
    """Whether a file has a content that was written after a moment."""
    return stat.S_ISREG(status.st_mode) and status.st_size > 0 and min(status.st_mtime_ns, status.st_ctime_ns) > began


def is_ignored(name: str, *, is_folder: bool) -> bool:
    """Whether a file or folder of this name holds no results."""
    if is_folder:
        return name in IGNORED_FOLDERS or _IGNORED_FOLDER.fullmatch(name) is not None
    return _IGNORED.fullmatch(name) is not None


def _files(root: str, skipped: Collection[str], *, is_temporary: bool) -> Iterator[tuple[str, os.stat_result | None]]:
    """Files below a folder with their status, and folders without one, so that a caller can stop at any of them.

    Links are not followed, and folders of other file systems are not entered: those are mounted. What cannot be read,
    or has been deleted meanwhile, is passed over.

    Args:
        root: The folder.
        skipped: Folders that are not entered.
        is_temporary: Whether the folder is that of temporary files, too.
    """
    waiting = [root]
    try:
        device = os.stat(root).st_dev  # noqa: PTH116  (strings: there may be thousands)
    except OSError:
        return
    while waiting:
        folder = waiting.pop()
        yield folder, None
        with suppress(OSError), os.scandir(folder) as entries:
            for entry in entries:
                with suppress(OSError):
                    is_folder = entry.is_dir(follow_symlinks=False)
                    if is_ignored(entry.name, is_folder=is_folder) or entry.is_symlink():
                        continue
                    if is_temporary and folder == root and _TEMPORARY.fullmatch(entry.name):
                        continue
                    status = entry.stat(follow_symlinks=False)
                    if not is_folder:
                        yield entry.path, status
                    elif status.st_dev == device and entry.path not in skipped:
                        waiting.append(entry.path)


def _is_within(path: str, place: str) -> bool:
    return path == place or path.startswith(f"{place.rstrip(os.sep)}{os.sep}")


def _shown(path: str, root: str | None) -> str:
    """A path below a folder, or a full one, as a line of the log can show it."""
    return printable(shown(path if root is None else os.path.relpath(path, root)))


def _merged_reports(own: LostFiles | None, gang: Gang, *, wait: bool) -> LostFiles | None:
    """The files of all nodes, on a node that speaks for them; on the others, the report is left for that node."""
    if gang.folder is None:
        return own
    place = gang.folder / f"lost-files-{gang.attempt}"
    with written_whole(place / gang.node) as file:
        file.write(lost_files_line(own, most_named=MAX_COMPARED).encode() if own else b"none")
    if not gang.speaks:
        return None
    deadline = time.monotonic() + (OTHER_NODES_SECONDS if wait else 0.0)
    names = _reports(place)
    while len(names) < gang.num_nodes and time.monotonic() < deadline:
        time.sleep(POLL_SECONDS)
        names = _reports(place)
    others = (_read(place / name) for name in names if name != gang.node)
    found = merged(each for each in (own, *others) if each is not None)
    if found is None or len(names) >= gang.num_nodes:
        return found
    return LostFiles(num_files=found.num_files, num_bytes=found.num_bytes, largest=found.largest, is_partial=True)


def _reports(place: Path) -> list[str]:
    """Names of the nodes that have reported; a name with a dot is that of a report that is being written."""
    return sorted(name for name in os.listdir(place) if not name.startswith("."))  # noqa: PTH208  (names only)


def _read(file: Path) -> LostFiles | None:
    try:
        with file.open("rb") as opened:
            text = opened.read(MAX_REPORT_BYTES).decode(errors="replace")
    except OSError:
        return None
    return parse_lost_files_line(text, most_named=MAX_COMPARED)


if __name__ == "__main__":
    sys.exit(program.run(main, sys.argv[1:], os.environ))
