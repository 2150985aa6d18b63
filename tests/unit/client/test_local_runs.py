"""Runs of this machine: found by their folders, whether their twins live or not."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from recorded_runs import recorded

from tests.fakes.runs import SPEC
from trainflow.client.files import write_record, write_steps
from trainflow.client.local_runs import LocalOptions, LocalRuns
from trainflow.client.log_index import add_log
from trainflow.client.log_times import LogTimes, times_file
from trainflow.client.place import LogNotFound, LogRequest, RunNotFound, RunSummary
from trainflow.client.twin_address import FILE_NAME, HeldAddress, TwinAddress, read_address
from trainflow.observed.pod import Pod
from trainflow.observed.step import Step
from trainflow.record.run_states import state_of_record
from trainflow.workflow.owner import Owner
from trainflow.workflow.run_record import Job, MetricsPublished, RunRecord, RunStatus, Training
from trainflow.workflow.run_record import Pod as PodEntry

BEGAN = datetime(2026, 11, 22, 8, tzinfo=UTC)
ENDED = datetime(2026, 11, 22, 9, tzinfo=UTC)
ADDRESS = TwinAddress(
    endpoint="http://127.0.0.1:1",
    region="us-west-2",
    access_key_id="id",
    secret_access_key="secret",
    credentials="/nowhere",
    kubeconfig="/nowhere",
    started_at=BEGAN.isoformat(),
    deployment={},
)


def address_in(folder: Path) -> TwinAddress:
    """An address whose access key is in this folder."""
    return replace(ADDRESS, credentials=str(folder / "owner.json"))


@pytest.fixture
def local(tmp_path: Path) -> LocalRuns:
    return LocalRuns(LocalOptions(out=tmp_path / "out", home=tmp_path / "home"))


def leave_run(out: Path, run_id: str, *, status: RunStatus = RunStatus.SUCCEEDED) -> RunRecord:
    pods = [
        PodEntry(name=f"{run_id}-training-2-workers-{rank}", phase="Succeeded", node=f"node-{rank}") for rank in (0, 1)
    ]
    lost = PodEntry(name=f"{run_id}-training-1-workers-0", phase="Failed", exit_code=1)
    record = RunRecord(
        run_id=run_id,
        status=status,
        spec=SPEC,
        started_at=BEGAN,
        ended_at=ENDED,
        jobs={"training": Job(name="j", attempts=2, phase="Succeeded", pods=[lost, *pods], rank0=pods[0].name)},
        training=Training(steps=7, first_loss=3.0, last_loss=2.0, sequences_per_second=10.0),
        metrics_published=MetricsPublished(datapoints=7, first_step=4, last_step=10),
    )
    write_record(record, out / run_id / "run.json")
    for pod in (lost, *pods):
        (out / run_id / "logs").mkdir(exist_ok=True)
        (out / run_id / "logs" / f"{pod.name}.log").write_text(f"first line of {pod.name}\nsecond\n")
    return record


def test_a_machine_without_runs_lists_none(local: LocalRuns) -> None:
    assert local.runs() == []


def test_an_ended_run_is_listed_and_described_by_its_record(local: LocalRuns, tmp_path: Path) -> None:
    leave_run(tmp_path / "out", "a-1")
    (tmp_path / "out" / "latest").symlink_to("a-1")
    summary = RunSummary(
        run_id="a-1", status=RunStatus.SUCCEEDED, started_at=BEGAN, ended_at=ENDED, restarts=0, owner=Owner()
    )
    assert local.runs() == [summary]
    found = local.details("latest")
    assert (found.run_id, found.status, found.state, found.step, found.loss) == ("a-1", "SUCCEEDED", None, 10, 2.0)
    assert [(pod.name, pod.node) for pod in found.pods] == [
        ("a-1-training-1-workers-0", None),
        ("a-1-training-2-workers-0", "node-0"),
        ("a-1-training-2-workers-1", "node-1"),
    ]


@pytest.mark.parametrize("name", ["succeeded", "worker_failed", "rejected", "aborted"])
def test_an_ended_run_is_described_as_its_record_says(local: LocalRuns, tmp_path: Path, name: str) -> None:
    record = recorded(name).record()
    write_record(record, tmp_path / "out" / record.run_id / "run.json")
    found = local.details(record.run_id)
    assert found == state_of_record(record)
    assert (found.run_id, found.status, found.error) == (record.run_id, record.status, record.error)
    assert (found.started_at, found.ended_at) == (record.started_at, record.ended_at)
    assert [pod.name for pod in found.pods] == [pod.name for job in record.jobs.values() for pod in job.pods]
    if record.training is not None:
        assert (found.loss, found.throughput) == (record.training.last_loss, record.training.sequences_per_second)


def test_the_record_of_a_later_version_is_described_by_what_this_one_knows(local: LocalRuns, tmp_path: Path) -> None:
    record = leave_run(tmp_path / "out", "a-1")
    path = tmp_path / "out" / "a-1" / "run.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "further": {}}))
    assert local.details("a-1") == state_of_record(record)


def test_a_damaged_record_is_described_as_none(local: LocalRuns, tmp_path: Path) -> None:
    leave_run(tmp_path / "out", "a-1")
    path = tmp_path / "out" / "a-1" / "run.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "jobs": {"training": {"pods": [{}]}}}))
    found = local.details("a-1")
    assert found.error is not None
    assert found.error.message == "The twin ended before the run did, and left no record."


@pytest.mark.parametrize(("rank", "pod"), [(0, "a-1-training-2-workers-0"), (1, "a-1-training-2-workers-1")])
def test_the_log_of_a_rank_is_that_of_the_last_attempt(local: LocalRuns, tmp_path: Path, rank: int, pod: str) -> None:
    leave_run(tmp_path / "out", "a-1")
    assert list(local.log("a-1", LogRequest(rank=rank))) == [f"first line of {pod}", "second"]


def test_a_log_that_is_not_there_names_those_that_are(local: LocalRuns, tmp_path: Path) -> None:
    leave_run(tmp_path / "out", "a-1")
    with pytest.raises(LogNotFound, match=r"rank 7\b.*--pod.*: a-1-training-1-w"):
        local.log("a-1", LogRequest(rank=7))
    with pytest.raises(LogNotFound, match=r"times.* a-1-training-2-workers-0\.log"):
        local.log("a-1", LogRequest(since=BEGAN))


def test_the_log_of_an_ended_run_is_read_from_a_time_on(local: LocalRuns, tmp_path: Path) -> None:
    leave_run(tmp_path / "out", "a-1")
    path = tmp_path / "out" / "a-1" / "logs" / "a-1-training-2-workers-0.log"
    with path.open("wb") as log, times_file(path).open("w") as times:
        written = LogTimes(times)
        for seconds, text in ((0.2, "ä first"), (0.9, "same second"), (5.0, "later"), (5.5, "last")):
            written.add(BEGAN + timedelta(seconds=seconds), log)
            log.write(f"{text}\n".encode())

    def since(seconds: float) -> list[str]:
        return list(local.log("a-1", LogRequest(since=BEGAN + timedelta(seconds=seconds))))

    assert since(-60) == ["ä first", "same second", "later", "last"]
    assert since(0.7) == ["ä first", "same second", "later", "last"], "whole seconds, as of the cluster"
    assert since(1) == since(5.4) == ["later", "last"]
    assert since(6) == []


def test_the_beginning_of_an_id_is_enough_where_it_is_one_runs(local: LocalRuns, tmp_path: Path) -> None:
    for run_id in ("a-1", "a-2", "b-1"):
        leave_run(tmp_path / "out", run_id)
    assert local.describe("b").run_id == "b-1"
    with pytest.raises(RunNotFound, match="'a' begins the ids of 2 runs: a-1, a-2"):
        local.describe("a")
    with pytest.raises(RunNotFound, match=r"'c' .*`trainflow list --local --out .*`"):
        local.describe("c")
    with pytest.raises(RunNotFound, match="There is no run ''"):
        local.describe("")


def test_a_run_goes_on_as_long_as_its_twin_lives(local: LocalRuns, tmp_path: Path) -> None:
    folder = tmp_path / "out" / "a-1"
    address = address_in(tmp_path)
    held = HeldAddress(folder, address)
    assert read_address(folder) == address
    assert (folder / FILE_NAME).stat().st_mode & 0o077 == 0
    assert Path(address.credentials).stat().st_mode & 0o077 == 0
    assert local.runs() == [RunSummary(run_id="a-1", status=RunStatus.RUNNING, started_at=BEGAN)]
    held.close()
    assert read_address(folder) is None
    assert not (folder / FILE_NAME).exists()


def test_a_killed_twin_leaves_an_aborted_run_and_no_record(local: LocalRuns, tmp_path: Path) -> None:
    folder = tmp_path / "out" / "a-1"
    program = f"""
