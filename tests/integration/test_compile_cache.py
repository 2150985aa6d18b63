"""Compiled graphs that runs share, in the twin: one compiles, the others wait without nodes and read."""

from __future__ import annotations

import io
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from local.aws import deployment
from local.twin import Twin
from tests.integration.running import follow_run
from tests.integration.test_runs import TIME_SCALE, assert_nothing_is_left, state_names
from trainflow.spec.run_spec import parse_run_spec
from trainflow.workflow.run_record import RunRecord, StateVisit

PROGRAM = "tests/assets/programs/graphs.py"


@pytest.fixture(scope="module")
def twin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Twin]:
    home, logs = tmp_path_factory.mktemp("home"), tmp_path_factory.mktemp("logs")
    with Twin(home=home, log_dir=logs, time_scale=TIME_SCALE) as running:
        yield running


class Runs:
    """Runs that go on at the same time."""

    def __init__(self, twin: Twin, folder: Path) -> None:
        self.twin, self.folder = twin, folder
        self.records: dict[str, RunRecord] = {}
        self._threads: dict[str, threading.Thread] = {}

    def start(self, run_id: str, spec: dict[str, Any]) -> None:
        def follow() -> None:
            console = Console(file=io.StringIO())
            folder = self.folder / run_id
            self.records[run_id] = follow_run(self.twin, parse_run_spec(spec), run_id, folder=folder, console=console)

        self._threads[run_id] = threading.Thread(target=follow)
        self._threads[run_id].start()

    def end(self, run_id: str) -> RunRecord:
        self._threads[run_id].join()
        return self.records[run_id]

    def run(self, run_id: str, spec: dict[str, Any]) -> RunRecord:
        self.start(run_id, spec)
        return self.end(run_id)

    def stop(self, run_id: str) -> None:
        stepfunctions = self.twin.client("stepfunctions")
        stepfunctions.stop_execution(executionArn=self._arn(run_id), cause="the test stops it")

    def entered(self, run_id: str) -> set[str]:
        """States that a run has entered so far."""
        stepfunctions = self.twin.client("stepfunctions")
        try:
            history = stepfunctions.get_execution_history(executionArn=self._arn(run_id), maxResults=1000)
        except stepfunctions.exceptions.ExecutionDoesNotExist:
            return set()
        entries = [event.get("stateEnteredEventDetails", {}) for event in history["events"]]
        return {entry["name"] for entry in entries if entry}

    def _arn(self, run_id: str) -> str:
        assert self.twin.deployment is not None
        machine = self.twin.deployment.address.state_machine_arn
        return f"{machine.replace(':stateMachine:', ':execution:')}:{run_id}"

    def log(self, run_id: str, stage: str, *, rank: str = "0") -> str:
        """Logs of the pods of a rank."""
        return "".join(path.read_text() for path in (self.folder / run_id / "logs").glob(f"*-{stage}-*-{rank}-*.log"))


@pytest.fixture
def runs(twin: Twin, tmp_path: Path) -> Runs:
    return Runs(twin, tmp_path)


def spec_of(name: str, **arguments: Any) -> dict[str, Any]:
    return {
        "version": 1,
        "name": name,
        "workload": {"script": PROGRAM, "image": "trainer:test", "launcher": "mpi", "arguments": arguments},
        "compute": {"instance_type": "trn1.32xlarge", "num_nodes": 2, "processes_per_node": 1, "check_nodes": False},
        "precompile": {"ignore_arguments": ["compile_seconds", "compile_until"], "steps": 2},
        "limits": {"poll_seconds": 20},
    }


def until(condition: Callable[[], bool]) -> None:
    """Wait for what other processes do."""
    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.05)


def caches(twin: Twin, name: str) -> list[Path]:
    """Folders of the graphs that runs of a name share."""
    return sorted((twin.home / "volumes" / "cache").glob(f"{name}-*/*"))


def test_which_caches_are_ready_is_known_for_as_long_as_they_are_there(tmp_path: Path) -> None:
    item = {"cache_key": {"S": "kept-0123456789ab"}, "graphs": {"N": "6"}}
    with Twin(home=tmp_path / "home", log_dir=tmp_path / "logs", time_scale=TIME_SCALE) as first:
        first.client("dynamodb").put_item(TableName=deployment.CACHE_TABLE, Item=item)
    with Twin(home=tmp_path / "home", log_dir=tmp_path / "logs", time_scale=TIME_SCALE) as second:
        assert second.client("dynamodb").scan(TableName=deployment.CACHE_TABLE)["Items"] == [item]


def entered(record: RunRecord, name: str) -> StateVisit:
    return next(visit for visit in record.states if visit.name == name)


