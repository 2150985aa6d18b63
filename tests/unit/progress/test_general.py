"""The general reader finds the steps of programs whose formats nobody has described, and none in other logs."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lambdas.logic.step_metrics import advanced, next_batch
from tests.unit.progress.silent_logs import silent_logs
from trainflow.observed.step import Step
from trainflow.progress.reader import ProgressReader
from trainflow.progress.vocabulary import Kind, name_meaning
from trainflow.spec.progress import Format
from trainflow.workflow.log_line import LogLine
from trainflow.workflow.run import MetricsCursor

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
ESCAPES = {"\\t": "\t", "\\r": "\r", "\\x1b": "\x1b"}


def printed_formats() -> dict[str, tuple[list[int], list[str]]]:
    """Steps and lines of each format in the asset."""
    text = (Path(__file__).parents[2] / "assets/progress/formats.txt").read_text()
    for escape, character in ESCAPES.items():
        text = text.replace(escape, character)
    found: dict[str, tuple[list[int], list[str]]] = {}
    for block in text.split("\n## ")[1:]:
        heading, *lines = block.rstrip("\n").split("\n")
        name, _, steps = heading.rpartition(" | ")
        found[name] = ([int(step) for step in steps.split()], lines)
    return found


FORMATS = printed_formats()
LINES = [line for _, lines in FORMATS.values() for line in lines]


def read(lines: Sequence[str], progress: Any = "auto") -> list[Step]:
    """The steps of a whole log."""
    reader = ProgressReader(progress)
    steps = [step for line in lines for step in reader.read(LogLine(NOW, line))]
    return [*steps, reader.held] if reader.held else steps


def numbers(lines: Sequence[str], progress: Any = "auto") -> list[int]:
    return [step.step for step in read(lines, progress)]


@pytest.mark.parametrize("name", FORMATS)
def test_the_steps_of_a_printed_format_are_read(name: str) -> None:
    steps, lines = FORMATS[name]
    assert numbers(lines) == steps


@pytest.mark.parametrize(("name", "log"), list(silent_logs()), ids=lambda each: each if isinstance(each, str) else "")
def test_a_log_without_progress_shows_no_step(name: str, log: list[str]) -> None:
    assert numbers(log) == [], name


def test_a_long_line_is_not_kept_as_the_beginning_of_a_heading() -> None:
    reader = ProgressReader("auto")
    reader.read(LogLine(NOW, "iteration loss"))
    assert reader.learned.heading == "iteration loss"
    reader.read(LogLine(NOW, "the loss of each step " * 50))
    assert reader.learned.heading == ""


def polled(log: Sequence[str], cuts: Sequence[int]) -> list[int]:
    """The steps of a log that grows between polls, with the cursor stored as JSON between them."""
    cursor, found, begin = MetricsCursor(), [], 0
    for end in [*sorted(min(cut, len(log)) for cut in cuts), len(log)]:
        batch = next_batch([LogLine(NOW, text) for text in log[begin:end]], cursor)
        found += [step.step for step in batch.steps if not step.is_addition]
        cursor = advanced(cursor, batch, log=None, now=NOW)
        cursor = MetricsCursor.model_validate_json(json.dumps(cursor.model_dump(mode="json"), allow_nan=False))
        begin = end
    return found


@given(name=st.sampled_from(sorted(FORMATS)), cuts=st.lists(st.integers(0, 12), max_size=4))
def test_the_steps_are_the_same_wherever_the_polls_fall(name: str, cuts: list[int]) -> None:
    _, lines = FORMATS[name]
    assert polled(lines, cuts) == polled(lines, [])


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("steps: 10, loss: 2.31", "steps: 20, loss: 2.11"),
        ("step 10 | accuracy 0.5", "step 20 | accuracy 0.7"),
        ("epoch 1: loss 2.31", "epoch 2: loss 2.11"),
        ("step 10: train loss 2.3, val loss 2.5", "step 20: train loss 2.1, val loss 2.4"),
    ],
)
def test_a_line_that_may_be_a_setting_or_an_evaluation_counts_once_a_second_one_rises(first: str, second: str) -> None:
    assert numbers([first]) == []
    assert len(numbers([first, second])) == 2
    assert numbers([first, first.replace("2.3", "2.1")]) == []


@pytest.mark.parametrize("line", ["step 10 | loss 2.31", "[10/200] loss=2.31", "completed step: 10, loss: 1e-3"])
def test_a_step_with_the_trainings_loss_counts_at_once(line: str) -> None:
    assert numbers([line]) == [10]


def test_figures_keep_the_names_that_the_program_prints() -> None:
    _, step = read([f"iter {n}: loss 3.2, dt 31.9ms, Tok/Sec=1,234, acc@1: 5.5%, z-loss 0.1" for n in (1, 2)])
    assert (step.loss, step.metrics) == (3.2, {"dt": 31.9, "Tok/Sec": 1234.0, "acc_1": 5.5, "z-loss": 0.1})


@pytest.mark.parametrize(
    ("text", "loss"),
    [
        ("loss -1.5", -1.5), ("loss 1e-3", 1e-3), ("loss=inf", math.inf), ("loss: tensor(2.5, device='cuda:0')", 2.5),
        ("'loss': np.float64(0.25)", 0.25), ("val_loss 9.0 train_loss 2.0", 2.0), ("loss_ce 1.0 total_loss 3.0", 3.0),
        ("loss 2,31", 2.31), ("loss is 2.5", 2.5), ("loss 2.3 (2.4)", 2.3), ('"Loss": "2.5"', 2.5),
    ],
)  # fmt: skip
def test_the_trainings_own_loss_is_read_in_any_notation(text: str, loss: float) -> None:
    steps = read([f"step {n} {text}" for n in (1, 2)])
    assert [step.loss for step in steps] == [loss, loss]


def test_batches_that_are_counted_anew_in_each_epoch_make_rising_steps() -> None:
    with_total = [f"Epoch {e} [{b}/100] loss 0.5" for e in (0, 1, 2) for b in (0, 50)]
    assert numbers(with_total) == [0, 50, 100, 150, 200, 250]
    without = [f"Epoch {e} batch {b} loss 0.5" for e in (1, 2, 3) for b in (0, 50)]
    assert numbers(without) == [0, 50, 100, 150, 200, 250]
    over_the_run = [f"epoch {b // 100} step {b} loss 0.5" for b in range(0, 300, 50)]
    assert numbers(over_the_run) == [0, 50, 100, 150, 200, 250]


def test_a_restarted_program_repeats_its_steps_under_their_numbers() -> None:
    lines = [f"Epoch {e} [{b}/100] loss 0.5" for e, b in ((0, 0), (0, 50), (1, 0), (1, 50), (1, 0), (1, 50), (2, 0))]
    assert numbers(lines) == [0, 50, 100, 150, 100, 150, 200]


def test_the_lines_of_an_evaluation_are_no_steps() -> None:
    lines = [
        *(f"step {n}: loss 0.5" for n in (1, 2)),
        *(f"[eval] step {n}: loss 0.5" for n in (3, 4, 5, 6, 7, 8)),
        "step 3: loss 0.4",
    ]
    assert numbers(lines) == [1, 2, 3]


def test_a_format_that_changes_on_the_way_goes_on_being_read() -> None:
    before, after = [f"step {n} | loss 0.5" for n in (1, 2, 3)], [f"[{n}/99] train/loss=0.5" for n in range(4, 10)]
    assert numbers(before + after) == list(range(1, 10))
    library = [json.dumps({"step": n, "loss": 0.5}) for n in (1, 2, 3)]
    assert numbers(library + after) == list(range(1, 10))
    back = [json.dumps({"step": n, "loss": 0.5}) for n in range(10, 15)]
    assert numbers(after + back) == list(range(4, 15))


def test_a_library_whose_lines_have_changed_is_read_under_its_preset() -> None:
    lines = [f"[{n}/99] train/nll=0.5" for n in (1, 2, 3)]
    assert numbers(lines, Format(preset="megatron")) == [1, 2, 3]
    assert numbers(lines, Format(pattern=r"step (?P<step>\d+)")) == []


@pytest.mark.parametrize(
    "batch",
    [
        "Training:  20%|##        | {n}/500 [00:10<00:40, 9.5it/s]",
        "Epoch {epoch}:  20%|##        | {n}/500 [00:10<00:40, 9.5it/s]",
        "iter {n}/500, 0.21 s/iter",
        "step {n} | 1212 tokens/s | mfu 40.1%",
        "Step {n} took 0.52 seconds",
    ],
)
def test_speeds_of_batches_do_not_hide_the_losses_of_epochs(batch: str) -> None:
    log = []
    for epoch in range(1, 4):
        log += [batch.format(n=n, epoch=epoch) for n in range(100, 501, 100)]
        log.append(f"Epoch {epoch}: train loss {1 / epoch:.4f}, val loss {1.2 / epoch:.4f}")
    assert [(step.step, step.loss) for step in read(log)] == [(1, 1.0), (2, 0.5), (3, 0.3333)]


def test_numbers_that_could_be_processes_need_more_lines() -> None:
    assert numbers([f"{n}: loss 0.5" for n in range(8)]) == []
    assert numbers([f"{n}: loss 0.5" for n in (0, 100, 200)]) == [0, 100, 200]


def test_a_step_that_is_saved_is_no_progress() -> None:
    assert numbers(["step 1 loss 2.0", "step 2 loss 1.5"])
    assert not numbers(["saved step 1", "saved step 2"])


def test_every_state_of_a_bar_of_three_megabytes_is_read() -> None:
    bar = "\r".join(f"{n}%|█  | {n}/40000 [00:01<00:10, 9.9it/s, loss=0.5]" for n in range(2000))
    assert numbers([bar]) == list(range(2000))


@pytest.mark.parametrize(
    "line",
    ["step 1 loss " + "1" * 3_000_000, "loss=" * 600_000, "1," * 1_500_000, "[1/" * 1_000_000, "step " * 600_000,
             "| loss " * 400_000, "\x1b[" * 1_500_000, "a.b." * 700_000 + "1"],
    ids=range(8),
)  # fmt: skip
def test_a_line_of_three_megabytes_is_read_in_a_moment(line: str) -> None:
    assert numbers([line, line]) == []


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("train/loss", Kind.LOSS), ("CELoss", Kind.LOSS), ("Average loss", Kind.LOSS), ("loss_scale", Kind.OTHER),
        ("packet loss", Kind.OTHER), ("globalStep", Kind.GLOBAL_STEP), ("num_updates", Kind.GLOBAL_STEP),
        ("batch_idx", Kind.BATCH), ("batch_size", Kind.OTHER), ("max_steps", Kind.OTHER), ("step_time", Kind.OTHER),
        ("ms/batch", Kind.OTHER), ("steps per second", Kind.OTHER), ("Finished training it", Kind.ITERATION),
        ("grad_norm", Kind.RATE), ("Acc@1", Kind.METRIC), ("best epoch", Kind.OTHER), ("train-rmse", Kind.METRIC),
    ],
)  # fmt: skip
def test_the_meaning_of_a_name(name: str, kind: Kind) -> None:
    assert name_meaning(name).kind is kind


@given(lines=st.lists(st.text() | st.sampled_from(LINES), max_size=8))
def test_whatever_a_program_prints_is_steps_or_nothing(lines: list[str]) -> None:
    assert all(isinstance(step, Step) for step in read(lines))
