"""Lines of the libraries' own programs, as found in published logs, and what is read of them."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainflow.observed.step import Step
from trainflow.progress import formats
from trainflow.progress.reader import AUTOMATIC, ProgressReader
from trainflow.spec.progress import Format
from trainflow.workflow.log_line import LogLine

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)

# Sources of the lines: documentation of PyTorch on torchtitan (06/2025) and logs of its users (02/2025, 10/2025);
# OpenSeek (05/2025), AscendSpeed and Megatron-LM's format string; NVIDIA's NeMo workshops; Lightning's users.
TITAN = (
    "[rank0]:[titan] 2025-10-30 14:32:58,990 - root - INFO - step:  2  loss:  6.1098  grad_norm:  4.6416  "
    "memory:  2.49GiB(3.14%)  tps: 177,138  tflops: 96.17  mfu: 9.72%"
)
TITAN_COLOURED = (
    "[titan] 2025-11-25 19:45:01,441 - root - INFO - \x1b[31mstep:  1  \x1b[32mloss:  8.0277  \x1b[38;2;180;60;0m"
    "grad_norm:  1.4604  \x1b[36mmemory:  1.21GiB(0.86%)  \x1b[34mtps: 5,756  \x1b[35mmfu: 0.04%\x1b[39m"
)
MEGATRON = (
    "[default0]: [2025-05-27 15:23:07] iteration        1/    24000 | consumed samples:          1024 | elapsed time "
    "per iteration (ms): 271607.0 | throughput per GPU (TFLOP/s/GPU): 40.4 | learning rate: 1.500000E-06 | global "
    "batch size:  1024 | lm loss: 1.192634E+01 | loss scale: 1.0 | grad norm: 5.960 | number of nan iterations:   0 |"
)
NEMO = (
    "Training epoch 0, iteration 1/249 | lr: 3.922e-06 | global_batch_size: 8 | global_step: 1 | reduced_train_loss: "
    "1.653 | train_step_timing in s: 2.505 | consumed_samples: 16"
)
NEMO_BAR = (
    "Epoch 0: : 100%|██████████| 100/100 [10:48<00:00, reduced_train_loss=0.0172, global_step=99.00, "
    "consumed_samples=25600.0, train_step_timing in s=3.130]"
)
LIGHTNING = (
    "Epoch 2:   6%|█▍                         | 86/1563 [00:06<01:44, 14.19it/s, v_num=0, train_loss=1.800, "
    "train_acc=0.281]"
)
HUGGING_FACE = "{'loss': '2.345', 'grad_norm': '1.2', 'learning_rate': '5e-05', 'epoch': '0.13'}"
READ = {
    TITAN: (
        "torchtitan",
        Step(
            NOW, None, 2, 6.1098, None, None,
            {"grad_norm": 4.6416, "memory_gib": 2.49, "tokens_per_second_per_device": 177138.0,
             "tflops_per_device": 96.17, "mfu_percent": 9.72},
        ),
    ),
    TITAN_COLOURED: (
        "torchtitan",
        Step(
            NOW, None, 1, 8.0277, None, None,
            {"grad_norm": 1.4604, "memory_gib": 1.21, "tokens_per_second_per_device": 5756.0, "mfu_percent": 0.04},
        ),
    ),
    MEGATRON: (
        "megatron",
        Step(
            NOW, None, 1, 11.92634, 1.5e-6, None,
            {"consumed_samples": 1024.0, "elapsed_time_per_iteration_ms": 271607.0,
             "throughput_per_GPU_TFLOP/s/GPU": 40.4, "global_batch_size": 1024.0, "loss_scale": 1.0, "grad_norm": 5.96,
             "number_of_nan_iterations": 0.0},
            length=24000,
        ),
    ),
    NEMO: (
        "nemo",
        Step(
            NOW, 0, 1, 1.653, 3.922e-6, None,
            {"global_batch_size": 8.0, "train_step_timing_in_s": 2.505, "consumed_samples": 16.0},
        ),
    ),
    NEMO_BAR: (
        "nemo",
        Step(NOW, 0, 99, 0.0172, None, None, {"consumed_samples": 25600.0, "train_step_timing_in_s": 3.13}),
    ),
    LIGHTNING: (
        "lightning",
        Step(NOW, 2, 2 * 1563 + 86, 1.8, None, None, {"train_acc": 0.281, "batches_per_second": 14.19}),
    ),
    HUGGING_FACE: ("hugging-face", Step(NOW, 0.13, 1, 2.345, 5e-05, None, {"grad_norm": 1.2})),
}  # fmt: skip

OTHERS = [
    "[titan] 2025-10-30 14:32:58,990 - root - INFO - validate step:  2  loss:  6.1098  memory:  2.49GiB(3.14%)  tps: 7",
    " validation loss at iteration 1000 | lm loss value: 2.5E+00 | lm loss PPL: 1.2E+01 |",
    "{'eval_loss': '2.1', 'eval_runtime': '3.2', 'epoch': '1'}",
    "{'train_runtime': '12.5', 'train_loss': '2.2', 'epoch': '1'}",
    "Validation DataLoader 0:  50%|█████     | 5/10 [00:00<00:00, 62.75it/s, val_loss=0.5]",
    "Epoch 0:   0%|          | 0/1563 [00:00<?, ?it/s]",
    "Downloading: 100%|██████████| 10/10 [00:00<00:00, loss=3]",
    '{"step": 10, "eval_loss": 2.5}',
    "{'step': 10, 'eval_loss': 2.5}",
    "{'loss': 1.2, 'step': 'three'}",
    "the step {'loss': 1.2, 'step': 3} was skipped",
    "loss is nan",
]


def read(line: str, progress: Any = "auto") -> list[Any]:
    return list(ProgressReader(progress).read(LogLine(NOW, line)))


@pytest.mark.parametrize("line", READ, ids=lambda line: READ[line][0])
def test_a_line_of_a_library_is_read_by_its_preset_and_found_without_one(line: str) -> None:
    preset, step = READ[line]
    assert read(line, Format(preset=preset)) == [step]
    reader = ProgressReader("auto")
    assert (reader.read(LogLine(NOW, line)), reader.format_name) == ([step], preset)


@pytest.mark.parametrize("line", OTHERS)
def test_validation_and_other_bars_are_no_steps(line: str) -> None:
    assert read(line) == []


def test_a_loss_that_is_not_finite_is_read() -> None:
    (step,) = read(TITAN.replace("6.1098", "   nan"))
    assert math.isnan(step.loss)


def test_the_lines_that_transformers_itself_prints_are_read(capsys: pytest.CaptureFixture[str]) -> None:
    callbacks = pytest.importorskip("transformers.trainer_callback")
    state = callbacks.TrainerState(is_local_process_zero=True, is_world_process_zero=True)
    logs = {"loss": 2.34567, "grad_norm": 1.5, "learning_rate": 5e-05, "epoch": 0.125}
    callbacks.PrinterCallback().on_log(None, state, None, logs=dict(logs))
    bar = callbacks.ProgressCallback()
    state.max_steps = 100
    bar.on_train_begin(None, state, None)
    bar.on_log(None, state, None, logs=dict(logs))
    printed = capsys.readouterr().out.splitlines()
    expected = Step(NOW, 0.125, 1, 2.346, 5e-05, None, {"grad_norm": 1.5})
    assert [read(line) for line in printed if "loss" in line] == [[expected], [expected]]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (
            'INFO:train {"global_step": 5, "train_loss": 2, "lr": 1e-4, "acc": 0.5, "note": "x", "ok": true}',
            Step(NOW, None, 5, 2.0, 1e-4, None, {"acc": 0.5}),
        ),
        (
            '{"type": "LOG", "step": 16, "data": {"loss": 10.9, "samples_per_second": 64.0, "throughput": 7}}',
            Step(NOW, None, 16, 10.9, None, 64.0, {"throughput": 7.0}, throughput_of="samples"),
        ),
    ],
)
def test_json_lines_are_read_under_the_names_that_are_usual(line: str, expected: Step) -> None:
    assert read(line) == [expected]
    assert read(line, Format(json_lines=True)) == [expected]


def test_json_lines_need_no_loss_where_the_spec_names_them() -> None:
    assert read('{"step": 5, "reward": 1.5}') == []
    (step,) = read('{"step": 5, "reward": 1.5}', Format(json_lines=True))
    assert (step.step, step.loss, step.metrics) == (5, None, {"reward": 1.5})


def test_the_groups_of_a_pattern_are_the_figures() -> None:
    pattern = r"it (?P<step>\d+)/\d+ loss (?P<loss>\S+)(?: speed (?P<throughput>\S+))? acc (?P<accuracy>\S+)"
    found = read("07:12 it 5/10 loss 1.25 speed 99.5 acc 0.75", Format(pattern=pattern))
    assert found == [Step(NOW, None, 5, 1.25, None, 99.5, {"accuracy": 0.75})]
    assert read("it 5/10 loss 1.25 acc high", Format(pattern=pattern)) == [Step(NOW, None, 5, 1.25, None, None)]


@pytest.mark.parametrize("name", [*AUTOMATIC, "json_lines", "pattern"])
@given(data=st.data())
def test_whatever_a_program_prints_is_a_step_or_nothing(name: str, data: st.DataObject) -> None:
    progress: Any = {
        "json": "auto", "json_lines": Format(json_lines=True), "pattern": Format(pattern=r"(?P<step>\S+) (?P<loss>\S+)")
    }.get(name) or Format(preset=name)  # fmt: skip
    real = st.sampled_from([*READ, '{"step": 1, "loss": 2}'])
    cut = st.tuples(real, st.integers(0, 200), st.text(max_size=20)).map(lambda t: t[0][: t[1]] + t[2] + t[0][t[1] :])
    line = data.draw(st.text() | cut | st.dictionaries(st.text(), st.integers() | st.floats()).map(str))
    for step in read(line, progress):
        assert isinstance(step, Step)
        assert isinstance(step.step, int)
        assert all(isinstance(value, float) for value in step.metrics.values())


def test_every_preset_has_a_line_here() -> None:
    assert {preset for preset, _ in READ.values()} == set(formats.PRESETS)


def test_a_figure_keeps_the_whole_of_its_name() -> None:
    """`samples/s` is no figure that is called `s`."""
    found = formats.torchtitan("step: 5 loss: 2.31 samples/s: 120.5 grad-norm: 3 lr: 1e-3 mfu: 4%")
    assert found == {
        "samples/s": "120.5",
        "grad-norm": "3",
        "lr": "1e-3",
        "mfu_percent": "4",
        "step": "5",
        "loss": "2.31",
    }
    assert found is not None
    assert formats.by_meaning(found)["sequences_per_second"] == "120.5"


@pytest.mark.parametrize("progress", ["auto", Format(json_lines=True)])
def test_dictionaries_of_python_are_read_as_json_is(progress: Any) -> None:
    """Also in a log of a few lines, and with what JSON does not have."""
    line = "INFO:train:{'loss': 1.2, 'step': 3, 'lr': 5e-05, 'accuracy': 0.5, 'mode': 'train'}"
    assert read(line, progress) == [Step(NOW, None, 3, 1.2, 5e-05, None, {"accuracy": 0.5})]
    (step,) = read("{'step': 4, 'loss': nan, 'sizes': {'batch': 8}}", progress)
    assert (step.step, math.isnan(step.loss), step.metrics) == (4, True, {"batch": 8.0})
