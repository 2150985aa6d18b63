"""Work on a copy of a compile cache: `python -m trainer.compile_cache --source FOLDER -- torchrun …`.

Compilers write into a cache even if it has all that they want, and two writers spoil a cache ("NEFF is invalid"). So a
cache has one owner, which fills it alone and then marks it as complete. All others copy it to their own node, and the
command works with the copy. The command replaces this process, and so receives its signals and sets its exit code.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from trainer.runtime import program
from trainer.runtime.arguments import divided, parse
from trainer.runtime.commands import become
from trainer.runtime.environment import Environment
from trainer.runtime.errors import CompileCacheGone, ConfigInvalid, StorageFailed
from trainer.runtime.files import written_whole
from trainflow.protocol.compile_cache import environment

MARKER = "_READY"
"""Name of the file that marks a complete cache; it holds the number of graphs."""

BEGUN = "_BEGUN"
"""Name of the file that every cache has from the beginning. A folder with neither file is no cache, and is never
removed."""

MIB = 1 << 20


@dataclass(frozen=True, kw_only=True)
class CopyConfig:
    """The cache to copy, and the place for the copy."""

    source: Path
    """Folder of the shared cache."""
    scratch: Path | None = None
    """Folder on this node in which a new folder is made for the copy; if left out, the folder of temporary files."""


def main(argv: Sequence[str], _environment: Environment) -> NoReturn:
    """Copy the cache, and replace this process by the command."""
    own, command = divided(argv)
    if not command:
        raise ConfigInvalid("Give the training's command behind `--`: python -m trainer.compile_cache … -- torchrun …")
    config = parse(CopyConfig, own, program="trainer.compile_cache")
    folder = copy(config.source, config.scratch or Path(tempfile.gettempdir()))
    become(command, environment(str(folder)))


def copy(source: Path, scratch: Path) -> Path:
    """Copy a cache to a folder that no other process uses.

    Raises:
        CompileCacheGone: If there is no cache, or it is not complete.
        StorageFailed: If the cache cannot be read, or there is no room for the copy.
    """
    _require_whole(source)
    started = time.monotonic()
    try:
        target = Path(tempfile.mkdtemp(prefix="compile-cache-", dir=scratch))
        shutil.copytree(source, target, dirs_exist_ok=True)
    except OSError as error:  # includes shutil.Error, which lists several files
        _require_whole(source)
        raise StorageFailed(f"The compile cache {source} cannot be copied to {scratch} ({error}).") from error
    mebibytes = sum(path.stat().st_size for path in target.rglob("*") if path.is_file()) / MIB
    seconds = time.monotonic() - started
    print(f"Compile cache: {mebibytes:.1f} MiB copied from {source} in {seconds:.1f} s.", flush=True)
    return target


def _require_whole(cache: Path) -> None:
    if not (cache / MARKER).is_file():
        raise CompileCacheGone(f"The compile cache {cache} is gone: there is no file {MARKER} in it.")


def begin(cache: Path) -> None:
    """Make the folder of a cache that is to be filled, with the content of an earlier owner's cache of the same
    graphs."""
    with _storage(cache):
        if cache.exists():
            return
        cache.parent.mkdir(parents=True, exist_ok=True)
        earlier = next((folder for folder in _others(cache) if (folder / MARKER).is_file()), None)
        with tempfile.TemporaryDirectory(dir=cache.parent, prefix=".") as temporary:
            # Made in two steps, so that a folder that exists has all of its first content.
            begun = Path(temporary, "cache")
            begun.mkdir()
            if earlier is not None:
                shutil.copytree(earlier, begun, ignore=shutil.ignore_patterns(MARKER, BEGUN), dirs_exist_ok=True)
                print(f"Compile cache: begun with what is in {earlier}.", flush=True)
            (begun / BEGUN).touch()
            begun.rename(cache)


def finish(cache: Path, counts: Mapping[str, int]) -> None:
    """Mark a cache as complete and remove those of earlier owners; the owner that filled this one holds the lease for
    all."""
    with _storage(cache), written_whole(cache / MARKER) as marker:
        marker.write(json.dumps(counts).encode())
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


if __name__ == "__main__":
    program.raise_on_sigterm()
    sys.exit(program.run(main, sys.argv[1:], os.environ))
