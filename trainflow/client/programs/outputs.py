"""Flags of a program for the places of its outputs, found by their names and by the calls that their values reach.

A flag that only sounds like an output, such as a number `--save` of steps, is ignored. So is one whose value is the
place of a model or of data that the program reads: a wrong guess would hide them, or replace them.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from trainflow.client.programs.options import Flag
from trainflow.client.programs.path_uses import Use

FOLDER_NAMES = (
    *("output_dir", "outdir", "out_dir", "output_folder", "output_path", "outputs", "output_root", "root_output_dir"),
    *("save_dir", "save_folder", "save_root", "default_root_dir", "work_dir", "workdir", "exp_dir", "experiment_dir"),
    *(
        "project_dir",
        "run_dir",
        "log_folder",
        "model_save_dir",
        "save_model_dir",
        "outf",
        "checkpoint_dir",
        "checkpoints_dir",
        "ckpt_dir",
        "save_ckpt_dir",
    ),
    *("result_dir", "results_dir", "log_dir", "logdir", "logging_dir", "tensorboard_dir", "tb_dir", "tensorboard_log"),
)
"""Names that programs give to folders of their results, the most specific first."""

PATH_NAMES = (
    *("output", "out", "save", "save_path", "save_to", "save_model_path", "model_path_out", "output_name"),
    *("snapshot_path", "checkpoint_path", "result_path", "output_file", "out_file", "log_file"),
)
"""Names of folders or files of results; the shorter ones are also those of numbers and switches."""

UNSURE_NAMES = frozenset({"output", "outputs", "out", "save", "output_name", "log_file"})
"""Names that count only with a sign of a path: a text as the default, or a word of the help."""

INPUTS = re.compile(
    r"data|corpus|cache|input|token|vocab|image|pretrain|teacher|source|annotation|(^|_)(root|src|train|val|test)(_|$)"
    r"|model_name|config|cfg"
)
"""Parts of names for what a program reads. It may also write there, such as what it downloads."""

LAST_CHANCES = re.compile(r"resume|restore|load|init|start|warm|continue|finetune")
"""Parts of names of flags for a checkpoint that the program begins with."""

VARIABLES = re.compile(r"(OUT|SAVE|CKPT|CHECKPOINT|LOG|RESULT|RUN|BASE|WORK|EXP|MODEL)\w*(DIR|PATH|FOLDER|ROOT)$")
"""Names of environment variables for folders of results."""

FOLDER_WRITERS = frozenset(("save_pretrained", "save_state", "save_model", "async_save", "FileSystemWriter"))
"""Calls that write a checkpoint as a folder."""

_WORDS_OF_PATHS = ("path", "dir", "folder", "file", "where")


@dataclass(frozen=True)
class Output:
    """The place that a flag of a program gets."""

    path: str
    """Path below the run's folder; `.` for the folder itself."""
    reason: str
    """Sign that it is an output, as a part of a sentence."""


def outputs(flags: Mapping[str, Flag], uses: Sequence[Use], *, data: str | None = None) -> dict[str, Output]:
    """The place below the run's folder for each output flag of the program.

    If there are several folders, the most specific one is the run's folder, and the others are folders in it.

    Args:
        flags: The program's flags.
        uses: The paths that it writes to and reads from.
        data: Its flag for the data set, which is not an output.
    """
    known = {name: number for number, name in enumerate((*FOLDER_NAMES, *PATH_NAMES))}
    found = {flag.name: sign for flag in flags.values() if flag.name != data and (sign := _sign(flag, uses))}
    order = sorted(found, key=lambda name: known.get(_base(flags[name]), len(known)))
    given: dict[str, Output] = {}
    for name in order:
        flag = flags[name]
        if given and not flag.is_set:
            continue  # it is off
        if _is_file(flag, uses):
            path = _last_part(flag) or "model.pt"
        else:
            is_first = all(each.path not in (".", "./") for each in given.values())
            path = "." if is_first else _last_part(flag) or flag.attribute
            path = posixpath.join(path, "") if _is_added_to(flag, uses) else path
        given[name] = Output(path, found[name])
    return given


