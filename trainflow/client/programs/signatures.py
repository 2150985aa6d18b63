"""Options that the signature of a function, or the fields of a dataclass, make of themselves."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from trainflow.client.programs.options import Flag, keywords, literal, one_line
from trainflow.client.programs.source import last_name

OF_TRAINER = re.compile(r"TrainingArguments$|^\w*(SFT|DPO|GRPO|PPO|RLOO|KTO|ORPO|CPO|BCO|Reward|GKD|PRM|MD|XPO)Config$")
"""Names of the dataclasses of transformers, trl and the packages above them that hold the Trainer's arguments."""

TRAINERS_FLAGS = (Flag(name="output_dir"), Flag(name="resume_from_checkpoint"))
"""Their fields that a spec needs (transformers 4 and 5)."""


def is_dataclass(node: ast.ClassDef) -> bool:
    """Whether the fields of a class are parameters."""
    decorators = (each.func if isinstance(each, ast.Call) else each for each in node.decorator_list)
    bases = {last_name(base) for base in node.bases}
    return any(last_name(each) in ("dataclass", "chz", "define", "attrs") for each in decorators) or any(
        base == "BaseModel" or OF_TRAINER.search(base) for base in bases
    )


def library_fields(node: ast.expr) -> tuple[Flag, ...]:
    """Fields of a library's class that a spec needs, by the class's name."""
    return TRAINERS_FLAGS if OF_TRAINER.search(last_name(node)) else ()


def field(statement: ast.AnnAssign, prefix: str) -> Flag:
    """A field of a dataclass as a flag."""
    value, metadata, default = statement.value, None, statement.value
    if isinstance(value, ast.Call) and last_name(value.func).lower() in ("field", "hfarg", "arg"):
        given = keywords(value)
        default = given.get("default", given.get("default_factory"))
        metadata = given.get("metadata")
    help_text = (literal(metadata) or {}) if metadata is not None else {}
    return Flag(
        name=f"{prefix}{last_name(statement.target)}",
        default=literal(default),
        required=default is None,
        is_switch=False,
        help=" ".join(str(help_text.get("help", "")).split()) if isinstance(help_text, dict) else "",
        type_name=last_name(statement.annotation) or None,
        has_choices="Literal" in ast.dump(statement.annotation),
        line=statement.lineno,
    )


def annotated(
    function: ast.FunctionDef | ast.AsyncFunctionDef, prefix: str, *, style: str, is_method: bool = False
) -> Iterator[tuple[Flag, ast.expr | None]]:
    """The parameters of a function as flags, with their annotations."""
    arguments = function.args
    positional = [*arguments.posonlyargs, *arguments.args][1 if is_method else 0 :]
    defaults: list[ast.expr | None] = [None] * (len(positional) - len(arguments.defaults)) + [*arguments.defaults]
    pairs = [*zip(positional, defaults, strict=False), *zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)]
    for argument, default in pairs:
        yield _parameter(argument, default, prefix, is_typer=style == "typer"), argument.annotation


def flags_of_parameters(function: ast.FunctionDef, prefix: str, *, style: str, is_method: bool) -> Iterator[Flag]:
    """The parameters of a function as flags."""
    return (flag for flag, _ in annotated(function, prefix, style=style, is_method=is_method))


def _parameter(argument: ast.arg, default: ast.expr | None, prefix: str, *, is_typer: bool) -> Flag:
    kind = default
    if isinstance(argument.annotation, ast.Subscript) and last_name(argument.annotation.value) == "Annotated":
        elements = argument.annotation.slice
        kind = next((e for e in getattr(elements, "elts", []) if isinstance(e, ast.Call)), default)
    name = last_name(kind.func) if isinstance(kind, ast.Call) else ""
    if isinstance(kind, ast.Call) and name in ("Option", "Argument"):
        value = kind.args[0] if kind is default and kind.args else None if kind is default else default
        is_open = value is None or literal(value) is ...
        text = one_line(keywords(kind).get("help"))
    else:
        value, is_open, text = default, default is None, ""
    is_positional = is_typer and (name == "Argument" or (name == "" and default is None))
    type_name = last_name(argument.annotation) if argument.annotation is not None else ""
    return Flag(
        name=f"{prefix}{argument.arg.replace('_', '-') if is_typer and not is_positional else argument.arg}",
        default=None if literal(value) is ... else literal(value),
        required=is_open and not (isinstance(value, ast.Constant) and value.value is None),
        is_positional=is_positional,
        is_switch=is_typer and type_name == "bool",
        type_name=type_name or None,
        help=text,
        line=argument.lineno,
    )
