"""Every command that a message advises can be pasted: it names the run and its place, and does what it says."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from lambdas.logic.messages import message, stopped
from tests.unit.cli.recorded_runs import recorded
from tests.unit.test_situation import MOMENTS
from trainflow.cli.main import app
from trainflow.cli.operate.shown import details_text
from trainflow.client.files import write_record
from trainflow.client.hints import local_words, place_words
from trainflow.failures.error_table import error_table
from trainflow.record.failure import explained, what_to_do
from trainflow.record.run_commands import pasted
from trainflow.record.situation import situation
from trainflow.report.page import render_report

OTHERS = ("Aborted", "States.Timeout", "Runtime.ExitError", "Lambda.Unknown", "Sandbox.Timedout", "States.Odd")
ERRORS = (*error_table(), *OTHERS)
RUN = "bert-1"
ARN = "arn:aws:states:us-west-2:1:execution:m:a"
READING = {"status", "logs", "report", "list", "messages", "artifacts", "metrics"}
"""Commands that only read, which a test may run."""

_HINT = re.compile(r"trainflow [a-z][a-z-]*(?: (?:'[^']*'|[^\s`,;'\"]+))*")


def commands_in(text: str) -> Iterator[list[str]]:
    """The commands in a text as their words: each ends with its backtick, or at the end of the line or sentence."""
    for found in _HINT.finditer(text):
        words = re.split(r"[.:;)](?: |$)", found[0])[0]
        yield shlex.split(words)


def parsed(words: list[str]) -> dict[str, Any]:
    command = typer.main.get_command(app).commands[words[1]]  # type: ignore[attr-defined]
    given: dict[str, Any] = command.make_context(words[1], words[2:]).params
    return given


TEXTS = [what_to_do(name) for name in ERRORS] + [situation(moment).to_do for moment, _, _ in MOMENTS.values()]
WITH_COMMAND = [text for text in TEXTS if "trainflow " in text]


@pytest.mark.parametrize("text", sorted({text for text in WITH_COMMAND if " RUN" in text}))
@pytest.mark.parametrize(
    "words", [(), local_words(), local_words(out=Path("my out"), home=Path("/h")), place_words("prod")]
)
def test_a_command_names_the_run_and_its_place(text: str, words: tuple[str, ...]) -> None:
    shown = pasted(text, RUN, words)
    assert " RUN" not in shown
    for command in commands_in(shown):
        given = parsed(command)
        assert RUN in (given.get("run"), *given.get("runs", ()))
        assert given["local"] is ("--local" in words)
        assert given["place"] == ("prod" if "--place" in words else None)
        if "--out" in words:
            assert (Path(given["out"]), Path(given["home"])) == (Path("my out"), Path("/h"))


@pytest.mark.parametrize("name", ["JobStalled", "ProgramHangs", "Aborted", "Runtime.ExitError", "States.Timeout"])
def test_these_ends_have_a_command(name: str) -> None:
    assert "trainflow " in what_to_do(name)


def test_what_has_a_place_already_is_not_given_another() -> None:
    text = f"trainflow logs {RUN} --place a"
    assert pasted(text, RUN, ("--local",)) == text
    assert pasted(f"trainflow logs {RUN}-2", RUN, ("--local",)) == f"trainflow logs {RUN}-2"


@pytest.fixture
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """Folders other than the defaults, with a run that has ended badly."""
    monkeypatch.chdir(tmp_path)
    out, home = tmp_path / "my out", tmp_path / "home"
    record = recorded("worker_failed").record().model_copy(update={"run_id": RUN})
    write_record(record, out / RUN / "run.json")
    (out / RUN / "logs").mkdir()
    (out / RUN / "report.html").write_text("<p>")
    home.mkdir()
    return out, home


def test_the_commands_of_all_surfaces_run_as_they_are(folders: tuple[Path, Path]) -> None:
    out, home = folders
    words = local_words(out=out, home=home)
    record = recorded("worker_failed").record().model_copy(update={"run_id": RUN})
    texts = [details_text(situation_of(record, name), record.started_at, words) for name in ERRORS]
    for name in ERRORS:
        ended = record.model_copy(update={"error": explained(name, "gone")})
        texts.append(re.sub(r"</?code>", "`", render_report(ended, [], words=words)).replace("&#39;", "'"))
        mail = message(
            RUN, ended.status, arn=ARN, error=ended.error, progress=None,
            artifacts=None, folder=None, record=ended, tear_down=True,
        )  # fmt: skip
        texts.append(pasted(mail, RUN, words))
    mail = stopped(RUN, record.status, arn=ARN, error_name=None, kept=False, folder=None, record=record)
    texts.append(pasted(mail, RUN, words))
    texts.append(CliRunner().invoke(app, ["status", "nobody", *words]).output)
    found = (tuple(command) for text in texts for command in commands_in(text))
    hints = {command for command in found if command[1] not in ("run", "validate")}
    assert len({command[1] for command in hints}) >= 4
    for command in sorted(hints):
        given = parsed([*command])
        assert (Path(given["out"]), Path(given["home"])) == (out, home)
        assert given.get("run") in (RUN, None)
        if command[1] in READING - {"logs"}:
            assert CliRunner().invoke(app, list(command[1:])).exit_code < 2, command


def situation_of(record: Any, name: str) -> Any:
    from trainflow.record.run_states import state_of_record

    return state_of_record(record.model_copy(update={"error": explained(name, "gone")}), ())