import os, pathlib, signal
from trainflow.client.twin_address import HeldAddress, TwinAddress
held = HeldAddress(pathlib.Path({str(folder)!r}), TwinAddress(**{vars(address_in(tmp_path))!r}))
os.kill(os.getpid(), signal.SIGKILL)
"""
    (folder / "logs").mkdir(parents=True)
    subprocess.run([sys.executable, "-c", program], check=False)
    assert (folder / FILE_NAME).exists()
    assert read_address(folder) is None
    found = local.details("a-1")
    assert (found.status, found.error.name if found.error else None) == (RunStatus.ABORTED, "Aborted")
    with pytest.raises(RunNotFound, match="The twin ended before the run did"):
        local.report("a-1")


@pytest.mark.parametrize(
    ("begun", "rank", "log"),
    [
        ([("stage", 1, 0), ("training", 1, 0), ("training", 1, 1)], 0, "training-1-0"),
        ([("stage", 1, 0), ("training", 1, 1), ("training", 1, 0)], 1, "training-1-1"),
        ([("training", 1, 0), ("training", 1, 1), ("training", 2, 0), ("publish", 1, 0)], 0, "training-2-0"),
        ([("training", 1, 0), ("training", 1, 1), ("training", 2, 0)], 1, None),
        ([("preflight", 1, 0), ("stage", 1, 0)], 0, "stage-1-0"),
        ([], 0, None),
    ],
)
def test_the_log_of_a_rank_is_found_without_a_record(
    local: LocalRuns, tmp_path: Path, begun: list[tuple[str, int, int]], rank: int, log: str | None
) -> None:
    logs = tmp_path / "out" / "a-1" / "logs"
    logs.mkdir(parents=True)
    for stage, attempt, index in begun:
        pod = Pod(name=f"a-1-{stage}-{attempt}-{index}-x7", uid="u", stage=stage, attempt=attempt, index=index)
        add_log(logs, pod)
        (logs / f"{pod.name}.log").write_text(f"{stage}-{attempt}-{index}\n")
    with (logs / "pods.jsonl").open("a") as index_file:
        index_file.write('{"pod": "a-1-tr')
    if log is None:
        with pytest.raises(LogNotFound, match=rf"training pod.* rank {rank}\b.*--pod"):
            local.log("a-1", LogRequest(rank=rank))
    else:
        assert list(local.log("a-1", LogRequest(rank=rank))) == [log]


def test_the_access_key_is_not_in_the_runs_folder_which_programs_may_see(tmp_path: Path) -> None:
    folder = tmp_path / "out" / "a-1"
    with contextlib.closing(HeldAddress(folder, address_in(tmp_path))):
        assert '"secret"' not in (folder / FILE_NAME).read_text()


@pytest.mark.parametrize("content", ["", "{", "[]", '{"endpoint": 1}', "\0"])
def test_a_damaged_address_is_none(tmp_path: Path, content: str) -> None:
    (tmp_path / FILE_NAME).write_text(content)
    assert read_address(tmp_path) is None


@pytest.mark.parametrize("content", ["", "{", "[]", '{"status": "WELL"}', '{"status": "RUNNING", "started_at": 3}'])
def test_a_damaged_record_is_left_out_of_the_list(local: LocalRuns, tmp_path: Path, content: str) -> None:
    leave_run(tmp_path / "out", "a-1")
    (tmp_path / "out" / "b-1").mkdir()
    (tmp_path / "out" / "b-1" / "run.json").write_text(content)
    assert [run.run_id for run in local.runs()] == ["a-1"]


def test_an_ended_run_has_every_step_that_its_program_has_logged(local: LocalRuns, tmp_path: Path) -> None:
    leave_run(tmp_path / "out", "a-1")
    steps = [Step(BEGAN, 0, step, 9.0 / step, None, None) for step in range(1, 3001)]
    write_steps(steps, tmp_path / "out" / "a-1" / "steps.json")
    assert local.steps("a-1") == steps


def test_the_steps_and_files_of_an_ended_run_are_where_the_twin_leaves_them(local: LocalRuns, tmp_path: Path) -> None:
    leave_run(tmp_path / "out", "a-1")
    kept = tmp_path / "home" / "s3" / "trainflow-artifacts" / "runs" / "a-1"
    (kept / "model").mkdir(parents=True)
    steps = [Step(BEGAN, 0, step, 9.0 - step, None, None, {"accuracy": 0.5}) for step in (1, 2)]
    write_steps(steps, tmp_path / "out" / "a-1" / "steps.json")
    (kept / "model" / "weights").write_bytes(b"12345")
    os.utime(kept / "model" / "weights", (BEGAN.timestamp(), BEGAN.timestamp()))
    assert local.steps("a-1") == steps
    found = {one.name: one for one in local.artifacts("a-1")}
    assert (found["model/weights"].size, found["model/weights"].modified_at) == (5, BEGAN)
    local.fetch(found["model/weights"], tmp_path / "there" / "weights")
    assert (tmp_path / "there" / "weights").read_bytes() == b"12345"


def test_a_copy_that_a_full_disk_refuses_leaves_what_was_there(local: LocalRuns, tmp_path: Path) -> None:
    """The limit on the size of a file stands for the disk: both refuse a write in the middle of the file."""
    leave_run(tmp_path / "out", "a-1")
    weights = tmp_path / "home" / "s3" / "trainflow-artifacts" / "runs" / "a-1" / ("w" * 255)
    weights.parent.mkdir(parents=True)
    weights.write_bytes(b"x" * 200_000)
    (found,) = local.artifacts("a-1")
    copy = tmp_path / "copies" / weights.name
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, limits[1]))
    try:
        with pytest.raises(OSError, match="File too large"):
            local.fetch(found, copy)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert list(copy.parent.iterdir()) == []
    local.fetch(found, copy)
    assert copy.read_bytes() == weights.read_bytes()


def test_a_run_that_has_ended_is_stopped_by_nothing(local: LocalRuns, tmp_path: Path) -> None:
    from tests.unit.cli.test_place import REASON

    record = leave_run(tmp_path / "out", "a-1")
    local.stop("a-1", reason=REASON)
    assert json.loads((tmp_path / "out" / "a-1" / "run.json").read_text())["status"] == record.status
    with pytest.raises(RunNotFound, match="has ended"):
        local.follow("a-1", log_dir=tmp_path)
