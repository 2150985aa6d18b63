"""Gangs whose nodes are tested before they train: of every size, with an ill node, and with a test that is wrong."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from local.twin import REPOSITORY, Twin
from tests.integration.running import follow_run, replayed
from tests.integration.test_runs import TIME_SCALE, assert_nothing_is_left, steps_spec
from trainflow.spec.run_spec import parse_run_spec
from trainflow.workflow.run_record import RunRecord

CLOCK_OF_DEVICES = """
import os
if os.environ.get("TRAINFLOW_NODE_TEST_DIR") and os.environ.get("GROUP_RANK"):
    import itertools, time
    in_attempt = os.environ.get("TRAINFLOW_ATTEMPT") in os.environ.get("SLOW_ATTEMPTS", "").split(",")
    is_slow = in_attempt and os.environ["GROUP_RANK"] in os.environ["SLOW_NODES"].split(",")
    readings = itertools.count()
    time.perf_counter = lambda: next(readings) * (2.0 if is_slow else 0.02)
"""
"""What every Python process of a run starts with. The test of the nodes measures by a clock that goes on with each
reading, and faster on nodes that are slow in an attempt: this machine's other work makes no healthy node slow."""

PROGRAM = """
import pathlib, sys, time
pathlib.Path(sys.argv[-1], "model.txt").write_text("weights")
now = time.asctime(time.gmtime())
for step in range(1, 4):
    print(f"LOG {now} - (0, {step}) step_loss : 0.5000 learning_rate : 1.00e-03 throughput : 9.00")
"""

ALL_ATTEMPTS = "1,2,3,4,5,6,7,8,9"

Start = Callable[..., RunRecord]


@pytest.fixture(scope="module")
def twin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Twin]:
    image = tmp_path_factory.mktemp("image")
    (image / "sitecustomize.py").write_text(CLOCK_OF_DEVICES)
    (image / "program.py").write_text(PROGRAM)
    for name in ("tests", "trainer", "trainflow"):
        (image / name).symlink_to(REPOSITORY / name)
    home, logs = tmp_path_factory.mktemp("home"), tmp_path_factory.mktemp("logs")
    with Twin(home=home, log_dir=logs, time_scale=TIME_SCALE, image_root=image) as running:
        yield running


@pytest.fixture
def start(twin: Twin, tmp_path: Path) -> Start:
    def start(
        run_id: str, *, num_nodes: int = 2, max_restarts: int = 2, launcher: str = "none", **env: str
    ) -> RunRecord:
        spec: dict[str, Any] = steps_spec(launcher=launcher)
        spec["workload"] |= {"script": "program.py", "arguments": {"output_dir": "{run_dir}"}, "env": env}
        spec["compute"] |= {"check_nodes": True, "num_nodes": num_nodes}
        spec["limits"] = {"max_restarts": max_restarts}
        console = Console(file=io.StringIO())
        record = follow_run(twin, parse_run_spec(spec), run_id, folder=tmp_path / "out", console=console)
        assert_nothing_is_left(twin, run_id)
        assert replayed(twin, run_id)
        return record

    return start


@pytest.mark.parametrize(
    ("num_nodes", "launcher"),
    [
        pytest.param(*size, marks=pytest.mark.slow)
        for size in ((3, "none"), (3, "torchrun"), (5, "none"), (5, "torchrun"))
    ],
)
def test_a_gang_of_an_odd_number_of_nodes_trains_at_once(start: Start, num_nodes: int, launcher: str) -> None:
    record = start(f"steps-odd-{launcher}-{num_nodes}", num_nodes=num_nodes, launcher=launcher)
    assert (record.error, record.status) == (None, "SUCCEEDED")
    assert (record.restarts, record.avoided_nodes, record.warnings) == ([], [], [])


@pytest.mark.slow
def test_a_gang_that_is_slow_as_a_whole_trains_at_once(start: Start) -> None:
    record = start("steps-0000all-slow", num_nodes=3, SLOW_ATTEMPTS=ALL_ATTEMPTS, SLOW_NODES="0,1,2")
    assert (record.error, record.status) == (None, "SUCCEEDED")
    assert (record.restarts, record.avoided_nodes) == ([], [])


def nodes_of(record: RunRecord, attempt: int, index: str = "") -> set[str | None]:
    pods = [pod for job in record.jobs.values() for pod in job.pods]
    return {pod.node for pod in pods if f"{record.run_id}-training-{attempt}-{index}" in pod.name}


@pytest.mark.slow
@pytest.mark.parametrize(("max_restarts", "slow"), [(2, "1"), (1, ALL_ATTEMPTS)])
def test_a_gang_leaves_out_the_node_that_is_slow_in_the_test(start: Start, max_restarts: int, slow: str) -> None:
    """The last restart that is allowed runs without the test, which could only end the run."""
    run_id = f"steps-00unhealthy-{max_restarts}"
    record = start(run_id, max_restarts=max_restarts, SLOW_ATTEMPTS=slow, SLOW_NODES="1")
    assert (record.error, record.status) == (None, "SUCCEEDED")
    (restart,) = record.restarts
    assert restart.error == "NodeUnhealthy"
    assert "compute.check_nodes: false" in restart.message
    assert nodes_of(record, 1, "1") == {*record.avoided_nodes}
    assert len(nodes_of(record, 2)) == 2 and not nodes_of(record, 2) & {*record.avoided_nodes}


@pytest.mark.slow
def test_a_test_that_fails_wherever_it_runs_is_left_out_and_its_nodes_are_used_again(start: Start) -> None:
    """No run restarts more often without a step than its limit says."""
    record = start("steps-0000refuted", max_restarts=4, SLOW_ATTEMPTS=ALL_ATTEMPTS, SLOW_NODES="1")
    assert (record.error, record.status) == (None, "SUCCEEDED")
    assert [restart.error for restart in record.restarts] == ["NodeUnhealthy"] * 2
    first, second = (nodes_of(record, attempt, "1") for attempt in (1, 2))
    assert first != second
    assert record.avoided_nodes == []
    (warning,) = record.warnings
    assert warning == (
        f"The test of the nodes fails wherever it runs: in attempts in a row it found {first.pop()} and {second.pop()} "
        "unhealthy. The run goes on without the test, and uses the nodes again that only the test had named."
    )
