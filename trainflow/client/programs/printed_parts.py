"""Texts and values of the line that a call prints, whatever form the source gives it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from trainflow.client.programs.options import assigned, keywords, literal
from trainflow.client.programs.source import last_name

OLD_FORMAT = re.compile(r"%(?:\((?P<key>\w+)\))?(?P<padding>[-+ #0]*\d*)(?:\.\d+)?[diufeEgGrs]")
NEW_FORMAT = re.compile(r"\{(?P<key>\w*)[^{}:]*(?::(?P<padding>[^{}]*))?\}")
PADDED = re.compile(r"^.?[<>^=]|^[ +]?0?[1-9]")
MARKUP = re.compile(r"\[/?[a-z][a-z0-9_# ]*\]|\[/\]|\x1b\[[0-9;]*m")
"""Colours of Rich and of terminals, which a log does not have or which a reader leaves out."""

CONSTANTS = re.compile(r"^(max_\w+|(num|n|total)_(epochs|batches)|epochs)$")
"""Names of what a program does not count but knows before."""

MOST_DEEP = 5
"""Most variables that hold parts of one text."""


@dataclass(frozen=True)
class Value:
    """A place in a line where the program prints a value."""

    padded: bool = False
    """Whether spaces may come before it."""
    has_commas: bool = False
    """Whether it has separators of thousands."""
    is_constant: bool = False
    """Whether it is the same in every line, such as `len(loader)`."""


Part = str | Value


def parts_of_call(call: ast.Call, function: ast.AST | None) -> Iterator[Part]:
    """Parts of what a call prints: of a text with its values, or of words and values next to each other.

    Args:
        call: The call.
        function: The function around it, whose variables may hold the text.
    """
    is_rich = "console" in ast.dump(call.func).lower()
    for part in _parts_of_call(call, function):
        yield MARKUP.sub("", part) if isinstance(part, str) and (is_rich or "\x1b" in part) else part


def _parts_of_call(call: ast.Call, function: ast.AST | None) -> Iterator[Part]:
    first = call.args[0] if call.args else None
    if isinstance(first, ast.Constant) and isinstance(first.value, str) and OLD_FORMAT.search(first.value):
        yield from _split(first.value, OLD_FORMAT, call.args[1:])  # logger.info("step %d", step)
        return
    separator = literal(keywords(call).get("sep"))
    for number, argument in enumerate(call.args):
        if number:
            yield separator if isinstance(separator, str) else " "
        yield from _parts(argument, function, MOST_DEEP)


def _parts(node: ast.expr, function: ast.AST | None, depth: int) -> Iterator[Part]:
    if isinstance(node, ast.Constant):
        yield str(node.value)
    elif isinstance(node, ast.JoinedStr):
        for piece in node.values:
            if isinstance(piece, ast.FormattedValue):
                spec = "" if piece.format_spec is None else ast.unparse(piece.format_spec).strip("f'\"")
                yield _value(spec, piece.value)
            else:
                yield from _parts(piece, function, depth)
    elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        yield from _parts(node.left, function, depth)
        yield from _parts(node.right, function, depth)
    elif isinstance(node, ast.BinOp) and (text := _formatted(node, ast.Mod)) is not None:
        values = list(node.right.elts) if isinstance(node.right, ast.Tuple) else [node.right]
        yield from _split(text, OLD_FORMAT, values)
    elif isinstance(node, ast.Call) and (text := _formatted(node, ast.Call)) is not None:
        yield from _split(text, NEW_FORMAT, node.args, keywords(node))
    elif isinstance(node, ast.Call) and last_name(node.func) == "join" and node.args:
        yield from _joined(node, function, depth)
    elif isinstance(node, ast.Call) and last_name(node.func) == "dumps" and node.args:
        yield from _parts(node.args[0], function, depth)
    elif isinstance(node, ast.Dict):
        yield from _object(node)
    elif isinstance(node, ast.Name) and depth and (texts := _held_texts(node.id, function)):
        for each in texts:
            yield from _parts(each, function, depth - 1)
    else:
        yield _value("", node)


def _value(spec: str, node: ast.expr | None) -> Value:
    return Value(padded=bool(PADDED.search(spec)), has_commas="," in spec, is_constant=_is_constant(node))


def _is_constant(node: ast.expr | None) -> bool:
    if isinstance(node, ast.BinOp):
        return _is_constant(node.left) and (isinstance(node.right, ast.Constant) or _is_constant(node.right))
    if isinstance(node, ast.Call):
        return last_name(node.func) == "len"
    return bool(CONSTANTS.search(last_name(node)))


def _joined(call: ast.Call, function: ast.AST | None, depth: int) -> Iterator[Part]:
    """Parts of `" | ".join([…])`."""
    separator = literal(call.func.value) if isinstance(call.func, ast.Attribute) else None
    elements = call.args[0].elts if isinstance(call.args[0], ast.List | ast.Tuple) else []
    for number, element in enumerate(elements):
        if number and isinstance(separator, str):
            yield separator
        yield from _parts(element, function, depth)
    if not elements:
        yield Value()


def _object(node: ast.Dict) -> Iterator[Part]:
    """A dictionary as JSON."""
    yield "{"
    for number, key in enumerate(node.keys):
        yield f'{", " if number else ""}"{literal(key)}": '
        yield _value("", node.values[number])
    yield "}"


def _held_texts(name: str, function: ast.AST | None) -> list[ast.expr]:
    """The texts that a variable holds one behind the other: that of its last assignment, and those that are added."""
    texts: list[ast.expr] = []
    for node in ast.walk(function) if function is not None else ():
        if isinstance(node, ast.AugAssign) and last_name(node.target) == name and isinstance(node.op, ast.Add):
            texts.append(node.value)
        for target, value in assigned(node):
            if last_name(target) == name and isinstance(target, ast.Name) and _is_text(value):
                texts = [value]
    return texts


def _is_text(node: ast.expr) -> bool:
    if isinstance(node, ast.BinOp):
        return _is_text(node.left)
    is_format = isinstance(node, ast.Call) and last_name(node.func) in ("format", "join")
    return is_format or isinstance(node, ast.JoinedStr) or isinstance(literal(node), str)


def _formatted(node: ast.expr, kind: type[ast.AST]) -> str | None:
    """The text of `text % values` or of `text.format(values)`."""
    inner: ast.expr | None = None
    if kind is ast.Mod and isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod):
        inner = node.left
    elif kind is ast.Call and isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        inner = node.func.value if node.func.attr == "format" else None
    return inner.value if isinstance(inner, ast.Constant) and isinstance(inner.value, str) else None


def _split(
    text: str, fields: re.Pattern[str], values: Sequence[ast.expr], named: Mapping[str, ast.expr] | None = None
) -> Iterator[Part]:
    end = 0
    for number, found in enumerate(fields.finditer(text)):
        yield text[end : found.start()]
        yield _value(found["padding"] or "", _value_behind(found["key"] or "", number, values, named or {}))
        end = found.end()
    yield text[end:]


def _value_behind(key: str, number: int, values: Sequence[ast.expr], named: Mapping[str, ast.expr]) -> ast.expr | None:
    """The value that a field of a format stands for: by its name, its number or its position."""
    if key.isdecimal():
        number = int(key)
    elif key:
        return named.get(key)
    return values[number] if number < len(values) else None
