"""A commented run spec for a script: asked for, or made of what the script's source says."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import yaml

from trainflow.cli.spec_schema import SCHEMA_FILE, write_schema
from trainflow.client.programs.program import (
    DATA_FLAGS,
    RESUME_FLAGS,
    Program,
    ProgramUnreadable,
    read_program,
)
from trainflow.errors import InvalidRunSpec
from trainflow.spec.run_spec import MAX_NAME_LENGTH, parse_run_spec

IMAGE = "pytorch/pytorch:2.9.1-cuda12.8-cudnn9-runtime"
"""A public image with Python and PyTorch, for programs without an image of their own."""

TO_SET = "change-me"
"""Value of a required flag of the script without a default."""

PLAIN = re.compile(r"[A-Za-z0-9_./-]+")
"""Texts that need no quotes in YAML, as far as they are not read as something else."""


@dataclass(frozen=True, kw_only=True)
class Answers:
    """Values of a spec that no source contains."""

    script: Path
    """The script, in the folder of the spec or below it."""
    name: str
    instance_type: str = "c7i.xlarge"
    num_nodes: int = 1
    processes_per_node: int = 1


def name_for(script: Path) -> str:
    """A spec's name made of the names of the script and its folder."""
    stem = script.stem if script.stem not in ("train", "main", "run", "__main__") else script.resolve().parent.name
    slug = re.sub(r"[^a-z0-9]+", "-", stem.lower()).strip("-").lstrip("0123456789-")
    return slug[:MAX_NAME_LENGTH].rstrip("-") or "training"


def program_in(script: Path) -> Program:
    """Program described by the script's source.

    Raises:
        InvalidRunSpec: If the Python file does not exist or cannot be read; names it.
    """
    try:
        return read_program(script.read_text(encoding="utf-8"))
    except (ProgramUnreadable, UnicodeDecodeError) as error:
        raise InvalidRunSpec(f"{script}: {error}; give a Python script.") from None
    except OSError as error:
        raise InvalidRunSpec(
            f"{script}: cannot be read ({error.strerror}); give the path of a Python script."
        ) from None


def spec_text(answers: Answers, program: Program, *, folder: Path) -> str:
    """The spec as a commented YAML file.

    Args:
        answers: What no source says.
        program: What the script's source says.
        folder: Folder of the spec.

    Raises:
        InvalidRunSpec: If the script is elsewhere, or if the answers do not fit each other, such as more processes than
            the instance has.
    """
    try:
        script = answers.script.resolve().relative_to(folder.resolve()).as_posix()
    except ValueError:
        raise InvalidRunSpec(
            f"{answers.script} is not in the folder {folder.resolve()} of the spec or below it; write the spec beside "
            "the script with --out."
        ) from None
    text = "\n".join(_lines(answers, program, script=script)) + "\n"
    parse_run_spec(yaml.safe_load(text))
    return text


def write_spec(path: Path, text: str) -> None:
    """Write a new file, and the schema that it names beside it. Where one of them cannot be written, the spec is not
    there.

    Raises:
        InvalidRunSpec: If the file exists, or cannot be written.
    """
    try:
        with _new_file(path) as file:
            file.write(text)
            file.flush()
            write_schema(path.parent)
    except FileExistsError:
        raise InvalidRunSpec(f"{path} is there already; name another file with --out, or remove it.") from None
    except OSError as error:
        raise InvalidRunSpec(f"{path} cannot be written ({error.strerror}); name another file with --out.") from None


@contextmanager
def _new_file(path: Path) -> Iterator[IO[str]]:
    """A file that was not there, to write to; it is removed if the block does not come to its end."""
    file = path.open("x", encoding="utf-8")
    try:
        with file:
            yield file
    except BaseException:
        path.unlink(missing_ok=True)
        raise


