"""Ctrl-C while a run is followed: one question at every place."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest
from recorded_runs import recorded
from rich.console import Console

from tests.fakes.replayed_place import ReplayedPlace
from trainflow.cli.attended import GO_ON, LEAVE, STOP, ask
from trainflow.cli.deployed import start
from trainflow.client.runs import DeployedRuns

RUN = recorded("succeeded")


@pytest.mark.parametrize(
    ("typed", "answer"), [("s", STOP), (" Stop", STOP), ("D", LEAVE), ("", GO_ON), ("g", GO_ON), ("what?", GO_ON)]
)
def test_the_answer_is_its_first_letter(monkeypatch: pytest.MonkeyPatch, typed: str, answer: str) -> None:
    monkeypatch.setattr("builtins.input", lambda _question: typed)
    assert ask(otherwise=STOP) == answer


@pytest.mark.parametrize("error", [KeyboardInterrupt, EOFError])
def test_the_place_says_what_no_answer_means(monkeypatch: pytest.MonkeyPatch, error: type[BaseException]) -> None:
    def fails(_question: str) -> str:
        raise error

    monkeypatch.setattr("builtins.input", fails)
    assert (ask(otherwise=STOP), ask(otherwise=LEAVE)) == (STOP, LEAVE)


def test_a_run_of_a_deployment_is_watched_on_and_then_left(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = ReplayedPlace([RUN], polls=20, folder=tmp_path)
    place.name = "mine"
    shown = []

    def interrupted(*_: Any, **__: Any) -> None:
        shown.append("view")
        raise KeyboardInterrupt

    answers = iter([GO_ON, LEAVE])
    monkeypatch.setattr(start, "follow", interrupted)
    monkeypatch.setattr(start, "_asked", lambda: next(answers))
    status = start.follow_started(
        cast("DeployedRuns", place), RUN.run_id, out=tmp_path, detach=False, console=Console(quiet=True)
    )
    assert (status, shown) == (0, ["view", "view"])
    assert capsys.readouterr().out == f"The run goes on: trainflow watch {RUN.run_id} --place mine\n"


def test_a_run_of_a_deployment_goes_on_without_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin.isatty", lambda: False)
    assert start._asked() == LEAVE