def variables(uses: Iterable[Use]) -> dict[str, Output]:
    """The place below the run's folder for each environment variable that says where the program writes."""
    found: dict[str, Output] = {}
    for use in uses:
        name = use.path.option.removeprefix("$")
        if use.kind != "read" and use.path.option != name and VARIABLES.search(name) and name not in found:
            found[name] = Output(name.lower() if found else ".", f"{use.function} writes there")
    return found


def written_beside(uses: Iterable[Use]) -> dict[str, Use]:
    """Files and folders in the working folder that no flag changes, by their path, each with a call that writes it."""
    found: dict[str, Use] = {}
    for use in without_option(uses):
        path = posixpath.normpath(use.path.tail or ".")
        if use.kind == "read" or path in (".", "/") or path.startswith(("/", "..", "*", "~")):
            continue
        if use.kind != "folder" and not set("./") & set(path):
            continue  # the name of a format, or of a key
        if len(path) < 100 and path.isprintable() and not INPUTS.search(path.split("/")[0].lower()):
            found.setdefault(path.replace("{step}", "*"), use)
    return found


def without_option(uses: Iterable[Use]) -> list[Use]:
    """Uses of paths that no option begins, by calls that have not a path of an option either."""
    calls = list(uses)
    with_option = {(use.module, use.line) for use in calls if use.path.option}
    return [use for use in calls if (use.module, use.line) not in with_option]


def uses_behind(flag: Flag, uses: Iterable[Use]) -> list[Use]:
    """Uses of the paths that begin with the value of a flag."""
    return [use for use in uses if use.path.option == flag.attribute]


def _sign(flag: Flag, uses: Sequence[Use]) -> str:
    """Sign that a flag is an output; empty without one."""
    name, own = _base(flag), uses_behind(flag, uses)
    writes = next((use for use in own if use.kind != "read"), None)
    is_read = any(use.is_opened for use in own)
    if not flag.may_be_path or flag.alias_for or (is_read and LAST_CHANCES.search(name)):
        return ""
    if name in FOLDER_NAMES or name in PATH_NAMES:
        if (is_read and writes is None) or (name in UNSURE_NAMES and not writes and not _is_like_path(flag)):
            return ""
        return f"{writes.function} writes there" if writes else "an output by its name"
    if writes is None or INPUTS.search(name):
        return ""
    return f"{writes.function} writes there"


def _is_added_to(flag: Flag, uses: Sequence[Use]) -> bool:
    """Whether the program adds names to a folder without a `/`, as in `args.out + "model.pt"`."""
    tails = [use.path.tail for use in uses_behind(flag, uses) if use.kind != "read" and use.path.tail]
    return bool(tails) and not any(tail.startswith("/") for tail in tails)


def _base(flag: Flag) -> str:
    """Name without the sections of a configuration in front."""
    return flag.attribute.rpartition(".")[2]


def _is_like_path(flag: Flag) -> bool:
    return bool(flag.default) or any(word in flag.help.lower() for word in _WORDS_OF_PATHS)


def _is_file(flag: Flag, uses: Sequence[Use]) -> bool:
    writes = [use for use in uses_behind(flag, uses) if use.kind != "read"]
    if _base(flag) in FOLDER_NAMES or any(_needs_folder(use) for use in writes):
        return False
    return bool(writes) or bool(posixpath.splitext(_last_part(flag))[1])


def _needs_folder(use: Use) -> bool:
    return use.kind == "folder" or use.function in FOLDER_WRITERS or use.path.tail.startswith("/")


def _last_part(flag: Flag) -> str:
    """Last part of the default's path; empty if it cannot be a name."""
    part = posixpath.basename(str(flag.default or "").rstrip("/"))
    return "" if part in (".", "..", "~") or "{" in part or "}" in part else part
