"""Requests to the versions of Slurm's REST API, and the meaning of their answers.

v0.0.38's are those of Slurm 22.05.8. No newer Slurm was asked: what its versions call things, and of which type, is
from their OpenAPI documents (v0.0.41 to v0.0.44, as slurmrestd prints them) and from a client made of v0.0.39's.
"""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lambdas.backends.slurm.forms import (
    KNOWN_VERSIONS,
    comment_form,
    complaints,
    knows_accounting,
    newest_version,
    parse_comment,
    parse_job,
    parse_partition,
    submission_form,
    understood,
)
from trainflow.deployment.slurm import JobComment, Partition, SlurmJob, Submission
from trainflow.errors import ClusterUnavailable
from trainflow.spec.sentences import shortened

ASSETS = Path(__file__).parents[2] / "assets" / "slurm"
COMMENT = JobComment(run_id="bert-0123456789ab", stage="training", attempt=1, spec_hash="feed")
JOB = Submission(
    name="bert-0123456789ab-training-1",
    script="#!/bin/bash\n",
    comment=COMMENT,
    num_nodes=2,
    time_limit_minutes=90,
    warn_seconds=120,
    partition="trn1",
    exclusive=True,
)


def recorded(name: str) -> Any:
    return json.loads((ASSETS / name).read_text())


def some(number: int) -> dict[str, Any]:
    return {"set": True, "infinite": False, "number": number}


WRAPPED, LIST = "a number with its flags", "a list of words"

TYPES = {
    "comment": str,
    "current_working_directory": str,
    "dependency": str,
    "environment": LIST,
    "kill_warning_delay": WRAPPED,
    "kill_warning_signal": str,
    "maximum_nodes": int,
    "memory_per_node": WRAPPED,
    "minimum_nodes": int,
    "name": str,
    "partition": str,
    "requeue": bool,
    "script": str,
    "shared": LIST,
    "standard_output": str,
    "tasks": int,
    "tasks_per_node": int,
    "time_limit": WRAPPED,
}
"""Fields of a job description (`job_desc_msg`) that are the same in v0.0.39, v0.0.43 and v0.0.44."""


def type_of(value: Any) -> Any:
    match value:
        case {"set": bool(), "infinite": bool(), "number": int()}:
            return WRAPPED
        case list():
            return LIST if all(isinstance(each, str) for each in value) else list
        case _:
            return type(value)


NOTHING = {"set": False, "infinite": False, "number": 0}
ENDLESS = {"set": True, "infinite": True, "number": 0}


@pytest.mark.parametrize(
    ("paths", "version"),
    [
        (["/slurm/v0.0.37/job/submit", "/slurm/v0.0.38/job/submit"], 38),
        (["/slurm/v0.0.40/job/submit/", "/slurm/v0.0.43/job/submit/", "/slurm/v0.0.41/ping/"], 43),
        (["/slurm/v0.0.39/job/submit", "/slurm/v0.0.99/job/submit"], 39),
        (["/slurm/v0.0.36/job/submit", "/slurm/v0.0.38/jobs", "/slurmdb/v0.0.38/job/submit"], None),
    ],
)
def test_the_newest_version_that_both_sides_know_is_spoken(paths: list[str], version: int | None) -> None:
    assert newest_version(paths) == version


def test_the_accounting_database_is_asked_only_where_the_version_has_it() -> None:
    paths = ["/slurmdb/v0.0.40/job/{job_id}/", "/slurm/v0.0.41/job/submit"]
    assert knows_accounting(paths, 40)
    assert not knows_accounting(paths, 41)


def test_up_to_version_38_numbers_are_plain_and_the_environment_is_a_mapping() -> None:
    assert submission_form(JOB, 38, after=[7]) == {
        "script": "#!/bin/bash\n",
        "job": {
            "name": "bert-0123456789ab-training-1",
            "comment": comment_form(COMMENT),
            "partition": "trn1",
            "nodes": [2, 2],
            "tasks": 2,
            "tasks_per_node": 1,
            "time_limit": 90,
            "signal": "TERM@120",
            "memory_per_node": 0,
            "exclusive": "exclusive",
            "no_requeue": True,
            "dependency": "singleton,afterany:7",
            "environment": {"PATH": "/usr/local/bin:/usr/bin:/bin"},
            "current_working_directory": "/tmp",
            "standard_output": "/dev/null",
        },
    }


