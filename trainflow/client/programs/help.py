"""Flags in a program's output of `--help`, started here and with this Python.

Running a program is more than reading its source, so callers have been asked to.
"""

from __future__ import annotations

import difflib
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from trainflow.protocol.placeholders import placeholders_in
from trainflow.spec.code import git_commit, packed_sha256
from trainflow.spec.workload import Workload

SECONDS = 20.0
"""Time for a program to print its help: importing torch and transformers takes 5 s of CPU."""

MOST_BYTES = 1 << 20
"""Most of an output that is read: a program that ignores `--help` may print without end."""

ALONE = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "LOCAL_WORLD_SIZE": "1"}
"""Variables of a gang of one, for programs that read them while they are imported."""

PLAIN_OUTPUT = {"COLUMNS": "500", "TERMINAL_WIDTH": "500", "NO_COLOR": "1", "TERM": "dumb", "PYTHONUNBUFFERED": "1"}
"""Variables that keep argparse, click and rich from breaking lines and colouring words."""

FLAG = re.compile(r"(?<![\w-])--(?:\[(no-?)\])?([A-Za-z][\w.-]*)")
"""A long flag; `--[no-]amp` of absl and others is two."""

OPTION_LINE = re.compile(r"^[\s│|*]*(?=--?[A-Za-z\[])")
"""Beginning of a line that explains an option: indented, in the frame that typer draws, `*` for a required one."""

REQUIRED = re.compile(r"^[\s│|]*\*|\[required\]")
"""Marks of click and typer for a required option."""


class HelpUnavailable(Exception):
    """The program's help cannot be had here; the message is the reason, as a part of a sentence."""


@dataclass(frozen=True)
class Flags:
    """The long flags of a program, without their dashes."""

    options: tuple[frozenset[str], ...]
    """Names of each option: the flags that mean the same."""
    required: tuple[frozenset[str], ...] = ()
    """Those that have to be given."""
    positionals: tuple[str, ...] = ()
    """Positional arguments that have to be given."""

    @property
    def names(self) -> frozenset[str]:
        """Every flag."""
        return frozenset().union(*self.options)


def doubts_by_help(workload: Workload, *, folder: Path, seconds: float = SECONDS) -> list[str]:
    """Contradictions between the program's own help and the arguments of a spec, in sentences.

    Args:
        workload: The program; it is started.
        folder: Folder of the spec.
        seconds: Time that the program has.

    Raises:
        HelpUnavailable: If the program cannot be started here, or prints no help.
    """
    words, environ = command_for(workload), {**PLAIN_OUTPUT, **ALONE, **_variables(workload)}
    text = output_of((*words, "--help"), cwd=working_directory(workload, folder), environ=environ, seconds=seconds)
    flags = flags_in(text)
    if not flags.names:
        raise HelpUnavailable("it printed no flags")
    own = [str(word) for word in (*(workload.command or ()), *workload.positional)]
    written = [word[2:].partition("=")[0] for word in own if word.startswith("--")]
    values = [word for word in own[len(workload.command or ()) and 2 :] if not word.startswith("-")]
    return [*doubts(flags, tuple(workload.arguments), written=written), *missing_positionals(flags, values)]


def command_for(workload: Workload) -> tuple[str, ...]:
    """The words that start the program with this Python.

    Raises:
        HelpUnavailable: If the program's words depend on the run.
    """
    if workload.module is not None:
        return (sys.executable, "-m", workload.module)
    if workload.script is not None:
        return (sys.executable, workload.script)
    words = tuple(workload.command or ())
    if placeholders_in(words):
        raise HelpUnavailable("its command has placeholders")
    return (sys.executable, *words[1:]) if words[0] in ("python", "python3") else words


def working_directory(workload: Workload, folder: Path) -> Path:
    """Working directory of the program.

    Raises:
        HelpUnavailable: If its code is not a folder of this machine.
    """
    if workload.code is None:
        return folder
    if git_commit(workload.code) or packed_sha256(workload.code):
        raise HelpUnavailable(f"its code is at {workload.code}")
    return folder / workload.code


def output_of(words: Sequence[str], *, cwd: Path, environ: Mapping[str, str], seconds: float) -> str:
    """Output of a program that ends with success.

    Raises:
        HelpUnavailable: If it cannot be started, fails or does not end in time; it has been ended then, with all that
            it started.
    """
    path = os.pathsep.join(filter(None, [str(cwd.resolve()), os.environ.get("PYTHONPATH")]))
    with tempfile.TemporaryFile() as output:
        try:
            program = subprocess.Popen(
                list(words),
                cwd=cwd,
                env={**os.environ, **environ, "PYTHONPATH": path},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        except OSError as error:
            raise HelpUnavailable(f"{words[0]} cannot be started: {error.strerror}") from None
        try:
            status = program.wait(seconds)
        except subprocess.TimeoutExpired:
            raise HelpUnavailable(f"it did not end within {seconds:g} s") from None
        finally:
            with suppress(ProcessLookupError):  # what it left behind goes with it
                os.killpg(program.pid, signal.SIGKILL)
            program.wait()
        output.seek(0)
        text = output.read(MOST_BYTES).decode(errors="replace")
    if status:
        last = next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "it printed nothing")
        raise HelpUnavailable(f"it ended with exit code {status}: {last[:200].rstrip('.')}")
    return text


