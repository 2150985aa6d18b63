"""Install the helpers into a folder, and the run's code: `python -m trainer.helpers.install --into /trainflow/helpers`.

An init container of the tools image runs this. The folder holds the helpers with what they import of `trainer` and
`trainflow.protocol`, and `start` as `__main__.py`, so `python FOLDER PROGRAM …` needs nothing else of ours. It first
makes the run's folders on the shared file system, which the program's container mounts.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from trainer.helpers import modules, start
from trainer.images.smoke import ROOT, module_file
from trainer.runtime import program
from trainer.runtime.arguments import parse
from trainer.runtime.environment import Environment
from trainer.runtime.errors import ConfigInvalid, StorageFailed
from trainer.steps import code

AWS_CLIENT = ("boto3", "botocore", "dateutil", "jmespath", "s3transfer", "six", "urllib3")
"""Packages of AWS's client. Rank 0 of an elastic gang announces its pod with it, and programs' secrets are read with
it. They are pure Python."""

S3, SECRETS = "s3", "secretsmanager"
"""Services whose descriptions are copied where they are needed: botocore holds hundreds, 30 MB."""


@dataclass(frozen=True, kw_only=True)
class InstallConfig:
    """Packages to install, and their folder."""

    into: Path
    """Folder that is made, or completed."""
    folders: tuple[Path, ...] = ()
    """Folders of the run on the shared file system, which are made where they are missing."""
    s3_client: bool = False
    """Whether a helper needs to write to S3."""
    secrets_client: bool = False
    """Whether a helper needs to read from Secrets Manager."""
    code: str | None = None
    """URL of the run's packed code; none if left out."""
    workspace: Path | None = None
    """Folder for the code."""

    def __post_init__(self) -> None:
        if (self.code is None) != (self.workspace is None):
            raise ConfigInvalid("Give --code and --workspace together, or neither.")

    @property
    def services(self) -> tuple[str, ...]:
        """Services of AWS that helpers call."""
        return (*((S3,) if self.s3_client else ()), *((SECRETS,) if self.secrets_client else ()))


def main(argv: Sequence[str], _environment: Environment) -> Mapping[str, Any]:
    """Install the helpers and report their size."""
    config = parse(InstallConfig, argv, program="trainer.helpers.install")
    for folder in config.folders:
        _make(folder)
    try:
        install(config.into, services=config.services)
        size = sum(path.stat().st_size for path in config.into.rglob("*") if path.is_file())
    except OSError as error:
        raise StorageFailed(f"--into {config.into} cannot be written ({error}).") from error
    if config.code is not None and config.workspace is not None:
        code.fetch(config.code, config.workspace)
    return {"helpers_bytes": size}


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StorageFailed(f"The folder {folder} cannot be made ({error}).") from error


def install(folder: Path, *, services: Collection[str]) -> None:
    """Copy the helpers into a folder.

    Args:
        folder: The folder; files of an earlier installation are replaced.
        services: Services of AWS that helpers call: with any, AWS's client is copied as well.
    """
    for source in helper_files():
        _copy(source, folder / source.relative_to(ROOT))
    _copy(Path(start.__file__), folder / "__main__.py")
    for name in AWS_CLIENT if services else ():
        _copy_package(name, folder, services=services)


def helper_files() -> Iterator[Path]:
    """Files of the helpers and of all that they import of ours, packages' own files included."""
    return map(module_file, modules.listed())


def _copy_package(name: str, folder: Path, *, services: Collection[str]) -> None:
    """Copy an installed package or module.

    Raises:
        ModuleNotFoundError: If this image lacks it.
    """
    found = importlib.util.find_spec(name)
    if found is None or found.origin is None:
        raise ModuleNotFoundError(f"the package {name} is not installed")
    source = Path(found.origin)
    if source.name == "__init__.py":
        ignore = partial(_removable_names, services=services)
        shutil.copytree(source.parent, folder / name, ignore=ignore, dirs_exist_ok=True)
    else:
        _copy(source, folder / source.name)


def _removable_names(folder: str, names: list[str], *, services: Collection[str]) -> set[str]:
    left_out = {"__pycache__", "examples"} & set(names)
    if Path(folder).name == "data":
        left_out |= {name for name in names if name not in services and Path(folder, name).is_dir()}
    return left_out


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)


if __name__ == "__main__":
    program.raise_on_sigterm()
    sys.exit(program.run(main, sys.argv[1:], os.environ))