@pytest.mark.parametrize("version", [version for version in KNOWN_VERSIONS if version > 38])
def test_from_version_39_on_numbers_are_wrapped_and_the_environment_is_a_list(version: int) -> None:
    job = submission_form(JOB, version)["job"]
    assert job["time_limit"] == some(90)
    assert job["memory_per_node"] == some(0)
    assert (job["kill_warning_signal"], job["kill_warning_delay"]) == ("TERM", some(120))
    assert (job["minimum_nodes"], job["maximum_nodes"]) == (2, 2)
    assert job["shared"] == ["none"]
    assert job["environment"] == ["PATH=/usr/local/bin:/usr/bin:/bin"]
    assert job["requeue"] is False
    assert {name: type_of(value) for name, value in job.items()} == {
        name: kind for name, kind in TYPES.items() if name != "script" or version > 40
    }


SMALL = replace(JOB, partition=None, exclusive=False, memory_mib=2048, avoided_nodes=("n1", "n2"))
"""A job that shares its node, in the default partition, and keeps away from two nodes."""


def test_a_small_job_shares_its_node_and_avoids_others_in_both_families() -> None:
    old, new = submission_form(SMALL, 38)["job"], submission_form(SMALL, 44)["job"]
    assert (old["memory_per_node"], old["exclude_nodes"]) == (2048, "n1,n2")
    assert (new["memory_per_node"], new["excluded_nodes"]) == (some(2048), ["n1", "n2"])
    assert not {"exclusive", "shared", "partition"} & (old.keys() | new.keys())
    assert old["dependency"] == new["dependency"] == "singleton"


def test_the_script_moves_into_the_job_where_it_is_deprecated_beside_it() -> None:
    assert submission_form(JOB, 40)["script"] == JOB.script
    assert submission_form(JOB, 41).keys() == {"job"}
    assert submission_form(JOB, 41)["job"]["script"] == JOB.script


def test_a_job_of_slurm_22_05_is_understood() -> None:
    running, waiting = (parse_job(found) for found in recorded("jobs-v0.0.38.json")["jobs"])
    assert running == SlurmJob(
        job_id=7,
        name="bert-0123456789ab-training-1",
        user="root",
        states=frozenset({"RUNNING"}),
        comment=COMMENT,
        nodes="n[0-1]",
        submitted_at=running.submitted_at,
        started_at=running.submitted_at,
        ended_at=running.ended_at,
    )
    assert running.ended_at is not None
    assert (waiting.states, waiting.reason, waiting.nodes) == (frozenset({"PENDING"}), "Resources", None)


def newer_job(**fields: Any) -> dict[str, Any]:
    """A job as v0.0.40 and later return it: states in a list, numbers and times with flags."""
    return {
        "job_id": 12,
        "name": "bert-0123456789ab-training-1",
        "user_id": 1000,
        "user_name": "ec2-user",
        "job_state": ["NODE_FAIL", "COMPLETING"],
        "comment": comment_form(COMMENT),
        "state_reason": "NodeDown",
        "state_description": "",
        "nodes": "trn1-[1-2]",
        "failed_node": "trn1-2",
        "submit_time": some(1795257600),
        "start_time": some(1795257660),
        "end_time": NOTHING,
        **fields,
    }


def test_a_job_of_a_newer_slurm_is_understood() -> None:
    assert parse_job(newer_job()) == SlurmJob(
        job_id=12,
        name="bert-0123456789ab-training-1",
        user="ec2-user",
        states=frozenset({"NODE_FAIL", "COMPLETING"}),
        comment=COMMENT,
        reason="NodeDown",
        nodes="trn1-[1-2]",
        failed_node="trn1-2",
        submitted_at=datetime.fromtimestamp(1795257600, UTC),
        started_at=datetime.fromtimestamp(1795257660, UTC),
    )


def test_version_39_has_new_names_and_plain_states_and_times() -> None:
    plain = newer_job(job_state="RUNNING", submit_time=1795257600, start_time=1795257660, end_time=0)
    job = parse_job(plain)
    assert job.states == {"RUNNING"}
    assert (job.submitted_at, job.started_at, job.ended_at) == (
        datetime.fromtimestamp(1795257600, UTC),
        datetime.fromtimestamp(1795257660, UTC),
        None,
    )


