"""Paths above the program's working folder that its source spells out, such as `../data`.

Only the folder of the code is packed, so what is above it on the user's machine is not in a run.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator

from trainflow.client.programs.reachable import Region
from trainflow.client.programs.source import last_name

ABOVE = re.compile(r"\.\.(/[^\s{}]*)?")

JOINS = frozenset(("join", "joinpath", "Path", "PurePath"))
"""Calls that make one path of several parts, where only the first one says where it begins."""

FILE = "__file__"


def paths_above(found: Iterable[Region]) -> dict[str, int]:
    """The paths, each with the line that has it.

    Args:
        found: The parts of the program that it reaches.
    """
    paths: dict[str, int] = {}
    for region in found:
        inside = set(_inside_of_paths(region))
        for node in region.nodes:
            text = node.value if isinstance(node, ast.Constant) and node not in inside else None
            if isinstance(node, ast.Constant) and isinstance(text, str) and ABOVE.fullmatch(text):
                paths.setdefault(text.rstrip("/"), node.lineno)
    return paths


def _inside_of_paths(region: Region) -> Iterator[ast.AST]:
    """Texts behind another part of a path, as in `folder / ".."`, and texts that are compared."""
    for node in region.nodes:
        if isinstance(node, ast.Call) and last_name(node.func) in JOINS:
            yield from node.args[1:] if last_name(node.func) != "joinpath" else node.args
        elif isinstance(node, ast.Call) and FILE in _names(node):
            yield from ast.walk(node)
        elif isinstance(node, ast.BinOp):
            yield node.right
        elif isinstance(node, ast.JoinedStr):
            yield from node.values[1:]
        elif isinstance(node, ast.Compare):
            yield from ast.walk(node)


def _names(node: ast.AST) -> set[str]:
    return {inner.id for inner in ast.walk(node) if isinstance(inner, ast.Name)}
