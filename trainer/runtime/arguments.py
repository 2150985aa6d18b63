"""Command-line arguments from a frozen dataclass: each field is an option, its docstring is the help.

A field that is itself a dataclass is flattened. Other spellings are in the field's metadata: `aliases("batch_size")`.
"""

from __future__ import annotations

import argparse
import ast
import dataclasses
import difflib
import inspect
import itertools
import textwrap
import types
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from trainer.runtime.errors import ConfigInvalid

Config = TypeVar("Config")


def aliases(*names: str) -> dict[str, tuple[str, ...]]:
    """Metadata of a field that may also be given under other names."""
    return {"aliases": names}


def require(holds: bool, name: str, value: float, requirement: str) -> None:
    """Require that the value of an option is valid.

    Raises:
        ConfigInvalid: If the requirement does not hold.
    """
    if not holds:
        raise ConfigInvalid(f"--{name} is {value}; it has to be {requirement}.")


def parse(
    config_type: type[Config],
    argv: Sequence[str],
    *,
    program: str,
    complete: Callable[[Mapping[str, Any]], Mapping[str, Any]] = dict,
) -> Config:
    """Parse a command line into a configuration.

    Args:
        config_type: A dataclass; its fields are the options.
        argv: Arguments without the program's name.
        program: The name of the program in help and messages.
        complete: Adds values of options that were not given to those that were.

    Raises:
        ConfigInvalid: If an option is unknown, lacks its value or has one of the wrong type.
    """
    parser = _Parser(prog=f"python -m {program}", allow_abbrev=False, argument_default=argparse.SUPPRESS)
    leaves = list(_leaves(config_type))
    for leaf in leaves:
        leaf.add_to(parser)
    values, unknown = parser.parse_known_args(list(argv))
    if unknown:
        raise ConfigInvalid(_unknown_option(unknown[0], parser, program))
    for leaf in leaves:
        if leaf.required and leaf.field.name not in values:
            raise ConfigInvalid(f"--{leaf.field.name} is missing; {leaf.help[:1].lower()}{leaf.help[1:]}")
    return _build(config_type, complete(vars(values)))


def divided(argv: Sequence[str]) -> tuple[list[str], list[str]]:
    """A program's own arguments, and those behind the first `--`, which are another program's."""
    words = list(argv)
    end = words.index("--") if "--" in words else len(words)
    return words[:end], words[end + 1 :]


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise ConfigInvalid(f"{message[:1].upper()}{message[1:]}; `{self.prog} --help` lists the options.")


@dataclasses.dataclass(frozen=True)
class _Leaf:
    field: dataclasses.Field[Any]
    annotation: Any
    help: str

    @property
    def required(self) -> bool:
        return self.field.default is dataclasses.MISSING

    def add_to(self, parser: argparse.ArgumentParser) -> None:
        value_type, choices = _reader(self.annotation)
        parser.add_argument(
            *(f"--{name}" for name in (self.field.name, *self.field.metadata.get("aliases", ()))),
            dest=self.field.name,
            type=value_type,
            choices=choices,
            nargs="+" if typing.get_origin(self.annotation) is tuple else None,
            metavar=None if choices else getattr(value_type, "__name__", "value").upper(),
            help=(self.help if self.required else f"{self.help} Default: {self.field.default}.").replace("%", "%%"),
        )


def _leaves(config_type: type[Any]) -> Iterator[_Leaf]:
    annotations = typing.get_type_hints(config_type)
    docstrings = field_docstrings(config_type)
    for field in dataclasses.fields(config_type):
        annotation = annotations[field.name]
        if dataclasses.is_dataclass(annotation) and isinstance(annotation, type):
            yield from _leaves(annotation)
        else:
            yield _Leaf(field, annotation, docstrings.get(field.name, ""))


def _build(config_type: type[Config], values: Mapping[str, Any]) -> Config:
    annotations = typing.get_type_hints(config_type)
    given: dict[str, Any] = {}
    for field in dataclasses.fields(typing.cast(Any, config_type)):
        annotation = annotations[field.name]
        if dataclasses.is_dataclass(annotation) and isinstance(annotation, type):
            given[field.name] = _build(annotation, values)
        elif field.name in values:
            value = values[field.name]
            given[field.name] = tuple(value) if isinstance(value, list) else value
    return config_type(**given)


def _reader(annotation: Any) -> tuple[Callable[[str], Any], tuple[Any, ...] | None]:
    """The function that reads a value of this type from text, and the allowed values if they are few."""
    if typing.get_origin(annotation) in (typing.Union, types.UnionType):
        (annotation,) = (option for option in typing.get_args(annotation) if option is not types.NoneType)
    if typing.get_origin(annotation) is tuple:
        (annotation, _ellipsis) = typing.get_args(annotation)
    if typing.get_origin(annotation) is typing.Literal:
        return str, typing.get_args(annotation)
    readers: dict[Any, Callable[[str], Any]] = {int: int, float: float, str: str, Path: Path, bool: boolean}
    return readers[annotation], None


def boolean(text: str) -> bool:
    """`true` or `false`, in any case, as the tutorials write them (`--bf16 True`)."""
    words = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}
    if text.lower() not in words:
        raise argparse.ArgumentTypeError(f"{text!r} is neither true nor false")
    return words[text.lower()]


def _unknown_option(given: str, parser: argparse.ArgumentParser, program: str) -> str:
    known = [option for action in parser._actions for option in action.option_strings]
    near = difflib.get_close_matches(given.split("=")[0], known, n=1)
    hint = f"did you mean {near[0]}?" if near else f"`python -m {program} --help` lists them all."
    return f"{given!r} is not an option of {program}; {hint}"


def field_docstrings(config_type: type[Any]) -> dict[str, str]:
    """The string under each field of a dataclass and of its base classes, which Python itself does not keep."""
    docstrings: dict[str, str] = {}
    for base in reversed(config_type.__mro__):
        if dataclasses.is_dataclass(base):
            docstrings |= _own_field_docstrings(base)
    return docstrings


def _own_field_docstrings(config_type: type[Any]) -> dict[str, str]:
    (tree,) = ast.parse(textwrap.dedent(inspect.getsource(config_type))).body
    body = typing.cast(ast.ClassDef, tree).body
    docstrings = {}
    for statement, following in itertools.pairwise(body):
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            text = _string(following)
            if text is not None:
                docstrings[statement.target.id] = " ".join(text.split())
    return docstrings


def _string(statement: ast.stmt) -> str | None:
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
        value = statement.value.value
        return value if isinstance(value, str) else None
    return None
