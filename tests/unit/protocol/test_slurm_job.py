"""What a Slurm job leaves in S3: what its script writes, functions and command read."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lambdas.gateways.kubernetes_objects import log_lines
from trainflow.protocol import slurm_job
from trainflow.protocol.result import MAX_BYTES
from trainflow.protocol.slurm_job import EPOCH, JobRecord, NodeRecord, parse_record, record_to_bytes

TEXT = st.text(st.characters(exclude_categories=["Cs"]))
TIMES = st.datetimes(datetime(1970, 1, 1), datetime(9999, 12, 31), timezones=st.just(UTC)).map(
    lambda time: time.replace(fold=0)
)
COUNTS = st.integers(min_value=0, max_value=10**12)
JOBS = st.from_regex(r"[a-z]([-a-z0-9]{0,50}[a-z0-9])?", fullmatch=True)
STAMPS = st.integers(min_value=0, max_value=253402300799 * 10**6)
"""Microseconds since 1970, up to the year 9999."""

nodes = st.builds(
    NodeRecord,
    index=COUNTS,
    node=TEXT,
    exit_code=st.none() | COUNTS,
    message=st.none() | TEXT,
    finished_at=st.none() | TIMES,
)
records = st.builds(
    JobRecord,
    job_id=COUNTS,
    spec_hash=TEXT,
    exit_code=COUNTS,
    reason=st.none() | TEXT,
    started_at=TIMES,
    ended_at=TIMES,
    nodes=st.lists(nodes, max_size=3).map(tuple),
    others=st.lists(nodes, max_size=3).map(tuple),
)


@given(records)
def test_a_record_comes_back_from_its_object(record: JobRecord) -> None:
    assert parse_record(record_to_bytes(record)) == record


def test_a_record_of_an_earlier_version_has_no_other_nodes() -> None:
    now = datetime(2026, 11, 22, tzinfo=UTC)
    right = JobRecord(job_id=7, spec_hash="feed", exit_code=0, started_at=now, ended_at=now, nodes=())
    document = json.loads(record_to_bytes(right))
    del document["others"]
    assert parse_record(json.dumps(document)) == right


@given(st.text() | st.binary())
def test_what_is_no_record_is_none(content: str | bytes) -> None:
    assert parse_record(content) is None


@pytest.mark.parametrize(
    "wrong",
    [
        {"job_id": "7"},
        {"exit_code": True},
        {"started_at": "2026-11-22T10:00:00"},
        {"ended_at": 3},
        {"nodes": None},
        {"nodes": [3]},
        {"nodes": [{"index": 0}]},
        {"reason": 3},
    ],
    ids=str,
)
def test_a_record_with_a_wrong_field_is_none(wrong: dict[str, Any]) -> None:
    now = datetime(2026, 11, 22, tzinfo=UTC)
    right = JobRecord(job_id=7, spec_hash="feed", exit_code=0, started_at=now, ended_at=now, nodes=())
    document = json.loads(record_to_bytes(right))
    assert parse_record(json.dumps(document)) == right
    assert parse_record(json.dumps({**document, **wrong})) is None
    assert parse_record("[" * 100_000) is None


@given(job=JOBS, stamp=STAMPS, later=STAMPS, end=COUNTS)
def test_the_names_of_segments_sort_by_time_and_hold_it(job: str, stamp: int, later: int, end: int) -> None:
    name = slurm_job.segment_name(job, stamp=stamp, end=end)
    assert name.startswith(slurm_job.log_folder(job))
    assert slurm_job.segment_stamp(f"runs/a/{name}") == stamp
    assert (name >= slurm_job.segments_from(job, later)) == (stamp >= later)


@pytest.mark.parametrize(
    "name", ["", "readme", f"{1:020d}.log", f"{1:020d}-{1:015d}.txt", f"{slurm_job.LATEST + 1:020d}-{1:015d}.log"]
)
def test_another_object_of_the_run_is_no_segment(name: str) -> None:
    """Every program of the run may write objects there."""
    assert slurm_job.segment_stamp(f"runs/a/logs/b/{name}") is None


def test_a_message_that_no_text_can_hold_is_recorded_without_what_is_wrong_with_it() -> None:
    """Python keeps bytes of another encoding as lone surrogates, which neither JSON's readers nor AWS take."""
    node = NodeRecord(index=0, node="n0", exit_code=1, message="a \udcff b", finished_at=None)
    written = JobRecord(
        job_id=1, spec_hash="feed", exit_code=1, reason=None, started_at=EPOCH, ended_at=EPOCH, nodes=(node,)
    )
    found = parse_record(record_to_bytes(written))
    assert found is not None
    assert found.nodes[0].message == "a ? b"


def test_of_a_text_longer_than_any_of_ours_the_beginning_is_read() -> None:
    """Every program of the run may write records, and what is read of one goes on to the state machine's payload."""
    node = NodeRecord(index=0, node="n" * 5000, exit_code=1, message="m" * 10**6, finished_at=None)
    written = JobRecord(
        job_id=1, spec_hash="feed", exit_code=1, reason="r" * 5000, started_at=EPOCH, ended_at=EPOCH, nodes=(node,)
    )
    found = parse_record(record_to_bytes(written))
    assert found is not None
    [read] = found.nodes
    assert (read.node, read.message, found.reason) == ("n" * MAX_BYTES, "m" * MAX_BYTES, "r" * MAX_BYTES)


@given(line=st.binary(max_size=40).filter(lambda line: b"\n" not in line), stamp=STAMPS)
def test_a_line_comes_back_with_its_time(line: bytes, stamp: int) -> None:
    (found,) = log_lines([slurm_job.stamped(line, stamp).removesuffix(b"\n")])
    assert found.logged_at == EPOCH + timedelta(microseconds=stamp)
    assert found.text == line.decode(errors="replace")
