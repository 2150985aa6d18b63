"""Speeds keep the unit that the program prints, and totals are the length of the training."""

from __future__ import annotations

import ast
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainflow.client.programs.printed_line import pattern_in
from trainflow.observed.run_state import length_of_training
from trainflow.observed.step import Step
from trainflow.progress.reader import ProgressReader
from trainflow.protocol.speed_units import speed_name
from trainflow.record.steps import kept_steps_from_json, kept_steps_of
from trainflow.record.wording import speed_of
from trainflow.spec.progress import Format
from trainflow.workflow.log_line import LogLine

NOW = datetime(2026, 11, 27, 12, tzinfo=UTC)


def read(progress: str | Format, *lines: str) -> list[Step]:
    reader = ProgressReader(progress)  # type: ignore[arg-type]
    return [step for line in lines for step in reader.read(LogLine(NOW, line))]


def speed(step: Step) -> str:
    return speed_of(step.throughput, step.metrics, step.throughput_of)


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("iter {i}/300 loss 0.5 15125.5 samples/s", "15,126 samples/s"),
        ("step {i} loss 0.5 | 1,234 tok/s", "1,234 tok/s"),
        ("step {i} loss 0.5 1.5s/it", "1.5 s/it"),
        ("step {i} loss 0.5 (3.2it/s)", "3.2 it/s"),
        ("step {i} loss 0.5 (3.2 it/s)", "3.2 it/s"),
        ("Step [{i}/300], Loss: 0.5000, 320.1 images/sec", "320.1 images/s"),
        ("step {i} loss 0.5 throughput: 320.1 img/s", "320.1 img/s"),
        ("step {i}/300 loss 0.5 speed 12 puzzles/s", "12.0 puzzles/s"),
        ("iter {i} | loss 0.5 | 12 ms/batch", "12 ms/batch"),
        ("step={i} loss=0.5 tokens/sec=1200", "1,200 tokens/s"),
        ("step {i} loss 0.5 tok/s 1200", "1,200 tok/s"),
        ("{{'step': {i}, 'loss': 0.5, 'samples/s': 12}}", "12.0 samples/s"),
        (" {i}%|██ | {i}/300 [00:10<00:30,  3.30it/s, loss=0.51]", "3.3 it/s"),
        ("step {i}  loss 0.5  dt 12 ms  7 sents/s/gpu", "7.0 sents/s per gpu"),
        ("step {i} loss 0.5 7 graphs/second", "7.0 graphs/s"),
        ("step {i} loss 0.5 12.5 MB/s", ""),
        ("step {i} loss 0.5 40 TFLOP/s", ""),
        ("step {i} loss 0.5, time 12.1ms", ""),
    ],
)
def test_a_speed_has_the_unit_that_the_program_prints(line: str, shown: str) -> None:
    assert speed(read("auto", *(line.format(i=i) for i in (1, 2, 3)))[-1]) == shown


PATTERN = r"iter (?P<step>\d+)\S* loss (?P<loss>\S+) tp (?P<throughput>[\d.,]+)"


@pytest.mark.parametrize(
    ("behind", "shown"),
    [
        (" samples/s", "15,126 samples/s"),
        (" images/sec", "15,126 images/s"),
        (" tok/s", "15,126 tok/s"),
        ("", "15,126 sequences/s"),  # what the group means by itself
        (" GB", "15,126 sequences/s"),
    ],
)
def test_the_throughput_of_a_pattern_has_the_unit_behind_it(behind: str, shown: str) -> None:
    (step,) = read(Format(pattern=PATTERN), f"iter 40 loss 0.1 tp 15125.5{behind}")
    assert speed(step) == shown


@pytest.mark.parametrize(
    ("line", "length"),
    [
        ("iter {i}/300 loss 0.5", 300),
        ("step {i} / 300, loss 0.5", 300),
        ("Epoch [1/10], Step [{i}/30], Loss: 0.5", 300),
        ("Epoch 1, step {i}/30, loss 0.5", None),
        ("batch {i}/300 loss 0.5", None),
        (" 1%|█ | {i}/300 [00:10<00:30,  3.3it/s, loss=0.51]", None),
        ("step {i} loss 0.5", None),
        ("iteration        {i}/    300 | consumed samples: 1024 | lm loss: 1.192634E+01 | grad norm: 5.960 |", 300),
    ],
)
def test_the_length_is_the_total_of_steps_and_never_that_of_an_epoch(line: str, length: int | None) -> None:
    steps = read("auto", *(line.format(i=i) for i in (1, 2, 3)))
    assert length_of_training({}, steps) == length


def test_a_pattern_may_name_the_total() -> None:
    pattern = Format(pattern=r"it (?P<step>\d+) of (?P<total>\d+), loss (?P<loss>\S+)")
    (step,) = read(pattern, "it 40 of 300, loss 0.1")
    assert (step.length, step.metrics) == (300, {})


def test_a_step_beyond_the_total_proves_that_it_is_no_length() -> None:
    steps = read("auto", "iter 299/300 loss 0.5", "iter 300/300 loss 0.5")
    assert length_of_training({}, steps) == 300
    assert length_of_training({}, [replace(steps[-1], step=301)]) is None


def test_the_spec_says_the_length_first() -> None:
    steps = read("auto", "iter 40/300 loss 0.5")
    assert length_of_training({"workload": {"arguments": {"max_steps": 200}}}, steps) == 200


def test_unit_and_length_are_kept_with_the_steps() -> None:
    steps = read("auto", *(f"iter {i}/300 loss 0.5 15125.5 samples/s" for i in (1, 2, 3)))
    kept = kept_steps_from_json(kept_steps_of(steps).to_json())
    assert (length_of_training({}, kept.steps), speed(kept.steps[-1])) == (300, "15,126 samples/s")


SOURCE = """
for i in range(args.iters):
    print(f"iter {i}/{args.iters} loss {loss:.4f} {8 / dt:.1f} %s")
"""


@pytest.mark.parametrize(
    ("unit", "group"), [("samples/s", "samples_per_second"), ("img/sec", "img_per_second"), ("s/it", "seconds_per_it")]
)
def test_the_pattern_of_a_source_has_the_total_and_the_speed_by_its_unit(unit: str, group: str) -> None:
    pattern = pattern_in(ast.parse(SOURCE % unit))
    assert pattern is not None and "(?P<total>" in pattern and f"(?P<{group}>" in pattern
    (step,) = read(Format(pattern=pattern), f"iter 40/300 loss 0.5000 15125.5 {unit}")
    assert step.length == 300
    assert speed(step) == f"15,126 {unit.replace('sec', 's')}" or unit == "s/it"


@given(st.text(max_size=40))
def test_any_word_is_a_unit_or_none(word: str) -> None:
    name = speed_name(word)
    assert name is None or "_per_" in name
