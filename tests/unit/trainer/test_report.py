"""The report beside each metrics line: tokens per second, and how much of the device the model uses."""

from __future__ import annotations

import io
import json
import math
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from tests.unit.trainer.conftest import make_rows
from trainer.device.cpu import CpuDevice
from trainer.device.cuda import CudaDevice
from trainer.device.neuron import NeuronDevice
from trainer.loop.metrics import MetricsLog
from trainer.loop.utilization import utilization_percent
from trainer.pretraining import flops
from trainer.pretraining.batches import as_micro_batch
from trainer.pretraining.bert import BertPretraining
from trainer.pretraining.config import ModelConfig
from trainer.runtime import environment
from trainer.runtime.errors import ConfigInvalid
from trainflow.observed.step import Step, parse_metrics_line, parse_report_line
from trainflow.protocol.step_report import StepFigures, report_line
from trainflow.workflow.metric_names import STEP_FIGURES

LARGE = ModelConfig(model="large")


def test_operations_are_those_that_torch_counts() -> None:
    config = ModelConfig(
        num_hidden_layers=2,
        hidden_size=32,
        num_attention_heads=2,
        intermediate_size=64,
        vocab_size=50,
        max_position_embeddings=16,
        dropout=0.0,
    )
    model, batch = BertPretraining(config), as_micro_batch(make_rows(4))
    with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH):
        model(batch)
    forward_and_backward = 3 * counter.get_total_flops()  # each product's two gradients are products of its size
    assert forward_and_backward == 4 * flops.per_sequence(config.shape, max_seq_length=16, max_predictions=3)


def test_bert_large_takes_what_its_size_says() -> None:
    operations = flops.per_sequence(LARGE.shape, max_seq_length=128, max_predictions=20)
    weights = 24 * 12 * 1024**2
    assert operations == pytest.approx(6 * weights * 128, rel=0.06)


def test_utilisation_is_the_share_of_the_gangs_peak() -> None:
    assert utilization_percent(100, 10**12, world_size=2, peak_tflops=95) == pytest.approx(100 * 100 / 190)
    assert utilization_percent(100, 10**12, world_size=2, peak_tflops=None) is None


NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)


def report(**fields: Any) -> StepFigures:
    return StepFigures(epoch=0, step=14, loss=math.nan, learning_rate=1e-4, sequences_per_second=200.0, **fields)


def test_the_workflow_understands_the_report() -> None:
    line = report_line(report(tokens_per_second=25600.04, mfu_percent=31.456))
    assert json.loads(line) == {
        "trainflow_metrics": {
            "epoch": 0,
            "step": 14,
            "learning_rate": 1e-4,
            "sequences_per_second": 200.0,
            "tokens_per_second": 25600.0,
            "mfu_percent": 31.46,
        }
    }
    further = {"tokens_per_second": 25600.0, "mfu_percent": 31.46}
    assert parse_report_line(line, NOW) == Step(NOW, 0, 14, None, 1e-4, 200.0, further)


def test_the_lines_of_a_step_are_written_whole(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    stream = io.StringIO()
    written: list[str] = []
    monkeypatch.setattr(stream, "write", written.append)
    monkeypatch.setattr("sys.stdout", stream)
    log = MetricsLog(tmp_path, first_step=1)
    written.clear()
    log.record({**report(), "loss": 2.5}, {})
    log.close()
    ((first, second),) = [text.splitlines() for text in written]
    assert parse_metrics_line(first) is not None
    assert parse_report_line(second, NOW) is not None


def test_every_field_that_is_published_is_one_of_the_report() -> None:
    names = {row.name for row in STEP_FIGURES}
    assert names - {"throughput"} <= set(StepFigures.__annotations__)
    figures = {row.name: float(number) for number, row in enumerate(STEP_FIGURES, start=1)}
    found = parse_report_line(report_line({"step": 14, **figures, "sequences_per_second": figures["throughput"]}), NOW)
    assert found is not None
    assert {name: found.figure(name) for name in names} == figures


def test_what_is_not_known_is_left_out() -> None:
    assert parse_report_line(report_line(report()), NOW) == Step(NOW, 0, 14, None, 1e-4, 200.0)


def test_the_pods_peak_is_of_accelerators_and_never_of_the_cpu() -> None:
    kinds = (CpuDevice, CudaDevice, NeuronDevice)
    assert [kind.takes_peak_from_pod for kind in kinds] == [False, True, True]


def test_the_peak_comes_from_the_pods_environment() -> None:
    assert environment.read({"TRAINFLOW_PEAK_TFLOPS": "166.75"}).peak_tflops == 166.75
    assert environment.read({}).peak_tflops is None


@pytest.mark.parametrize("text", ["many", "0", "-1", "nan", "inf"])
def test_a_peak_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(ConfigInvalid, match="TRAINFLOW_PEAK_TFLOPS"):
        environment.read({"TRAINFLOW_PEAK_TFLOPS": text})
