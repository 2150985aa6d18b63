"""A comparison of any number of runs has lines that the terminal does not wrap."""

from __future__ import annotations

import pytest

from trainflow.cli.operate.compared import comparison_text

FACTS = {
    "status": "succeeded",
    "nodes": "2 × trn1.32xlarge",
    "duration": "1 h 12 min",
    "last loss": "2.345",
    "sequences/s": "118.7",
    "workload.arguments.learning_rate": "0.0004",
    "workload.arguments.optimizer": "adamw with a long description of it …",
}


def compared(num_runs: int, width: int | None) -> tuple[list[str], str]:
    run_ids = [f"bert-large-{index:012x}" for index in range(num_runs)]
    rows = [(name, [f"{value[:-1]}{index}" for index in range(num_runs)]) for name, value in FACTS.items()]
    return run_ids, comparison_text(run_ids, rows, width)


@pytest.mark.parametrize("width", [28, 40, 60, 80, 120, 200])
@pytest.mark.parametrize("num_runs", [1, 2, 3, 5, 8])
def test_no_line_is_longer_than_the_terminal_is_wide_and_every_fact_is_there(num_runs: int, width: int) -> None:
    run_ids, text = compared(num_runs, width)
    assert max(len(line) for line in text.splitlines()) <= width
    words = text.split()
    assert set(run_ids) <= set(words)
    for index in range(num_runs):
        assert f"0.000{index}" in words
        assert words.count(f"2.34{index}") == 1


@pytest.mark.parametrize("num_runs", [3, 5, 8])
def test_three_runs_and_more_are_a_line_each(num_runs: int) -> None:
    run_ids, text = compared(num_runs, None)
    head, *lines = text.splitlines()
    assert head.split()[:3] == ["RUN", "status", "nodes"]
    assert [line.split()[0] for line in lines] == run_ids


def test_facts_that_have_no_room_follow_in_another_table_with_a_line_for_each_run() -> None:
    run_ids, text = compared(3, 80)
    tables = [part.splitlines() for part in text.split("\n\n")]
    assert len(tables) > 1
    assert [[line.split()[0] for line in lines] for lines in tables] == [["RUN", *run_ids]] * len(tables)


def test_two_runs_are_columns_where_there_is_room() -> None:
    run_ids, text = compared(2, 120)
    assert text.splitlines()[0].split() == run_ids
    assert text.splitlines()[1].split() == ["status", "succeede0", "succeede1"]


def test_where_no_column_has_room_each_run_is_a_block_of_its_own() -> None:
    run_ids, text = compared(2, 28)
    blocks = [block.splitlines() for block in text.split("\n\n")]
    assert [block[0] for block in blocks] == run_ids
    assert blocks[0][1:3] == ["  status: succeede0", "  nodes: 2 × trn1.32xlarg0"]
