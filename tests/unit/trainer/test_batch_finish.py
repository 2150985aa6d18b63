"""How a Slurm job ended, as it is written down for later."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import EndpointConnectionError

from tests.unit.trainer.conftest import BUCKET
from trainer.runtime.errors import ConfigInvalid, StorageFailed
from trainer.slurm import finish
from trainer.slurm.place import JobFolder
from trainflow.protocol.slurm_job import JobRecord, parse_record

FINISHED = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path


@pytest.fixture(autouse=True)
def a_job(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "12")
    monkeypatch.setenv("SLURMD_NODENAME", "n0")


def end(folder: Path, index: int, code: int, *, log: str = "", result: str | None = None, after: float = 0) -> None:
    """A node on which the program has ended."""
    (folder / f"{index}.exit").write_text(f"{code} n{index}\n")
    os.utime(folder / f"{index}.exit", (FINISHED.timestamp() + after,) * 2)
    (folder / f"{index}.log").write_text(log)
    if result is not None:
        (folder / f"{index}.result").write_text(result)


def written(s3: Any, folder: Path, **given: Any) -> JobRecord:
    """The record, as the workflow's Lambda functions read it."""
    flags = {
        "folder": folder,
        "job": "a-training-1",
        "url": f"s3://{BUCKET}/runs/a/",
        "exit_code": 0,
        "seconds": 60,
        "warned_from": 3000,
        "spec_hash": "feed",
        "num_nodes": 2,
        **given,
    }
    finish.main([word for name, value in flags.items() for word in (f"--{name}", str(value))], None)  # type: ignore[arg-type]
    text = s3.get_object(Bucket=BUCKET, Key="runs/a/jobs/a-training-1.json")["Body"].read()
    record = parse_record(text)
    assert record is not None
    return record


def test_a_good_end_has_the_first_nodes_result(s3: Any, folder: Path) -> None:
    end(folder, 0, 0, result='{"result": {"steps": 3}}')
    end(folder, 1, 0, result='{"result": {}}')
    record = written(s3, folder)
    assert (record.job_id, record.spec_hash, record.exit_code, record.reason) == (12, "feed", 0, None)
    assert [(node.index, node.node, node.exit_code, node.message) for node in record.nodes] == [
        (0, "n0", 0, '{"result": {"steps": 3}}')
    ]
    assert [(node.index, node.node, node.exit_code, node.message) for node in record.others] == [(1, "n1", 0, None)]
    assert (record.ended_at - record.started_at).total_seconds() == 60


def test_the_job_ended_when_its_script_says_so_and_not_when_this_program_had_started(s3: Any, folder: Path) -> None:
    end(folder, 0, 0)
    (folder / "ended").touch()
    os.utime(folder / "ended", (FINISHED.timestamp() + 1,) * 2)
    record = written(s3, folder, num_nodes=1, seconds=9)
    assert record.ended_at == FINISHED + timedelta(seconds=1)
    assert record.started_at == FINISHED - timedelta(seconds=8)


def test_the_nodes_that_failed_are_told_first_failure_first(s3: Any, folder: Path) -> None:
    end(folder, 0, 1, log="PeerLost: gone\n", after=1)
    end(folder, 1, 137, log="".join(f"line {number}\n" for number in range(1000)))
    record = written(s3, folder, exit_code=137)
    assert [(node.index, node.exit_code) for node in record.nodes] == [(0, 1), (1, 137)]
    assert record.nodes[0].message == "PeerLost: gone"
    assert str(record.nodes[1].message).endswith("line 999")
    assert record.nodes[1].finished_at == FINISHED
    tail = s3.get_object(Bucket=BUCKET, Key="runs/a/tails/a-training-1-1.log")["Body"].read().decode()
    assert tail.splitlines()[-1].endswith(" line 999")
    assert len(tail.splitlines()) == 200


def test_of_many_failed_nodes_the_first_five_are_told(s3: Any, folder: Path) -> None:
    for index in range(20):
        end(folder, index, 1, after=-index)
    record = written(s3, folder, exit_code=1, num_nodes=20)
    assert [node.index for node in record.nodes] == [0, 19, 18, 17, 16, 15]
    assert [(node.index, node.exit_code) for node in record.others] == [(index, 1) for index in range(1, 15)]


def test_a_program_that_was_ended_by_force_has_no_exit_code(s3: Any, folder: Path) -> None:
    record = written(s3, folder, exit_code=143)
    assert [(node.node, node.exit_code, node.message) for node in record.nodes] == [("n0", None, None)]
    assert [(node.index, node.node, node.exit_code) for node in record.others] == [(1, "", None)]


@pytest.mark.parametrize(
    ("exit_code", "seconds", "reason"), [(143, 3000, "DeadlineExceeded"), (143, 2999, None), (0, 3500, None)]
)
def test_a_program_that_ended_after_the_warning_has_exceeded_its_time(
    s3: Any, folder: Path, exit_code: int, seconds: int, reason: str | None
) -> None:
    assert written(s3, folder, exit_code=exit_code, seconds=seconds).reason == reason


@pytest.mark.parametrize("said", ["", "oops", "1", "\n"])
def test_a_file_that_was_cut_off_is_no_reason_to_fail(folder: Path, said: str) -> None:
    (folder / "0.exit").write_text(said)
    (first,) = finish.told_nodes(JobFolder(folder), num_nodes=1, first_node="n0")
    assert first.index == 0


class Refusing:
    """S3 that refuses every object for a while; the clock advances only while the caller sleeps."""

    def __init__(self, client: Any, monkeypatch: pytest.MonkeyPatch, *, seconds: float) -> None:
        self._client, self._seconds, self.now = client, seconds, 0.0
        monkeypatch.setattr(finish.s3, "connect", lambda: self)
        monkeypatch.setattr(finish.time, "monotonic", lambda: self.now)
        monkeypatch.setattr(finish.time, "sleep", self._sleep)

    def put_object(self, **given: Any) -> None:
        if self.now < self._seconds:
            raise EndpointConnectionError(endpoint_url="s3")
        self._client.put_object(**given)

    def _sleep(self, seconds: float) -> None:
        self.now += seconds


def test_the_record_gets_through_if_s3_comes_back_within_a_minute(
    s3: Any, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    end(folder, 0, 0)
    Refusing(s3, monkeypatch, seconds=50)
    assert written(s3, folder).exit_code == 0


def test_a_bucket_that_never_takes_the_record_is_named(s3: Any, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    end(folder, 0, 0)
    refusing = Refusing(s3, monkeypatch, seconds=3600)
    with pytest.raises(StorageFailed, match=r"jobs/a-training-1\.json .*s3:Put"):
        written(s3, folder)
    assert 60 <= refusing.now < 70


def test_outside_of_a_job_it_says_so(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SLURM_JOB_ID")
    with pytest.raises(ConfigInvalid, match="SLURM_JOB_ID is missing"):
        written(None, folder)
