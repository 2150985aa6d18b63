"""The lines of a spec that describe a program: with the sign of each as a comment."""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Iterator, Mapping
from typing import Any

import yaml

from trainflow.client.programs.arguments import TO_SET
from trainflow.client.programs.options import Flag
from trainflow.client.programs.outputs import written_beside
from trainflow.client.programs.program import DATA_FLAGS, Program
from trainflow.protocol.placeholders import WORKING_FOLDER

PLAIN = re.compile(r"[A-Za-z0-9_./-]+")
"""Texts that need no quotes in YAML, as far as they are not read as something else."""

DATA_NAMES = re.compile(r"(^|_)(data|dataset|imagenet|root)(_|$)")
"""Names of positional arguments for the data."""

MOST_NAMED = 3
"""Most files that one comment names."""


def workload(program: Program, *, gang: bool, values: Mapping[str, str]) -> list[str]:
    """The fields of `workload` for the program's launcher and words.

    Args:
        program: What the source says.
        gang: Whether there are several nodes or processes.
        values: Values of required arguments, by name, as a person has given them.
    """
    return [
        *_launcher(program, gang=gang),
        *_environment(program),
        *(
            _flags(program, values, gang=gang)
            if program.style == "flags" and not program.commands
            else ["  arguments: {}"]
        ),
        *_positional(program, values),
    ]


def open_arguments(program: Program) -> list[Flag]:
    """Required arguments whose values no source contains."""
    required = [*program.flags.values(), *program.positionals]
    command = _command(program)
    return [
        flag
        for flag in required
        if (flag.required or _is_demanded(flag, program)) and flag.name not in program.outputs
        if not flag.alias_for and flag.command in (None, command)
    ]


def _launcher(program: Program, *, gang: bool) -> Iterator[str]:
    reason = program.launcher_reason or "torchrun, mpi, or none: started once on every node"
    launcher = program.launcher_for(gang=gang)
    if launcher != program.launcher:
        reason = f"one process trains without it; {program.launcher} for more, since {reason}"
    elif gang and launcher == "none" and program.launcher_reason:
        reason += "; it is started once on every node"
    yield f"  launcher: {launcher}  # {comment(reason)}"


def _environment(program: Program) -> Iterator[str]:
    folder = program.place.search_path if program.place else None
    lines = [f"    PYTHONPATH: {folder}  # it imports packages of this folder"] if folder else []
    lines += [
        f"    {scalar(name)}: {_below_run_dir(output.path)}  # {comment(output.reason)}"
        for name, output in program.variables.items()
    ]
    yield from ["  env:", *lines] if lines else ["  # env: {NAME: value}"]
    if (library := program.place.shadow if program.place else None) is not None:
        yield f"  # {library} is the image's; with env {{PYTHONPATH: src}} it is src/{library} of this folder"


def _flags(program: Program, values: Mapping[str, str], *, gang: bool) -> list[str]:
    """The flags of the program: outputs get placeholders, required ones a value, all others stay comments."""
    data = program.first_flag(DATA_FLAGS)
    set_lines = [
        f"    {scalar(name)}: {_below_run_dir(output.path)}  # {comment(output.reason)}"
        for name, output in program.outputs.items()
        if not name.startswith("-")
    ]
    comments = [f"    # one of {group} is required: add it" for group in alternatives(program)]
    for flag in program.flags.values():
        if flag.name in program.outputs or flag.alias_for or flag.name.startswith("-"):
            continue
        name = scalar(flag.name)  # `no` and `on` are truth values in YAML
        note = f"  # {comment(flag.help)}" if flag.help else ""
        if _is_gangs(flag) and program.launcher_for(gang=gang) == "torchrun":
            set_lines.append(f"    {name}: pytorch  # torchrun starts its processes")
        elif flag.required or _is_demanded(flag, program):
            set_lines.append(f"    {name}: {scalar(values.get(flag.name, TO_SET))}  # {_required(flag, data)}")
        elif flag.name == data:
            comments.append(f'    # {name}: "{{data_dir}}"{note}')
        else:
            default = False if flag.is_switch else flag.default
            comments.append(f"    # {name}: {scalar(default)}{note}")
    if not set_lines:
        return ["  arguments: {}", *(line.replace("    #", "  #  ", 1) for line in comments)]
    return ["  arguments:", *set_lines, *comments]


