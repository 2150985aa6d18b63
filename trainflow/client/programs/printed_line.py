"""The line that a script prints of a step, found in its source, as a pattern for `progress`."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from trainflow.protocol.metric_aliases import MEANING
from trainflow.spec.line_pattern import pattern_problem

PRINTERS = re.compile(r"print|log|^(info|write|debug)$", re.IGNORECASE)
"""Names of the functions that print or log a line."""

NAME_BEFORE = re.compile(r"(?:([A-Za-z]+)[\s/-]+)?([A-Za-z][\w.-]*?)[\s=:\[(#]*$")
"""The word in front of a value, and the word in front of that."""

OTHERS_LOSS = ("val", "valid", "validation", "eval", "evaluation", "test")
"""Words in front of a loss that is not the training's."""

OLD_FORMAT = re.compile(r"%(?P<padding>[-+ #0]*\d*)(?:\.\d+)?[diufeEgGrs]")
NEW_FORMAT = re.compile(r"\{[^{}:]*(?::(?P<padding>[^{}]*))?\}")
PADDED = re.compile(r"^.?[<>^=]|^[ +]?0?[1-9]")

VALUE = r"[-+.\w]+"


@dataclass(frozen=True)
class Value:
    """A place in a line where the script prints a value."""

    padded: bool = False
    """Whether spaces may come before it."""


Part = str | Value


def pattern_in(tree: ast.AST) -> str | None:
    """The pattern of the first line that a script prints with a step and a loss; None if the source shows none."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and PRINTERS.search(_function(node)):
            pattern = pattern_of(list(_parts_of_call(node)))
            if pattern is not None and pattern_problem(pattern) is None:
                return pattern
    return None


def pattern_of(parts: Sequence[Part]) -> str | None:
    """A regular expression for a line; None without a step and a loss in it.

    Args:
        parts: Texts and values of the line in their order.
    """
    names = list(_names(parts))
    groups = {name for name, _ in names if name}
    if "step" not in groups and "epoch" in groups and all(name for name, _ in names):
        names = [("step" if name == "epoch" else name, begin) for name, begin in names]
        groups = {name for name, _ in names if name}
    if not {"step", "loss"} <= groups:
        return None
    known = [index for index, (name, _) in enumerate(names) if name]
    pattern, text, index = "", "", -1
    for part in parts:
        if isinstance(part, str):
            text += part
            continue
        index += 1
        name, begin = names[index]
        if known[0] <= index <= known[-1]:
            before = text[begin:] if index == known[0] else text
            pattern += _literal(before.rstrip() if part.padded else before) + (r"\s*" if part.padded else "")
            value = r"\d+" if name == "step" else VALUE
            pattern += f"(?P<{name}>{value})" if name else value
        text = ""
    return pattern


def _names(parts: Sequence[Part]) -> Iterator[tuple[str, int]]:
    """Name of each value, and where it begins in the text before the value. Unknown ones have an empty name."""
    text, taken = "", set[str]()
    for part in parts:
        if isinstance(part, str):
            text += part
            continue
        found = NAME_BEFORE.search(text)
        name = _group(found[2], before=found[1] or "") if found else ""
        yield (name, found.start(2)) if found and name not in taken else ("", 0)
        taken.add(name)
        text = ""


def _group(word: str, *, before: str) -> str:
    """The name of a value as the name of a group."""
    meaning = MEANING.get(f"{before}_{word}".lower()) or MEANING.get(word.lower(), word)
    if meaning == "loss" and before.lower() in OTHERS_LOSS:
        meaning = f"{before}_loss"
    name = re.sub(r"\W", "_", meaning)
    return name if name.isidentifier() and name.isascii() else ""


def _literal(text: str) -> str:
    """Pattern for a text; a space matches any number of spaces."""
    return re.sub(r"\s+", r"\\s+", re.sub(r"([.^$*+?{}\[\]\\|()])", r"\\\1", text))


def _function(call: ast.Call) -> str:
    if isinstance(call.func, ast.Attribute):
        return call.func.attr
    return call.func.id if isinstance(call.func, ast.Name) else ""


def _parts_of_call(call: ast.Call) -> Iterator[Part]:
    """Parts of what a call prints: of a text with its values, or of words and values next to each other."""
    first = call.args[0] if call.args else None
    if isinstance(first, ast.Constant) and isinstance(first.value, str) and OLD_FORMAT.search(first.value):
        yield from _split(first.value, OLD_FORMAT)  # logger.info("step %d", step)
        return
    for number, argument in enumerate(call.args):
        if number:
            yield " "
        yield from _parts(argument)


def _parts(node: ast.expr) -> Iterator[Part]:
    if isinstance(node, ast.Constant):
        yield str(node.value)
    elif isinstance(node, ast.JoinedStr):
        for piece in node.values:
            if isinstance(piece, ast.FormattedValue):
                spec = "" if piece.format_spec is None else ast.unparse(piece.format_spec).strip("f'\"")
                yield Value(padded=bool(PADDED.search(spec)))
            else:
                yield from _parts(piece)
    elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        yield from _parts(node.left)
        yield from _parts(node.right)
    elif (text := _formatted(node, ast.Mod)) is not None:
        yield from _split(text, OLD_FORMAT)
    elif (text := _formatted(node, ast.Call)) is not None:
        yield from _split(text, NEW_FORMAT)
    else:
        yield Value()


def _formatted(node: ast.expr, kind: type[ast.AST]) -> str | None:
    """The text of `text % values` or of `text.format(values)`."""
    inner: ast.expr | None = None
    if kind is ast.Mod and isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod):
        inner = node.left
    elif kind is ast.Call and isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        inner = node.func.value if node.func.attr == "format" else None
    return inner.value if isinstance(inner, ast.Constant) and isinstance(inner.value, str) else None


def _split(text: str, values: re.Pattern[str]) -> Iterator[Part]:
    end = 0
    for found in values.finditer(text):
        yield text[end : found.start()]
        yield Value(padded=bool(PADDED.search(found["padding"] or "")))
        end = found.end()
    yield text[end:]
