"""Check whether this image can run the workload: `python -m trainer.probe --module trainer.pretrain -- --max_steps
100`.

The probe runs in a small pod before any accelerated node is requested, so a fault in the program, its arguments or the
free space of its folder costs nothing yet. It imports neither torch nor the program. Its findings are its result; a
finding is no error.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.metadata
import os
import platform
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any

from trainer import pretrain
from trainer.loop.scaling import micro_batches_per_step
from trainer.pretraining.config import ModelShape, PretrainConfig
from trainer.runtime import arguments, program
from trainer.runtime.environment import Environment
from trainer.runtime.errors import ConfigInvalid
from trainer.staging import marker

FLOAT32 = 4
MOMENTS = 2
"""Moments that AdamW and LAMB keep, in float32 whatever the precision of the weights."""


@dataclass(frozen=True, kw_only=True)
class ProbeConfig:
    """The start of the workload; its own arguments follow after `--`."""

    module: str | None = None
    """Python module, as after `python -m`. Give either this or --script."""
    script: str | None = None
    """Python file below the working directory. Give either this or --module."""
    world_size: int = 1
    """Processes of the gang."""
    processes_per_node: int = 1
    """Processes of the gang on each node."""

    def __post_init__(self) -> None:
        if (self.module is None) == (self.script is None):
            raise ConfigInvalid("Give exactly one of --module and --script.")


def main(argv: Sequence[str], environment: Environment) -> Mapping[str, Any]:
    """Examine the image and report the findings."""
    program.raise_on_sigterm()
    own, given = _divided(argv)
    config = arguments.parse(ProbeConfig, own, program="trainer.probe")
    wrong, checkpoint_bytes = _wrong_arguments(config, given)
    staged = marker.read(environment.data_dir) if environment.data_dir else None
    return {
        "machine": platform.machine(),
        "program": what_is_wrong_with(config),
        "arguments": wrong,
        "free_bytes": free_bytes(environment.run_dir or Path()),
        "staged_url": staged.url if staged else None,
        "staged_etag": staged.etag if staged else None,
        "checkpoint_bytes": checkpoint_bytes,
        "packages": packages_digest(),
    }


def packages_digest() -> str:
    """A digest of the installed Python packages and their versions, which include the compilers."""
    installed = sorted(f"{found.name}=={found.version}" for found in importlib.metadata.distributions())
    return f"sha256:{hashlib.sha256(' '.join(installed).encode()).hexdigest()}"


def _divided(argv: Sequence[str]) -> tuple[Sequence[str], Sequence[str]]:
    words = list(argv)
    at = words.index("--") if "--" in words else len(words)
    return words[:at], words[at + 1 :]


def what_is_wrong_with(config: ProbeConfig) -> str | None:
    """The reason why the program cannot be started, in a sentence; None if it is there."""
    if config.script is not None:
        there = Path(config.script).is_file()
        return None if there else f"there is no file '{config.script}' in the image's folder {Path.cwd()}."
    name = str(config.module)
    found = find_module(name)
    if found is None:
        return f"there is no module '{name}' in the image."
    if found.submodule_search_locations is not None and find_module(f"{name}.__main__") is None:
        return f"'{name}' is a package without a __main__ module, so `python -m` cannot start it."
    return None


def find_module(name: str) -> ModuleSpec | None:
    """Find a module without importing the packages around it, as `importlib.util.find_spec` would."""
    path: Sequence[str] | None = None
    found: ModuleSpec | None = None
    parts = name.split(".")
    for depth in range(1, len(parts) + 1):
        found = _find(".".join(parts[:depth]), path)
        if found is None or (depth < len(parts) and found.submodule_search_locations is None):
            return None
        path = found.submodule_search_locations and list(found.submodule_search_locations)
    return found


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


def _wrong_arguments(config: ProbeConfig, given: Sequence[str]) -> tuple[str | None, int | None]:
    """The fault in the arguments of a program of ours, and the size of all its checkpoints."""
    check = CHECKS.get(config.module or "")
    if check is None:
        return None, None
    try:
        return None, check(config, given)
    except ConfigInvalid as error:
        return str(error), None


def _pretrain(config: ProbeConfig, given: Sequence[str]) -> int:
    parsed = pretrain.parse(given, os.environ)
    micro_batches_per_step(
        parsed.optimization, world_size=config.world_size, local_world_size=config.processes_per_node
    )
    return checkpoint_bytes(parsed)


def _of_class(module: str, name: str) -> Callable[[ProbeConfig, Sequence[str]], None]:
    def check(config: ProbeConfig, given: Sequence[str]) -> None:
        arguments.parse(getattr(importlib.import_module(module), name), given, program=str(config.module))

    return check


CHECKS: Mapping[str, Callable[[ProbeConfig, Sequence[str]], int | None]] = {
    "trainer.pretrain": _pretrain,
    "trainer.mlp": _of_class("trainer.classification.config", "ClassificationConfig"),
    "trainer.classifier": _of_class("trainer.classifier", "ClassifierConfig"),
}
"""Programs of ours whose arguments can be parsed without torch."""


def checkpoint_bytes(config: PretrainConfig) -> int:
    """Space that the checkpoints of a pretraining take: those that are kept, and the one that is being written."""
    weight = 2 if config.precision == "pure_bfloat16" else FLOAT32
    one = num_parameters(config.model.shape) * (weight + MOMENTS * FLOAT32)
    kept = config.keep_checkpoints
    if kept == -1:
        kept = -(-config.optimization.max_steps // config.checkpoint_steps)
    return one * (kept + 1)


def num_parameters(shape: ModelShape) -> int:
    """Number of weights of a BERT with both pretraining heads (Devlin et al. 2019, §3); the decoder shares the
    embeddings'."""
    hidden, inner = shape.hidden_size, shape.intermediate_size
    norm = 2 * hidden
    embeddings = (shape.vocab_size + shape.max_position_embeddings + 2) * hidden + norm
    attention = 4 * (hidden * hidden + hidden) + norm
    feed_forward = 2 * hidden * inner + inner + hidden + norm
    pooler = hidden * hidden + hidden
    heads = (hidden * hidden + hidden + norm + shape.vocab_size) + (2 * hidden + 2)
    return embeddings + shape.num_hidden_layers * (attention + feed_forward) + pooler + heads


if __name__ == "__main__":
    sys.exit(program.run(main, sys.argv[1:], os.environ))
