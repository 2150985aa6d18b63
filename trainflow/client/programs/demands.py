"""Options that a program demands after it has read its command line: it raises an error where they are missing."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable

from trainflow.client.programs.options import Flag
from trainflow.client.programs.source import last_name

CHECKS = re.compile(r"^main$|^__post_init__$|arg|check|validate|parse|setup|^run$|^train$")
"""Names of functions that every run of a program calls."""

REFUSALS = frozenset(("error", "exit", "abort"))
"""Functions that end a program: `parser.error`, `sys.exit`."""


def demands(tree: ast.AST, flags: Iterable[Flag]) -> list[tuple[str, ...]]:
    """Groups of attributes of options, with one to be given of each: those in `if a is None and b is None: raise …`.

    Args:
        tree: The program's own file.
        flags: Its options.
    """
    inner = {
        node
        for test in ast.walk(tree)
        if isinstance(test, ast.If) and "__main__" not in ast.dump(test.test)
        for statement in (*test.body, *test.orelse)
        for node in ast.walk(statement)
    }
    functions = {
        node
        for function in ast.walk(tree)
        if isinstance(function, ast.FunctionDef) and not CHECKS.search(function.name)
        for node in ast.walk(function)
    }
    unset = {flag.attribute for flag in flags if flag.default is None and not (flag.is_switch or flag.required)}
    found = [_demanded(node) for node in ast.walk(tree) if node not in inner and node not in functions]
    return [names for names in dict.fromkeys(found) if names and set(names) <= unset]


def _demanded(node: ast.AST) -> tuple[str, ...]:
    """Alternatives that a statement demands; none for other statements."""
    if not isinstance(node, ast.If):
        return _asserted(node)
    return tuple(_missing(node.test) if _refuses(node.body) else _branches(node))


def _branches(node: ast.If) -> list[str]:
    """Names in `if a is not None: … elif b is not None: … else: raise`; none for other branches.

    The last test may be `elif c is None: raise`. Of two names there that are both required, the first counts.
    """
    given = _compared_with_none(node.test, ast.IsNot) or _option(node.test)
    other = node.orelse[0] if len(node.orelse) == 1 else None
    if not given:
        missing = _compared_with_none(node.test.values[0] if isinstance(node.test, ast.BoolOp) else node.test, ast.Is)
        return [missing] if missing and _refuses(node.body) else []
    if isinstance(other, ast.If):
        others = _branches(other)
    else:
        return [given] if node.orelse and _refuses(node.orelse) else []
    return [given, *others] if others else []


def _refuses(statements: list[ast.stmt]) -> bool:
    first = statements[0]
    call = first.value if isinstance(first, ast.Expr) else None
    return isinstance(first, ast.Raise) or (isinstance(call, ast.Call) and last_name(call.func) in REFUSALS)


def _missing(test: ast.expr) -> list[str]:
    """Names that a test compares with None; none if it does anything else."""
    parts = test.values if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And) else [test]
    names = [_compared_with_none(part, ast.Is) or _negated(part) for part in parts]
    return names if all(names) else []


def _asserted(node: ast.AST) -> tuple[str, ...]:
    name = _compared_with_none(node.test, ast.IsNot) if isinstance(node, ast.Assert) else ""
    return (name,) if name else ()


def _compared_with_none(node: ast.expr, operator: type[ast.cmpop]) -> str:
    if isinstance(node, ast.Compare) and isinstance(node.ops[0], operator) and len(node.ops) == 1:
        other = node.comparators[0]
        if isinstance(other, ast.Constant) and other.value is None and isinstance(node.left, ast.Attribute):
            return last_name(node.left)
    return ""


def _negated(node: ast.expr) -> str:
    return _option(node.operand) if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not) else ""


def _option(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else ""