def _is_demanded(flag: Flag, program: Program) -> bool:
    """Whether a program ends with an error without a flag, and nothing else may be in its place."""
    return (flag.attribute,) in _demands(program)


def alternatives(program: Program) -> list[str]:
    """Flags that may stand for each other, as a text for each group: the program demands one of it."""
    return [comment(", ".join(group)) for group in _demands(program) if len(group) > 1]


def _demands(program: Program) -> list[tuple[str, ...]]:
    """The groups of options that a program demands one from, if none of them is given otherwise."""
    given = {program.flags[name].attribute for name in program.outputs}
    given |= {each.attribute for each in program.flags.values() if each.required}
    return [group for group in program.one_of if not given & set(group)]


def _is_gangs(flag: Flag) -> bool:
    """Whether a flag says who starts the processes, as that of OpenMMLab's programs does."""
    return flag.name == "launcher" and "pytorch" in flag.choices


def _positional(program: Program, values: Mapping[str, str]) -> list[str]:
    """Words behind the flags: a subcommand with its flags, words of another form, and positional arguments."""
    lines = [*_command_words(program, values), *_assignments(program, values)]
    for flag in program.flags.values():
        if flag.name.startswith("-") and flag.required and not program.commands:
            lines += [
                f"    - {json.dumps(flag.name)}",
                f"    - {scalar(values.get(flag.name, TO_SET))}  # {_required(flag, None)}",
            ]
    for flag in program.positionals:
        if flag.required and flag.command in (None, _command(program)):
            data = flag.name if DATA_NAMES.search(flag.attribute) else None
            lines.append(f"    - {scalar(values.get(flag.name, TO_SET))}  # {flag.name}, {_required(flag, data)}")
    optional = [flag.name for flag in program.positionals if not flag.required and flag.command is None]
    notes = [f"  # positional: [{', '.join(map(scalar, optional))}]  # optional words"] if optional else []
    return [*(["  positional:", *lines] if lines else []), *notes]


def _command(program: Program) -> str | None:
    """The subcommand that trains; None if no name says so."""
    return next((name for name in program.commands if re.search(r"train|fit|tune|sft", name)), None)


def _command_words(program: Program, values: Mapping[str, str]) -> Iterator[str]:
    if not program.commands:
        return
    command = _command(program)
    names = ", ".join(program.commands)
    before = [flag for flag in program.flags.values() if flag.command is None]
    behind = [flag for flag in program.flags.values() if flag.command == command and command is not None]
    yield from _written_flags(before, program, values)
    yield f"    - {scalar(command or TO_SET)}  # the command, one of {comment(names)}"
    yield from _written_flags(behind, program, values)


def _written_flags(flags: list[Flag], program: Program, values: Mapping[str, str]) -> Iterator[str]:
    for flag in flags:
        output = program.outputs.get(flag.name)
        if output is not None:
            yield f"    - {json.dumps(f'--{flag.name}=' + _place(output.path))}  # {comment(output.reason)}"
        elif flag.required and not flag.alias_for:
            word = f"--{flag.name}={values.get(flag.name, TO_SET)}"
            yield f"    - {json.dumps(word)}  # {_required(flag, None)}"


def _assignments(program: Program, values: Mapping[str, str]) -> Iterator[str]:
    """Words of programs that take `key=value`, as Hydra's do, or `--key=value`."""
    if program.style == "flags":
        return
    dashes = "--" if program.style == "assignments" else ""
    if program.style == "overrides" and program.is_hydra:
        yield '    - "hydra.run.dir={run_dir}"  # folder of this run, in place of one with the time in its name'
    for name, output in program.outputs.items():
        yield f"    - {json.dumps(f'{dashes}{name}=' + _place(output.path))}  # {comment(output.reason)}"
    for flag in program.flags.values():
        if flag.required and flag.name not in program.outputs:
            yield f"    - {json.dumps(f'{dashes}{flag.name}={values.get(flag.name, TO_SET)}')}  # required"
    others = [flag for flag in program.flags.values() if not flag.required and flag.name not in program.outputs]
    yield from (f"    # - {json.dumps(f'{dashes}{flag.name}={flag.default}')}" for flag in others)