def test_a_partition_is_understood_in_both_families() -> None:
    old = parse_partition(recorded("partition-v0.0.38.json")["partitions"][0])
    assert old == Partition(name="short", num_nodes=2, max_minutes=5)
    new = {
        "name": "trn1",
        "nodes": {"total": 16},
        "maximums": {"nodes": some(8), "time": ENDLESS},
        "partition": {"state": ["DRAIN"]},
    }
    assert parse_partition(new) == Partition(name="trn1", num_nodes=16, max_nodes_per_job=8, is_up=False)
    down = {**recorded("partition-v0.0.38.json")["partitions"][0], "state": "DOWN"}
    assert not parse_partition(down).is_up
    flagged = {**recorded("partition-v0.0.38.json")["partitions"][0], "flags": ["DEFAULT"]}
    assert parse_partition(flagged).is_default
    assert parse_partition({**new, "flags": ["default"]}).is_default
    assert not parse_partition({**new, "flags": ["HIDDEN"]}).is_default
    limited = {**recorded("partition-v0.0.38.json")["partitions"][0], "maximum_nodes_per_job": 3}
    assert parse_partition(limited).max_nodes_per_job == 3


def test_a_partition_that_does_not_tell_its_state_and_limits_is_up_and_has_none() -> None:
    assert parse_partition({"name": "a", "nodes": {"total": 2}}) == Partition(name="a", num_nodes=2)
    assert not parse_partition({"name": "a", "total_nodes": 2}).is_up, "v0.0.38 always tells it"


@pytest.mark.parametrize(
    ("value", "number"),
    [
        (7, 7),
        (0, 0),
        (7.0, 7),
        (some(7), 7),
        (ENDLESS, None),
        (NOTHING, None),
        (None, None),
        (-1, None),
        (0xFFFFFFFD, 0xFFFFFFFD),
        (0xFFFFFFFE, None),
        (0xFFFFFFFF, None),
        (float("inf"), None),
        (float("nan"), None),
    ],
)
def test_a_number_may_be_wrapped_missing_or_without_bound(value: Any, number: int | None) -> None:
    found = parse_partition({"name": "a", "nodes": {"total": 2}, "maximums": {"nodes": value, "time": value}})
    assert (found.max_nodes_per_job, found.max_minutes) == (number, number)


@pytest.mark.parametrize("text", ["None", "(null)", "", None])
def test_slurms_words_for_nothing_are_nothing(text: str | None) -> None:
    found = parse_job(
        {"job_id": 1, "state_reason": text, "state_description": text, "nodes": text, "failed_node": text}
    )
    assert found == SlurmJob(job_id=1, name="", user="", states=frozenset(), comment=None)


@pytest.mark.parametrize("error", [KeyError("name"), TypeError("no number"), OSError("year 10000")], ids=repr)
def test_an_answer_in_no_known_form_is_worth_a_retry_and_says_what_was_wrong(error: Exception) -> None:
    with pytest.raises(ClusterUnavailable) as failed, understood("squeue"):
        raise error
    assert str(failed.value) == (
        f"squeue gave an answer that is not in a known form ({type(error).__name__}: {error}); check that nothing but "
        "Slurm answers there."
    )


@given(st.builds(JobComment, run_id=st.text(), stage=st.text(), attempt=st.integers(), spec_hash=st.text()))
def test_a_comment_is_read_as_it_was_written(comment: JobComment) -> None:
    assert parse_comment(comment_form(comment)) == comment


@given(st.text() | st.none() | st.recursive(st.integers() | st.text(), st.lists).map(json.dumps))
def test_a_comment_of_another_program_is_ignored(text: str | None) -> None:
    assert parse_comment(text) is None


@pytest.mark.parametrize("name", ["error_number", "error_code", "errno"])
def test_an_errors_number_is_found_under_each_of_its_names(name: str) -> None:
    answer = {"errors": [{name: 2000, "error": "Invalid partition name specified"}]}
    assert complaints(answer) == [(2000, "Invalid partition name specified")]


def test_of_many_errors_and_long_ones_a_part_is_kept() -> None:
    found = complaints({"errors": [{"errno": number, "error": "x" * 1000} for number in range(9)]})
    assert [number for number, _ in found] == [0, 1, 2, 3, 4]
    assert {words for _, words in found} == {shortened("x" * 1000, 500)}


@pytest.mark.parametrize("answer", [{}, {"errors": None}, {"errors": "down"}])
def test_an_answer_without_errors_complains_of_nothing(answer: dict[str, Any]) -> None:
    assert complaints(answer) == []


def test_an_error_without_a_number_is_kept_with_its_words() -> None:
    assert complaints({"errors": [{"errno": "none", "description": "It is down."}, "?", {}]}) == [
        (-1, "It is down"),
        (-1, "no reason given"),
    ]
