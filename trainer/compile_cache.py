"""Work on a copy of a compile cache: `python -m trainer.compile_cache --source FOLDER -- torchrun …`.

Compilers write into a cache even when all they want is in it, and two that write into one spoil it ("NEFF is
invalid"). So whoever makes a cache has it alone and marks it when it is whole; everybody else takes a copy onto their
own node, and the command works with that. The command takes this process's place, with its signals and its exit code.
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
from trainer.runtime.arguments import parse
from trainer.runtime.environment import Environment
from trainer.runtime.errors import CompileCacheGone, ConfigInvalid, StorageFailed
from trainer.runtime.files import written_whole
from trainflow.protocol.compile_cache import environment

MARKER = "_READY"
"""In the folder of a cache that is whole: with how many graphs."""

BEGUN = "_BEGUN"
"""In the folder of a cache from the first on: what has neither file is no cache, and nobody removes it."""

MIB = 1 << 20


@dataclass(frozen=True, kw_only=True)
class CopyConfig:
    """What to copy, and where to."""

    source: Path
    """Folder of the cache that is shared."""
    scratch: Path | None = None
    """Folder on this node, in which the copy gets a folder of its own; if left out, where temporary files go."""


def main(argv: Sequence[str], _environment: Environment) -> NoReturn:
    """Copy the cache and become the command."""
    end = argv.index("--") if "--" in argv else len(argv)
    command = list(argv[end + 1 :])
    if not command:
        raise ConfigInvalid("Give the training's command behind `--`: python -m trainer.compile_cache … -- torchrun …")
    config = parse(CopyConfig, argv[:end], program="trainer.compile_cache")
    folder = copy(config.source, config.scratch or Path(tempfile.gettempdir()))
    try:
        os.execvpe(command[0], command, {**os.environ, **environment(str(folder))})  # noqa: S606  (the command that was given)
    except OSError as error:
        raise ConfigInvalid(f"The command {command[0]!r} cannot be started ({error}).") from error


def copy(source: Path, scratch: Path) -> Path:
    """A copy of a cache, in a folder that nobody else has.

    Raises:
        CompileCacheGone: If the cache is not there, or not whole.
        StorageFailed: If it cannot be read, or there is no room for the copy.
    """
    _require_whole(source)
    started = time.monotonic()
    try:
        target = Path(tempfile.mkdtemp(prefix="compile-cache-", dir=scratch))
        shutil.copytree(source, target, dirs_exist_ok=True)
    except OSError as error:  # shutil.Error, of several files, is one too
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
    """Make the folder of a cache that is to be filled. What an earlier owner of the same graphs left whole is in it."""
    with _storage(cache):
        if cache.exists():
            return
        cache.parent.mkdir(parents=True, exist_ok=True)
        earlier = next((folder for folder in _others(cache) if (folder / MARKER).is_file()), None)
        with tempfile.TemporaryDirectory(dir=cache.parent, prefix=".") as temporary:
            # In two steps: a folder that is there has all that it began with.
            begun = Path(temporary, "cache")
            begun.mkdir()
            if earlier is not None:
                shutil.copytree(earlier, begun, ignore=shutil.ignore_patterns(MARKER, BEGUN), dirs_exist_ok=True)
                print(f"Compile cache: begun with what is in {earlier}.", flush=True)
            (begun / BEGUN).touch()
            begun.rename(cache)


def finish(cache: Path, counts: Mapping[str, int]) -> None:
    """Mark a cache as whole, and remove those of earlier owners: whoever filled this one had the lease of them all."""
    with _storage(cache), written_whole(cache / MARKER) as marker:
        marker.write(json.dumps(counts).encode())
    for folder in _others(cache):
        shutil.rmtree(folder, ignore_errors=True)


def _others(cache: Path) -> list[Path]:
    """Caches of the same graphs, which lie side by side."""
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
