"""Rank 0 of an elastic gang announces its pod, and then becomes the program."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.trainer.conftest import BUCKET
from trainer import announce
from trainer.runtime.environment import Environment
from trainer.runtime.errors import ConfigInvalid, StorageFailed

URL = f"s3://{BUCKET}/runs/demo-1/rank0/job"


class Became(Exception):
    """What the process was replaced by."""


@pytest.fixture(autouse=True)
def no_replacing(monkeypatch: pytest.MonkeyPatch) -> None:
    def execv(_path: str, command: list[str]) -> None:
        raise Became(command[1:])

    monkeypatch.setattr(announce.os, "execv", execv)


def environment(rank: int) -> Environment:
    return Environment(data_dir=None, run_dir=None, result_file=None, rank=rank, world_size=2)


def become(monkeypatch: pytest.MonkeyPatch, *, rank: int, url: str = URL) -> list[str]:
    monkeypatch.setenv("TRAINFLOW_RANK0_URL", url)
    monkeypatch.setenv("TRAINFLOW_POD_NAME", "job-worker-1")
    with pytest.raises(Became) as became:
        announce.main(["-m", "trainer.pretrain", "--max_steps", "3"], environment(rank))
    command: list[str] = became.value.args[0]
    return command


def announced(s3: Any) -> dict[str, str]:
    found = s3.list_objects_v2(Bucket=BUCKET).get("Contents", [])
    return {item["Key"]: s3.get_object(Bucket=BUCKET, Key=item["Key"])["Body"].read().decode() for item in found}


def test_rank_0_leaves_its_pods_name_and_becomes_the_program(s3: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert become(monkeypatch, rank=0) == ["-u", "-m", "trainer.pretrain", "--max_steps", "3"]
    assert announced(s3) == {"runs/demo-1/rank0/job": "job-worker-1"}


def test_the_other_ranks_say_nothing(s3: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert become(monkeypatch, rank=1) == ["-u", "-m", "trainer.pretrain", "--max_steps", "3"]
    assert announced(s3) == {}


def test_without_a_place_to_say_it_nothing_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TRAINFLOW_RANK0_URL", raising=False)
    with pytest.raises(ConfigInvalid, match=r"TRAINFLOW_RANK0_URL.*POD_NAME.*missing"):
        announce.main(["-m", "trainer.pretrain"], environment(0))


def test_without_a_program_nothing_is_announced() -> None:
    with pytest.raises(ConfigInvalid, match="No program is given"):
        announce.main([], environment(0))


def test_a_bucket_that_refuses_is_named(s3: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRAINFLOW_RANK0_URL", "s3://nobodys/key")
    monkeypatch.setenv("TRAINFLOW_POD_NAME", "job-worker-1")
    with pytest.raises(StorageFailed, match="s3://nobodys/key cannot be written"):
        announce.main(["-m", "trainer.pretrain"], environment(0))
