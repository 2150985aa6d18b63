"""The help of the command, in the words that people try."""

from __future__ import annotations

import shlex

import pytest
import typer
from typer.testing import CliRunner

from trainflow.cli.help import EXAMPLES
from trainflow.cli.main import app


def printed(*words: str) -> str:
    answer = CliRunner().invoke(app, list(words))
    assert answer.exit_code == 0, answer.stderr
    return answer.stdout


@pytest.mark.parametrize("words", [("-h",), ("help",)])
def test_the_usual_words_print_the_help_of_the_app(words: tuple[str, ...]) -> None:
    assert printed(*words) == printed("--help")


@pytest.mark.parametrize("words", [("run", "-h"), ("help", "run")])
def test_the_usual_words_print_the_help_of_a_command(words: tuple[str, ...]) -> None:
    assert printed(*words) == printed("run", "--help")


def test_every_command_about_runs_of_this_machine_takes_the_home_that_run_takes() -> None:
    commands = typer.main.get_group(app).commands
    options = {name: {option for each in found.params for option in each.opts} for name, found in commands.items()}
    with_out = {name for name, known in options.items() if {"--out", "--local"} <= known} - {"doctor"}  # no run
    assert {"run", "status", "stop", "logs"} <= with_out
    assert [name for name in sorted(with_out) if "--home" not in options[name]] == []


def test_every_command_is_in_one_group_with_an_example() -> None:
    shown = [name for group in EXAMPLES.values() for name in group]
    assert sorted(shown) == sorted(typer.main.get_group(app).commands)
    printed_help = printed("--help")
    assert all(f"{title}:" in printed_help for title in EXAMPLES)
    assert not any(line.endswith("...") for line in printed_help.splitlines()[1:])


@pytest.mark.parametrize("line", [line for group in EXAMPLES.values() for lines in group.values() for line in lines])
def test_an_example_has_options_that_there_are(line: str) -> None:
    _, name, *words = shlex.split(line)
    command = typer.main.get_group(app).commands[name]
    command.make_parser(typer.Context(command, info_name=name)).parse_args(args=list(words))
    assert line in printed(name, "--help")
