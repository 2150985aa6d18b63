"""Comparison of a spec's arguments with the command line that the program's source reads."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from trainflow.client.programs.options import Flag
from trainflow.client.programs.program import Program, read_program
from trainflow.client.programs.source import ProgramUnreadable
from trainflow.spec.workload import Arguments, Workload, as_text

TO_SET = "change-me"
"""Value of a required argument that `trainflow init` cannot find."""

HYDRAS = frozenset(("config-name", "config-path", "config-dir", "multirun", "cfg", "help", "run", "package", "info"))
"""Flags of Hydra itself."""

PYTHONS = ("python", "python3")


def doubts_about(workload: Workload, *, folder: Path) -> list[str]:
    """Contradictions between a spec's arguments and the program's source, in sentences; none where it is not here.

    Args:
        workload: The program.
        folder: Folder of the spec.
    """
    if workload.code is None:
        return []
    code = folder / workload.code
    script = _file(workload, code)
    if script is None:
        return []
    try:
        program = read_program(script.read_bytes(), script=script, folder=code)
    except (OSError, ProgramUnreadable):
        return []
    return [
        *unknown_arguments(program, workload.arguments),
        *missing_arguments(program, workload.arguments, _own_words(workload)),
    ]


def _file(workload: Workload, code: Path) -> Path | None:
    """The file of a workload's program; None if it is not a Python file of its code."""
    if workload.script is not None:
        return code / workload.script
    if workload.module is not None:
        path = code.joinpath(*workload.module.split("."))
        return next((each for each in (path.with_suffix(".py"), path / "__main__.py") if each.is_file()), None)
    words = workload.command or []
    return code / words[1] if len(words) > 1 and words[0] in PYTHONS and words[1].endswith(".py") else None


def _own_words(workload: Workload) -> list[str]:
    """Words of the command line that are not under `arguments`."""
    return [*(workload.command or [])[2:], *map(as_text, workload.positional)]


def unknown_arguments(program: Program, arguments: Mapping[str, Arguments]) -> list[str]:
    """A sentence for each argument that the program does not take; none if its flags are not all known."""
    if program.style != "flags":
        return list(_in_the_wrong_form(program, arguments))
    if program.accepts_others or not program.flags:
        return []
    known = {name.replace("-", "_") for name in program.flags}
    sentences = []
    for name in arguments:
        if name.replace("-", "_") not in known:
            near = difflib.get_close_matches(name, program.flags, n=1)
            hint = f"did you mean {near[0]}?" if near else f"it has {', '.join(program.flags)}."
            sentences.append(f"workload.arguments.{name}: the program has no flag --{name}; {hint}")
    return sentences


def _in_the_wrong_form(program: Program, arguments: Mapping[str, Arguments]) -> Iterator[str]:
    form = "{name}={value}" if program.style == "overrides" else "--{name}={value}"
    for name, value in arguments.items():
        if program.style == "overrides" and name in HYDRAS:
            continue
        word = form.format(name=name, value=as_text(value) if not isinstance(value, list) else value)
        yield (
            f"workload.arguments.{name}: the program takes values as {form.format(name='name', value='value')}; "
            f"write '{word}' under workload.positional instead."
        )


def missing_arguments(program: Program, arguments: Mapping[str, Arguments], words: Sequence[str] = ()) -> list[str]:
    """A sentence for each required argument that a spec lacks, or has as the placeholder of `trainflow init`.

    Args:
        program: What the source says.
        arguments: The spec's arguments.
        words: Further words of its command line.
    """
    return [
        *_unfilled(arguments, words),
        *_missing_command(program, arguments, words),
        *_missing_flags(program, arguments, words),
        *_missing_choices(program, arguments, words),
        *_missing_positionals(program, words),
    ]


def _unfilled(arguments: Mapping[str, Arguments], words: Sequence[str]) -> Iterator[str]:
    for name, value in arguments.items():
        if value == TO_SET:
            yield f"workload.arguments.{name}: '{TO_SET}' stands for a value that the program requires; write it."
    for word in words:
        if word == TO_SET or word.endswith(f"={TO_SET}"):
            yield f"workload.positional: '{word}' stands for a value that the program requires; write it."


def _missing_command(program: Program, arguments: Mapping[str, Arguments], words: Sequence[str]) -> Iterator[str]:
    if not program.commands:
        return
    if not set(words) & set(program.commands):
        names = ", ".join(program.commands)
        yield f"workload.positional: the program requires one of the commands {names}; add it as the first word."
    for name in arguments:
        if (flag := program.flags.get(name)) is not None and flag.command is not None:
            yield (
                f"workload.arguments.{name}: --{name} belongs behind the command {flag.command}, but arguments come "
                f"before it; write it under workload.positional, behind the command."
            )


def _missing_flags(program: Program, arguments: Mapping[str, Arguments], words: Sequence[str]) -> Iterator[str]:
    written = [word.lstrip("-").partition("=")[0] for word in words if word.startswith("-") or "=" in word]
    given = {name.replace("-", "_") for name in (*arguments, *written)}
    for flag in required_flags(program, words):
        names = {each.name for each in program.flags.values() if each.attribute == flag.attribute} | {flag.name}
        known = {name.lstrip("-").replace("-", "_") for name in names}
        if any(each in known or any(name.startswith(each) for name in known) for each in given if each):
            continue
        field = "positional" if program.style != "flags" or flag.name.startswith("-") or flag.command else "arguments"
        shown = flag.name if program.style == "overrides" or flag.name.startswith("-") else f"--{flag.name}"
        yield f"workload.{field}: the program requires {shown}{_meaning(flag)}; add it."


def _missing_choices(program: Program, arguments: Mapping[str, Arguments], words: Sequence[str]) -> Iterator[str]:
    written = (word.lstrip("-").partition("=")[0] for word in words if word.startswith("-"))
    given = {name.replace("-", "_") for name in (*arguments, *written)}
    for group in program.one_of:
        if not given & set(group):
            names = " or ".join(f"--{name}" for name in group)
            yield f"workload.arguments: the program ends with an error without {names}; add one."


def required_flags(program: Program, words: Sequence[str] = ()) -> list[Flag]:
    """The options that a program requires, with those of the subcommands among some words."""
    return [
        flag
        for flag in program.flags.values()
        if flag.required and not flag.alias_for and (flag.command is None or flag.command in words)
    ]


def _missing_positionals(program: Program, words: Sequence[str]) -> Iterator[str]:
    required = [
        flag for flag in program.positionals if flag.required and (flag.command is None or flag.command in words)
    ]
    given = [word for word in words if not word.startswith("-") and word not in program.commands]
    for flag in required[len(given) :]:
        yield f"workload.positional: the program requires the argument {flag.name}{_meaning(flag)}; add its value."


def _meaning(flag: Flag) -> str:
    return f" ({flag.help.rstrip('.')[:100]})" if flag.help else ""