def _required(flag: Flag, data: str | None) -> str:
    place = '; "{data_dir}" with a dataset' if data == flag.name else ""
    return f"required{': ' + comment(flag.help) if flag.help else ''}{place}"


def _place(path: str) -> str:
    return "{run_dir}" if path == "." else f"{{run_dir}}/{path}"


def _below_run_dir(path: str) -> str:
    return json.dumps(_place(path))


def progress(program: Program) -> list[str]:
    """The section `progress`."""
    if program.preset is not None:
        return [f"progress: {{preset: {program.preset}}}"]
    found = program.progress
    if found.pattern is not None:
        quoted = found.pattern.replace("'", "''")
        return ["progress:", f"  pattern: '{quoted}'  # of the line that the script prints (line {found.line})"]
    if found.line:
        return [f"progress: auto  # reads the steps that line {found.line} prints"]
    return [
        "progress: auto  # or a pattern of the program's lines, such as",
        r"# progress: {pattern: 'step=(?P<step>\d+) loss=(?P<loss>\S+)'}",
    ]


def checkpoint(program: Program) -> list[str]:
    """The section `checkpoint`: a comment unless both the checkpoint's name and the way to continue are known."""
    found = program.checkpoints
    resume = found.resume or ("--resume", "{checkpoint}")
    words = ", ".join(word if re.fullmatch(r"--[\w-]+", word) else json.dumps(word) for word in resume)
    marker = [f"  marker: {found.marker}  # the last file of a checkpoint"] if found.marker else []
    if found.is_certain and found.path is not None:
        lines = [f'  path: "{found.path}"  # {comment(found.reason)}', *marker]
        return ["checkpoint:", *lines, *([f"  resume: [{words}]"] if found.resume else [])]
    path = found.path or "checkpoint-{step}"
    reason = f"; {comment(found.reason)}" if found.reason else ""
    return [
        "# checkpoint:  # a restarted program is given its newest complete checkpoint",
        f'#   path: "{path}"  # below {{run_dir}}{reason}',
        f"#   resume: [{words}]",
    ]


def notes(program: Program) -> list[str]:
    """Sentences about the program that a person should know before the run."""
    return [*_note_on_files_beside(program), *_notes_on_paths_above(program)]


def _note_on_files_beside(program: Program) -> Iterator[str]:
    beside = written_beside(program.uses)
    if not beside:
        return
    names = [f"{path} (line {use.line})" for path, use in list(beside.items())[:MOST_NAMED]]
    more = f" and {len(beside) - MOST_NAMED} more" if len(beside) > MOST_NAMED else ""
    yield (
        f"the program writes {', '.join(names)}{more} into its working folder, and no flag changes that: the folder is "
        f"{{run_dir}}/{WORKING_FOLDER}, and a restart finds the files there"
    )


def _notes_on_paths_above(program: Program) -> Iterator[str]:
    """Sentences about paths such as `../data`: what is there in a run, and what is not."""
    above = program.above
    whole = [path for path in above if not any(path.startswith(f"{other}/") for other in above if other != "..")]
    for path, line in [(path, above[path]) for path in whole[:MOST_NAMED]]:
        place = posixpath.normpath(f"{WORKING_FOLDER}/{path}")
        begin = f"line {line} names {path}, which is above the folder of the code and is not packed"
        if place.startswith(".."):
            yield f"{begin}; in a run it is outside of the run's folder, where the program cannot write"
        else:
            yield f"{begin}; in a run it is {_place(place)}, without your files, writable and published"


def scalar(value: Any) -> str:
    """A value as YAML in one line; JSON is YAML."""
    if isinstance(value, str) and PLAIN.fullmatch(value) and yaml.safe_load(value) == value:
        return value
    return json.dumps(value, default=str)


def comment(text: str) -> str:
    """A text that a comment can hold."""
    return "".join(character if character.isprintable() else " " for character in text)
