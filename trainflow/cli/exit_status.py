"""Exit statuses of commands, and the sentence of a command that refuses its input."""

from __future__ import annotations

import os
from typing import NoReturn

import typer

from trainflow.protocol.plain_text import plain_line

FAILED = 1
"""The run has failed."""

BAD_INPUT = 2
"""The user's input is at fault: the spec, the data set, the program, a folder, an option, the credentials."""

ABORTED = 130
"""128 + SIGINT, as shells have it."""

STOPPED_BEFORE = "Stopped before the run began; nothing is left running."
"""Said after Ctrl-C while nothing has been started."""


def refuse(sentence: str) -> NoReturn:
    """Print the sentence as it is, on one line of the standard error, and end the command."""
    plain = "trainflow:"
    # click prints no colours where the output is no terminal, but it does not know NO_COLOR (https://no-color.org).
    name = plain if os.environ.get("NO_COLOR") else typer.style(plain, fg=typer.colors.RED)
    typer.echo(f"{name} {plain_line(sentence)}", err=True)
    raise typer.Exit(BAD_INPUT)