def flags_in(text: str) -> Flags:
    """The flags in a help text of argparse, HfArgumentParser, click, typer, absl or the like.

    Lines that begin with an option name its flags, up to two spaces where the explanation begins; the usage names
    flags too, and there argparse puts those that may be left out into brackets.
    """
    options: list[frozenset[str]] = []
    required: list[frozenset[str]] = []
    for line in text.splitlines():
        names = _flags_of(line)
        if names:
            options.append(names)
            if REQUIRED.search(line):
                required.append(names)
    usage = _usage(text)
    known = frozenset().union(*options)
    options += [frozenset({name}) for name in _names(usage) if name not in known]
    outside = _outside_of_brackets(usage)
    required += [names for names in options if names & set(_names(outside)) and names not in required]
    return Flags(tuple(options), tuple(required), _positionals(text, outside))


def doubts(flags: Flags, given: Sequence[str], *, written: Sequence[str] = ()) -> list[str]:
    """A sentence for each argument that the help does not list, and for each required flag that is not given.

    Args:
        flags: What the help says.
        given: Names under `arguments`.
        written: Flags that the command or the positional words have.
    """
    names = sorted(flags.names)
    sentences = []
    for name in given:
        begun = [known for known in names if known.startswith(name)]
        if name not in flags.names and len(begun) != 1:  # argparse takes beginnings that lead to one flag
            near = difflib.get_close_matches(name, names, n=1)
            hint = f"did you mean {near[0]}?" if near else f"it has {_some(names)}."
            sentences.append(f"workload.arguments.{name}: the program's --help lists no --{name}; {hint}")
    for option in flags.required:
        if not any(known.startswith(name) for name in (*given, *written) for known in option):
            name = max(sorted(option), key=len)
            sentences.append(f"workload.arguments: the program's --help says that it needs --{name}; add {name}.")
    return sentences


def missing_positionals(flags: Flags, values: Sequence[str]) -> list[str]:
    """A sentence for each positional argument that the help requires and that is not given."""
    return [
        f"workload.positional: the program's --help says that it needs the argument {name}; add its value."
        for name in flags.positionals[len(values) :]
    ]


def _positionals(text: str, usage: str) -> tuple[str, ...]:
    """Words of the usage's required part that the help explains as arguments, as argparse and typer list them."""
    section = _ARGUMENTS.search(text)
    explained = set(_FIRST_WORD.findall(section[1])) if section is not None else set[str]()
    words = usage.split()
    return tuple(word for before, word in pairwise(words) if word in explained and not before.startswith("-"))


_ARGUMENTS = re.compile(r"^positional arguments:\n((?:[ \t]+.*\n?)+)", re.MULTILINE)
_FIRST_WORD = re.compile(r"^ {2}(\S+)", re.MULTILINE)


def _flags_of(line: str) -> frozenset[str]:
    begin = OPTION_LINE.match(line)
    if begin is None or not begin[0]:
        return frozenset()
    names: list[str] = []
    for column in re.split(r"\s{2,}", line[begin.end() :]):
        if not column.startswith("-"):
            break
        names += _names(column)
    return frozenset(names)


def _names(text: str) -> list[str]:
    return [
        each for negation, name in FLAG.findall(text) for each in ([name, f"{negation}{name}"] if negation else [name])
    ]


def _usage(text: str) -> str:
    """The paragraph that begins with `usage:`; empty without one."""
    found = re.search(r"^\s*usage:.*?(?=\n\s*\n|\Z)", text, re.IGNORECASE | re.MULTILINE | re.DOTALL)
    return found[0] if found else ""


def _outside_of_brackets(text: str) -> str:
    """A usage without its optional parts, and without groups with one required member."""
    depth, outside = 0, []
    for character in text:
        if character in "[(":
            depth += 1
        elif character in "])":
            depth = max(depth - 1, 0)
        elif not depth:
            outside.append(character)
    return "".join(outside)


def _some(names: Iterable[str], most: int = 20) -> str:
    known = [name for name in names if name != "help"]
    return ", ".join(known[:most]) + (f" and {len(known) - most} more" if len(known) > most else "")


def _variables(workload: Workload) -> dict[str, str]:
    """Variables of the spec that do not depend on the run."""
    return {name: value for name, value in workload.env.items() if not placeholders_in([value])}
