"""Judges the evidence of an attempt: one cell for each promise."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatch
from itertools import takewhile
from typing import Any

import yaml

from benchmarks.gallery.attempt import ENDED_POD, RESTART, STEP, Attempt, Line
from benchmarks.gallery.programs import Program

CURVE = re.compile(r'aria-label="Loss from \S+ at step ([\d,]+) to \S+ at step ([\d,]+);')
TEMPORARY = re.compile(r"/tmp/trainflow-[^/]+/pods/[^/]+")  # noqa: S108
"""A pod's folder in the twin."""
OWN_FILES = ("run.json", "steps.json", "report.html", "logs/*", "summary*", ".trainflow/*")
"""Published files that the workflow writes."""


@dataclass(frozen=True)
class Cell:
    """Whether a promise was kept, and the evidence."""

    green: bool
    evidence: str


def judged(program: Program, made: Attempt) -> dict[str, Cell]:
    """All cells of a program, by their names; only `init` for a program that needs a device."""
    judges = {"init": init_right} if program.needs else CELLS
    return {name: judge(program, made) for name, judge in judges.items()}


def init_right(program: Program, made: Attempt) -> Cell:
    """`init` wrote a spec that needs no correction: the launcher, and how the program continues."""
    if not made.spec_text:
        return Cell(False, f"init ended with {made.typed[0].status}: {_last(made.typed[0].output)}")
    validated = made.typed[1]
    if validated.status != 0:
        return Cell(False, f"validate ended with {validated.status}: {_last(validated.output)}")
    spec = yaml.safe_load(made.spec_text)
    launcher = spec["workload"].get("launcher", "torchrun")
    if program.launcher not in (None, launcher):
        return Cell(False, f"the launcher is {launcher} instead of {program.launcher}")
    absent = [name for name in program.required if name not in made.spec_text]
    if absent:
        return Cell(False, f"the spec does not name what the program requires: {', '.join(absent)}")
    invented = [name for name in _placeholders(spec) if name not in {*program.arguments, *program.required}]
    if invented:
        return Cell(False, f"the spec asks for what the program does not require: {', '.join(invented)}")
    if program.resumes and "checkpoint" not in spec:
        return Cell(False, "the spec has no section checkpoint, although the program resumes")
    return Cell(True, f"launcher {launcher}" + (", section checkpoint" if "checkpoint" in spec else ""))


def _placeholders(spec: Mapping[str, Any]) -> list[str]:
    """Arguments whose value the user has to fill in."""
    return [name for name, value in (spec["workload"].get("arguments") or {}).items() if "change-me" in str(value)]


def step_and_loss_live(program: Program, made: Attempt) -> Cell:
    """At least two steps with a loss were shown before the first pod of the training succeeded."""
    running = list(takewhile(lambda line: not ENDED_POD.match(line.text), made.lines))
    steps = [line for line in running if STEP.match(line.text)]
    with_loss = [line for line in steps if "loss" in line.text]
    if len(with_loss) < 2:
        return Cell(False, f"{len(steps)} steps and {len(with_loss)} losses were shown before the program ended")
    return Cell(True, f"{len(with_loss)} steps with a loss{_after_first_line(made, with_loss[0])}")


def _after_first_line(made: Attempt, step: Line) -> str:
    seconds = seconds_to_first_step(made, step)
    return "" if seconds is None else f", the first one {seconds:.0f} s after the program's first line"


def seconds_to_first_step(made: Attempt, step: Line | None = None) -> float | None:
    """Time from the program's first line to the first step that was shown."""
    step = step or next((line for line in made.lines if STEP.match(line.text)), None)
    if step is None or made.first_line_at is None:
        return None
    return max(0.0, step.seen_at - made.first_line_at)


def result_kept(program: Program, made: Attempt) -> Cell:
    """The run succeeded and published the program's result."""
    if made.record.get("status") != "SUCCEEDED":
        return Cell(False, _failure(made))
    own = [path for path in made.published if not any(fnmatch(path, name) for name in OWN_FILES)]
    wanted = [path for path in own if program.result is None or _matches(path, program.result)]
    if not wanted:
        return Cell(False, f"published: {', '.join(own[:5]) or 'nothing'}; wanted: {program.result}")
    return Cell(True, f"{wanted[0]}" + (f" and {len(own) - 1} other files" if len(own) > 1 else ""))


def _matches(path: str, glob: str) -> bool:
    return fnmatch(path, glob) or fnmatch(f"x/{path}", glob)


def killed_and_resumed(program: Program, made: Attempt) -> Cell:
    """A worker was killed, and the run succeeded: from its checkpoint, or from the start if it cannot resume."""
    if not made.killed or "got SIGKILL" not in made.killed:
        return Cell(False, f"no worker was killed {made.killed}".strip())
    if not made.record.get("restarts"):
        return Cell(False, f"{made.killed}; the run was not restarted: {_failure(made)}")
    if made.record.get("status") != "SUCCEEDED":
        return Cell(False, f"{made.killed}; {_failure(made)}")
    before, after = _first_steps(made)
    if not program.resumes:
        return Cell(True, f"{made.killed}; started again, because the program cannot resume")
    if before is None or after is None:
        return Cell(False, f"{made.killed}; no step shows where the second attempt began")
    if after <= before:
        return Cell(False, f"{made.killed}; the second attempt began at step {after:,} again")
    return Cell(True, f"{made.killed}; the second attempt began at step {after:,}")


def _first_steps(made: Attempt) -> tuple[int | None, int | None]:
    """First shown step of the first attempt, and of the second."""
    restarted = next((number for number, line in enumerate(made.lines) if RESTART.match(line.text)), len(made.lines))
    return _first_step(made.lines[:restarted]), _first_step(made.lines[restarted:])


def _first_step(lines: list[Line]) -> int | None:
    found = (STEP.match(line.text) for line in lines)
    return next((int(match[1].replace(",", "")) for match in found if match), None)


def report_useful(program: Program, made: Attempt) -> Cell:
    """The report has a curve of the loss over several steps."""
    found = CURVE.search(made.report)
    if found is None:
        return Cell(False, "the report has no curve" if made.report else "there is no report")
    first, last = (int(each.replace(",", "")) for each in found.groups())
    return Cell(first < last, f"a curve of the loss from step {first:,} to {last:,}")


def _failure(made: Attempt) -> str:
    if made.record.get("status") == "SUCCEEDED":
        return "the run succeeded"
    error = made.record.get("error") or {}
    reason = TEMPORARY.sub("…", str(error.get("message", "")))[-200:]
    return f"the run ended as {made.record.get('status')}: {error.get('name', '')} {reason}"


def _last(output: str) -> str:
    return output.strip().splitlines()[-1][:300] if output.strip() else ""


CELLS: Mapping[str, Callable[[Program, Attempt], Cell]] = {
    "init": init_right,
    "live": step_and_loss_live,
    "kept": result_kept,
    "resumed": killed_and_resumed,
    "report": report_useful,
}
"""Judge of each cell, in the order of the page's columns."""
