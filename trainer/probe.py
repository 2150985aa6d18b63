"""Check whether this image can run the workload: `probe --module trainer.pretrain -- --max_steps 100`.

The probe runs in a small pod before any accelerated node is requested, so a fault in the program, its arguments or the
free space of its folder costs nothing yet. It imports neither torch nor the program. Its findings are its result; a
finding does not fail the probe. As a helper it runs in any image; on Slurm's nodes it is `python -m trainer.probe`.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any

from trainer.checkpoints import checkpoint_files, patterns
from trainer.runtime import arguments, program
from trainer.runtime.environment import Environment
from trainer.runtime.errors import ConfigInvalid
from trainer.staging import marker
from trainflow.protocol import variables
from trainflow.protocol.resume_bounds import ResumeBound

CHECK = "trainer.argument_check"
"""Module of the image that checks the arguments of the trainer's own programs."""

VERSIONED = (
    "torch",
    "torch-neuronx",
    "torch-xla",
    "neuronx-cc",
    "libneuronxla",
    "neuronx-distributed",
    "transformers",
    "accelerate",
    "deepspeed",
    "lightning",
    "datasets",
    "numpy",
    "trainflow",
)
"""Distributions whose versions are reported where they are installed. They decide what a training computes; all of an
image's hundreds would not fit into a termination message of 4,096 bytes, and `packages_digest` covers them."""

MAX_NAMED = 10
"""Checkpoints that a refusal names."""

UNCHECKED: Mapping[str, Any] = {"arguments": None, "checkpoint_bytes": None}
"""Results about the arguments of other programs: unknown."""


@dataclass(frozen=True, kw_only=True)
class ProbeConfig:
    """The start of the workload; its own arguments follow after `--`."""

    module: str | None = None
    """Python module, as after `python -m`. Give exactly one of this, --script and --executable."""
    script: str | None = None
    """Python file below the working directory."""
    executable: str | None = None
    """Program, as a shell would find it."""
    world_size: int = 1
    """Processes of the gang."""
    processes_per_node: int = 1
    """Processes of the gang on each node."""
    checkpoints: str | None = None
    """Pattern of the program's checkpoints below the run's folder, as in a plan. Default: our own format."""
    marker: str | None = None
    """Name of a file that only a complete checkpoint's folder has."""

    def __post_init__(self) -> None:
        if sum(given is not None for given in (self.module, self.script, self.executable)) != 1:
            raise ConfigInvalid("Give exactly one of --module, --script and --executable.")


def main(argv: Sequence[str], environment: Environment) -> Mapping[str, Any]:
    """Examine the image and report the findings."""
    program.raise_on_sigterm()
    own, given = arguments.divided(argv)
    config = arguments.parse(ProbeConfig, own, program="trainer.probe")
    checked = checked_arguments(config, given)
    staged = marker.read(environment.data_dir) if environment.data_dir else None
    return {
        "machine": platform.machine(),
        "program": what_is_wrong_with(config),
        "arguments": checked["arguments"],
        "free_bytes": free_bytes(environment.run_dir or Path()),
        "staged_url": staged.url if staged else None,
        "staged_etag": staged.etag if staged else None,
        "checkpoint_bytes": checked["checkpoint_bytes"],
        "continues": nothing_to_continue(config, environment),
        "packages": packages_digest(),
        "versions": versions(),
    }


def nothing_to_continue(config: ProbeConfig, environment: Environment) -> str | None:
    """The reason why the run cannot continue the runs that it names; None if it can, or names none.

    Files are found and not read: whether a checkpoint of our own is intact is checked where it is loaded.
    """
    if environment.run_dir is None or not environment.continues:
        return None
    folders, bounds = environment.earlier_folders(environment.run_dir), environment.bounds(environment.run_dir)
    if any(_has_checkpoint(folder, config, bounds.get(folder)) for folder in folders):
        return None
    for folder, bound in bounds.items():
        if newer := _newer(folder, config, bound):
            return f"no complete checkpoint of {folder.name} is old enough ({bound.reason}); it has {', '.join(newer)}."
    # A pod that mounts a folder makes it.
    gone = [folder.name for folder in folders if not folder.is_dir() or not any(folder.iterdir())]
    if len(gone) == len(folders):
        return f"the folder of {' and of '.join(gone)} is gone from the shared file system."
    return f"there is no complete checkpoint of {' or of '.join(environment.continues)} on the shared file system."


