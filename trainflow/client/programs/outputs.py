"""Flags of a Python script for the places of its outputs, found by their names and by the calls that use them.

A flag that only sounds like an output, such as a number `--save` of steps, is ignored.
"""

from __future__ import annotations

import ast
import posixpath
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

FOLDER_NAMES = (
    *("output_dir", "outdir", "out_dir", "output_folder", "output_path", "outputs"),
    *("save_dir", "save_folder", "default_root_dir", "work_dir", "workdir", "exp_dir"),
    *("checkpoint_dir", "checkpoints_dir", "ckpt_dir", "result_dir", "results_dir"),
    *("log_dir", "logdir", "logging_dir", "tensorboard_dir"),
)
"""Names that scripts give to folders of their results, the most specific first."""

PATH_NAMES = (
    *("output", "out", "save", "save_path", "save_to", "save_model_path", "model_path_out"),
    *("snapshot_path", "checkpoint_path", "result_path", "output_file", "out_file"),
)
"""Names of folders or files of results; the shorter ones are also those of numbers and switches."""

UNSURE_NAMES = frozenset({"output", "outputs", "out", "save"})
"""Names that count only with a sign of a path: a text as the default, or a word of the help."""

_WORDS_OF_PATHS = ("path", "dir", "folder", "file", "where")

_NUMBERS = frozenset({"int", "float", "bool", "complex"})

_FIRST, _LATER = True, False

_WRITES: Mapping[str, tuple[bool, bool]] = {
    **dict.fromkeys(("save", "save_file", "dump"), (_LATER, True)),
    **dict.fromkeys(("savez", "savez_compressed", "savetxt", "save_weights", "to_csv"), (_FIRST, True)),
    **dict.fromkeys(("save_pretrained", "save_state", "makedirs", "SummaryWriter"), (_FIRST, False)),
}
"""Calls that write: whether the path is their first argument or a later one, and whether it is that of a file."""


@dataclass(frozen=True, kw_only=True)
class Flag:
    """One option of a script."""

    name: str
    """Name without its dashes."""
    default: Any = None
    required: bool = False
    is_switch: bool = False
    """Whether it takes no value."""
    help: str = ""
    type_name: str | None = None
    """Name of the type or function that reads its value; None for a text."""
    has_choices: bool = False

    @property
    def attribute(self) -> str:
        """Name of its value in what `parse_args` returns."""
        return self.name.replace("-", "_")

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


@dataclass(frozen=True, kw_only=True)
class Writes:
    """Names of the values that a script's calls write to."""

    files: frozenset[str] = field(default_factory=frozenset)
    folders: frozenset[str] = field(default_factory=frozenset)


def outputs(flags: Mapping[str, Flag], writes: Writes, *, data: str | None = None) -> dict[str, str]:
    """The path below the run's folder for each output flag of the script; `.` for the folder itself.

    If there are several folders, the most specific one is the run's folder, and the others are folders in it.

    Args:
        flags: The script's flags.
        writes: What its calls write to.
        data: Its flag for the data set, which is not an output.
    """
    known = {name: number for number, name in enumerate((*FOLDER_NAMES, *PATH_NAMES))}
    found = [flag for flag in flags.values() if flag.name != data and _is_output(flag, writes)]
    found.sort(key=lambda flag: known.get(flag.attribute, len(known)))
    given: dict[str, str] = {}
    for flag in found:
        if given and not flag.is_set:
            continue  # it is off
        if _is_file(flag, writes):
            given[flag.name] = _last_part(flag) or "model.pt"
        else:
            given[flag.name] = (_last_part(flag) or flag.attribute) if "." in given.values() else "."
    return given


def writes_in(calls: list[ast.Call]) -> Writes:
    """Files and folders that the calls of a script write to."""
    files, folders = set[str](), set[str]()
    for call in calls:
        paths, is_file = _paths(call)
        for path in paths:
            name = _leading(path)
            if name is not None:
                (files if is_file and isinstance(path, ast.Attribute) else folders).add(name)
    return Writes(files=frozenset(files), folders=frozenset(folders))


def _is_output(flag: Flag, writes: Writes) -> bool:
    name = flag.attribute
    if not flag.may_be_path:
        return False
    if name in writes.files | writes.folders:
        return True
    if name in UNSURE_NAMES:
        return bool(flag.default) or any(word in flag.help.lower() for word in _WORDS_OF_PATHS)
    return name in FOLDER_NAMES or name in PATH_NAMES


def _is_file(flag: Flag, writes: Writes) -> bool:
    if flag.attribute in writes.folders or flag.attribute in FOLDER_NAMES:
        return False
    if flag.attribute in writes.files:
        return True
    return bool(posixpath.splitext(_last_part(flag))[1])


def _last_part(flag: Flag) -> str:
    """Last part of the default's path; empty if it cannot be a name."""
    part = posixpath.basename(str(flag.default or "").rstrip("/"))
    return "" if part in (".", "..", "~") or "{" in part or "}" in part else part


def _paths(call: ast.Call) -> tuple[list[ast.expr], bool]:
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    if name == "open":
        mode = call.args[1] if len(call.args) > 1 else next((k.value for k in call.keywords if k.arg == "mode"), None)
        is_written = isinstance(mode, ast.Constant) and str(mode.value)[:1] in ("w", "a", "x")
        return call.args[:1] if is_written else [], True
    if name not in _WRITES:
        return [], True
    is_first, is_file = _WRITES[name]
    owner = getattr(getattr(call.func, "value", None), "id", "")
    is_numpys = name == "save" and owner in ("np", "numpy", "jnp")
    paths = call.args[:1] if is_first or is_numpys else call.args[1:]
    return [*paths, *(keyword.value for keyword in call.keywords)], is_file


def _leading(node: ast.expr) -> str | None:
    """Name of the value at the beginning of a path: `out` in `os.path.join(args.out, "model.pt")`."""
    match node:
        case ast.Attribute(value=ast.Name(id=owner), attr=name):
            return None if owner == "self" else name
        case ast.JoinedStr(values=[ast.FormattedValue(value=value), *_]):
            return _leading(value)
        case ast.BinOp(left=left, op=ast.Add() | ast.Div()):
            return _leading(left)
        case ast.Call(args=[first, *_]) if _is_path_function(node.func):
            return _leading(first)
    return None


def _is_path_function(function: ast.expr) -> bool:
    name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
    return name in ("join", "Path", "abspath", "expanduser", "realpath", "str")


def literal(node: ast.expr) -> Any:
    """The value of a literal; None for other expressions."""
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return None


def flags_of(call: ast.Call) -> Iterator[Flag]:
    """The flag that a call of add_argument adds, under each of its long names."""
    given = {keyword.arg: keyword.value for keyword in call.keywords if keyword.arg}
    options = {name: literal(value) for name, value in given.items()}
    kind, action = given.get("type"), given.get("action")
    for argument in call.args:
        text = literal(argument)
        if isinstance(text, str) and text.startswith("--"):
            yield Flag(
                name=text[2:],
                default=options.get("default"),
                required=options.get("required") is True,
                is_switch=_is_switch(action),
                help=" ".join(str(options.get("help") or "").split()),
                type_name=None if kind is None else ast.unparse(kind).rpartition(".")[2],
                has_choices="choices" in given,
            )


def _is_switch(action: ast.expr | None) -> bool:
    if action is None:
        return False
    named = literal(action)
    return named in ("store_true", "store_false", "store_const", "count") or (
        named is None and ast.unparse(action).endswith("BooleanOptionalAction")
    )