def _lines(answers: Answers, program: Program, *, script: str) -> list[str]:
    gang = answers.num_nodes * answers.processes_per_node > 1
    launcher = "torchrun" if gang and program.launcher == "none" else program.launcher
    return [
        f"# yaml-language-server: $schema={SCHEMA_FILE}",
        "# `trainflow validate` checks this file, `trainflow run FILE --local` runs it in the twin on this machine.",
        "# All fields: docs/run-spec.md.",
        "version: 1",
        f"name: {_scalar(answers.name)}",
        "workload:",
        f"  script: {_scalar(script)}",
        "  code: .  # this folder is packed, without what .gitignore names, and unpacked in front of the program",
        f"  image: {IMAGE}  # any image with Python and the program's packages",
        *(["  # requirements: requirements.txt  # the packages that the image lacks"]),
        f"  launcher: {launcher}  # torchrun, mpi, or none: started once on every node",
        *_arguments(program),
        "  # env: {NAME: value}",
        "compute:",
        f"  instance_type: {answers.instance_type}",
        f"  num_nodes: {answers.num_nodes}",
        f"  processes_per_node: {answers.processes_per_node}",
        *_progress(program),
        *_checkpoint(program),
        "# dataset:",
        "#   url: s3://bucket/prefix/  # staged before anything starts; {data_dir} is its folder",
        "limits:",
        "  max_duration_hours: 24",
        "  stall_minutes: 60  # without a step, a line that differs, or a changed file",
    ]


def _arguments(program: Program) -> list[str]:
    """The flags of the script: folders get placeholders, required ones a value to fill in, all others stay comments."""
    data = program.flag_of(DATA_FLAGS)
    given = {name: _below_run_dir(path) for name, path in program.outputs.items()}
    set_lines, comments = [f"    {_scalar(name)}: {value}" for name, value in given.items()], []
    for flag in program.flags.values():
        if flag.name in given:
            continue
        name = _scalar(flag.name)  # `no` and `on` are truth values in YAML
        note = f"  # {_comment(flag.help)}" if flag.help else ""
        if flag.name == data:
            comments.append(f'    # {name}: "{{data_dir}}"{note}')
        elif flag.required:
            set_lines.append(f"    {name}: {TO_SET}  # required{': ' + _comment(flag.help) if flag.help else ''}")
        else:
            default = False if flag.is_switch else flag.default
            comments.append(f"    # {name}: {_scalar(default)}{note}")
    if not set_lines:
        return ["  arguments: {}", *(line.replace("    #", "  #  ", 1) for line in comments)]
    return ["  arguments:", *set_lines, *comments]


def _below_run_dir(path: str) -> str:
    return json.dumps("{run_dir}" if path == "." else f"{{run_dir}}/{path}")


def _progress(program: Program) -> list[str]:
    if program.preset is not None:
        return [f"progress: {{preset: {program.preset}}}"]
    if program.line is not None:
        quoted = program.line.replace("'", "''")
        return ["progress:", f"  pattern: '{quoted}'  # of the line that the script prints"]
    return [
        "progress: auto  # or a pattern of the program's lines, such as",
        r"# progress: {pattern: 'step=(?P<step>\d+) loss=(?P<loss>\S+)'}",
    ]


def _checkpoint(program: Program) -> list[str]:
    resume = program.flag_of(RESUME_FLAGS)
    if program.checkpoints is not None and resume is not None:
        words = f'[--{resume}, "{{checkpoint}}"]'
        marker = [f"  marker: {program.last_file}  # the last file of a checkpoint"] if program.last_file else []
        return ["checkpoint:", f'  path: "{program.checkpoints}"', *marker, f"  resume: {words}"]
    flag = resume or "resume"
    return [
        "# checkpoint:  # a restarted program is given its newest complete checkpoint",
        '#   path: "checkpoint-{step}"  # below {run_dir}',
        f'#   resume: [--{flag}, "{{checkpoint}}"]',
    ]


def _scalar(value: Any) -> str:
    """A value as YAML in one line; JSON is YAML."""
    if isinstance(value, str) and PLAIN.fullmatch(value) and yaml.safe_load(value) == value:
        return value
    return json.dumps(value, default=str)


def _comment(text: str) -> str:
    """A text that a comment can hold."""
    return "".join(character if character.isprintable() else " " for character in text)
