"""Facts about the libraries that train: the launcher that they expect, the lines and checkpoints that they write."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from trainflow.client.programs.one_process import launcher_uses, variables_read
from trainflow.client.programs.reachable import Region
from trainflow.client.programs.source import dotted, last_name
from trainflow.protocol.plan import Launcher


@dataclass(frozen=True, kw_only=True)
class Library:
    """A library that has the training loop, and so prints the steps and writes the checkpoints."""

    preset: str | None = None
    """Preset of `progress`; None if its lines are found by what the log shows."""
    packages: tuple[str, ...]
    """Packages that it is imported from."""
    loops: tuple[str, ...] = ("",)
    """Endings of the names that have the loop: a program that imports one of them leaves the loop to the library."""
    checkpoints: str | None = None
    """Pattern of its checkpoints below the folder of its output."""
    last_file: str | None = None
    """Name of the file that it writes last into a checkpoint's folder."""
    resume: str | None = None
    """Flag that continues from a checkpoint, where the library reads the command line."""


HUGGING_FACE = Library(
    preset="hugging-face",
    packages=("transformers", "trl", "optimum", "sentence_transformers", "setfit", "unsloth", "adapters"),
    loops=("Trainer",),
    checkpoints="checkpoint-{step}",
    last_file="trainer_state.json",
)
"""transformers 4 and 5, `Trainer._save_checkpoint`; the trainers of the other packages are subclasses of it."""

LIGHTNING = Library(
    preset="lightning",
    packages=("lightning", "pytorch_lightning"),
    loops=("Trainer", "LightningCLI"),
    checkpoints="lightning_logs/version_*/checkpoints/epoch=*-step={step}.ckpt",
)
"""Lightning 2, `ModelCheckpoint` and its logger's folder without arguments of their own."""

LIBRARIES = (
    HUGGING_FACE,
    LIGHTNING,
    Library(preset="torchtitan", packages=("torchtitan",)),
    Library(preset="nemo", packages=("nemo",)),
    Library(
        preset="megatron", packages=("megatron",), loops=("pretrain", "training", "megatron", "initialize_megatron")
    ),
)

OF_GANGS = frozenset(
    (
        *("torch.distributed", "torch_xla", "accelerate", "deepspeed", "lightning", "pytorch_lightning", "composer"),
        *("lightning_fabric", "torchtitan", "torchtune", "nemo", "megatron", "colossalai", "fairscale", "mmengine"),
        *("ignite.distributed", "neuronx_distributed", "smdistributed", "torchelastic", "horovod.torch", "torchft"),
    )
)
"""Packages whose programs find the other processes by torchrun's variables."""

TRAIN_ALONE = ("accelerate", "lightning", "pytorch_lightning", "lightning_fabric")
"""Those of them that train in one process without a launcher, whatever else a program does."""

SPAWNS = frozenset(
    (
        *("mp.spawn", "multiprocessing.spawn", "torch.multiprocessing.spawn", "start_processes", "xmp.spawn"),
        *("notebook_launcher", "debug_launcher", "elastic_launch", "pdl.start_processes", "launch_job"),
    )
)
"""Calls that start the processes of a gang."""

LAUNCHERS = (
    "torchrun",
    "accelerate launch",
    "deepspeed ",
    "torch.distributed.run",
    "torch.distributed.launch",
    "mpirun",
)
"""Commands that do so."""

STARTERS = frozenset(("run", "Popen", "call", "check_call", "check_output", "system", "execvp", "execvpe", "execv"))


@dataclass(frozen=True)
class Start:
    """The launcher that a program needs, with the reason."""

    launcher: Launcher
    reason: str
    is_for_many: bool = False
    """Whether the program needs it only with more processes than one."""


def library(found: Iterable[Region]) -> Library | None:
    """The library that has the training loop of a program; None if the program has it itself."""
    names = set().union(*(_names(region) for region in found))
    return next((each for each in LIBRARIES if any(_leaves_loop(each, name) for name in names)), None)


def _leaves_loop(each: Library, name: str) -> bool:
    package, _, imported = name.partition(".")
    return package in each.packages and any(imported.endswith(loop) for loop in each.loops)


def _names(region: Region) -> Iterator[str]:
    """Dotted names that a part of a program imports and uses, also as `transformers.Trainer`."""
    imported = region.module.imported_as
    first = {alias: alias.partition(".")[0] for alias in imported}
    packages = {first[alias]: name if first[alias] == alias else first[alias] for alias, name in imported.items()}
    is_whole = region.node is region.module.tree
    used = {node.id for node in region.nodes if isinstance(node, ast.Name)}
    yield from (name for alias, name in imported.items() if is_whole or first[alias] in used)
    for node in region.nodes:
        if isinstance(node, ast.Attribute) and (name := dotted(node)):
            owner, _, rest = name.partition(".")
            if owner in packages:
                yield f"{packages[owner]}.{rest}"


def find_start(found: list[Region], loop: Library | None) -> Start:
    """The launcher of a program, by what it imports, reads and starts."""
    names = {name for region in found for name in _names(region)}
    packages = {name.split(".")[0] for name in names}
    reads_ranks = next((name for region in found for name in variables_read(region)), None)
    if "mpi4py" in packages or (reads_ranks is None and _mentions(found, {"OMPI_COMM_WORLD_RANK"})):
        return Start("mpi", "it reads the ranks of Open MPI")
    starts = next((name for region in found for name in _started(region)), None)
    if starts is not None and reads_ranks is None:
        return Start("none", f"it starts its processes itself, by {starts}")
    gangs = [each for each in sorted(OF_GANGS) if any(_is_below(name, each) for name in names)]
    is_for_many = _is_for_many(found, gangs, loop)
    if reads_ranks is not None:
        return Start("torchrun", f"it reads the variable {reads_ranks}", is_for_many)
    if gangs:
        return Start("torchrun", f"it uses {gangs[0]}", is_for_many)
    if loop is HUGGING_FACE:
        return Start("torchrun", "Hugging Face's Trainer trains in parallel under it", is_for_many)
    return Start("none", "it uses no other process")


def _is_for_many(found: list[Region], gangs: list[str], loop: Library | None) -> bool:
    """Whether a program trains without a launcher if it is only one process."""
    if set(gangs) - {*TRAIN_ALONE, "torch.distributed"}:
        return False
    trains_alone = loop in (HUGGING_FACE, LIGHTNING) or bool(set(gangs) & set(TRAIN_ALONE))
    uses = launcher_uses(found)
    return uses == "optional" or (uses == "absent" and trains_alone)


def _is_below(name: str, package: str) -> bool:
    return name == package or name.startswith(f"{package}.")


def _mentions(found: Iterable[Region], texts: set[str]) -> bool:
    return any(
        isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value in texts
        for region in found
        for node in region.nodes
    )


def _started(region: Region) -> Iterator[str]:
    """Calls and commands that start the processes of a gang."""
    detectron = {name for name in region.module.imports if name.endswith("detectron2.engine.launch")}
    for node in region.nodes:
        if not isinstance(node, ast.Call):
            continue
        name = dotted(node.func)
        if name in SPAWNS or (name == "spawn" and "torch.multiprocessing.spawn" in region.module.imports):
            yield name
        elif name == "launch" and detectron:
            yield "detectron2's launch"
        elif last_name(node.func) in STARTERS:
            yield from (each.strip() for each in LAUNCHERS if each in _words(node))


def _words(call: ast.Call) -> str:
    """The texts in the arguments of a call, in one line."""
    texts = (node.value for node in ast.walk(call) if isinstance(node, ast.Constant) and isinstance(node.value, str))
    return f"{' '.join(texts)} "
