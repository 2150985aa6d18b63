"""Steps in files that no spec names: those of the usual libraries are found, and nothing else is taken for steps."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainer.progress_files import search
from trainer.progress_files.search import SearchedSteps
from trainer.progress_files.tables import TableFile, TableSteps


@pytest.fixture
def found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[Any]]:
    """Steps that each call finds below the folder, from now on."""
    monkeypatch.setattr(search, "SEARCH_SECONDS", 0.0)
    steps = SearchedSteps([tmp_path])
    return lambda: list(steps.new_steps(final=False))


def write(path: Path, *lines: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        file.writelines(f"{line}\n" for line in lines)


TABLES = {
    "lightning": (
        "lightning_logs/version_0/metrics.csv",
        ["epoch,step,train_loss,val_loss", "0,49,0.5,", "0,63,,0.4", "1,99,0.3,"],
        [(49, 0.5), (63, None), (99, 0.3)],
    ),
    "keras": ("training.log.csv", ["epoch,accuracy,loss", "0,0.1,2.0", "1,0.2,1.5"], [(0, 2.0), (1, 1.5)]),
    "timm": ("output/train/x/summary.csv", ["epoch,train_loss,eval_top1", "0,7.0,0.1"], [(0, 7.0)]),
    "ultralytics": ("runs/results.csv", ["      epoch,   train/loss", "      1,      2.5"], [(1, 2.5)]),
    "stable baselines": (
        "logs/progress.csv",
        ["time/iterations,train/loss,time/total_timesteps", "1,0.5,2048", "2,0.25,4096"],
        [(1, 0.5), (2, 0.25)],
    ),
    "semicolons": ("history.csv", ["Iteration;Loss", "10;0.5"], [(10, 0.5)]),
    "tabs": ("progress.txt", ["Epoch\tLossPi", "3\t-0.5"], [(3, None)]),
    "detectron2": ("output/metrics.json", ['{"iteration": 19, "total_loss": 1.5}'], [(19, None)]),
    "mmengine": (
        "work_dirs/a/vis_data/scalars.json",
        ['{"lr": 0.1, "loss": 2.0, "iter": 50, "step": 50}', '{"lr": 0.1, "loss": 1.0, "iter": 100, "step": 100}'],
        [(50, 2.0), (100, 1.0)],
    ),
    "nested": ("training.jsonl", ['{"step": 4, "epoch": 0, "metrics": {"loss": 1.5}}'], [(4, 1.5)]),
    "a training's file before its evaluation's": ("train_log.csv", ["step,loss", "1,2.0"], [(1, 2.0)]),
}


@pytest.mark.parametrize(("name", "lines", "expected"), TABLES.values(), ids=TABLES)
def test_the_tables_of_the_usual_libraries_are_found(
    tmp_path: Path, found: Callable[[], list[Any]], name: str, lines: Sequence[str], expected: list[Any]
) -> None:
    write(tmp_path / "eval_log.csv", "step,val_loss", "7,1.0", "9,1.0")
    write(tmp_path / "data" / "sentences.jsonl", '{"text": "no training", "id": 1}')
    write(tmp_path / name, *lines)
    steps = found()
    assert [step["step"] for step in steps] == [step for step, _ in expected]
    for step, (_, loss) in zip(steps, expected, strict=True):
        assert loss is None or loss in step.values()
    assert found() == []


@pytest.mark.parametrize(
    ("name", "lines"),
    [
        ("data/train.jsonl", ['{"id": 7, "text": "step 5 loss 3"}']),
        ("data/train.csv", ["id,label,text", "1,0,x"]),
        ("config.json", ['{"step": 1, "loss": 2}', '{"step": 2, "loss": 2}']),
        ("train_args.json", ['{"epoch": 3, "lr": 0.1}']),
        ("results.csv", ["step,prediction", "1,5", "2,6"]),
        (".cache/metrics.csv", ["step,loss", "1,2", "2,1"]),
        ("metrics.csv", ["step,loss"]),
        ("metrics.csv", ["not a table"]),
        ("events.out.tfevents.1.host", ["damaged"]),
        ("checkpoint-2/trainer_state.json", ["damaged"]),
    ],
)
def test_no_other_file_is_taken_for_steps(
    tmp_path: Path, found: Callable[[], list[Any]], name: str, lines: Sequence[str]
) -> None:
    write(tmp_path / name, *lines)
    assert found() == []


def test_what_was_there_before_the_program_is_of_an_earlier_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "SEARCH_SECONDS", 0.0)
    write(tmp_path / "old.csv", "step,loss", "1,2.0", "2,1.0")
    write(tmp_path / "metrics.csv", "step,loss", "1,2.0")
    steps = SearchedSteps([tmp_path])
    assert list(steps.new_steps(final=False)) == []
    write(tmp_path / "metrics.csv", "2,1.0")
    assert [dict(step) for step in steps.new_steps(final=True)] == [{"step": 2, "loss": 1.0}]


def test_a_trainer_state_is_found_and_may_be_deleted(tmp_path: Path, found: Callable[[], list[Any]]) -> None:
    for last in (10, 20):
        history = [{"step": step, "loss": 10 / step} for step in range(5, last + 1, 5)]
        write(tmp_path / f"out/checkpoint-{last}/trainer_state.json", json.dumps({"log_history": history}))
        assert [step["step"] for step in found()] == [last - 5, last]
        (tmp_path / f"out/checkpoint-{last}/trainer_state.json").unlink()
        assert found() == []


def test_only_one_kind_of_file_is_read(tmp_path: Path, found: Callable[[], list[Any]]) -> None:
    write(tmp_path / "b.csv", "step,loss", "1,2.0", "2,1.0")
    write(tmp_path / "c.jsonl", '{"step": 1, "loss": 2.0}')
    assert [step["step"] for step in found()] == [1, 2]
    write(tmp_path / "c.jsonl", '{"step": 3, "loss": 2.0}')
    assert found() == []
    write(tmp_path / "b.csv", "3,0.5")
    assert [step["step"] for step in found()] == [3]


def test_a_folder_that_is_named_twice_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "SEARCH_SECONDS", 0.0)
    (tmp_path / "run").mkdir()
    steps = SearchedSteps([tmp_path, tmp_path / "run"])
    write(tmp_path / "run" / "metrics.csv", "step,loss", "1,2.0")
    assert [step["step"] for step in steps.new_steps(final=False)] == [1]


def test_a_table_that_is_written_anew_with_a_further_column_is_read_on(tmp_path: Path) -> None:
    path = tmp_path / "metrics.csv"
    steps = TableSteps(TableFile(path))
    path.write_text("step,loss\n1,2.0\n", encoding="utf-8")
    assert [step["step"] for step in steps.new_steps(final=False)] == [1]
    path.write_text("acc,loss,step\n,2.0,1\n0.5,1.0,2\n", encoding="utf-8")
    assert [dict(step) for step in steps.new_steps(final=False)] == [{"step": 2, "loss": 1.0, "acc": 0.5}]


@given(st.binary(max_size=300), st.sampled_from(["a.csv", "a.jsonl"]))
def test_any_bytes_are_rows_or_none(tmp_path_factory: pytest.TempPathFactory, content: bytes, name: str) -> None:
    path = tmp_path_factory.mktemp("any") / name
    path.write_bytes(content)
    try:
        steps = list(TableSteps(TableFile(path)).new_steps(final=True))
    except ValueError:
        return
    assert all(isinstance(step["step"], int) for step in steps)


@given(cuts=st.lists(st.integers(0, 60), max_size=5))
def test_a_growing_table_is_read_once_wherever_its_writer_is(
    tmp_path_factory: pytest.TempPathFactory, cuts: list[int]
) -> None:
    content = "step,loss\n" + "".join(f"{step},{1 / step:.3f}\n" for step in range(1, 7))
    path = tmp_path_factory.mktemp("growing") / "metrics.csv"
    path.write_text("", encoding="utf-8")
    steps, found = TableSteps(TableFile(path)), []
    for cut in [*sorted(cuts), len(content)]:
        path.write_text(content[:cut], encoding="utf-8")
        found += [step["step"] for step in steps.new_steps(final=False)]
    assert found == [1, 2, 3, 4, 5, 6]
