"""Steps in event files and in trainer_state.json, compared with what TensorBoard itself reads."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from trainer.progress_files.event_files import FILES, EventFile, Scalar, parse_scalars
from trainer.progress_files.steps import QUIET_SECONDS, TensorBoardSteps, TrainerStateSteps, below


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with scalars as torch writes them, as TensorFlow 2 does, and with other summaries."""
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.compat.proto.tensor_pb2 import TensorProto
    from tensorboard.summary.writer.event_file_writer import EventFileWriter

    folder = tmp_path_factory.mktemp("events")
    writer = EventFileWriter(str(folder))

    def add(step: int, *values: Any) -> None:
        writer.add_event(Event(wall_time=1000.0 + step, step=step, summary=Summary(value=values)))

    for step in range(1, 6):
        add(step, Summary.Value(tag="train/loss", simple_value=10.0 / step))
        add(step, Summary.Value(tag="train/lr", tensor=TensorProto(dtype=1, float_val=[1e-4 * step])))
        add(step, Summary.Value(tag="half", tensor=TensorProto(dtype=2, double_val=[step / 2])))
        add(step, Summary.Value(tag="text", tensor=TensorProto(dtype=7, string_val=[b"a" * 200])))
        add(step, Summary.Value(tag="image", image=Summary.Image(encoded_image_string=b"\x00" * 100_000)))
    add(6, Summary.Value(tag="train/loss", simple_value=math.nan))
    writer.close()
    (file,) = folder.iterdir()
    return file


def test_the_scalars_are_those_that_tensorboard_reads(written: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from tensorboard.util.tensor_util import make_ndarray

    accumulator = EventAccumulator(str(written.parent), size_guidance={"scalars": 0, "tensors": 0})
    accumulator.Reload()
    expected = {
        (event.step, tag, event.wall_time, repr(float(event.value)))
        for tag in accumulator.Tags()["scalars"]
        for event in accumulator.Scalars(tag)
    } | {
        (event.step, tag, event.wall_time, repr(float(make_ndarray(event.tensor_proto).item())))
        for tag in accumulator.Tags()["tensors"]
        if tag != "text"
        for event in accumulator.Tensors(tag)
    }
    found = [(each.step, each.tag, each.wall_time, repr(each.value)) for each in EventFile(written).new_scalars()]
    assert set(found) == expected
    assert len(found) == len(expected) == 16


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(cuts=st.lists(st.integers(0, 600_000), max_size=6))
def test_a_growing_file_is_read_once_wherever_its_writer_is(written: Path, tmp_path: Path, cuts: list[int]) -> None:
    content, copy = written.read_bytes(), tmp_path / "copy"
    copy.write_bytes(b"")
    file = EventFile(copy)
    found: list[Scalar] = []
    for cut in [*sorted(cuts), len(content)]:
        copy.write_bytes(content[:cut])
        found += file.new_scalars()
    assert repr(found) == repr(list(EventFile(written).new_scalars()))


@settings(deadline=None)
@given(st.binary())
def test_any_bytes_are_scalars_or_none(record: bytes) -> None:
    assert all(isinstance(scalar, Scalar) for scalar in parse_scalars(record))


def test_a_damaged_file_is_read_up_to_the_damage(written: Path, tmp_path: Path) -> None:
    whole = list(EventFile(written).new_scalars())
    copy = tmp_path / "copy"
    content = bytearray(written.read_bytes())
    content[200] ^= 0xFF
    copy.write_bytes(bytes(content))
    assert list(EventFile(copy).new_scalars()) == whole[: len(list(EventFile(copy).new_scalars()))]
    copy.write_bytes(b"\x00" * 10_000)
    assert list(EventFile(copy).new_scalars()) == []


def test_a_step_is_told_when_the_next_one_has_come_or_nothing_comes_any_more(written: Path, tmp_path: Path) -> None:
    now = [0.0]
    steps = TensorBoardSteps(below(tmp_path, f"**/{FILES}"), clock=lambda: now[0])
    assert list(steps.new_steps(final=False)) == []
    (tmp_path / "deeper").mkdir()
    (tmp_path / "deeper" / written.name).write_bytes(written.read_bytes())
    found = list(steps.new_steps(final=False))
    assert [step["step"] for step in found] == [1, 2, 3, 4, 5]
    assert found[1] == {
        "step": 2, "train/loss": 5.0, "train/lr": pytest.approx(2e-4), "half": 1.0, "logged_at": 1002.0
    }  # fmt: skip
    assert list(steps.new_steps(final=False)) == []
    now[0] = QUIET_SECONDS
    assert [step["step"] for step in steps.new_steps(final=False)] == [6]
    assert list(steps.new_steps(final=True)) == []


def state(*steps: int) -> str:
    entries: list[dict[str, Any]] = [{"step": step, "loss": 10 / step, "epoch": step / 10} for step in steps]
    entries.append({"step": steps[-1], "eval_loss": 2.5, "epoch": steps[-1] / 10})
    entries.append({"step": steps[-1], "train_loss": 7.0, "train_runtime": 1.0, "total_flos": 1e9})
    return json.dumps({"log_history": entries, "global_step": steps[-1]})


def test_the_history_of_a_trainer_state_is_told_once(tmp_path: Path, set_time: Callable[[Path, int], None]) -> None:
    steps = TrainerStateSteps(below(tmp_path, "checkpoint-*/trainer_state.json"))
    assert list(steps.new_steps(final=False)) == []
    for number, last in enumerate((20, 40)):
        file = tmp_path / f"checkpoint-{last}" / "trainer_state.json"
        file.parent.mkdir()
        file.write_text(state(*range(10, last + 1, 10)), encoding="utf-8")
        set_time(file, number)
        found = list(steps.new_steps(final=False))
        assert [step["step"] for step in found] == [last - 10, last]
        assert found[-1] == {"step": last, "loss": 10 / last, "epoch": last / 10, "eval_loss": 2.5}
        assert list(steps.new_steps(final=True)) == []


@pytest.fixture
def set_time() -> Callable[[Path, int], None]:
    import os

    return lambda path, second: os.utime(path, (1000 + second, 1000 + second))