def _has_checkpoint(folder: Path, config: ProbeConfig, bound: ResumeBound | None) -> bool:
    within, _ = patterns.divided(_found(folder, config), bound)
    if config.checkpoints is None:
        return bool(within)
    return patterns.newest_complete(within, patterns.Rules(marker=config.marker))[0] is not None


def _found(folder: Path, config: ProbeConfig) -> list[patterns.Found]:
    if config.checkpoints is not None:
        return patterns.find(config.checkpoints, folder)
    # Below the folder: `--output_dir` may name one inside of it.
    records = folder.rglob(f"{checkpoint_files.FOLDER}/step-*.json")
    files = (record.with_suffix(".pt") for record in sorted(records, reverse=True))
    return [patterns.Found(file, int(file.stem.removeprefix("step-"))) for file in files if file.is_file()]


def _newer(folder: Path, config: ProbeConfig, bound: ResumeBound) -> list[str]:
    """Names of the newest checkpoints behind a bound."""
    _, beyond = patterns.divided(_found(folder, config), bound)
    return [str(each.path.relative_to(folder)) for each in beyond[:MAX_NAMED]]


def packages_digest() -> str:
    """A digest of the installed Python packages and their versions, which include the compilers."""
    installed = sorted(f"{found.name}=={found.version}" for found in importlib.metadata.distributions())
    return f"sha256:{hashlib.sha256(' '.join(installed).encode()).hexdigest()}"


def versions() -> dict[str, str]:
    """Version of Python, and of those distributions of `VERSIONED` that this Python finds, by their names."""
    found = {"python": platform.python_version()}
    for name in VERSIONED:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def what_is_wrong_with(config: ProbeConfig) -> str | None:
    """The reason why the program cannot be started, in a sentence; None if it is there."""
    if config.script is not None:
        there = Path(config.script).is_file()
        return None if there else f"there is no file '{config.script}' in the image's folder {Path.cwd()}."
    if config.executable is not None:
        there = shutil.which(config.executable) is not None
        return None if there else f"there is no program '{config.executable}' in the image."
    name = str(config.module)
    found = find_module(name)
    if found is None:
        return f"there is no module '{name}' in the image."
    if found.submodule_search_locations is not None and find_module(f"{name}.__main__") is None:
        return f"'{name}' is a package without a __main__ module, so `python -m` cannot start it."
    return None


def find_module(name: str) -> ModuleSpec | None:
    """Find a module without importing the packages around it, as `importlib.util.find_spec` would."""
    path: Sequence[str] | None = search_path()
    found: ModuleSpec | None = None
    parts = name.split(".")
    for depth in range(1, len(parts) + 1):
        found = _find(".".join(parts[:depth]), path)
        if found is None or (depth < len(parts) and found.submodule_search_locations is None):
            return None
        path = found.submodule_search_locations and list(found.submodule_search_locations)
    return found


def search_path() -> list[str]:
    """Folders where the program's Python will search for modules.

    They are those of this process, but for the first one: `python FOLDER` puts the probe's own folder there, and
    `python -m` and torchrun the working directory.
    """
    return [str(Path.cwd()), *sys.path[1:]]


def _find(name: str, path: Sequence[str] | None) -> ModuleSpec | None:
    for finder in sys.meta_path:
        found = finder.find_spec(name, path)
        if found is not None:
            return found
    return None


def free_bytes(folder: Path) -> int:
    """Space that may be written on the file system of a folder that exists or will be made."""
    there = next(parent for parent in (folder, *folder.parents) if parent.is_dir())
    return shutil.disk_usage(there).free


def checked_arguments(config: ProbeConfig, given: Sequence[str]) -> Mapping[str, Any]:
    """Result of the check that the program brings along, if it is one of the trainer's and the image holds them."""
    module = config.module or ""
    if not module.startswith("trainer.") or find_module(CHECK) is None:
        return UNCHECKED
    gang = ("--world_size", str(config.world_size), "--processes_per_node", str(config.processes_per_node))
    ended = subprocess.run(
        [sys.executable, "-m", CHECK, "--module", module, *gang, "--", *given],
        env={name: value for name, value in os.environ.items() if name != variables.RESULT_FILE},
        capture_output=True,
        text=True,
        check=False,
    )
    if ended.returncode == 0:
        return {**UNCHECKED, **json.loads(ended.stdout.splitlines()[-1])}
    last_line = (ended.stderr.strip().splitlines() or ["it printed no error"])[-1]
    return {**UNCHECKED, "arguments": f"`python -m {CHECK}` failed in the image ({last_line})."}


if __name__ == "__main__":
    sys.exit(program.run(main, sys.argv[1:], os.environ))
