"""The cells of the gallery say what the evidence of a run says."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks.gallery import page
from benchmarks.gallery.attempt import Attempt, Line, Typed, override, place_downloads
from benchmarks.gallery.cells import CELLS, judged
from benchmarks.gallery.data_makers import MAKERS
from benchmarks.gallery.programs import Program, read_programs
from benchmarks.gallery.run import run
from benchmarks.result import BenchmarkFailed

PROGRAM = Program(
    name="net",
    kind="a loop",
    repository="some/net",
    commit="0" * 40,
    script="train.py",
    launcher="torchrun",
    required=("width",),
    checkpoint="*.pt",
    resumes=True,
    result="**/model.pt",
)
SPEC = "workload: {launcher: torchrun, arguments: {width: change-me}}\ncheckpoint: {path: model.pt}\n"
SHOWN = """[   0:30] step 1: loss 3.0
[   0:31] step 2: loss 2.9
[   0:33] restart 1, of training, after WorkerFailed: exit code 137
[   0:50] step 2: loss 2.8
[   0:51] step 3: loss 2.7
[   0:52] pod net-0123-training-2-0-abcde Succeeded, on c7i-xlarge-0, exit code 0"""


FROM_THE_START = [Line(1.0, text) for text in SHOWN.replace("step 2: loss 2.8", "step 1: loss 3").splitlines()]


def served(**changes: Any) -> Attempt:
    made = Attempt(
        program="net",
        typed=[Typed("trainflow init", 0, ""), Typed("trainflow validate", 0, ""), Typed("trainflow run", 0, "")],
        spec_text=SPEC,
        lines=[Line(100.0 + number, text) for number, text in enumerate(SHOWN.splitlines())],
        killed="rank 1 got SIGKILL after its first checkpoint, model.pt",
        record={"run_id": "net-0123", "status": "SUCCEEDED", "restarts": [{}]},
        report='<svg aria-label="Loss from 3.0 at step 1 to 2.7 at step 3; lower is better">',
        first_line_at=96.0,
        published=["logs/0.log", "model.pt", "run.json"],
    )
    return replace(made, **changes)


def test_a_program_that_was_served_has_every_cell() -> None:
    cells = judged(PROGRAM, served())
    assert [name for name, cell in cells.items() if not cell.green] == []
    assert cells["live"].evidence == "4 steps with a loss, the first one 4 s after the program's first line"
    assert cells["resumed"].evidence.endswith("the second attempt began at step 2")


@pytest.mark.parametrize(
    ("cell", "changes"),
    [
        ("init", {"spec_text": "", "typed": [Typed("trainflow init", 2, "train.py: cannot be read")]}),
        ("init", {"spec_text": SPEC.replace("torchrun", "none")}),
        ("init", {"spec_text": SPEC.replace("width", "height")}),
        ("init", {"spec_text": SPEC.partition("checkpoint")[0]}),
        ("init", {"spec_text": SPEC.replace("width", "dataset: change-me, width")}),
        ("live", {"lines": []}),
        ("live", {"lines": [Line(1.0, "[   0:52] pod net-training-2-0-abcde Succeeded"), *served().lines]}),
        ("live", {"lines": [Line(line.seen_at, line.text.partition(":")[0]) for line in served().lines]}),
        ("kept", {"published": ["logs/0.log", "run.json"]}),
        ("kept", {"record": {"status": "FAILED", "error": {"name": "ScriptFailed", "message": "no"}}}),
        ("resumed", {"killed": ""}),
        ("resumed", {"record": {"status": "SUCCEEDED", "restarts": []}}),
        ("resumed", {"lines": FROM_THE_START}),
        ("report", {"report": "<html>"}),
        ("report", {"report": served().report.replace("step 3", "step 1")}),
    ],
)
def test_a_broken_promise_is_a_cell_that_says_no(cell: str, changes: dict[str, Any]) -> None:
    assert not CELLS[cell](PROGRAM, served(**changes)).green


def test_a_program_that_cannot_resume_may_start_again() -> None:
    assert CELLS["resumed"](PROGRAM.model_copy(update={"resumes": False}), served(lines=FROM_THE_START)).green


def test_a_program_that_needs_a_device_has_only_the_cell_of_init() -> None:
    assert list(judged(PROGRAM.model_copy(update={"needs": "GPUs"}), served())) == ["init"]


def test_an_override_keeps_the_arguments_that_init_wrote() -> None:
    program = PROGRAM.model_copy(update={"positional": ("--n=2",)})
    written = {"workload": {"positional": ["--out_dir={run_dir}", "change-me"]}}
    assert override(program, written)["workload"]["positional"] == ["--n=2", "--out_dir={run_dir}"]


def test_data_beside_the_program_is_put_beside_its_working_folder_in_the_run(tmp_path: Path) -> None:
    project, run_folder = tmp_path / "net", tmp_path / "net/.trainflow/volumes/runs/net-0123"
    data = ({"make": "mnist", "at": "../data"}, {"make": "text", "at": "a.txt"})
    program = Program.model_validate({**PROGRAM.model_dump(), "data": data})
    (tmp_path / "data").mkdir()
    (tmp_path / "data/images").write_text("pixels")
    run_folder.mkdir(parents=True)
    place_downloads(program, project)
    assert not (run_folder / "data").exists()
    (run_folder / "workspace").mkdir()
    (run_folder / ".trainflow/workspace/1").mkdir(parents=True)  # the second node's
    place_downloads(program, project)
    place_downloads(program, project)
    assert (run_folder / "data/images").read_text() == "pixels"
    assert (run_folder / ".trainflow/workspace/data/images").read_text() == "pixels"
    assert not any((run_folder / "workspace").iterdir())


def test_every_program_names_a_commit_and_data_that_can_be_made() -> None:
    programs = read_programs()
    assert len({program.name for program in programs}) == len(programs) >= 20
    for program in programs:
        assert re.fullmatch("[0-9a-f]{40}", program.commit), program.name
        assert {data.make for data in program.data} <= MAKERS.keys()


@pytest.mark.parametrize("name", ["text", "wikitext", "mnist", "sentence_pairs", "paired_sentences", "metric"])
def test_synthetic_data_is_the_same_each_time(name: str, tmp_path: Path) -> None:
    for folder in ("first", "second"):
        MAKERS[name](tmp_path / folder / "data")
    first, second = (files(tmp_path / folder) for folder in ("first", "second"))
    assert first == second != {}


def files(folder: Path) -> dict[Path, bytes]:
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_the_benchmark_names_what_it_lacks(tmp_path: Path) -> None:
    with pytest.raises(BenchmarkFailed, match="--programs"):
        run()
    with pytest.raises(BenchmarkFailed, match="no nope; it has pytorch-mnist"):
        run(tmp_path, ["nope"])
    with pytest.raises(BenchmarkFailed, match="no checkout of makemore"):
        run(tmp_path, ["makemore"])


def test_the_page_is_that_of_the_results() -> None:
    assert page.PAGE.read_text() == page.current()


def test_the_page_explains_each_cell_that_says_no() -> None:
    cells = {name: {"green": name != "kept", "evidence": f"{name} evidence"} for name in page.COLUMNS}
    row = {"program": "net", "cells": cells, "seconds_to_first_step": 4.2}
    results = {"details": {"rows": [row]}}
    text = page.page([PROGRAM], json.loads(json.dumps(results)), {"details": {"rows": []}})
    assert "**0 of 1 programs have every cell.**" in text
    assert "| yes | yes | **no** | yes | yes | 4 s |  |" in text
    assert "* **net**: kept: kept evidence" in text


def test_the_page_names_the_programs_without_a_result() -> None:
    text = page.page([PROGRAM], {"details": {"rows": []}}, {"details": {"rows": []}})
    assert f"The last results do not include [net]({PROGRAM.url})." in text
    assert "**0 of 0 programs have every cell.**" in text
