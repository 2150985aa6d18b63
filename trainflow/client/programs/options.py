"""Options of a program's command line, whatever library reads them."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from trainflow.client.programs.source import last_name

_NUMBERS = frozenset({"int", "float", "bool", "complex"})

_OPTIONAL_NARGS = ("?", "*", "REMAINDER", "A...", "...")
"""Values of `nargs` that let argparse take no word, too."""


@dataclass(frozen=True, kw_only=True)
class Flag:
    """One option or positional argument of a program."""

    name: str
    """Name without its dashes; of a positional argument, its name in the help."""
    default: Any = None
    required: bool = False
    is_switch: bool = False
    """Whether it takes no value."""
    help: str = ""
    type_name: str | None = None
    """Name of the type or function that reads its value; None for a text."""
    has_choices: bool = False
    choices: tuple[Any, ...] = ()
    """Its values, as far as the source spells them out."""
    is_positional: bool = False
    alias_for: str | None = None
    """Another name of the same option, which the program's author wrote first."""
    destination: str | None = None
    """Name of its value where the source says so."""
    command: str | None = None
    """Subcommand that it belongs to; None if it stands before them all."""
    line: int = 0
    """Line of the source; 0 where none is known."""

    @property
    def attribute(self) -> str:
        """Name of its value in the program."""
        return (self.destination or self.alias_for or self.name).lstrip("-").replace("-", "_")

    @property
    def may_be_path(self) -> bool:
        """Whether its value may be the path of a file or folder."""
        is_number = self.type_name in _NUMBERS or "bool" in (self.type_name or "").lower()
        is_text = self.default is None or isinstance(self.default, str)
        return is_text and not (self.is_switch or self.has_choices or is_number)

    @property
    def is_set(self) -> bool:
        """Whether the script uses it although it is not given."""
        return self.required or bool(self.default)


def literal(node: ast.expr | None) -> Any:
    """The value of a literal; None for other expressions."""
    if node is None:
        return None
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return None


def assigned(node: ast.AST) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Targets and values of an assignment."""
    if isinstance(node, ast.Assign):
        for target in node.targets:
            yield target, node.value
    elif isinstance(node, ast.AnnAssign) and node.value is not None:
        yield node.target, node.value


def keywords(call: ast.Call) -> dict[str, ast.expr]:
    """The named arguments of a call."""
    return {keyword.arg: keyword.value for keyword in call.keywords if keyword.arg}


def one_line(node: ast.expr | None) -> str:
    """The text that a literal is, in one line; empty for other expressions."""
    text = literal(node)
    return " ".join(text.split()) if isinstance(text, str) else ""


def added_flags(call: ast.Call, *, command: str | None = None, is_certain: bool = True) -> Iterator[Flag]:
    """The option or positional argument that a call of `add_argument` adds, under each of its names.

    Args:
        call: The call.
        command: Subcommand whose parser it is called on.
        is_certain: Whether the program makes the call in any case.
    """
    given = keywords(call)
    texts = [text for text in map(literal, call.args) if isinstance(text, str)]
    long = [text for text in texts if text.startswith("--") and len(text) > 2]
    if not texts:
        return
    first = (long or texts)[0]
    common = {
        "default": _default(given),
        "is_switch": _is_switch(given.get("action")),
        "help": one_line(given.get("help")),
        "type_name": ast.unparse(given["type"]).rpartition(".")[2] if "type" in given else None,
        "has_choices": "choices" in given,
        "choices": _choices(given.get("choices")),
        "command": command,
        "line": call.lineno,
    }
    if not first.startswith("-"):
        required = is_certain and not _takes_no_word(given.get("nargs")) and "default" not in given
        yield Flag(name=first, is_positional=True, required=required, **common)
        return
    required = is_certain and literal(given.get("required")) is True
    destination = literal(given.get("dest"))
    for text in long or [first]:
        name = text[2:] if long else text
        alias = None if text == first else first.lstrip("-")
        yield Flag(name=name, required=required, alias_for=alias, destination=destination, **common)


def _default(given: dict[str, ast.expr]) -> Any:
    """The default; none for false with `nargs="?"`, where the value is a text if there is one: `--resume [PATH]`."""
    value = literal(given.get("default"))
    return None if value is False and literal(given.get("nargs")) == "?" else value


def _takes_no_word(nargs: ast.expr | None) -> bool:
    return nargs is not None and (literal(nargs) in (*_OPTIONAL_NARGS, 0) or last_name(nargs) in _OPTIONAL_NARGS)


def _choices(node: ast.expr | None) -> tuple[Any, ...]:
    values = literal(node)
    return tuple(values) if isinstance(values, list | tuple | set) else ()


def _is_switch(action: ast.expr | None) -> bool:
    if action is None:
        return False
    named = literal(action)
    return named in ("store_true", "store_false", "store_const", "count") or (
        named is None and ast.unparse(action).endswith("BooleanOptionalAction")
    )
