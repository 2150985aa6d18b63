"""Other code makes another grid; the command names the files that differ before it starts all runs anew."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from trainflow.client.code import PackedCode, pack
from trainflow.client.grid import Grid, grid_of
from trainflow.client.grid_code import FILE_NAME, code_difference, remember
from trainflow.spec.run_spec import parse_run_spec

SPEC: dict[str, Any] = {
    "version": 1,
    "name": "lr",
    "workload": {"image": "a/b:1", "code": ".", "script": "fit.py", "launcher": "none", "arguments": {"lr": 1}},
    "compute": {"instance_type": "c7i.xlarge", "num_nodes": 1, "processes_per_node": 1},
}


def packed(folder: Path, *over: str) -> tuple[Grid, PackedCode]:
    code = pack(parse_run_spec(SPEC).workload, beside=folder)
    assert code is not None
    return grid_of(SPEC, over or ["workload.arguments.lr=1,2"], code_sha256=code.sha256), code


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "fit.py").write_text("print(1)")
    return tmp_path / "code"


def test_the_files_that_differ_are_named(folder: Path) -> None:
    out = folder.parent / "out"
    first, code = packed(folder)
    assert code_difference(first, code, out=out) is None
    remember(first, code, out=out)
    assert code_difference(*packed(folder), out=out) is None
    for name in ("grid.txt", "fit.py", "d/a"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text("2")
    second, changed = packed(folder)
    said = code_difference(second, changed, out=out)
    assert said is not None and second.grid_id != first.grid_id
    assert said.startswith(
        f"The code differs from that of the grid {first.grid_id} by d/a, fit.py, grid.txt, so this is"
    )


def test_a_grid_of_other_values_is_compared_with_none(folder: Path) -> None:
    remember(*packed(folder), out=folder.parent)
    assert code_difference(*packed(folder, "workload.arguments.lr=1,3"), out=folder.parent) is None


def test_a_grid_that_was_started_before_is_known_again(folder: Path) -> None:
    remember(*packed(folder), out=folder.parent)
    (folder / "fit.py").write_text("print(2)")
    remember(*packed(folder), out=folder.parent)
    (folder / "fit.py").write_text("print(1)")
    assert code_difference(*packed(folder), out=folder.parent) is None


@pytest.mark.parametrize("text", ["", "{", "[1, null]", '[{"content": 1}]', "7"])
def test_what_is_no_memory_is_passed_over(folder: Path, text: str) -> None:
    out = folder.parent
    (out / FILE_NAME).write_text(text)
    assert code_difference(*packed(folder), out=out) is None
    remember(*packed(folder), out=out)
    assert (out / FILE_NAME).read_text() != text
