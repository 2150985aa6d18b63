"""Start the program in the folder of the run's code.

The folder becomes the working directory and the first one in which Python searches for modules, before those that the
image names. What the code requires is installed first, by this Python's pip, into a folder that later commands find
again.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

from trainer.runtime.errors import CodeInvalid, ConfigInvalid, StorageFailed
from trainer.runtime.node import Node, Prepared
from trainflow.protocol.plan import Code


def prepare(step: Code, _node: Node) -> Prepared:
    """Fetch the code where no init container has done so, install what it requires, and change to its folder.

    Raises:
        CodeInvalid: If the code cannot be fetched, or what it requires cannot be installed.
        ConfigInvalid: If the folder cannot be entered.
        StorageFailed: If a folder cannot be written, or the archive cannot be read.
    """
    folder = Path(step.folder).absolute()
    if step.url is not None:
        from trainer.steps import code  # imports much, and most plans need none of it

        code.fetch(step.url, folder)
    first = [str(folder)]
    environ = {"PWD": str(folder)}
    if step.requirements is not None and step.packages is not None:
        packages = installed(folder / step.requirements, Path(step.packages).absolute())
        first.append(str(packages))
        environ["PATH"] = os.pathsep.join([str(packages / "bin"), os.environ.get("PATH", os.defpath)])
    environ["PYTHONPATH"] = os.pathsep.join([*first, *filter(None, [os.environ.get("PYTHONPATH")])])
    try:
        os.chdir(folder)
    except OSError as error:
        raise ConfigInvalid(f"The code's folder {folder} cannot be entered ({error}).") from error
    return Prepared(variables=environ)


def installed(requirements: Path, packages: Path) -> Path:
    """Folder of the packages that a file requires; they are installed if no earlier command has done so.

    They are installed beside their place and then renamed, so a folder that exists is complete. No lock could be left
    behind by a process that was killed. Where two install at once, the first to finish wins, and both use its folder.

    Args:
        requirements: A requirements file of pip's.
        packages: Folder of all such folders.

    Raises:
        CodeInvalid: If there is no such file, or pip cannot install what it names; the message ends in pip's own words.
        StorageFailed: If the folder cannot be written.
    """
    try:
        place = packages / key_of(requirements.read_bytes())
    except OSError as error:
        raise CodeInvalid(f"workload.requirements: {requirements} cannot be read ({error}).") from error
    if place.is_dir():
        return place
    try:
        packages.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=packages, prefix=".", ignore_cleanup_errors=True) as temporary:
            made = Path(temporary, "packages")
            _install(requirements, made)
            made.mkdir(exist_ok=True)  # where nothing is required
            if not place.is_dir():
                _rename(made, place)
    except OSError as error:
        raise StorageFailed(f"The packages' folder {packages} cannot be written ({error}).") from error
    print(f"Packages of {requirements.name}: installed to {place}.", flush=True)
    return place


def key_of(content: bytes) -> str:
    """Name of the packages' folder: Python, platform and content of the file."""
    python = f"{sys.implementation.cache_tag}-{sysconfig.get_platform()}"
    return f"{python}-{hashlib.sha256(content).hexdigest()[:16]}"


def _install(requirements: Path, target: Path) -> None:
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input"]
    done = subprocess.run(
        [*pip, "install", "--no-cache-dir", "--target", str(target), "--requirement", requirements.name],
        cwd=requirements.parent,  # paths in the file are relative to it
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        check=False,
    )
    print(done.stdout, end="", flush=True)
    if done.returncode:
        said = [line.strip() for line in done.stdout.splitlines() if line.strip()]
        errors = [line for line in said if line.startswith("ERROR:")] or said[-1:] or ["pip printed no error"]
        raise CodeInvalid(f"workload.requirements: {requirements.name} cannot be installed: {' '.join(errors)}")


def _rename(made: Path, place: Path) -> None:
    try:
        made.rename(place)
    except OSError:
        if not place.is_dir():  # otherwise another command was faster
            raise
        shutil.rmtree(made, ignore_errors=True)
