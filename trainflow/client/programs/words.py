"""Programs that take words of another form than flags: `key=value`, `--key=value`, or words by their position."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import yaml

from trainflow.client.programs.options import Flag, assigned, keywords, literal
from trainflow.client.programs.source import Module, dotted, last_name

SPLITS = ("split", "partition", "rsplit")
"""Methods that a program of its own form divides `key=value` with."""


def positions(main: Module) -> Iterator[Flag]:
    """Words that the program takes from `sys.argv` by their number."""
    tree = main.tree
    counted = any(isinstance(node, ast.Call) and _is_length_of_argv(node) for node in ast.walk(tree))
    numbers: dict[int, str] = {}
    for node in ast.walk(tree):
        for target, value in assigned(node):
            if (number := _position(value)) is not None:
                numbers[number] = last_name(target) or f"word_{number}"
        if isinstance(node, ast.Subscript) and (number := _position(node)) is not None:
            numbers.setdefault(number, f"word_{number}")
    for number in range(1, max(numbers, default=0) + 1):
        name = numbers.get(number, f"word_{number}")
        yield Flag(name=name, is_positional=True, required=not counted and number in numbers)


def divides_words(main: Module, calls: Iterable[ast.Call]) -> bool:
    """Whether the program reads words such as `--key=value` itself."""
    reads_words = any(dotted(node) == "sys.argv" for node in main.nodes if isinstance(node, ast.expr))
    return reads_words and any(
        last_name(call.func) in SPLITS and call.args and literal(call.args[0]) == "=" for call in calls
    )


def variables(main: Module) -> Iterator[Flag]:
    """Variables at the top of a file that a configurator sets, with their defaults."""
    for node in main.tree.body:
        if _sets_variables(node):
            return
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            value = literal(node.value)
            if isinstance(value, str | int | float | bool) and not node.targets[0].id.startswith("_"):
                yield Flag(name=node.targets[0].id, default=value, line=node.lineno)


def hydra(main: Module) -> Iterator[Flag]:
    """Values that a Hydra program's configuration file leaves open."""
    decorators = [
        decorator
        for node in ast.walk(main.tree)
        if isinstance(node, ast.FunctionDef)
        for decorator in node.decorator_list
        if isinstance(decorator, ast.Call) and dotted(decorator.func) == "hydra.main"
    ]
    for decorator in decorators:
        yield from _open_values(main, keywords(decorator))


def has_configurator(tree: ast.Module) -> bool:
    """Whether a file sets its variables by the words of the command line, as nanoGPT's `configurator.py` does."""
    return any(_sets_variables(statement) for statement in tree.body)


def _sets_variables(statement: ast.stmt) -> bool:
    """Whether a statement executes another file, or assigns to `globals()[name]` with words of `sys.argv`."""
    nodes = list(ast.walk(statement))
    calls = [node for node in nodes if isinstance(node, ast.Call)]
    if any(last_name(call.func) == "exec" and "open" in ast.dump(call) for call in calls):
        return True
    reads_words = any(dotted(node) == "sys.argv" for node in nodes if isinstance(node, ast.expr))
    return reads_words and any(
        isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store) and _is_globals(node.value)
        for node in nodes
    )


def _is_globals(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and dotted(node.func) == "globals"


def _is_length_of_argv(call: ast.Call) -> bool:
    return last_name(call.func) == "len" and bool(call.args) and dotted(call.args[0]) == "sys.argv"


def _position(node: ast.AST) -> int | None:
    """The number of the word that `sys.argv[1]` is, also inside a conversion such as `int(sys.argv[1])`."""
    if isinstance(node, ast.Call) and len(node.args) == 1:
        return _position(node.args[0])
    if isinstance(node, ast.Subscript) and dotted(node.value) == "sys.argv":
        number = literal(node.slice)
        return number if isinstance(number, int) and 1 <= number <= 50 else None
    return None


def _open_values(main: Module, given: Mapping[str, ast.expr]) -> Iterator[Flag]:
    folder, name = literal(given.get("config_path")), literal(given.get("config_name"))
    if main.path is None or not isinstance(name, str):
        return
    path = main.path.parent / (folder if isinstance(folder, str) else ".") / f"{name.removesuffix('.yaml')}.yaml"
    try:
        document = yaml.safe_load(path.read_bytes())
    except (OSError, yaml.YAMLError, ValueError, RecursionError):
        return
    yield from _values(document, "")


def _values(document: Any, prefix: str) -> Iterator[Flag]:
    if not isinstance(document, dict):
        return
    for name, value in document.items():
        if isinstance(value, dict):
            yield from _values(value, f"{prefix}{name}.")
        elif not isinstance(value, list):
            is_open = value == "???"
            yield Flag(name=f"{prefix}{name}", default=None if is_open else value, required=is_open)
