"""What a training tells while it runs."""

from __future__ import annotations

import json
import math
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from tests.integration.trainer.forked_training import Ended, small_training
from trainflow.protocol.checkpoint_line import parse_checkpoint_line


def reports(ended: Ended) -> list[dict[str, Any]]:
    found = [json.loads(line) for line in ended.out.splitlines() if line.startswith('{"trainflow_metrics"')]
    return [line["trainflow_metrics"] for line in found]


def test_every_logged_step_tells_all_that_is_known_of_it(tmp_path: Path) -> None:
    training = small_training(tmp_path)
    ended = training.run(2, log_steps=2, gradient_accumulation_steps=2, environ={"TRAINFLOW_PEAK_TFLOPS": "95"})
    assert ended.code == 0, ended.out
    told = reports(ended)
    assert [report["step"] for report in told] == ended.steps == [1, 2, 4, 6, 8]
    for report, loss in zip(told, ended.losses, strict=True):
        assert report["masked_lm_loss"] + report["next_sentence_loss"] == pytest.approx(report["loss"], abs=2e-4)
        assert report["loss"] == pytest.approx(loss, abs=1e-4)
        assert 0 < report["grad_norm"] < 100
        assert report["tokens_per_second"] == pytest.approx(16 * report["sequences_per_second"], rel=0.01)
        assert 0 <= report["data_wait_percent"] <= 100
        assert report["memory_mib"] > 10
        assert not {"mfu_percent", "mfu_peak"} & report.keys()  # the pod's peak is a NeuronCore's, and this is a CPU
    assert "step_ms_p50" not in told[0]  # the first step loads graphs
    assert 0 < told[-1]["step_ms_p50"] <= told[-1]["step_ms_p95"]
    assert "This is rank 0 of 2, on " in ended.out
    assert "Trained steps 1 to 8: " in ended.out
    assert "1 checkpoints that stopped it for" in ended.out
    saved = [parse_checkpoint_line(line, datetime.now(UTC)) for line in ended.out.splitlines()]
    (checkpoint,) = training.folder.glob("run/checkpoints/*.pt")
    assert [(each.step, each.num_bytes) for each in saved if each is not None] == [(8, checkpoint.stat().st_size)]

    events = EventAccumulator(str(training.folder / "run" / "tensorboard")).Reload()
    assert [event.step for event in events.Scalars("grad_norm")] == [1, 2, 4, 6, 8]
    assert all(math.isfinite(event.value) for event in events.Scalars("loss"))


def test_a_training_that_is_over_says_so(tmp_path: Path) -> None:
    training = small_training(tmp_path, max_steps=2)
    assert training.run().code == 0
    again = training.run()
    assert (again.code, again.steps) == (0, [])
    assert "All 2 steps were taken before" in again.out
