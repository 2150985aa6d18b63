"""The excerpt of a failed program's log is the traceback that decided, with its place, without launchers' lines."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.failures import more_failed_programs
from tests.unit.failures.failed_programs import LIB, PROGRAMS, FailedProgram, elastic_report
from trainflow.failures.excerpt import MAX_CHARACTERS, MAX_LINES, Excerpt, excerpt
from trainflow.failures.judgement import Judgement, to_text
from trainflow.failures.judging import Evidence, judge

ALL = [*PROGRAMS, *more_failed_programs.PROGRAMS]


def judged(program: FailedProgram) -> Excerpt:
    lines = program.log.split("\n")
    return judge(Evidence(lines=lines, exit_code=program.exit_code, has_steps="step" in program.log)).excerpt


@pytest.mark.parametrize("program", ALL, ids=[program.name for program in ALL])
def test_the_excerpt_shows_what_ended_the_program_and_where(program: FailedProgram) -> None:
    found = judged(program)
    text = "\n".join(found.lines)
    assert (found.place, found.rank) == (program.place, program.rank)
    assert [wanted for wanted in program.shows if wanted not in text] == []
    assert [hidden for hidden in program.hides if hidden in text] == []


def test_of_ranks_that_raise_alike_the_one_that_torchrun_saw_first_is_shown() -> None:
    traceback = 'Traceback (most recent call last):\n  File "/code/fit.py", line 1{rank}, in f\nValueError: bad shape'
    log = "\n".join(f"[rank{rank}]: {line}" for rank in (0, 2, 1) for line in traceback.format(rank=rank).split("\n"))
    report = elastic_report(2, others=((0, -15), (1, -15)))
    found = excerpt(f"{log}\n{report}".split("\n"), "ValueError: bad shape")
    assert (found.rank, found.place) == (2, "fit.py:12")


def test_a_rank_is_not_named_where_torchrun_reports_several_and_the_lines_have_no_number() -> None:
    log = 'Traceback (most recent call last):\n  File "/code/fit.py", line 3, in f\nValueError: bad shape\n'
    found = excerpt([*log.split("\n"), *elastic_report(1, others=((0, 1),)).split("\n")], "ValueError: bad shape")
    assert (found.rank, found.place) == (None, "fit.py:3")


def test_calls_of_libraries_in_a_row_are_one_line_and_a_single_one_stays() -> None:
    log = f"""\
Traceback (most recent call last):
  File "/code/fit.py", line 3, in f
    model(x)
  File "{LIB}/torch/nn/modules/module.py", line 1, in _wrapped_call_impl
    return self._call_impl(*args, **kwargs)
           ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
  File "{LIB}/torch/nn/modules/module.py", line 2, in _call_impl
    return forward_call(*args, **kwargs)
  File "/code/net.py", line 7, in forward
    return torch.cat(parts)
  File "{LIB}/torch/functional.py", line 9, in cat
    return _VF.cat(parts)
RuntimeError: expected a non-empty list of Tensors
"""
    found = excerpt(log.split("\n"), "RuntimeError: expected a non-empty list of Tensors")
    assert found.place == "net.py:7"
    assert found.lines[3:6] == (
        "  … 2 calls of torch",
        '  File "/code/net.py", line 7, in forward',
        "    return torch.cat(parts)",
    )
    assert f'  File "{LIB}/torch/functional.py", line 9, in cat' in found.lines


def test_a_deep_recursion_keeps_its_first_and_last_lines() -> None:
    calls = "".join(f'  File "/code/deep.py", line {n}, in f{n}\n    f{n + 1}()\n' for n in range(300))
    log = f"Traceback (most recent call last):\n{calls}RecursionError: maximum recursion depth exceeded\n"
    found = excerpt(log.split("\n"), "RecursionError: maximum recursion depth exceeded")
    assert len(found.lines) <= MAX_LINES
    assert found.lines[0].startswith("Traceback") and found.lines[-1].startswith("RecursionError")
    assert "lines" in found.lines[2] and found.place == "deep.py:299"


@given(st.lists(st.text(max_size=80), max_size=40), st.text(max_size=20))
def test_any_log_has_an_excerpt_that_an_error_has_room_for(lines: list[str], quotation: str) -> None:
    found = excerpt(lines, quotation)
    assert len(found.lines) <= MAX_LINES
    assert sum(len(json.dumps(line)) for line in found.lines) <= MAX_CHARACTERS


def test_an_error_with_the_longest_excerpt_fits_the_cause_of_a_parent_execution() -> None:
    """Lambda's answer quotes the error's text, the child's cause that answer, and the parent's cause the child's."""
    log = [
        "Traceback (most recent call last):",
        *('  File "' + '"\\é' * 70 for _ in range(30)),
        "ValueError: " + '"' * 480,
    ]
    found = judge(Evidence(lines=log, exit_code=1))
    judgement = Judgement(rule=found.rule, line=found.quotation, pod="p" * 70, excerpt=found.excerpt.lines)
    text = to_text(found.quotation, judgement)
    for key in ("errorMessage", "Cause", "Cause"):
        text = json.dumps({key: text})
    assert len(text) < 32_768
