"""The place of a program in its folder: a script or a module, and the search path of its imports."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from pathlib import Path

from trainflow.client.programs.source import NOT_FOLLOWED, Module

SOURCE_FOLDER = "src"


@dataclass(frozen=True)
class Place:
    """The fields of `workload` that name a program."""

    script: str | None = None
    module: str | None = None
    search_path: str | None = None
    """Folder below the code that its imports need, for PYTHONPATH."""
    reason: str = ""
    shadow: str | None = None
    """Library that the program imports and whose source is below `src`: the image's is used."""


def find_place(script: Path, folder: Path, module: Module) -> Place:
    """The place of a script.

    Args:
        script: Path of the script.
        folder: Folder of the code, which is the program's working folder and on its search path.
        module: Its source.
    """
    relative = script.relative_to(folder)
    inside = _packages_in_source_folder(folder, module)
    own = set(inside) - NOT_FOLLOWED
    search_path = SOURCE_FOLDER if own else None
    shadow = inside[0] if inside and not own else None
    if not _is_part_of_package(module):
        return Place(script=relative.as_posix(), search_path=search_path, shadow=shadow)
    parts = relative.with_suffix("").parts
    if parts[0] == SOURCE_FOLDER and len(parts) > 2:
        parts, search_path, shadow = parts[1:], SOURCE_FOLDER, None
    if len(parts) < 2 or not all(part.isidentifier() for part in parts):
        return Place(script=relative.as_posix(), search_path=search_path, shadow=shadow)
    name = ".".join(parts).removesuffix(".__main__")
    reason = "it needs its package: it has relative imports"
    return Place(module=name, search_path=search_path, reason=reason, shadow=shadow)


def _is_part_of_package(module: Module) -> bool:
    """Whether Python has to know the package of a file: it imports relatively, or reads `__package__`."""
    return any(
        (isinstance(node, ast.ImportFrom) and node.level > 0)
        or (isinstance(node, ast.Name) and node.id == "__package__" and isinstance(node.ctx, ast.Load))
        for node in module.nodes
    )


def _packages_in_source_folder(folder: Path, module: Module) -> list[str]:
    """Packages that the program imports, and that are below `src` and not beside it."""
    packages = {name.split(".")[0] for name in module.imports}
    return [
        name for name in sorted(packages) if (folder / SOURCE_FOLDER / name).is_dir() and not (folder / name).exists()
    ]
