"""Work on a copy of a compile cache.

Compilers write into a cache even if nothing is missing, and two writers damage a cache ("NEFF is invalid"). So a cache
has one owner. Only the owner fills it, and then seals it with a file that holds the SHA-256 of every other file. All
others copy it to their own node and compare, and the program works with the copy.
"""

from __future__ import annotations

import json
import shutil
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from trainer.runtime.errors import CompileCacheGone, StorageFailed
from trainer.runtime.files import MIB, file_sha256, written_whole
from trainer.runtime.node import Node, Prepared
from trainflow.protocol.compile_cache import environment
from trainflow.protocol.plan import CompileCache

MARKER = "_READY"
"""Name of the file that seals a complete cache: the number of graphs, and each file's path and SHA-256."""

BEGUN = "_BEGUN"
"""Name of the file that every cache has from the beginning. A folder with neither file is not a cache, and is never
removed."""

LOCKS = ".lock"
"""Suffix of the compilers' lock files. They are not part of a cache: a compiler that meets one may wait forever."""


def prepare(step: CompileCache, _node: Node) -> Prepared:
    """Copy the cache to the folder of temporary files.

    Raises:
        CompileCacheGone: If the cache is missing, incomplete or damaged.
        StorageFailed: If the cache cannot be read, or the copy does not fit.
    """
    return Prepared(variables=environment(str(copy(Path(step.source), Path(tempfile.gettempdir())))))


# Decision 15: a program trains on a copy, which is compared with the digests of the sealed cache.
def copy(source: Path, scratch: Path) -> Path:
    """Copy a cache to a folder that no other process uses.

    Raises:
        CompileCacheGone: If the cache is missing, incomplete or damaged.
        StorageFailed: If the cache cannot be read, or the copy does not fit.
    """
    started = time.monotonic()
    try:
        _require_sealed(source)
        target = Path(tempfile.mkdtemp(prefix="compile-cache-", dir=scratch))
        _copy_sealed(source, target)
    except OSError as error:
        _require_sealed(source)
        raise StorageFailed(f"The compile cache {source} cannot be copied to {scratch} ({error}).") from error
    mebibytes = sum(path.stat().st_size for path in target.rglob("*") if path.is_file()) / MIB
    seconds = time.monotonic() - started
    print(f"Compile cache: {mebibytes:.1f} MiB copied from {source} in {seconds:.1f} s.", flush=True)
    return target


def _require_sealed(cache: Path) -> None:
    if not (cache / MARKER).is_file():
        raise CompileCacheGone(f"The compile cache {cache} is gone: there is no file {MARKER} in it.")


def _sealed(cache: Path) -> Mapping[str, str]:
    """SHA-256 of each file of a complete cache, by its path in the cache.

    Raises:
        CompileCacheGone: If the seal cannot be understood.
    """
    try:
        files = json.loads((cache / MARKER).read_text(errors="replace"))["files"]
        inside = all(not Path(name).is_absolute() and ".." not in Path(name).parts for name in files)
        if inside and all(isinstance(digest, str) for digest in files.values()):
            return dict(files)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        pass
    raise CompileCacheGone(f"The compile cache {cache} cannot be used: {MARKER} does not list its files.")


def _copy_sealed(cache: Path, target: Path) -> None:
    """Copy the files of a complete cache, and compare the copies with the seal. Other files are not copied.

    Raises:
        CompileCacheGone: If a file is missing, or differs.
    """
    for name, digest in _sealed(cache).items():
        source, copied = cache / name, target / name
        if not source.is_file():
            raise CompileCacheGone(f"The compile cache {cache} is damaged: {name} is missing.")
        copied.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(source, copied)
        if file_sha256(copied) != digest:
            raise CompileCacheGone(f"The compile cache {cache} is damaged: {name} is not what was sealed.")


def begin(cache: Path) -> None:
    """Make the folder of a cache that is to be filled, with the content of an earlier owner's intact cache of the same
    graphs.

    A folder that an earlier attempt began is completed. One that was sealed is begun again: a training found it
    damaged, or a compiler may change it before it is sealed anew.
    """
    with _storage(cache):
        if cache.exists() and not (cache / MARKER).is_file():
            return
        cache.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache.parent, prefix=".") as temporary:
            # Made in two steps, so that a folder that exists has all of its first content.
            begun = Path(temporary, "cache")
            _fill(begun, earlier=(folder for folder in (cache, *_others(cache)) if (folder / MARKER).is_file()))
            (begun / BEGUN).touch()
            if cache.exists():
                cache.rename(Path(temporary, "sealed"))
            begun.rename(cache)


def _fill(begun: Path, *, earlier: Iterable[Path]) -> None:
    """Make a folder with the content of the first complete cache that is intact; an empty one without any."""
    for folder in earlier:
        begun.mkdir()
        try:
            _copy_sealed(folder, begun)
        except CompileCacheGone as damage:
            print(f"{damage} Its graphs are compiled again.", flush=True)
            shutil.rmtree(begun)
        else:
            print(f"Compile cache: begun with what is in {folder}.", flush=True)
            return
    begun.mkdir()


def finish(cache: Path, counts: Mapping[str, int]) -> None:
    """Seal a cache and remove those of earlier owners; the owner that filled this one holds the lease for all."""
    with _storage(cache):
        files = {str(path.relative_to(cache)): path for path in sorted(cache.rglob("*")) if path.is_file()}
        content = {
            name: file_sha256(path)
            for name, path in files.items()
            if name not in (MARKER, BEGUN) and path.suffix != LOCKS
        }
        with written_whole(cache / MARKER) as marker:
            marker.write(json.dumps({"totals": dict(counts), "files": content}).encode())
    for folder in _others(cache):
        shutil.rmtree(folder, ignore_errors=True)


def _others(cache: Path) -> list[Path]:
    """The caches of the same graphs, which lie side by side."""
    folders = (folder for folder in cache.parent.iterdir() if folder != cache)
    return sorted(folder for folder in folders if (folder / MARKER).is_file() or (folder / BEGUN).is_file())


@contextmanager
def _storage(cache: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StorageFailed(f"The compile cache {cache} cannot be written ({error}).") from error
