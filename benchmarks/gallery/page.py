"""docs/gallery.md: the programs, the commands, and the cells of the last results.

python -m benchmarks.gallery.page    # `make schema` runs it
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from benchmarks.gallery.programs import Program, read_programs

REPOSITORY = Path(__file__).parents[2]
PAGE = REPOSITORY / "docs/gallery.md"
RESULTS = REPOSITORY / "benchmarks/results/gallery.json"
BEFORE = REPOSITORY / "benchmarks/results/gallery_before.json"

COLUMNS = {
    "init": (
        "`trainflow init` wrote a spec that needs no correction: the launcher, every required argument, the section "
        "`checkpoint` of a program that can resume"
    ),
    "live": "steps with a loss were shown while the program was running",
    "kept": "the run succeeded, and the program's result is among the published files",
    "resumed": (
        "a worker was killed after the first checkpoint, or during the training of a program that writes none before "
        "its end, and the run succeeded: from the checkpoint, or from the start if the program cannot resume"
    ),
    "report": "the report has a curve of the loss",
}
"""Meaning of each cell that says yes."""

HEAD = """# Gallery

Public training programs, run unchanged in the [twin](twin.md) with the commands of [your script](your-script.md).
`python -m benchmarks gallery` makes the results; the programs are not part of this repository. The column *before*
counts the cells of the first attempt, in November 2026. The rows are from several runs of the benchmark. *First step
after* is the time from the program's first line to the first step that was shown, with or without a loss; it is empty
where it was not measured. The programs called transformers-… are those of the fork that is linked.

| column | yes means |
|---|---|"""
TYPED = """
## Commands

Typed for each program in its folder. `small.yaml` has flags of the program that make it small, variables, other
fields of `programs.toml` such as packages, and `compute.check_nodes: false`. The benchmark adds `--no-page`. Since it
uses no network, it puts synthetic data into `../data` of programs that download to it, when the run starts:

```console account
trainflow init --from SCRIPT --nodes N --processes 1
trainflow validate spec.yaml --override small.yaml
trainflow run spec.yaml --local --override small.yaml
```

To try it yourself, clone the repositories into one folder, check out the commits of
[`programs.toml`](../benchmarks/gallery/programs.toml), and install the packages that it names for each program. The
data is synthetic, and the programs use no network. One program takes two to four minutes.

```console account
python -m benchmarks gallery --programs FOLDER --out benchmarks/results/gallery.json
python -m benchmarks gallery --programs FOLDER --only makemore --keep EVIDENCE
```
"""


def page(programs: list[Program], results: Mapping[str, Any], before: Mapping[str, Any]) -> str:
    """The page.

    Args:
        programs: All programs.
        results: The last result of the benchmark.
        before: An earlier result, to compare with.
    """
    rows, earlier = _rows(results), _rows(before)
    ran = [program for program in programs if not program.needs and program.name in rows]
    others = [program for program in programs if program.needs and program.name in rows]
    green = sum(_all_green(rows[program.name]) for program in ran)
    text = [HEAD, *(f"| {name} | {meaning} |" for name, meaning in COLUMNS.items()), ""]
    text += [
        f"**{green} of {len(ran)} programs have every cell.**\n",
        *_table(ran, rows, earlier),
        "",
        *_reasons(ran, rows),
        *_devices(others, rows),
        *_without_result(programs, rows),
        TYPED,
    ]
    return "\n".join(text)


def _rows(results: Mapping[str, Any]) -> dict[str, Any]:
    return {row["program"]: row for row in results["details"]["rows"]}


def _all_green(row: Mapping[str, Any]) -> bool:
    return all(cell["green"] for cell in row["cells"].values())


def _table(programs: list[Program], rows: Mapping[str, Any], earlier: Mapping[str, Any]) -> Iterator[str]:
    yield f"| program | kind | {' | '.join(COLUMNS)} | first step after | before |"
    yield "|---" * (len(COLUMNS) + 4) + "|"
    for program in programs:
        row = rows[program.name]
        cells = [_word(row["cells"][column]["green"]) for column in COLUMNS]
        seconds = row["seconds_to_first_step"]
        was = earlier.get(program.name)
        kept = sum(cell["green"] for cell in was["cells"].values()) if was else None
        yield (
            f"| {_link(program)} | {_cell(program.kind)} | {' | '.join(cells)} | "
            f"{'' if seconds is None else f'{seconds:.0f} s'} | {'' if kept is None else f'{kept} of {len(COLUMNS)}'} |"
        )


def _link(program: Program) -> str:
    return f"[{program.name}]({program.url})"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _word(green: bool) -> str:
    return "yes" if green else "**no**"


def _reasons(programs: list[Program], rows: Mapping[str, Any]) -> Iterator[str]:
    missed = [program for program in programs if not _all_green(rows[program.name])]
    if not missed:
        return
    yield "## Cells that say no\n"
    for program in missed:
        cells = rows[program.name]["cells"]
        seen = "; ".join(f"{name}: {cell['evidence']}" for name, cell in cells.items() if not cell["green"])
        yield f"* **{program.name}**: {program.explained or ''} {seen}".replace("  ", " ")
    yield ""


def _devices(programs: list[Program], rows: Mapping[str, Any]) -> Iterator[str]:
    if not programs:
        return
    yield "## Programs that need devices\n"
    yield "Only `init` and `validate` are tried, because the programs refuse to train on a CPU.\n"
    yield "| program | kind | needs | init |"
    yield "|---|---|---|---|"
    for program in programs:
        cell = rows[program.name]["cells"]["init"]
        shown = "yes" if cell["green"] else f"**no**: {cell['evidence']}"
        yield f"| {_link(program)} | {_cell(program.kind)} | {program.needs} | {_cell(shown)} |"


def _without_result(programs: list[Program], rows: Mapping[str, Any]) -> Iterator[str]:
    left = [_link(program) for program in programs if program.name not in rows]
    if left:
        yield "\n## Programs without a result\n"
        yield f"The last results do not include {', '.join(left)}."


def _read(path: Path) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return loaded


def current() -> str:
    """The page of the stored results."""
    return page(read_programs(), _read(RESULTS), _read(BEFORE))


if __name__ == "__main__":
    PAGE.write_text(current(), encoding="utf-8")
