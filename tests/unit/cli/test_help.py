"""The help of the command, in the words that people try."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

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
