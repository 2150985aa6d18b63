"""A run that succeeds and loses its model says so wherever people read of it: the real workflow in the twin."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from local.twin import Twin
from tests.integration.ended_runs import Ended, runs_together
from tests.integration.running import replayed
from trainflow.protocol.lost_files import LostFile, LostFiles
from trainflow.record.results import NOTHING_TRAINED, lost_files_warning
from trainflow.record.run_states import state_of_record
from trainflow.spec.run_spec import RunSpec, parse_run_spec
from trainflow.workflow.run_record import RunStatus

pytestmark = pytest.mark.slow

TRAINS = """
import os
for step in range(1, 6):
    print("step", step, "loss", 1 / step, flush=True)
os.makedirs("checkpoints", exist_ok=True)
with open("checkpoints/last.pt", "wb") as checkpoint, open("model.pt", "wb") as model:
    checkpoint.write(b"c" * 3000)
    model.write(b"m" * 1258291)
"""
KEEPS = TRAINS.replace('"checkpoints', 'os.environ["TRAINFLOW_RUN_DIR"] + "/checkpoints').replace(
    '"model.pt"', 'os.environ["TRAINFLOW_RUN_DIR"] + "/model.pt"'
)
FAILS = f"{TRAINS}\nraise ValueError('the last batch is empty')"
NOTHING = "print('Unable to locate sufficient 2 gpus to run this example. Exiting.')"


def spec(program: str, *, num_nodes: int = 1) -> RunSpec:
    document: dict[str, Any] = {
        "version": 1,
        "name": "lost",
        "workload": {
            "command": ["python", "-c", program],
            "image": "trainer:test",
            "launcher": "none",
            "writable_root": True,  # without workload.code, the working folder is the image's
        },
        "compute": {"instance_type": "c7i.xlarge", "num_nodes": num_nodes, "check_nodes": False},
        "progress": {"pattern": r"step (?P<step>\d+) loss (?P<loss>\S+)"},
        "limits": {"max_restarts": 0},
    }
    return parse_run_spec(document)


SPECS = {
    "lost-000000000001": spec(TRAINS),
    "lost-000000000003": spec(TRAINS, num_nodes=3),
    "lost-000000000004": spec(KEEPS),
    "lost-000000000005": spec(NOTHING),
    "lost-000000000009": spec(FAILS),
}

End = Callable[[str], Ended]


@pytest.fixture(scope="module")
def end(twin: Twin, tmp_path_factory: pytest.TempPathFactory) -> Iterator[End]:
    """The end of a run, whose way the second engine has taken, too; all runs go on side by side."""
    with runs_together(twin, SPECS, folder=tmp_path_factory.mktemp("runs")) as ends:

        def find(run_id: str) -> Ended:
            ended = ends[run_id].result()
            assert replayed(twin, run_id)
            return ended

        yield find


def lost(num_nodes: int) -> LostFiles:
    return LostFiles(
        num_files=2,
        num_bytes=1261291,
        largest=(
            LostFile(name="model.pt", num_bytes=1258291, num_nodes=num_nodes),
            LostFile(name="checkpoints/last.pt", num_bytes=3000, num_nodes=num_nodes),
        ),
    )


@pytest.mark.parametrize("num_nodes", [1, 3])
def test_a_success_that_lost_its_model_is_a_warning_everywhere(end: End, num_nodes: int) -> None:
    ended = end(f"lost-00000000000{num_nodes}")
    warning = lost_files_warning(lost(num_nodes))
    assert ended.record.status is RunStatus.SUCCEEDED
    assert (ended.record.lost_files, ended.kept.lost_files) == (lost(num_nodes), lost(num_nodes))
    assert ended.record.warnings == ended.kept.warnings == [warning]
    assert ended.page == (warning,) and list(state_of_record(ended.record).warnings) == [warning]
    assert f"warning        {warning}" in ended.followed
    assert f"Warning: {warning}" in ended.mail.splitlines()
    assert "model.pt (1.2 MiB" in ended.report and "model.pt (1.2 MiB" in ended.kept_report


def test_a_failure_that_lost_its_model_keeps_its_error_and_says_both(end: End) -> None:
    ended = end("lost-000000000009")
    assert ended.record.error is not None and ended.record.error.name == "ScriptFailed"
    assert "the last batch is empty" in ended.record.error.message
    assert f"Warning: {lost_files_warning(lost(1))}" in ended.mail.splitlines()


def test_a_program_that_keeps_its_files_has_no_warning(end: End) -> None:
    ended = end("lost-000000000004")
    assert (ended.record.status, ended.record.warnings, ended.record.lost_files) == (RunStatus.SUCCEEDED, [], None)
    assert "Warning" not in ended.mail


def test_a_success_without_a_step_and_a_file_may_have_trained_nothing(end: End) -> None:
    ended = end("lost-000000000005")
    assert ended.record.status is RunStatus.SUCCEEDED
    assert ended.record.warnings == ended.kept.warnings == [NOTHING_TRAINED]
    assert f"Warning: {NOTHING_TRAINED}" in ended.mail.splitlines()
