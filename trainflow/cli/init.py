"""A commented run spec for a script: asked for, or made of what the script's source says."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

import yaml

from trainflow.cli.spec_lines import alternatives, checkpoint, notes, open_arguments, progress, scalar, workload
from trainflow.cli.spec_schema import SCHEMA_FILE, write_schema
from trainflow.client.left_out import files_left_out, sentence
from trainflow.client.programs.arguments import TO_SET
from trainflow.client.programs.program import Program, read_program
from trainflow.client.programs.source import ProgramUnreadable
from trainflow.errors import InvalidRunSpec
from trainflow.spec.run_spec import MAX_NAME_LENGTH, parse_run_spec

IMAGE = "pytorch/pytorch:2.9.1-cuda12.8-cudnn9-runtime"
"""A public image with Python and PyTorch, for programs without an image of their own."""


@dataclass(frozen=True, kw_only=True)
class Answers:
    """Values of a spec that no source contains."""

    script: Path
    """The script, in the folder of the spec or below it."""
    name: str
    instance_type: str = "c7i.xlarge"
    num_nodes: int = 1
    processes_per_node: int = 1
    values: Mapping[str, str] = field(default_factory=dict)
    """Values of the script's required arguments, by their names."""


def name_for(script: Path) -> str:
    """A spec's name made of the names of the script and its folder."""
    stem = script.stem if script.stem not in ("train", "main", "run", "__main__") else script.resolve().parent.name
    slug = re.sub(r"[^a-z0-9]+", "-", stem.lower()).strip("-").lstrip("0123456789-")
    return slug[:MAX_NAME_LENGTH].rstrip("-") or "training"


def program_in(script: Path, *, folder: Path) -> Program:
    """Program described by the script's source.

    Args:
        script: The script.
        folder: Folder of the spec, which is that of the code.

    Raises:
        InvalidRunSpec: If the Python file does not exist, cannot be read, is empty or is outside of the folder; names
            it.
    """
    _below(script, folder)
    try:
        content = script.read_bytes()
        if not content.strip():
            raise ProgramUnreadable("is empty")
        return read_program(content, script=script, folder=folder)
    except ProgramUnreadable as error:
        raise InvalidRunSpec(f"{script}: {error}; {error.advice}.") from None
    except OSError as error:
        raise InvalidRunSpec(
            f"{script}: cannot be read ({error.strerror}); give the path of a Python script."
        ) from None


def _below(script: Path, folder: Path) -> str:
    """Path of a script relative to the folder of its spec.

    Raises:
        InvalidRunSpec: If the script is elsewhere.
    """
    try:
        return script.resolve().relative_to(folder.resolve()).as_posix()
    except ValueError:
        raise InvalidRunSpec(
            f"{script} is not in the folder {folder.resolve()} of the spec or below it; write the spec beside "
            "the script with --out."
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
    script = _below(answers.script, folder)
    text = "\n".join(_lines(answers, program, script=script)) + "\n"
    parse_run_spec(yaml.safe_load(text))
    return text


def init_notes(program: Program, answers: Answers, *, folder: Path) -> list[str]:
    """Sentences about the program that its user should know before the run.

    Args:
        program: What the script's source says.
        answers: What no source says.
        folder: Folder of the spec.
    """
    found = list(notes(program))
    ignored = sentence(files_left_out(folder), answers.script.read_bytes())
    found += [ignored] if ignored is not None else []
    found[:0] = [
        f"the program requires one of {group}; add it to workload.arguments" for group in alternatives(program)
    ]
    open_names = [flag.name for flag in open_arguments(program) if flag.name not in answers.values]
    if open_names:
        found.insert(0, f"write the values of {', '.join(open_names)} in place of '{TO_SET}'")
    if program.launcher == "none" and answers.num_nodes > 1:
        found.append(
            f"{program.launcher_reason}, so each of the {answers.num_nodes} nodes would train by itself: "
            "run it on one node, or make it a program for several"
        )
    return found


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
    module = program.place.module if program.place else None
    named = f"module: {module}  # {program.place.reason}" if module and program.place else f"script: {scalar(script)}"
    return [
        f"# yaml-language-server: $schema={SCHEMA_FILE}",
        "# `trainflow validate` checks this file, `trainflow run FILE --local` runs it in the twin on this machine.",
        "# All fields: docs/run-spec.md.",
        *(f"# Note: {note}." for note in notes(program)),
        "version: 1",
        f"name: {scalar(answers.name)}",
        "workload:",
        f"  {named}",
        "  code: .  # this folder is packed, without what .gitignore names; a training works in a copy below {run_dir}",
        f"  image: {IMAGE}  # any image with Python and the program's packages",
        "  # requirements: requirements.txt  # the packages that the image lacks",
        *workload(program, gang=gang, values=answers.values),
        "compute:",
        f"  instance_type: {answers.instance_type}",
        f"  num_nodes: {answers.num_nodes}",
        f"  processes_per_node: {answers.processes_per_node}",
        *progress(program),
        *checkpoint(program),
        "# dataset:",
        "#   url: s3://bucket/prefix/  # staged before anything starts; {data_dir} is its folder",
        "limits:",
        "  max_duration_hours: 24",
        "  stall_minutes: 60  # without a step, a line that differs, or a changed file",
    ]
