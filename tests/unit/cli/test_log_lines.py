"""`trainflow init` finds the line that a script prints of a step, and makes the pattern that reads it."""

from __future__ import annotations

import ast
import re
import textwrap
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainflow.client.programs.printed_line import find_progress, pattern_in
from trainflow.client.programs.reachable import Region
from trainflow.client.programs.source import Module
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


MORE = [
    ('print("step %(step)d loss %(loss).3f" % {"step": step, "loss": loss})', {"step": "40", "loss": "2.312"}),
    ('text = f"step {step}"\n    text += f" loss {loss:.3f}"\n    print(text)', {"step": "40", "loss": "2.312"}),
    ('print(" | ".join(["step " + str(step), f"loss {loss}"]))', {"loss": "2.3125"}),
    ('print("step", step, "loss", loss, sep="=")', {"step": "40", "loss": "2.3125"}),
    ('print(f"Batch {step} Loss: {loss}")', {"step": "40", "loss": "2.3125"}),
    ('print(f"it={step} total_loss={loss}")', {"step": "40", "loss": "2.3125"}),
    ('print(f"[{step}] loss={loss}")', {"step": "40", "loss": "2.3125"}),
    ('print(f"step {step:,} loss {loss}")', {"step": "40", "loss": "2.3125"}),
    ('pbar.set_description(f"step {step} loss {loss:.3f}")', {"step": "40", "loss": "2.312"}),
    ('console.print(f"[bold red]step {step}[/bold red] loss {loss}")', {"step": "40", "loss": "2.3125"}),
    ('print(f"epoch {epoch} | step {step} | {dt} ms/batch {dt} | loss {loss}")', {"step": "40", "loss": "2.3125"}),
]
"""Forms that are read besides."""


def printed(source: str) -> str:
    """What the line of source prints."""
    lines: list[str] = []

    class Logger:
        def info(self, text: str, *values: object) -> None:
            lines.append(text % values)

        def write(self, text: str) -> None:
            lines.append(text)

    def to_list(*words: object, flush: bool = False, sep: str = " ") -> None:
        del flush
        lines.append(sep.join(map(str, words)))

    class Console:
        def print(self, text: str) -> None:
            lines.append(re.sub(r"\[/?bold red\]", "", text))

        set_description = print

    names = {"print": to_list, "logger": Logger(), "tqdm": Logger(), "console": Console(), "pbar": Console()}
    exec(textwrap.dedent(f"    {source}"), names, dict(VALUES))
    return lines[0]


@pytest.mark.parametrize(("source", "figures"), [*EXAMPLES, *MORE])
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


def progress(source: str) -> tuple[str | None, int]:
    tree = ast.parse(source)
    found = find_progress([Region(Module(given=tree), tree)])
    return found.pattern, found.line


TRAINED = 'print(f"iter {step}: loss {loss}, time {dt}ms")'
EVALUATED = 'print(f"step {step}: train loss {a}, val loss {b}")'


@pytest.mark.parametrize(
    "source",
    [
        f"for step in x:\n  if step % 500 == 0:\n    {EVALUATED}\n  {TRAINED}",
        f"def evaluate():\n  for step in x:\n    print(f'step {{step}} loss {{loss}}')\ndef f():\n  {TRAINED}\n\n",
        f"for epoch in y:\n  print(f'step {{epoch}} loss {{mean}}')\n  for step in x:\n    {TRAINED}",
        f"if is_eval:\n  print(f'step {{step}} loss {{l}}')\nelse:\n  pass\n{TRAINED}\n",
        f"print(f'epoch {{epoch}} loss {{mean}}')\n\n\n{TRAINED}\n",
    ],
)
def test_the_training_line_is_preferred_to_the_evaluations(source: str) -> None:
    pattern, line = progress(source)
    assert source.splitlines()[line - 1].strip() == TRAINED
    assert pattern is None or re.search(pattern, "iter 40: loss 2.3125, time 3ms")


@pytest.mark.parametrize(
    "source",
    ['print(json.dumps({"step": s, "loss": l}))', "logger.info({'step': s, 'loss': l})"],
)
def test_a_line_that_auto_reads_needs_no_pattern(source: str) -> None:
    assert progress(f"import json\nfor s in x:\n  {source}") == (None, 3)


def test_an_expression_with_its_name_is_read() -> None:
    pattern, _ = progress('print(f"{state.step=} {loss.item()=}")')
    found = re.search(pattern or "", "state.step=7 loss.item()=1.5")
    assert found is not None
    assert found.groupdict() == {"step": "7", "loss": "1.5"}


def test_a_line_with_colours_of_a_terminal_gets_no_pattern() -> None:
    assert progress('print(f"\\033[32mstep {s}\\033[0m loss {l}")')[0] is None
