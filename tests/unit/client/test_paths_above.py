"""Paths above the folder of the code are named, since only that folder is in a run."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainflow.cli.spec_lines import notes
from trainflow.client.programs.program import read_program


@pytest.mark.parametrize(
    ("source", "paths"),
    [
        ("import torchvision\ntorchvision.datasets.MNIST('../data', download=True)", {"../data": 2}),
        ("import argparse\np = argparse.ArgumentParser()\np.add_argument('--data', default='../d/x')", {"../d/x": 3}),
        ("import sys\nsys.path.append('..')", {"..": 2}),
        ("import os\nfolder = os.path.join('..', 'data')", {"..": 2}),
        ("load(f'../data/{name}')", {"../data": 1}),
        ("import os\nfolder = os.path.join(os.path.dirname(__file__), '..')", {}),
        ("import os\nfolder = os.path.join(root, '..', '../x')", {}),
        ("from pathlib import Path\nfolder = Path(__file__).parent / '..'", {}),
        ("print('.. and ../ are not paths here')", {}),
        ("name = '...'", {}),
    ],
)
def test_paths_above_the_working_folder_are_found_with_their_lines(source: str, paths: dict[str, int]) -> None:
    assert read_program(source).above == paths


@pytest.mark.parametrize(
    ("path", "place"),
    [
        ("../data", "it is {run_dir}/data, without your files, writable and published"),
        ("..", "it is {run_dir}, without your files, writable and published"),
        ("../../data", "it is outside of the run's folder, where the program cannot write"),
    ],
)
def test_a_note_says_where_a_path_above_is_in_a_run(path: str, place: str) -> None:
    begin = f"line 1 names {path}, which is above the folder of the code and is not packed; in a run "
    assert notes(read_program(f"load({path!r})")) == [begin + place]


def test_a_file_in_a_folder_that_is_named_is_not_named_again() -> None:
    said = notes(read_program("make('../data')\nload('../data/x.bin')\nload('../database')"))
    assert [note.split(",")[0] for note in said] == ["line 1 names ../data", "line 3 names ../database"]


def test_a_relative_path_above_the_working_folder_of_the_first_node_is_in_the_runs_folder(tmp_path: Path) -> None:
    from trainer.working_folders import node_folder

    assert (node_folder(tmp_path, 0) / "../data").resolve() == tmp_path.resolve() / "data"
