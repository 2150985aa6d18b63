"""Programs in the manner of the gallery's are served with the commands of the documentation, and with no other help.

Each program imitates one kind of the public ones: how it prints, saves and continues. A worker is killed after the
first checkpoint. The benchmark `gallery` tries the public programs themselves.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.gallery.attempt import attempt
from benchmarks.gallery.cells import judged
from benchmarks.gallery.programs import Program, read_programs

PROGRAMS = Path(__file__).parents[1] / "assets/programs"
OF_THE_FIRST_PAGE = ("plain_ddp", "plain_trainer")
"""Programs of test_your_script.py."""
STRANGERS = {program.name: program for program in read_programs(PROGRAMS / "strangers/programs.toml")}


def test_every_kind_has_its_program() -> None:
    folders = {path.parent.name for path in (PROGRAMS / "strangers").glob("*/train.py")}
    assert folders == {*STRANGERS, *OF_THE_FIRST_PAGE}


@pytest.mark.slow
@pytest.mark.parametrize("program", STRANGERS.values(), ids=STRANGERS.keys())
def test_a_program_of_this_kind_is_followed_kept_and_resumed(program: Program, tmp_path: Path) -> None:
    made = attempt(program, PROGRAMS, tmp_path)
    missed = {name: cell.evidence for name, cell in judged(program, made).items() if not cell.green}
    assert missed == {}, "\n".join(line.text for line in made.lines[-40:])
