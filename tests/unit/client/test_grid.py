"""The runs of a grid, and their ids."""

from __future__ import annotations

import re
from datetime import UTC, datetime

import pytest

from tests.fakes.runs import SPEC
from trainflow.client.grid import MAX_RUNS, grid_of, members
from trainflow.client.place import RunSummary
from trainflow.errors import InvalidRunSpec
from trainflow.workflow.run_status import RunStatus

LR, NODES = "workload.arguments.learning_rate=1e-4,3e-4", "compute.num_nodes=2,4,8"


def test_a_grid_has_a_run_for_each_combination_with_an_id_that_begins_with_its_own() -> None:
    grid = grid_of(SPEC, [LR, NODES])
    seen = [(run.spec.workload.arguments["learning_rate"], run.spec.compute.num_nodes) for run in grid.runs]
    assert seen == [("1e-4", 2), ("1e-4", 4), ("1e-4", 8), ("3e-4", 2), ("3e-4", 4), ("3e-4", 8)]
    assert grid.runs[1].values == {"workload.arguments.learning_rate": "1e-4", "compute.num_nodes": 4}
    assert re.fullmatch(rf"{SPEC['name']}-[0-9a-f]{{6}}", grid.grid_id)
    assert all(re.fullmatch(rf"{grid.grid_id}[0-9a-f]{{6}}", run.run_id) for run in grid.runs)
    assert len({run.run_id for run in grid.runs}) == 6


def test_the_same_grid_has_the_same_ids_and_another_one_has_others() -> None:
    grid = grid_of(SPEC, [NODES], code_sha256="a")
    assert grid == grid_of(dict(reversed(SPEC.items())), [NODES], code_sha256="a")
    others = [grid_of(SPEC, [NODES], code_sha256="b"), grid_of(SPEC, ["compute.num_nodes=2,4"], code_sha256="a")]
    assert grid.grid_id not in {other.grid_id for other in others}


@pytest.mark.parametrize(
    ("over", "sentence"),
    [
        ([], "Name a field and its values with --over"),
        (["compute.num_nodes"], "'compute.num_nodes' must be a field and its value"),
        (["compute.num_nodes="], "compute.num_nodes: give its values, each once"),
        (["compute.num_nodes=2,2"], "compute.num_nodes: give its values, each once"),
        ([NODES, NODES], "compute.num_nodes is given twice; name all its values at once."),
        (["name=a,b"], "name: a grid's runs share their name"),
        (["compute.num_nodes=2,0"], "With compute.num_nodes=0: compute.num_nodes: must be at least 1"),
        (["compute.num_node=2"], "With compute.num_node=2: compute.num_node: there is no such field"),
        (
            [f"workload.arguments.seed={','.join(map(str, range(51)))}", LR],
            f"The grid has 102 runs, but at most {MAX_RUNS} are started; give fewer values.",
        ),
    ],
)
def test_a_grid_with_a_fault_is_refused_as_a_whole(over: list[str], sentence: str) -> None:
    with pytest.raises(InvalidRunSpec, match=re.escape(sentence)):
        grid_of(SPEC, over)


def test_runs_of_a_grid_are_found_by_their_ids_alone() -> None:
    def summary(run_id: str, minute: int) -> RunSummary:
        started_at = datetime(2026, 11, 22, 8, minute, tzinfo=UTC)
        return RunSummary(run_id=run_id, status=RunStatus.RUNNING, started_at=started_at)

    mine = [summary("bert-0a1b2c000002", 2), summary("bert-0a1b2c000001", 1)]
    others = [summary("bert-0a1b2d000001", 3), summary("bert-0a1b2c", 4), summary("bert-0a1b2c-x", 5)]
    assert members([*others, *mine], "bert-0a1b2c") == mine[::-1]
    assert members([*others, *mine], "bert") == []
