"""The format of a log is chosen once, steps without numbers are counted, bars that overwrite themselves are read."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lambdas.logic.step_metrics import MAX_METRIC_NAMES, advanced, next_batch
from tests.fakes.runs import spec_with
from tests.unit.progress.test_formats import HUGGING_FACE, LIGHTNING, MEGATRON, TITAN
from trainflow.progress.missing_steps import LINES_BEFORE_WARNING, missing_steps_warning
from trainflow.progress.reader import ProgressReader, lines_apart
from trainflow.spec.progress import Format
from trainflow.spec.run_spec import RunSpec, parse_run_spec
from trainflow.workflow.log_line import LogLine
from trainflow.workflow.run import MetricsCursor

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)


def polled(
    log: Sequence[str],
    cuts: Sequence[int],
    progress: Any = "auto",
    *,
    behind: MetricsCursor | None = None,
    **options: Any,
) -> tuple[list[Any], Any]:
    """The steps of a log that grows between polls, and the cursor behind it."""
    cursor, steps, begin = behind or MetricsCursor(), [], 0
    for end in [*sorted(min(cut, len(log)) for cut in cuts), len(log)]:
        lines = [LogLine(NOW, text) for text in log[begin:end]]
        batch = next_batch(lines, cursor, progress=progress, **options)
        steps += batch.steps
        cursor = advanced(cursor, batch, log=None, now=NOW)
        cursor = MetricsCursor.model_validate_json(json.dumps(cursor.model_dump(mode="json"), allow_nan=False))
        begin = end
    return steps, cursor


def parsed(**fields: Any) -> RunSpec:
    return parse_run_spec(spec_with(**fields))


def titan(step: int) -> str:
    return TITAN.replace("step:  2", f"step: {step:2}")


def hugging_face(epoch: float) -> str:
    return HUGGING_FACE.replace("0.13", f"{epoch:.4g}")


@given(cuts=st.lists(st.integers(0, 60), max_size=8))
def test_the_first_line_chooses_the_format_wherever_the_polls_fall(cuts: list[int]) -> None:
    log = [text for step in range(1, 21) for text in (titan(step), MEGATRON.replace(" 1/", f" {step + 500}/"), "x")]
    steps, cursor = polled(log, cuts)
    assert [step.step for step in steps] == list(range(1, 21))
    assert cursor.format_name == "torchtitan"


def test_the_programs_own_line_is_a_reason_to_change_the_format() -> None:
    own = '{"trainflow_metrics": {"step": 6, "loss": 1.0}}'
    steps, cursor = polled([titan(5), own, titan(7), own.replace("6", "8")], [1, 2, 3])
    assert [step.step for step in steps] == [5, 6, 8]
    assert cursor.format_name == "trainflow"


@given(cuts=st.lists(st.integers(0, 30), max_size=8))
def test_lines_without_a_number_are_counted_and_a_restart_repeats_none(cuts: list[int]) -> None:
    first = [hugging_face(number / 10) for number in range(1, 11)]
    again = [hugging_face(number / 10) for number in range(6, 16)]  # from the checkpoint of epoch 0.5
    steps, _ = polled([*first, *again], cuts, lines_apart=10)
    # The line of the newest epoch counts again: a rounded epoch may have several steps.
    assert [step.step for step in steps] == [10 * number for number in range(1, 17)]


def test_restarts_from_the_beginning_count_no_step_beyond_the_last_one_of_the_spec() -> None:
    attempts = [hugging_face(number / 40) for last in (22, 30, 40) for number in range(1, last + 1)]
    steps, cursor = polled(attempts, [], total=40)
    assert (len(steps), cursor.last_step) == (40, 40)


def test_the_steps_between_two_lines_are_those_of_the_spec() -> None:
    assert lines_apart(parsed(workload__arguments={"logging_steps": 25})) == 25
    assert lines_apart(parsed(workload__arguments={"logging_steps": 0.1})) == 1
    assert lines_apart(parsed(workload__arguments={})) == 1


def test_a_bar_that_overwrites_itself_is_read_picture_by_picture() -> None:
    line = "\r".join(LIGHTNING.replace("86/1563", f"{batch}/1563") for batch in (0, 20, 40, 40))
    steps, _ = polled([line], [])
    assert [step.step for step in steps] == [2 * 1563, 2 * 1563 + 20, 2 * 1563 + 40]


def test_reports_alone_are_steps_and_behind_a_line_they_are_not() -> None:
    line = "LOG Wed Dec 21 00:51:01 2022 - (0, 1) step_loss : 1.0 learning_rate : 1e-4 throughput : 2.0 grad-norm : 3"
    log = [line, '{"trainflow_metrics": {"step": 1, "loss": 1.0, "grad_norm": 3.0, "mlm_loss": 0.5}}',
           '{"trainflow_metrics": {"step": 2, "loss": 0.9, "mlm_loss": 0.4}}']  # fmt: skip
    batch = next_batch([LogLine(NOW, text) for text in log], MetricsCursor())
    assert [(step.step, step.loss, step.metrics) for step in batch.steps] == [
        (1, 1.0, {"grad_norm": 3.0, "mlm_loss": 0.5}),
        (2, 0.9, {"mlm_loss": 0.4}),
    ], "the norm is one figure"


def test_only_the_first_names_of_a_programs_figures_are_published() -> None:
    log = [json.dumps({"step": step, "loss": 1.0, **{f"m{step + n}": 1.0 for n in range(8)}}) for step in (1, 2, 3)]
    _, cursor = polled(log, [1])
    assert cursor.metric_names == tuple(f"m{n}" for n in range(1, 1 + MAX_METRIC_NAMES))


def test_a_cursor_of_an_earlier_version_goes_on_with_trainflows_own_line() -> None:
    cursor = MetricsCursor.model_validate({"first_step": 1, "last_step": 4, "datapoints": 4, "unknown": 1})
    batch = next_batch([LogLine(NOW, titan(5))], cursor)
    assert (batch.steps, batch.format_name) == ([], "trainflow")


def test_none_reads_nothing() -> None:
    assert polled([titan(1), HUGGING_FACE], [], "none")[0] == []


PATTERN = Format(pattern=r"step (?P<step>\d+)")


@pytest.mark.parametrize("progress", ["auto", PATTERN, Format(tensorboard="tb"), Format(preset="nemo")])
def test_a_format_that_matches_nothing_in_the_first_lines_is_a_warning(progress: Any) -> None:
    _, early = polled(["x"] * (LINES_BEFORE_WARNING - 1), [], progress)
    _, late = polled(["x"] * (LINES_BEFORE_WARNING + 5), [7], progress)
    said = [missing_steps_warning(progress, one.since_step.missing) for one in (early, late)]
    assert said[0] is None
    assert "200" in str(said[1])
    assert "progress" in str(said[1])
    _, behind = polled([*["x"] * LINES_BEFORE_WARNING, "x"], [], progress, behind=MetricsCursor(last_step=3))
    assert behind.since_step.missing is None
    assert missing_steps_warning("none", late.since_step.missing) is None


def test_lines_that_are_no_steps_are_signs_of_life() -> None:
    batch = next_batch([LogLine(NOW, "compiling")], MetricsCursor())
    cursor = advanced(MetricsCursor(), batch, log=None, now=NOW)
    assert (cursor.printed_at, cursor.progressed_at) == (NOW, None)
    later = advanced(cursor, next_batch([], cursor), log=None, now=NOW + timedelta(hours=1))
    assert later.printed_at == NOW


def test_a_line_of_any_length_is_read_in_a_moment() -> None:
    line = LogLine(NOW, "loss step 1" + " {" * 100_000 + "}")
    for progress in ("auto", PATTERN, Format(json_lines=True)):
        ProgressReader(progress).read(line)


OWN = "LOG Wed Dec 21 00:51:01 2022 - (0, 14) step_loss : 9.0 learning_rate : 4e-4 throughput : 200.00"


@pytest.mark.parametrize(
    ("progress", "lines", "num_unparsable"),
    [
        ("auto", [OWN, "[0]:" + OWN, "[0]:" + OWN[:40], "LOG Wed [rank1]: boo"], 2),
        ("auto", [OWN.replace("(0, 14)", "(0, x)"), '{"trainflow_metrics": {"step": 3, "lo[rank1]: done'], 2),
        ("auto", ["LOG of the program begins", "loss of connection", "LOGGER Wed Dec 21 ready"], 0),
        ("auto", ["step: 3 loss: 2.0 tps: 5", OWN[:40]], 0),
        ("none", [OWN[:40]], 0),
        (
            Format(json_lines=True),
            ['{"step": 1, "loss": 2.0}', '{"step": 2, "loss"', "{'step': 3}", '{"event": "a"}', "{"],
            1,
        ),
        (Format(pattern=r"it (?P<step>\S+) loss (?P<loss>\S+)"), ["it 3 loss 2.0", "it x loss 2.0", "it is late"], 1),
    ],
)
def test_lines_that_look_like_a_steps_and_cannot_be_read_are_counted(
    progress: Any, lines: list[str], num_unparsable: int
) -> None:
    batch = next_batch([LogLine(NOW, line) for line in lines], MetricsCursor(), progress=progress)
    cursor = advanced(MetricsCursor(lines_unparsable=5), batch, log=None, now=NOW)
    assert cursor.lines_unparsable == 5 + num_unparsable


def test_a_bar_shows_a_step_again_with_a_newer_loss_and_its_beginning_at_the_end() -> None:
    shown = [(0, None), (1, 0.5), (1, 0.4), (2, 0.4), (2, 0.3), (0, 0.3)]
    bar = "Epoch 1:  50%|█ | {}/2 [00:02<00:01,  6.96it/s, v_num=0{}]"
    line = "\r".join(bar.format(batch, "" if loss is None else f", train_loss={loss}") for batch, loss in shown)
    reader = ProgressReader(Format(preset="lightning"))
    found = [*reader.read(LogLine(NOW, line)), *reader.read(LogLine(NOW, line.replace("Epoch 1", "Epoch 2")))]
    assert [(step.step, step.loss) for step in found] == [
        (3, 0.4),
        (4, 0.3),
        (5, 0.4),
        (6, 0.3),
    ]
