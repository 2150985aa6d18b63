"""Gangs that hang: they are ended with the rank that is behind and its place, wherever people read it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from local.twin import Twin
from tests.integration.ended_runs import Ended, content, run_to_its_end
from trainflow.record.steps import kept_steps_from_json
from trainflow.spec.run_spec import parse_run_spec
from trainflow.workflow.run_record import RunStatus

PROGRAM = "tests/assets/programs/hangs.py"


def spec(kind: str, *, nodes: int, processes: int, limits: dict[str, Any], **arguments: Any) -> dict[str, Any]:
    return {
        "version": 1,
        "name": "hangs",
        "workload": {
            "script": PROGRAM,
            "image": "trainer:test",
            "launcher": "torchrun",
            "arguments": {"kind": kind, **arguments},
            "env": {"OMP_NUM_THREADS": "1"},
        },
        "compute": {
            "instance_type": "trn1.32xlarge",
            "num_nodes": nodes,
            "processes_per_node": processes,
            "check_nodes": False,
        },
        "precompile": {"enabled": False},
        "limits": limits,
    }


Run = Callable[..., Ended]


@pytest.fixture
def run(twin: Twin, tmp_path: Path) -> Run:
    def start(run_id: str, kind: str, **fields: Any) -> Ended:
        return run_to_its_end(twin, parse_run_spec(spec(kind, **fields)), run_id, folder=tmp_path)

    return start


NAMED = {
    "sleeps": (": time.sleep(3600)", "Rank {rank} sleeps"),
    "leaves": ("timedelta(hours=1))", "Rank {rank} has ended, and the others wait in a pending operation"),
    "deadlocks": (": with second:", "Rank {rank} waits for a lock, as another of its threads does: a deadlock"),
    "reads": ('path.open("rb").read(1)', "Rank {rank} waits for a file or a device ("),
    "loads": (": batches.get()", "Rank {rank} waits for a worker process that has ended"),
}
"""End of the place, and beginning of the sentence, by the kind of the hang."""


def require_named(ended: Ended, kind: str, *, rank: int) -> None:
    place, sentence = NAMED[kind]
    error = ended.record.error
    assert error is not None
    assert error.name == "JobStalled"
    assert sentence.format(rank=rank) in error.message
    assert "hangs.py:" in error.line
    assert error.line.endswith(place)
    assert error.rule == "hang"
    for shown in (ended.mail, ended.followed, ended.report, ended.kept_report):
        assert sentence.format(rank=rank).split("(")[0].rstrip() in " ".join(shown.split())


@pytest.mark.slow
def test_a_gang_whose_rank_sleeps_is_ended_with_the_rank_and_its_line(run: Run) -> None:
    hard = {"max_restarts": 0, "stall_minutes": 0.75}
    ended = run("hangs-000000000001", "sleeps", nodes=2, processes=1, limits=hard, seconds=0.2)
    require_named(ended, "sleeps", rank=1)
    assert ended.record.error is not None
    assert "while another rank waits in all_reduce at" in ended.record.error.message
    assert ended.record.error.pod is not None
    assert "-training-1-1-" in ended.record.error.pod


@pytest.mark.slow
def test_a_gang_that_stops_twice_at_one_step_is_not_restarted_again(run: Run) -> None:
    limits = {"max_restarts": 5, "stall_minutes": 0.5}
    ended = run("hangs-000000000002", "deadlocks", nodes=2, processes=1, limits=limits, seconds=0.2)
    assert [restart.error for restart in ended.record.restarts] == ["JobStalled"]
    assert ended.record.error is not None
    assert ended.record.error.name == "ProgramHangs"
    assert "Two attempts in a row have stopped after step 7 at" in ended.record.error.message
    assert ended.record.error.line.endswith(": with second:")


@pytest.mark.slow
@pytest.mark.parametrize(("nodes", "processes"), [(2, 1), (1, 2)], ids=["two nodes", "one node"])
@pytest.mark.parametrize("kind", NAMED)
def test_a_hang_of_every_kind_is_named_within_three_minutes_at_the_default_limits(
    run: Run, twin: Twin, kind: str, nodes: int, processes: int
) -> None:
    rank = 0 if kind == "reads" else 1
    run_id = f"hangs-0000000{list(NAMED).index(kind)}{nodes}{processes}00"
    ended = run(run_id, kind, nodes=nodes, processes=processes, limits={"max_restarts": 0}, rank=rank)
    if kind == "leaves" and nodes > 1:
        error = ended.record.error
        assert error is not None
        assert "The program of node 1" in error.message
    else:
        require_named(ended, kind, rank=rank)
    found_at = next(visit.entered_at for visit in ended.record.states if visit.name == "CollectDiagnostics")
    newest = kept_steps_from_json(content(twin, f"runs/{run_id}/steps.json")).steps[-1].logged_at
    assert (found_at - newest).total_seconds() <= 180


@pytest.mark.slow
def test_a_gang_that_pauses_for_an_evaluation_goes_on(run: Run) -> None:
    limits = {"max_restarts": 0, "stall_minutes": 2}
    ended = run("hangs-000000000003", "pauses", nodes=2, processes=1, limits=limits, seconds=0.2)
    assert (ended.record.status, ended.record.restarts) == (RunStatus.SUCCEEDED, [])
