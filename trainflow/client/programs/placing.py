"""The place of a program in its folder: a script or a module, and the search path of its imports."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from pathlib import Path

from trainflow.client.programs.source import Module


@dataclass(frozen=True)
class Place:
    """The fields of `workload` that name a program."""

    script: str | None = None
    module: str | None = None
    search_path: str | None = None
    """Folder below the code that its imports need, for PYTHONPATH."""
    reason: str = ""


def find_place(script: Path, folder: Path, module: Module) -> Place:
    """The place of a script.

    Args:
        script: Path of the script.
        folder: Folder of the code, which is the program's working folder and on its search path.
        module: Its source.
    """
    relative = script.relative_to(folder)
    search_path = _source_folder(folder, module)
    if not _is_part_of_package(module):
        return Place(script=relative.as_posix(), search_path=search_path)
    parts = relative.with_suffix("").parts
    if parts[0] == "src" and len(parts) > 2:
        parts, search_path = parts[1:], "src"
    if len(parts) < 2 or not all(part.isidentifier() for part in parts):
        return Place(script=relative.as_posix(), search_path=search_path)
    name = ".".join(parts).removesuffix(".__main__")
    return Place(module=name, search_path=search_path, reason="it needs its package: it has relative imports")


def _is_part_of_package(module: Module) -> bool:
    """Whether Python has to know the package of a file: it imports relatively, or reads `__package__`."""
    return any(
        (isinstance(node, ast.ImportFrom) and node.level > 0)
        or (isinstance(node, ast.Name) and node.id == "__package__" and isinstance(node.ctx, ast.Load))
        for node in module.nodes
    )


def _source_folder(folder: Path, module: Module) -> str | None:
    """`src`, if a package that the program imports is there and not beside it."""
    packages = {name.split(".")[0] for name in module.imports}
    for name in sorted(packages):
        inside, beside = folder / "src" / name, folder / name
        if inside.is_dir() and not beside.exists():
            return "src"
    return None
