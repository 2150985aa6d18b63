"""The environment variables that a pod and `torchrun` set, read once at the edge of each program."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from trainer.runtime.errors import ConfigInvalid
from trainflow.protocol import variables
from trainflow.protocol.resume_bounds import ResumeBound, read_bounds

BFLOAT16_VARIABLES = ("XLA_USE_BF16", "XLA_DOWNCAST_BF16")
"""Set to 1 they ask for weights in bfloat16. torch-xla 2.9 still obeys them, and would keep the optimizer's state and
the losses in bfloat16, too, without a word."""


@dataclass(frozen=True, kw_only=True)
class Environment:
    """Place of this process in the run, from its environment variables."""

    data_dir: Path | None
    """TRAINFLOW_DATA_DIR: where the run's shards are, or shall be."""
    run_dir: Path | None
    """TRAINFLOW_RUN_DIR: where checkpoints and event files go."""
    local_checkpoints: Path | None = None
    """TRAINFLOW_LOCAL_CHECKPOINTS: the node's folder for checkpoints; None without one."""
    result_file: Path | None
    """TRAINFLOW_RESULT_FILE: the container's termination message; None outside a pod."""
    continues: tuple[str, ...] = ()
    """TRAINFLOW_RESUME_FROM: runs whose checkpoints this one resumes from until it has its own, the newest first."""
    resume_until: Mapping[str, ResumeBound] = field(default_factory=dict)
    """TRAINFLOW_RESUME_UNTIL: bounds for the checkpoints of those runs, by their ids."""
    cache_dir: Path | None = None
    """TRAINFLOW_CACHE_DIR: compiled graphs; None outside a pod."""
    rank: int = 0
    """RANK: this process among all processes of the gang."""
    local_rank: int = 0
    """LOCAL_RANK: this process among those of its node."""
    world_size: int = 1
    """WORLD_SIZE: processes in the gang; 1 without a launcher."""
    local_world_size: int = 1
    """LOCAL_WORLD_SIZE: those of them on this node."""
    peak_tflops: float | None = None
    """TRAINFLOW_PEAK_TFLOPS: dense bfloat16 peak of this process's device, in 10^12 operations a second."""
    precompile: bool = False
    """TRAINFLOW_PRECOMPILE: compile the graphs into the cache and stop."""
    extract_graphs: bool = False
    """NEURON_EXTRACT_GRAPHS_ONLY: `neuron_parallel_compile` is recording graphs; numbers mean nothing."""

    def earlier_folders(self, output_dir: Path) -> tuple[Path, ...]:
        """Counterparts of an output folder in the runs that this one continues, the newest first.

        Empty for a folder outside the run's own: all runs that name it share it.
        """
        if self.run_dir is None or not output_dir.is_relative_to(self.run_dir):
            return ()
        inner = output_dir.relative_to(self.run_dir)
        return tuple(self.run_dir.parent / run_id / inner for run_id in self.continues)

    def bounds(self, output_dir: Path) -> dict[Path, ResumeBound]:
        """The bounds for checkpoints in `earlier_folders`, by the folder."""
        folders = self.earlier_folders(output_dir)
        named = zip(self.continues, folders, strict=False)  # there may be no folders
        return {folder: self.resume_until[run_id] for run_id, folder in named if run_id in self.resume_until}

    @property
    def speaks_for_the_gang(self) -> bool:
        """Rank 0 prints what all ranks know."""
        return self.rank == 0

    @property
    def speaks_for_the_pod(self) -> bool:
        """One process of each pod writes into the pod's result file what all ranks know."""
        return self.local_rank == 0


def read(environ: Mapping[str, str]) -> Environment:
    """The typed environment.

    Raises:
        ConfigInvalid: If the value for a number is not one. Launchers do not produce such values.
    """
    return Environment(
        data_dir=_path(environ, variables.DATA_DIR),
        run_dir=_path(environ, variables.RUN_DIR),
        local_checkpoints=_path(environ, variables.LOCAL_CHECKPOINTS),
        result_file=_path(environ, variables.RESULT_FILE),
        continues=tuple(filter(None, environ.get(variables.RESUME_FROM, "").split(","))),
        resume_until=_bounds(environ),
        cache_dir=_path(environ, variables.CACHE_DIR),
        rank=_number(environ, "RANK", default=0),
        local_rank=_number(environ, "LOCAL_RANK", default=0),
        world_size=_number(environ, "WORLD_SIZE", default=1),
        local_world_size=_number(environ, "LOCAL_WORLD_SIZE", default=1),
        peak_tflops=_positive(environ, variables.PEAK_TFLOPS),
        precompile=environ.get(variables.PRECOMPILE) == "1",
        extract_graphs=environ.get("NEURON_EXTRACT_GRAPHS_ONLY") == "1",
    )


def folder(given: Path | None, in_environment: Path | None, option: str, variable: str) -> Path:
    """The folder that an option names, or else a variable.

    Raises:
        ConfigInvalid: If neither does.
    """
    found = given or in_environment
    if found is None:
        raise ConfigInvalid(f"--{option} is missing; give it, or set {variable}.")
    return found


def _path(environ: Mapping[str, str], name: str) -> Path | None:
    value = environ.get(name)
    return Path(value) if value else None


def _number(environ: Mapping[str, str], name: str, *, default: int) -> int:
    value = environ.get(name, str(default))
    if not value.isdecimal():
        raise ConfigInvalid(f"The environment variable {name} is {value!r}; set it to a whole number or leave it out.")
    return int(value)


def _bounds(environ: Mapping[str, str]) -> dict[str, ResumeBound]:
    text = environ.get(variables.RESUME_UNTIL, "")
    try:
        return read_bounds(text)
    except ValueError as error:
        raise ConfigInvalid(f"The environment variable {variables.RESUME_UNTIL} cannot be read: {error}.") from None


def _positive(environ: Mapping[str, str], name: str) -> float | None:
    text = environ.get(name)
    if not text:
        return None
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise ConfigInvalid(f"The environment variable {name} is {text!r}; set it to a number above 0 or leave it out.")
    return value
