"""The benchmark `gallery`: public programs in the twin, one cell for each promise."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.gallery.attempt import attempt
from benchmarks.gallery.cells import judged, seconds_to_first_step
from benchmarks.gallery.programs import Program, read_programs
from benchmarks.result import BenchmarkFailed, Result, this_machine


def run(checkouts: Path | None = None, only: Sequence[str] = (), keep: Path | None = None) -> Result:
    """Try the programs one after another.

    Args:
        checkouts: Folder with a checkout of each repository at its commit, named after the repository.
        only: Names of programs; all if empty.
        keep: Folder for the copies, runs and evidence; a temporary one if not given.

    Raises:
        BenchmarkFailed: If the folder is not given or lacks a checkout, or if a name is unknown.
    """
    if checkouts is None:
        raise BenchmarkFailed("name the folder of the programs' checkouts with --programs (docs/gallery.md).")
    programs = _chosen(only)
    missing = sorted({each.checkout for each in programs if not (checkouts / each.checkout).is_dir()})
    if missing:
        raise BenchmarkFailed(f"{checkouts} has no checkout of {', '.join(missing)}.")
    with tempfile.TemporaryDirectory(prefix="trainflow-gallery-") as temporary:
        rows = [_row(program, checkouts, keep or Path(temporary)) for program in programs]
    ran = [row for row in rows if len(row["cells"]) > 1]
    green = sum(all(cell["green"] for cell in row["cells"].values()) for row in ran)
    return Result(
        benchmark="gallery",
        ratios={"programs_all_green": round(green / len(ran), 3) if ran else 0.0},
        seconds={row["program"]: row["seconds_to_first_step"] for row in ran},
        machine=this_machine(),
        details={"programs": len(ran), "all_green": green, "rows": rows},
    )


def _chosen(only: Sequence[str]) -> list[Program]:
    programs = {program.name: program for program in read_programs()}
    unknown = [name for name in only if name not in programs]
    if unknown:
        raise BenchmarkFailed(f"the gallery has no {', '.join(unknown)}; it has {', '.join(programs)}.")
    return [programs[name] for name in only] if only else list(programs.values())


def _row(program: Program, checkouts: Path, keep: Path) -> dict[str, Any]:
    folder = keep / program.name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    made = attempt(program, checkouts, folder)
    (folder / "attempt.json").write_text(made.to_json(), encoding="utf-8")
    cells = {name: asdict(cell) for name, cell in judged(program, made).items()}
    for name, cell in cells.items():
        print(
            f"{program.name}: {name} {'yes' if cell['green'] else 'NO'}: {cell['evidence']}",
            file=sys.stderr,
            flush=True,
        )
    seconds = seconds_to_first_step(made)
    return {
        "program": program.name,
        "commands": [each.command for each in made.typed],
        "cells": cells,
        "warnings": made.record.get("warnings", []),
        "seconds_to_first_step": None if seconds is None else round(seconds, 1),
    }
