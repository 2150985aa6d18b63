"""All facts about a Python program that `trainflow init` writes into a spec. The source is read and never run."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

from trainflow.client.programs.checkpoints import Checkpoints, checkpoints
from trainflow.client.programs.command_lines import CommandLine, Style, command_line
from trainflow.client.programs.demands import demands
from trainflow.client.programs.libraries import find_start, library
from trainflow.client.programs.options import Flag
from trainflow.client.programs.outputs import Output, outputs, variables
from trainflow.client.programs.path_uses import Use, uses_of_paths
from trainflow.client.programs.paths_above import paths_above
from trainflow.client.programs.placing import Place, find_place
from trainflow.client.programs.printed_line import FoundProgress, find_progress
from trainflow.client.programs.reachable import Region, regions
from trainflow.client.programs.source import Module, ProgramUnreadable, Sources, parsed
from trainflow.protocol.plan import Launcher

DATA_FLAGS = (
    *(
        "data_dir",
        "data-dir",
        "data_path",
        "data-path",
        "data",
        "dataset_path",
        "train_file",
        "data_root",
        "dataset_dir",
    ),
    *("data-root", "dataset-dir", "training_dir", "imagenet_path"),
)
"""Names that programs give to the flag for their data, the most specific first."""


@dataclass(frozen=True, kw_only=True)
class Program:
    """Facts in a program's source."""

    flags: Mapping[str, Flag] = field(default_factory=dict)
    """Its options, those of subcommands too."""
    positionals: tuple[Flag, ...] = ()
    """Its positional arguments in their order."""
    accepts_others: bool = False
    """Whether it takes flags that its source does not name: a library's, or those that it computes."""
    style: Style = "flags"
    is_hydra: bool = False
    """Whether Hydra reads its command line."""
    commands: tuple[str, ...] = ()
    """Its subcommands, if it needs one."""
    launcher: Launcher = "none"
    launcher_reason: str = ""
    launcher_is_for_many: bool = False
    """Whether the program needs its launcher only with more processes than one."""
    preset: str | None = None
    """Preset of `progress` for the library that prints its steps; None to find out by what it prints."""
    progress: FoundProgress = field(default_factory=FoundProgress)
    """The line that it prints of a step, where no library prints it."""
    checkpoints: Checkpoints = field(default_factory=Checkpoints)
    uses: tuple[Use, ...] = ()
    """Paths that its calls write to and read from."""
    place: Place | None = None
    """Place in the folder of the code; None for a text without a file."""
    one_of: tuple[tuple[str, ...], ...] = ()
    """Groups of options, by their attributes: the program demands one of each group."""
    variables: Mapping[str, Output] = field(default_factory=dict)
    """Environment variables that say where it writes."""
    above: Mapping[str, int] = field(default_factory=dict)
    """Paths above the working folder that its source spells out, with their lines."""

    @cached_property
    def outputs(self) -> dict[str, Output]:
        """Place below the run's folder for each flag that says where the program writes."""
        return outputs(self.flags, self.uses, data=self.first_flag(DATA_FLAGS))

    def launcher_for(self, *, gang: bool) -> Launcher:
        """The launcher for a gang of processes, or for one process."""
        return self.launcher if gang or not self.launcher_is_for_many else "none"

    def first_flag(self, names: tuple[str, ...]) -> str | None:
        """The first of some names that is one of its flags."""
        return next((name for name in names if name in self.flags), None)


def read_program(source: bytes | str, *, script: Path | None = None, folder: Path | None = None) -> Program:
    """Read a program.

    Args:
        source: Content of its file.
        script: Path of the file. With it, files of the folder that it imports are read, too.
        folder: Folder of the code; that of the script by default.

    Raises:
        ProgramUnreadable: If it is not Python.
    """
    tree = parsed(source)
    try:
        return _read(tree, script, folder)
    except (RecursionError, MemoryError):
        raise ProgramUnreadable("is not a program that can be read: its expressions are nested too deeply") from None


def _read(tree: ast.Module, script: Path | None, folder: Path | None) -> Program:
    path = script.resolve() if script is not None else None
    root = (folder or path.parent).resolve() if path is not None else None
    roots = tuple(dict.fromkeys([path.parent, root, root / "src"])) if path is not None and root is not None else ()
    sources = Sources(Module(path, tree), roots)
    found = regions(sources)
    line = command_line(sources, found)
    loop = library(found)
    start = find_start(found, loop)
    flags: dict[str, Flag] = {}
    for flag in line.flags:
        if not flag.is_positional:
            flags.setdefault(flag.name, flag)
    uses = uses_of_paths(
        sources,
        found,
        options=[flag.attribute for flag in line.flags],
        parameters=_parameters(line),
        variables=list(flags) if line.style == "assignments" else (),
    )
    program = Program(
        flags=flags,
        positionals=tuple(flag for flag in line.flags if flag.is_positional),
        accepts_others=line.accepts_others,
        style=line.style,
        is_hydra=line.is_hydra,
        commands=line.commands,
        launcher=start.launcher,
        launcher_reason=start.reason,
        launcher_is_for_many=start.is_for_many,
        preset=loop.preset if loop else None,
        progress=FoundProgress() if loop and loop.preset else find_progress(found),
        uses=tuple(uses),
        place=find_place(path, root, sources.main)
        if path is not None and root is not None and path.is_relative_to(root)
        else None,
        one_of=tuple(demands(tree, flags.values())),
        variables=variables(uses),
        above=paths_above(found),
    )
    found_ones = checkpoints(line, flags, uses, program.outputs, loop, _replaced(found))
    return replace(program, checkpoints=found_ones)


def _replaced(found: Iterable[Region]) -> set[str]:
    """Attributes that the program sets, as `output_dir` in `args.output_dir = join(args.output_dir, now)`."""
    assigned = (node for region in found for node in region.nodes if isinstance(node, ast.Attribute))
    return {node.attr for node in assigned if isinstance(node.ctx, ast.Store)}


def _parameters(line: CommandLine) -> dict[ast.AST, dict[str, str]]:
    """The options that are parameters of a function, by function."""
    names = {flag.attribute for flag in line.flags}
    found: dict[ast.AST, dict[str, str]] = {}
    for function, prefix in line.functions:
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            given = [a.arg for a in (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs)]
            found[function] = {name: f"{prefix}{name}" for name in given if f"{prefix}{name}" in names}
    return found