@pytest.mark.slow
def test_of_two_runs_at_once_one_compiles_and_the_other_waits_without_nodes(runs: Runs, twin: Twin) -> None:
    # On the shared file system: pods have a /tmp of their own.
    first, second, compiled = "twins-000000000001", "twins-000000000002", twin.home / "volumes" / "data" / "compiled"
    runs.start(first, spec_of("twins", compile_until="/data/compiled"))
    until(lambda: bool(caches(twin, "twins")))
    runs.start(second, spec_of("twins", learning_rate=0.2))
    until(lambda: "WaitForCache" in runs.entered(second))
    assert "CheckCompilation" not in runs.entered(first)
    assert "EnsureCapacity" not in runs.entered(second)
    compiled.touch()
    one, other = runs.end(first), runs.end(second)

    assert (one.status, other.status) == ("SUCCEEDED", "SUCCEEDED"), (one.error, other.error)
    assert one.compile is not None and other.compile is not None
    assert (one.compile.cache, other.compile.cache) == ("miss", "hit")
    assert "precompile" in one.jobs and "precompile" not in other.jobs
    assert entered(one, "CheckCompilation").entered_at < entered(other, "EnsureCapacity").entered_at
    for run_id in (first, second):
        assert "holds 3 of 3 graphs" in runs.log(run_id, "training")
    (cache,) = caches(twin, "twins")
    assert cache.name == first
    assert {path.read_text() for path in (cache / "graphs").iterdir()} == {first}, "no other run has written there"
    assert_nothing_is_left(twin, second)


@pytest.mark.slow
def test_the_lease_of_a_run_that_is_stopped_while_it_compiles_is_taken_over(runs: Runs, twin: Twin) -> None:
    first, second = "heirs-000000000001", "heirs-000000000002"
    runs.start(first, spec_of("heirs", compile_seconds=600.0))
    until(lambda: bool(caches(twin, "heirs")))
    runs.start(second, spec_of("heirs"))
    until(lambda: "WaitForCache" in runs.entered(second))
    runs.stop(first)
    record = runs.end(second)
    assert runs.end(first).status == "ABORTED"

    assert (record.status, record.error) == ("SUCCEEDED", None)
    assert record.compile is not None and record.compile.cache == "miss"
    assert [cache.name for cache in caches(twin, "heirs")] == [second]
    assert_nothing_is_left(twin, first)


@pytest.mark.slow
def test_graphs_that_failed_are_compiled_once_more(runs: Runs, twin: Twin) -> None:
    record = runs.run("retry-000000000001", spec_of("retry", failing_attempts=1))
    assert (record.status, record.error) == ("SUCCEEDED", None)
    assert state_names(record).count("RetryFailedGraphs") == 1
    assert record.compile is not None
    assert (record.compile.graphs, record.compile.failed, record.compile.cache) == (3, 0, "partial")


@pytest.mark.slow
def test_graphs_that_fail_again_stop_the_run_which_names_them_and_lets_others_try(runs: Runs, twin: Twin) -> None:
    run_id = "fails-000000000001"
    record = runs.run(run_id, spec_of("fails", failing_attempts=9))
    assert record.error is not None
    assert (record.status, record.error.name) == ("FAILED", "GraphCompilationFailed")
    assert record.error.message.startswith("1 of 3 graphs failed to compile again: MODULE_0+abb26765;")
    assert [visit.name for visit in record.states].count("SubmitPrecompile") == 2
    assert "training" not in record.jobs
    assert "MODULE_0+abb26765" in (runs.folder / run_id / "report.html").read_text()
    items = twin.client("dynamodb").scan(TableName=deployment.CACHE_TABLE)["Items"]
    assert not [item for item in items if item["run_id"]["S"] == run_id]
    assert_nothing_is_left(twin, run_id)


@pytest.mark.slow
def test_a_ready_cache_that_was_deleted_or_damaged_is_compiled_again(runs: Runs, twin: Twin) -> None:
    first, second, third = (f"gone-00000000000{number}" for number in (1, 2, 3))
    assert runs.run(first, spec_of("gone")).status == "SUCCEEDED"
    for cache in caches(twin, "gone"):
        shutil.rmtree(cache)
    again = runs.run(second, spec_of("gone"))
    assert (again.status, again.error) == ("SUCCEEDED", None)
    assert again.compile is not None and again.compile.cache == "miss"
    assert {"ForgetCache", "SubmitPrecompile"} <= set(state_names(again))
    assert [cache.name for cache in caches(twin, "gone")] == [second]
    (cache,) = caches(twin, "gone")
    next((cache / "graphs").iterdir()).write_text("damaged")
    mended = runs.run(third, spec_of("gone"))
    assert (mended.status, mended.error) == ("SUCCEEDED", None)
    assert mended.compile is not None and mended.compile.cache == "miss"
    assert "is not what was sealed" in runs.log(third, "training", rank="*"), "of one rank: its end is that of all"
    (cache,) = caches(twin, "gone")
    assert {path.read_text() for path in (cache / "graphs").iterdir()} == {third}
