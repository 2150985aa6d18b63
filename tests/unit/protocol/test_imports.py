"""The protocol is shipped with the trainer, into images that hold none of our packages' dependencies."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

PROTOCOL = Path("trainflow/protocol")
MODULES = sorted(PROTOCOL.rglob("*.py"))

OURS = ("benchmarks", "kubetwin", "lambdas", "local", "stacks", "trainer", "trainflow")


def imported(source: Path) -> set[str]:
    """Modules that a file imports, wherever and for whatever."""
    found = set[str]()
    for node in ast.walk(ast.parse(source.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{source} imports by a relative name."
            found.add(node.module or "")
    return found


@pytest.mark.parametrize("source", MODULES, ids=lambda path: path.stem)
def test_a_module_of_the_protocol_imports_the_standard_library_and_the_protocol_only(source: Path) -> None:
    others = {module for module in imported(source) if module.split(".")[0] not in sys.stdlib_module_names}
    assert {module for module in others if not f"{module}.".startswith("trainflow.protocol.")} == set()


def test_the_package_around_the_protocol_imports_nothing() -> None:
    assert imported(Path("trainflow/__init__.py")) == set()


TRAINER = sorted(Path("trainer").rglob("*.py"))


@pytest.mark.parametrize("source", TRAINER, ids=lambda path: ".".join(path.with_suffix("").parts))
def test_the_trainer_imports_nothing_else_of_ours(source: Path) -> None:
    """Import-linter forbids the packages that there are; this holds for those to come."""
    ours = {module for module in imported(source) if module.split(".")[0] in OURS}
    assert {module for module in ours if not f"{module}.".startswith(("trainer.", "trainflow.protocol."))} == set()
