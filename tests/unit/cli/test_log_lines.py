"""`trainflow init` finds the line that a script prints of a step, and makes the pattern that reads it."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainflow.client.programs.printed_line import pattern_in
from trainflow.spec.line_pattern import pattern_problem

VALUES: dict[str, Any] = {"step": 40, "total": 400, "epoch": 3, "loss": 2.3125, "lr": 1e-05, "acc": 0.5, "dt": 0.25}

NAMED = {
    "step": "40",
    "val_loss": "0.5",
    "loss": "2.3125",
    "grad_norm": "1e-05",
    "learning_rate": "1e-05",
    "dt_ms": "0.25",
}
"""Figures of a line with names of two words, of which some are Trainflow's."""

EXAMPLES = [
    (
        'print(f"step={step} train_loss={loss:.4f} lr={lr:g}")',
        {"step": "40", "loss": "2.3125", "learning_rate": "1e-05"},
    ),
    ('print(f"[rank 0] Step {step}/{total} | loss: {loss:.4f} | {dt}s")', {"step": "40", "loss": "2.3125"}),
    ("print('Epoch [{}/{}], Step [{}/{}], Loss: {:.4f}'.format(epoch, 9, step, total, loss))", {"step": "40"}),
    ('logger.info("iteration %6d loss %.3f", step, loss)', {"step": "40", "loss": "2.312"}),
    ('print("iter %d: loss %.4f, time %.2fms" % (step, loss, dt))', {"step": "40", "loss": "2.3125"}),
    ('print("step", step, "loss", loss)', {"step": "40", "loss": "2.3125"}),
    ('print(f"{step=} {loss=}")', {"step": "40", "loss": "2.3125"}),
    ('print(f"step {step:>8} loss {loss:8.3f}", flush=True)', {"step": "40", "loss": "2.312"}),
    ('print(f"epoch {epoch} loss {loss:.2f} accuracy {acc}")', {"step": "3", "loss": "2.31", "accuracy": "0.5"}),
    ('print(f"(step={step}) " + f"[loss={loss:.1f}]")', {"step": "40", "loss": "2.3"}),
    ('print(f"val loss: {acc} step: {step} loss: {loss}")', {"step": "40", "loss": "2.3125", "val_loss": "0.5"}),
    ('print(f"step {step} val_loss={acc} train loss {loss} grad norm {lr} learning rate: {lr} dt_ms={dt}")', NAMED),
    ('tqdm.write(f"{step} loss {loss} step {step}")', {"step": "40", "loss": "2.3125"}),
]


def printed(source: str) -> str:
    """What the line of source prints."""
    lines: list[str] = []

    class Logger:
        def info(self, text: str, *values: object) -> None:
            lines.append(text % values)

        def write(self, text: str) -> None:
            lines.append(text)

    def to_list(*words: object, flush: bool = False) -> None:
        del flush
        lines.append(" ".join(map(str, words)))

    exec(source, {"print": to_list, "logger": Logger(), "tqdm": Logger()}, dict(VALUES))
    return lines[0]


@pytest.mark.parametrize(("source", "figures"), EXAMPLES)
def test_the_pattern_reads_what_the_script_prints(source: str, figures: dict[str, str]) -> None:
    pattern = pattern_in(ast.parse(f"def train():\n  for step in range(9):\n    {source}"))
    assert pattern is not None
    assert pattern_problem(pattern) is None
    found = re.search(pattern, f"2026-11-23 INFO {printed(source)}")
    assert found is not None, (pattern, printed(source))
    assert figures.items() <= found.groupdict().items()


@pytest.mark.parametrize(
    "source",
    [
        'print(f"loss {loss}")',
        'print(f"step {step} val_loss {loss} test loss {loss}")',
        'print(f"Train Epoch: {epoch} [{step}/{total}] Loss: {loss}")',
        'save(f"step={step} loss={loss}")',
        'print("step 3 loss 4")',
        "print()",
    ],
)
def test_a_line_without_step_and_loss_gives_no_pattern(source: str) -> None:
    assert pattern_in(ast.parse(source)) is None


def test_the_plain_example_is_read_without_help() -> None:
    pattern = pattern_in(ast.parse(Path("examples/ddp/train.py").read_text()))
    assert pattern == r"step=(?P<step>\d+)\s+train_loss=(?P<loss>[-+.\w]+)\s+lr=(?P<learning_rate>[-+.\w]+)"


@given(st.lists(st.text(max_size=20) | st.sampled_from(["step=%d ", "loss %f", "{step}", "loss: {:.3f}"]), max_size=5))
def test_any_text_makes_a_pattern_that_is_allowed_or_none(texts: list[str]) -> None:
    pattern = pattern_in(ast.parse(f"print({''.join(texts)!r} % 1)\nprint({''.join(texts)!r}.format(1))"))
    assert pattern is None or pattern_problem(pattern) is None
