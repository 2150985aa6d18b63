"""The state machine is drawn from the definition that the run's execution has, and otherwise from the installed one."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from tests.unit.page.test_ended import RECORD
from trainflow.client.files import write_record
from trainflow.client.place import PlaceRefused
from trainflow.page.app import PageApp
from trainflow.page.drawings import Drawings
from trainflow.page.library import RunLibrary

OTHER = {
    "StartAt": "Check",
    "States": {"Check": {"Type": "Task", "Next": "Train"}, "Train": {"Type": "Task", "End": True}},
}
REFUSED = "These credentials may not call states:DescribeStateMachineForExecution: no."


class Place:
    """A place that keeps definitions, or refuses them."""

    def __init__(self, answer: Any) -> None:
        self._answer = answer
        self.asked: list[str] = []

    def definition(self, run_id: str) -> Mapping[str, Any]:
        self.asked.append(run_id)
        if isinstance(self._answer, Exception):
            raise self._answer
        found: Mapping[str, Any] = self._answer
        return found


def boxes(drawings: Drawings, run_id: str = "a-1") -> list[str]:
    drawn = drawings.of_run(run_id).layout
    assert drawn is not None
    return [box.name for box in drawn.boxes]


def test_a_run_is_drawn_from_its_own_definition_which_is_asked_for_once() -> None:
    place = Place(OTHER)
    drawings = Drawings(place)
    assert [boxes(drawings), boxes(drawings), boxes(drawings, "a-2")] == [["Check", "Train"]] * 3
    assert drawings.of_run("a-1").note == ""
    assert place.asked == ["a-1", "a-2"]


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (PlaceRefused(REFUSED), REFUSED),
        ({"States": {"Odd": {}}}, "The definition of this run cannot be drawn by this version."),
    ],
    ids=["refused", "unknown"],
)
def test_without_it_the_installed_one_is_drawn_and_the_page_says_so(answer: object, reason: str) -> None:
    drawings = Drawings(Place(answer), workflow=OTHER)
    assert boxes(drawings) == ["Check", "Train"]
    assert drawings.of_run("a-1").note == f"The drawing is of this installation's definition. {reason}"


def test_a_refusal_is_asked_about_again_later(monkeypatch: pytest.MonkeyPatch) -> None:
    place = Place(PlaceRefused(REFUSED))
    drawings = Drawings(place, workflow=OTHER)
    drawings.of_run("a-1")
    drawings.of_run("a-1")
    assert place.asked == ["a-1"]
    monkeypatch.setattr("trainflow.page.drawings.RETRY_SECONDS", 0.0)
    drawings = Drawings(place)
    drawings.of_run("a-1")
    drawings.of_run("a-1")
    assert place.asked == ["a-1"] * 3


def test_where_neither_is_there_the_reason_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As in an installed client, which has no definition of its own."""

    def absent(name: str) -> Mapping[str, Any]:
        raise FileNotFoundError(name)

    monkeypatch.setattr("trainflow.page.drawings.definition", absent)
    drawings = Drawings(Place(PlaceRefused(REFUSED)))
    assert (drawings.of_run("a-1").layout, drawings.of_run("a-1").note) == (None, REFUSED)
    write_record(RECORD, tmp_path / RECORD.run_id / "run.json")
    with RunLibrary(folder=tmp_path) as library:
        library.drawings = drawings
        page = TestClient(PageApp(library, form_token="form").asgi).get(f"/runs/{RECORD.run_id}").text
    assert "The definition of the state machine is not here" in page
    assert REFUSED in page
