"""Commands that messages advise can be pasted."""

import shlex
from pathlib import Path
from typing import Any

import pytest
import typer

from trainflow.cli.main import app
from trainflow.client.hints import HOME, OUT, deployed_hint, local_hint


@pytest.mark.parametrize("command", ["watch", "stop", "status", "resume", "logs"])
@pytest.mark.parametrize(("out", "home"), [(OUT, HOME), (Path("my out"), HOME), (Path("x"), Path("$h'"))])
def test_a_hint_names_the_folders_of_the_run_and_is_parsed_to_them(command: str, out: Path, home: Path) -> None:
    given = parsed(local_hint(command, "demo-1", out=out, home=home))

    assert (given["run"], given["local"], Path(given["out"]), Path(given["home"])) == ("demo-1", True, out, home)


def test_a_hint_for_a_deployment_names_its_place() -> None:
    assert parsed(deployed_hint("status", "demo-1", place="mine"))["place"] == "mine"
    assert deployed_hint("status", "demo-1", place=None) == "trainflow status demo-1"


def parsed(hint: str) -> dict[str, Any]:
    _, name, *words = shlex.split(hint)
    command = typer.main.get_command(app).commands[name]  # type: ignore[attr-defined]
    given: dict[str, Any] = command.make_context(name, words).params
    return given
