"""The Python files of the product, each parsed once for all rules."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

PRODUCT = ("lambdas", "local", "stacks", "trainer", "trainflow")
"""Packages that use the protocol."""


def sources(*folders: str) -> list[Path]:
    """Python files below the folders, relative to the repository."""
    return sorted(path for folder in folders for path in Path(folder).rglob("*.py"))


@cache
def tree(source: Path) -> ast.Module:
    """The parsed file."""
    return ast.parse(source.read_text(encoding="utf-8"))


def texts(source: Path) -> Iterator[ast.Constant]:
    """String constants of a file, docstrings included."""
    for node in ast.walk(tree(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node


def docstrings(source: Path) -> set[ast.Constant]:
    """Strings that are statements."""
    return {
        node.value
        for node in ast.walk(tree(source))
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }


def imported(source: Path) -> set[str]:
    """Modules that a file imports anywhere; a relative import begins with a dot."""
    found = set[str]()
    for node in ast.walk(tree(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add("." * node.level + (node.module or ""))
    return found
