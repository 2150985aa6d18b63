"""Facts in the source of a Python training script: its flags, its launcher, its progress and checkpoints.

The source is read and never run.
"""

from __future__ import annotations

import ast
import difflib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from trainflow.client.programs.outputs import Flag, Writes, flags_of, literal, outputs, writes_in
from trainflow.client.programs.printed_line import pattern_in
from trainflow.protocol.plan import Launcher
from trainflow.spec.workload import Arguments, Workload

DATA_FLAGS = ("data_dir", "data-dir", "data_path", "data-path", "data", "dataset_path", "train_file")
RESUME_FLAGS = ("resume_from_checkpoint", "resume-from-checkpoint", "resume_from", "resume-from", "resume", "ckpt_path")
"""Names that scripts give these flags, the most specific first."""

LIBRARIES = {
    "transformers": "hugging-face",
    "lightning": "lightning",
    "pytorch_lightning": "lightning",
    "torchtitan": "torchtitan",
    "nemo": "nemo",
    "megatron": "megatron",
}
"""Presets of `progress` by the package that a script imports."""

GANG_WORDS = ("torch.distributed", "torch_xla", "accelerate", "deepspeed", "LOCAL_RANK", "WORLD_SIZE")
"""Names whose appearance says that a script expects torchrun."""


class ProgramUnreadable(ValueError):
    """A file is not Python."""


@dataclass(frozen=True, kw_only=True)
class Program:
    """Facts in a script's source."""

    flags: Mapping[str, Flag] = field(default_factory=dict)
    accepts_others: bool = False
    """Whether it takes flags that its source does not name: a library's, or those that it computes."""
    launcher: Launcher = "none"
    preset: str | None = None
    """Preset of `progress` for the library that prints its steps; None to find out by what it prints."""
    line: str | None = None
    """Pattern of the line that it prints of a step, where no library prints it; None if the source shows none."""
    checkpoints: str | None = None
    """Pattern of its checkpoints, where a library gives it."""
    last_file: str | None = None
    """Name of the file that the library writes last into a checkpoint's folder."""
    writes: Writes = field(default_factory=Writes)
    """Files and folders that its calls write to."""

    @property
    def outputs(self) -> dict[str, str]:
        """Path below the run's folder for each flag that says where the script writes."""
        return outputs(self.flags, self.writes, data=self.flag_of(DATA_FLAGS))

    def flag_of(self, names: tuple[str, ...]) -> str | None:
        """The first of some names that is one of its flags."""
        return next((name for name in names if name in self.flags), None)


def read_program(source: str) -> Program:
    """Read a script.

    Raises:
        ProgramUnreadable: If it is not Python.
    """
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ProgramUnreadable(f"is not a Python program ({error})") from None
    imported = {name.split(".")[0] for name in _imports(tree)}
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    names = {_name(call.func) for call in calls}
    flags = {flag.name: flag for call in calls if _name(call.func) == "add_argument" for flag in flags_of(call)}
    is_library = bool(names & {"HfArgumentParser", "LightningCLI"}) or bool(
        imported & {"click", "typer", "fire", "hydra", "absl", "simple_parsing", "tyro"}
    )
    uses_trainer = "transformers" in imported and "Trainer" in names
    if names & {"HfArgumentParser"}:
        flags |= {name: Flag(name=name) for name in ("output_dir", "resume_from_checkpoint")}
    preset = next((LIBRARIES[name] for name in sorted(imported) if name in LIBRARIES and _prints(name, names)), None)
    return Program(
        flags=flags,
        accepts_others=is_library or "parse_known_args" in names or any(_is_computed(call) for call in calls),
        launcher=_launcher(source, imported, uses_trainer=uses_trainer),
        preset=preset,
        line=None if preset else pattern_in(tree),
        checkpoints="checkpoint-{step}" if uses_trainer else None,
        last_file="trainer_state.json" if uses_trainer else None,
        writes=writes_in(calls),
    )


def doubts_about(workload: Workload, *, folder: Path) -> list[str]:
    """Arguments of a spec that the script's source does not know, each in a sentence; none where it is not here.

    Args:
        workload: The program.
        folder: Folder of the spec.
    """
    if workload.script is None or workload.code is None:
        return []
    try:
        program = read_program((folder / workload.code / workload.script).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, ProgramUnreadable):
        return []
    return unknown_arguments(program, workload.arguments)


def unknown_arguments(program: Program, arguments: Mapping[str, Arguments]) -> list[str]:
    """A sentence for each argument that the script does not take; none if its flags are not all known."""
    if program.accepts_others or not program.flags:
        return []
    known = {name.replace("-", "_") for name in program.flags}
    sentences = []
    for name in arguments:
        if name.replace("-", "_") not in known:
            near = difflib.get_close_matches(name, program.flags, n=1)
            hint = f"did you mean {near[0]}?" if near else f"it has {', '.join(program.flags)}."
            sentences.append(f"workload.arguments.{name}: the program has no flag --{name}; {hint}")
    return sentences


def _imports(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module


def _name(function: ast.expr) -> str:
    """Last part of the name of what is called."""
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else ""


def _is_computed(call: ast.Call) -> bool:
    """Whether a call of add_argument has a name that the source does not spell out."""
    return _name(call.func) == "add_argument" and not list(flags_of(call)) and not _is_positional(call)


def _is_positional(call: ast.Call) -> bool:
    first = literal(call.args[0]) if call.args else None
    return isinstance(first, str) and not first.startswith("-")


def _launcher(source: str, imported: set[str], *, uses_trainer: bool) -> Launcher:
    if "OMPI_COMM_WORLD_RANK" in source or "mpi4py" in imported:
        return "mpi"
    expects_torchrun = any(word in source for word in GANG_WORDS) or bool(imported & {"lightning", "pytorch_lightning"})
    return "torchrun" if expects_torchrun or uses_trainer else "none"


def _prints(library: str, called: set[str]) -> bool:
    """Whether the library prints the steps: with transformers its Trainer does, and not a loop of the script's own."""
    return library != "transformers" or "Trainer" in called
