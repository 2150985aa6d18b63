"""The packages that a run's requirements file asks for: resolved once, and found by every later process of the run."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from trainer.packages import builds, image, notes, pip, requirement_lines, sets, store
from trainer.packages.image import Package
from trainer.packages.notes import Note
from trainer.packages.pip import Item
from trainer.packages.requirement_lines import Line
from trainer.runtime.errors import CodeInvalid, StorageFailed
from trainer.runtime.workers import Worker

RENEWAL_SECONDS = store.DAY
"""Interval of renewals while a program runs: its shared packages are in use for `store.IN_USE_DAYS`."""


@dataclass(frozen=True, kw_only=True)
class Requirements:
    """A requirements file, and the folders for what it asks for."""

    file: Path
    root: Path
    """Folder of the code."""
    own: Path
    """Folder of the run's own packages."""
    shared: Path | None = None
    """Folder of the packages that runs share; None where runs share nothing."""
    writes_shared: bool = False
    """Whether this process installs there; otherwise a program of Trainflow's image does so, after `fetch`."""
    replaced: tuple[str, ...] = ()
    """Packages of the image that may be replaced although its stack depends on them."""


def fetch(required: Requirements) -> None:
    """Resolve, and leave the wheels of shared packages for the store. What is built is installed at once.

    Raises:
        CodeInvalid: If the file cannot be read, contradicts the image, or names what cannot be fetched or built.
        StorageFailed: If a folder cannot be written.
    """
    lines, file, packages = _read(required)
    try:
        note = notes.read(file)
        if note is None or _missing(note, required):
            _resolve(required, lines, packages, file)
    except OSError as error:
        raise _unwritable(required, error) from error


def folders(required: Requirements) -> tuple[Path, ...]:
    """Folders of the packages, which are installed where they are missing.

    Raises:
        CodeInvalid: If the file cannot be read, contradicts the image, or names what cannot be fetched or built.
        StorageFailed: If a folder cannot be written.
    """
    lines, file, packages = _read(required)
    try:
        note = notes.read(file)
        if note is None or _missing(note, required):
            note = _resolve(required, lines, packages, file, into=_installs_to(required))
        file.touch()
    except OSError as error:
        raise _unwritable(required, error) from error
    if note.shared is not None:
        _renew(file)
    return tuple(filter(None, (_place(key, required) for key in note.keys)))


def _installs_to(required: Requirements) -> Path:
    """Folder where this process installs shared packages that are missing."""
    if required.shared is None or not required.writes_shared:
        return required.own
    store.clean(required.shared, required.own.parents[1])
    return required.shared


def _unwritable(required: Requirements, error: OSError) -> StorageFailed:
    return StorageFailed(f"The packages' folder {required.own} cannot be written ({error}).")


def _read(required: Requirements) -> tuple[list[Line], Path, dict[str, Package]]:
    """Lines of the file, the run's note about them, and the image's packages."""
    lines = requirement_lines.read(required.file, root=required.root)
    packages = image.installed_packages()
    name = notes.note_name(lines, root=required.root, image=packages.values(), replaced=required.replaced)
    return lines, required.own / name, packages


def _place(key: str, required: Requirements) -> Path | None:
    """Folder of a set; None if it is nowhere."""
    places = (folder / key for folder in (required.shared, required.own) if folder is not None)
    return next(filter(sets.is_complete, places), None)


def _missing(note: Note, required: Requirements) -> bool:
    return any(_place(key, required) is None for key in note.keys)


def _resolve(
    required: Requirements, lines: Sequence[Line], packages: dict[str, Package], file: Path, *, into: Path | None = None
) -> Note:
    """Resolve, fetch, and install shared packages into a folder; without one, leave their wheels for the store.

    The note is written last: what it names is there, or will be once the store has it.
    """
    stack = image.protected(packages, replaced=required.replaced)
    limits = image.constraints(stack, replaced=required.replaced)
    required.own.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=required.own, prefix=".pip-", ignore_cleanup_errors=True) as temporary:
        folder = Path(temporary)
        items = pip.resolve(lines, image=packages, limits=limits, folder=folder)
        if unfit := builds.mismatched(items, stack):
            lines = builds.lines_with_builds(lines, unfit)
            items = pip.resolve(lines, image=packages, limits=limits, folder=folder)
            builds.require_matching(items, stack)
        _require_no_replacement(items, stack)
        shareable = [item for item in items if item.is_shareable]
        note = Note(
            shared=sets.set_key(str(item.sha256) for item in shareable) if shareable else None,
            own=_built([item for item in items if not item.is_shareable], required, lines, folder),
        )
        if note.shared is not None and _place(note.shared, required) is None:
            files = pip.fetch(shareable, lines, into=folder / "fetched", folder=folder)
            if into is None:
                _leave_for_store(note.shared, folder / "fetched", required)
            else:
                sets.install(files, into)
    notes.write(file, note)
    _report(items, packages, required)
    return note


def _require_no_replacement(items: Sequence[Item], stack: dict[str, Package]) -> None:
    """Require that pip has kept what the constraints name, whatever the lines asked for."""
    for item in items:
        if item.name in stack:
            raise CodeInvalid(
                f"workload.requirements would install {item.name} {item.version}, but the image has {item.name} "
                f"{stack[item.name].version}; remove it, or name it in workload.replace_packages: [{item.name}]."
            )


def _built(items: Sequence[Item], required: Requirements, lines: Sequence[Line], folder: Path) -> str | None:
    """Build and install what no index has as a wheel; the key of its set."""
    if not items:
        return None
    files = pip.fetch(items, lines, into=folder / "built", folder=folder)
    return sets.install(files, required.own).name


def _leave_for_store(key: str, fetched: Path, required: Requirements) -> None:
    waiting = required.own / store.WHEELS
    waiting.mkdir(exist_ok=True)
    with suppress(OSError):  # another process of the run was faster
        fetched.rename(waiting / key)


def _report(items: Sequence[Item], packages: dict[str, Package], required: Requirements) -> None:
    name = required.file.name
    if not items:
        print(f"Packages of {name}: the image has all of them.", flush=True)
        return
    named = " ".join(f"{item.name}-{item.version}" for item in sorted(items, key=lambda item: item.name))
    print(f"Successfully installed {named}", flush=True)
    for item in items:
        if item.name in packages:
            print(f"{item.name} {item.version} comes before the image's {packages[item.name].version}.", flush=True)


def _renew(file: Path) -> None:
    """Renew the use of shared packages while this process runs."""

    def renew() -> None:
        while True:
            time.sleep(RENEWAL_SECONDS)
            with suppress(OSError):
                os.utime(file)

    Worker(renew, name="renewal of packages").start()
