"""Programs whose steps are not read: they live while they go on, end if they hang, and are warned about everywhere."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from typing import Any

import pytest

from local.twin import Twin
from tests.integration.ended_runs import Ended, runs_together
from trainflow.spec.run_spec import RunSpec, parse_run_spec
from trainflow.workflow.run_record import RunStatus

pytestmark = pytest.mark.slow

STALL_SECONDS = 30
PATTERN = {"pattern": r"step (?P<step>\d+) loss (?P<loss>[\d.]+)$"}

CHANGES = """
import time
for step in range(1, 81):
    print(f"step {step} loss 0.5" if step <= 20 else f"step {step / 1000}k loss 0.5", flush=True)
    time.sleep(1)
"""
RARELY = """
import time
for step in range(1, 81):
    if step % 40 == 0:
        print(f"step {step} loss 0.25", flush=True)
    print(f"iter {step}: loss 0.5, time 1000.00ms", flush=True)
    time.sleep(1)
"""
HANGS = """
import time
for step in range(1, 6):
    print(f"step {step} loss 0.5", flush=True)
while True:
    time.sleep(1)
"""
BEATS = HANGS.replace("time.sleep(1)", "print(time.ctime(), 'rank 0 waits for its peer', flush=True); time.sleep(1)")
SPINS = HANGS.replace("time.sleep(1)", "sum(range(400_000)); time.sleep(0.03)")  # a quarter of a core: others need it
TICKS = """
for number in range(1, 31):
    print(f"tick {number} of 30", flush=True)
"""
EVENTS = """
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.event_file_writer import EventFileWriter
import os, time
writer = EventFileWriter(os.environ["TRAINFLOW_RUN_DIR"] + "/runs/today", flush_secs=1)
for step in range(1, 41):
    value = Summary.Value(tag="train/loss", simple_value=1 / step)
    writer.add_event(Event(wall_time=time.time(), step=step, summary=Summary(value=[value])))
    writer.flush()
    print("x", flush=True)
    time.sleep(1)
writer.close()
"""
TABLE = """
import os, time
folder = os.environ["TRAINFLOW_RUN_DIR"] + "/lightning_logs/version_0"
os.makedirs(folder)
with open(folder + "/metrics.csv", "w") as table:
    print("epoch,step,train_loss", file=table, flush=True)
    for step in range(1, 41):
        print(f"0,{step},{1 / step}", file=table, flush=True)
        time.sleep(1)
"""


def spec(program: str, progress: Any, *, stall_seconds: float = STALL_SECONDS, max_restarts: int = 1) -> RunSpec:
    document: dict[str, Any] = {
        "version": 1,
        "name": "life",
        "workload": {
            "command": ["python", "-c", re.sub(r"\{(\w+)\}", r"{{\1}}", program)],
            "image": "trainer:test",
            "launcher": "none",
            "writable_root": True,
        },
        "compute": {"instance_type": "c7i.xlarge", "num_nodes": 1, "check_nodes": False},
        "progress": progress,
        "limits": {"max_restarts": max_restarts, "stall_minutes": stall_seconds / 60},
    }
    return parse_run_spec(document)


SPECS = {
    "life-000000000001": spec(CHANGES, PATTERN),
    "life-000000000002": spec(RARELY, PATTERN),
    "life-000000000003": spec(HANGS, PATTERN, max_restarts=0),
    "life-000000000004": spec(BEATS, PATTERN, max_restarts=0),
    "life-000000000005": spec(SPINS, PATTERN, max_restarts=0),
    "life-000000000006": spec(TICKS, "auto"),
    "life-000000000007": spec(EVENTS, "auto", stall_seconds=180),
    "life-000000000008": spec(TABLE, {"preset": "lightning"}, stall_seconds=180),
}

Ends = Mapping[str, Future[Ended]]


@pytest.fixture(scope="module")
def ends(twin: Twin, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ends]:
    """The ends of all runs, which go on side by side: their programs take over a minute and do nothing."""
    with runs_together(twin, SPECS, folder=tmp_path_factory.mktemp("runs")) as ends:
        yield ends


def of_steps(ended: Ended) -> list[str]:
    """The warnings about steps, which are the same wherever people read them."""
    said = [warning for warning in ended.record.warnings if "step" in warning.partition(". ")[0]]
    assert said == [warning for warning in ended.kept.warnings if warning in said]
    for warning in said:
        assert warning in ended.page
        assert f"warning        {warning}" in ended.followed
        assert f"Warning: {warning}" in ended.mail.splitlines()
    return said


def test_a_program_whose_lines_change_their_form_lives_and_is_warned_about(ends: Ends) -> None:
    ended = ends["life-000000000001"].result()
    assert (ended.record.status, ended.record.restarts) == (RunStatus.SUCCEEDED, [])
    (warning,) = of_steps(ended)
    assert warning.startswith("No step is read from the log after step 20, although 60 lines have followed.")
    assert "'step 0.08k loss 0.5'" in warning


def test_a_program_whose_matched_line_is_rare_lives_while_its_other_lines_go_on(ends: Ends) -> None:
    ended = ends["life-000000000002"].result()
    assert (ended.record.status, ended.record.restarts) == (RunStatus.SUCCEEDED, [])
    assert ended.record.training is not None and ended.record.training.steps == 80


@pytest.mark.parametrize(
    "run_id",
    ["life-000000000003", "life-000000000004", "life-000000000005"],
    ids=["silent", "heartbeat", "busy"],
)
def test_a_program_that_hangs_is_stalled_also_if_it_looks_busy(ends: Ends, run_id: str) -> None:
    ended = ends[run_id].result()
    assert ended.record.error is not None
    assert ended.record.error.name == "JobStalled"
    assert "has not logged a step after 5 for 0.5 minutes" in ended.record.error.message


def test_a_program_that_prints_no_step_is_warned_about(ends: Ends) -> None:
    ended = ends["life-000000000006"].result()
    assert ended.record.status is RunStatus.SUCCEEDED
    (warning, *_) = of_steps(ended)
    assert warning.startswith("No step was found in the first 30 lines of rank 0's log.")
    assert "'tick 28 of 30', 'tick 29 of 30', 'tick 30 of 30'." in warning
    assert "progress: {pattern: 'tick\\s+(?P<step>\\d[\\d,]*)'}" in warning


@pytest.mark.parametrize("run_id", ["life-000000000007", "life-000000000008"], ids=["TensorBoard", "CSV"])
def test_a_program_that_only_writes_its_steps_to_files_shows_them_while_it_runs(ends: Ends, run_id: str) -> None:
    ended = ends[run_id].result()
    assert (ended.record.status, ended.record.restarts, of_steps(ended)) == (RunStatus.SUCCEEDED, [], [])
    assert ended.record.training is not None and ended.kept.training is not None
    assert (ended.record.training.steps, ended.kept.training.steps) == (40, 40)
    assert (ended.kept.training.first_loss, ended.kept.training.last_loss) == pytest.approx((1.0, 1 / 40), abs=1e-4)
    lines = ended.followed.splitlines()
    first_step = next(number for number, line in enumerate(lines) if "] step " in line)
    end_of_pod = next(number for number, line in enumerate(lines) if "-training-1-0" in line and "Succeeded" in line)
    assert first_step < end_of_pod, "steps are seen live"
