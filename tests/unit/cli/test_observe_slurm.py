"""Jobs on Slurm are seen through what they leave in S3."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError
from moto import mock_aws

from trainflow.client.observe import slurm as observe_slurm
from trainflow.client.observe.pods import PodWatcher
from trainflow.client.observe.slurm import SlurmJobs
from trainflow.client.refusals import OR_OF_OBJECTS
from trainflow.errors import TrainflowError
from trainflow.observed.pod import Pod, read_pod
from trainflow.protocol.result import read_result
from trainflow.protocol.slurm_job import MAX_RECORD_BYTES

BUCKET, RUN, JOB = "artifacts", "demo-0123456789ab", "demo-0123456789ab-training-1"
SECOND = 1_000_000


@pytest.fixture
def s3(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    with mock_aws():
        client = boto3.client("s3", region_name="us-east-1")
        client.create_bucket(Bucket=BUCKET)
        yield client


@pytest.fixture
def jobs(s3: Any) -> SlurmJobs:
    return SlurmJobs(s3, bucket=BUCKET, run_id=RUN)


def write_segment(s3: Any, second: int, *texts: str) -> None:
    stamp = f"1970-01-01T00:00:{second:02d}.000000+00:00"
    body = "".join(f"{stamp} {text}\n" for text in texts)
    s3.put_object(Bucket=BUCKET, Key=f"runs/{RUN}/logs/{JOB}/{second * SECOND:020d}-{second:015d}.log", Body=body)


def write_record(s3: Any, *nodes: dict[str, Any], exit_code: int, others: Sequence[dict[str, Any]] = ()) -> None:
    record = {
        "job_id": 7,
        "spec_hash": "0" * 16,
        "exit_code": exit_code,
        "started_at": "1970-01-01T00:00:01Z",
        "ended_at": "1970-01-01T00:01:00Z",
        "nodes": nodes,
        "others": others,
    }
    s3.put_object(Bucket=BUCKET, Key=f"runs/{RUN}/jobs/{JOB}.json", Body=json.dumps(record))


def views(jobs: SlurmJobs) -> list[Pod]:
    return [read_pod(pod) for pod in jobs.list_pods("")["items"]]


def test_a_run_whose_jobs_have_said_nothing_has_no_pods(jobs: SlurmJobs) -> None:
    assert views(jobs) == []


def test_a_job_that_has_said_something_runs(s3: Any, jobs: SlurmJobs) -> None:
    write_segment(s3, 2, "hello")
    (pod,) = views(jobs)
    assert (pod.name, pod.stage, pod.attempt, pod.index, pod.job_name) == (f"{JOB}-0", "training", 1, 0, JOB)
    assert (pod.phase, pod.has_log, pod.finished) == ("Running", True, False)


@pytest.mark.parametrize("name", ["x", "a-b", f"{RUN}-training-x", f"other-{JOB}", f"{RUN}-training-1-2"])
def test_what_a_program_has_written_beside_the_jobs_is_no_job(s3: Any, jobs: SlurmJobs, name: str) -> None:
    write_segment(s3, 2, "hello")
    for key in (f"logs/{name}/{2 * SECOND:020d}-{2:015d}.log", f"jobs/{name}.json"):
        s3.put_object(Bucket=BUCKET, Key=f"runs/{RUN}/{key}", Body=b"1970-01-01T00:00:02.000000+00:00 hello\n")
    assert [pod.job_name for pod in views(jobs)] == [JOB]


def test_a_job_that_has_ended_shows_its_first_node_and_those_that_failed(s3: Any, jobs: SlurmJobs) -> None:
    first = {"index": 0, "node": "n0", "exit_code": None, "message": json.dumps({"result": {"steps": 5}})}
    failed = {"index": 3, "node": "n3", "exit_code": 9, "message": "no memory", "finished_at": "1970-01-01T00:00:50Z"}
    write_segment(s3, 2, "hello")
    write_record(s3, first, failed, exit_code=9)
    pods = views(jobs)
    assert [(pod.index, pod.node, pod.phase, pod.exit_code) for pod in pods] == [
        (0, "n0", "Failed", 9),
        (3, "n3", "Failed", 9),
    ]
    assert read_result(pods[0].termination_message) == {"result": {"steps": 5}}
    assert pods[1].message == "no memory"


def test_a_job_that_has_ended_shows_all_of_its_nodes_in_their_order(s3: Any, jobs: SlurmJobs) -> None:
    first, killed = {"index": 0, "node": "n0", "exit_code": 0}, {"index": 2, "node": ""}
    failed = {"index": 3, "node": "n3", "exit_code": 9}
    write_record(s3, first, failed, others=[{"index": 1, "node": "n1", "exit_code": 0}, killed], exit_code=9)
    assert [(pod.index, pod.node, pod.phase, pod.exit_code) for pod in views(jobs)] == [
        (0, "n0", "Succeeded", 0),
        (1, "n1", "Succeeded", 0),
        (2, None, "Failed", 9),
        (3, "n3", "Failed", 9),
    ]


def test_what_is_too_large_to_be_a_record_is_none(s3: Any, jobs: SlurmJobs) -> None:
    """Every program of a run may write objects there, and they have any size."""
    write_record(s3, {"index": 0, "node": "n0", "exit_code": 0}, exit_code=0)
    key = f"runs/{RUN}/jobs/{JOB}.json"
    record = s3.get_object(Bucket=BUCKET, Key=key)["Body"].read()
    s3.put_object(Bucket=BUCKET, Key=key, Body=record.ljust(MAX_RECORD_BYTES))
    assert len(views(jobs)) == 1
    s3.put_object(Bucket=BUCKET, Key=key, Body=record.ljust(MAX_RECORD_BYTES + 1))
    assert views(jobs) == []


def test_of_a_log_that_is_too_large_the_beginning_is_read(
    s3: Any, jobs: SlurmJobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_segment(s3, 1, "one", "two", "three")
    monkeypatch.setattr(observe_slurm, "MAX_LOG_BYTES", len("1970-01-01T00:00:01.000000+00:00 one\n") * 2)
    lines = list(jobs.pod_log(f"{JOB}-0", None, since=None, follow=False))
    assert [line.split()[1:] for line in lines] == [["one"], ["two"]]


def test_no_node_finishes_before_it_starts(s3: Any, jobs: SlurmJobs) -> None:
    """Slurm counts whole seconds, so a job that ends at once may be recorded to begin behind its end."""
    early = {"index": 0, "node": "n0", "exit_code": 0, "finished_at": "1970-01-01T00:00:00.5Z"}
    write_record(s3, early, exit_code=0)
    (pod,) = views(jobs)
    assert pod.started_at is not None
    assert pod.started_at == pod.finished_at


def test_a_watch_yields_the_changes_since_the_list(s3: Any, jobs: SlurmJobs, monkeypatch: Any) -> None:
    monkeypatch.setattr("trainflow.client.observe.slurm.POLL_SECONDS", 0.01)
    seen: list[Pod] = []
    jobs.list_pods("")
    write_segment(s3, 2, "hello")
    stream = jobs.watch_pods("", "0")
    for line in stream:
        seen.append(read_pod(json.loads(line)["object"]))
        if seen[-1].finished:
            stream.close()
        else:
            write_record(s3, {"index": 0, "node": "n0", "exit_code": 0}, exit_code=0)
    assert [pod.phase for pod in seen] == ["Running", "Succeeded"]


def test_a_log_is_read_from_a_second_on_and_each_segment_once(s3: Any, jobs: SlurmJobs) -> None:
    write_segment(s3, 2, "early")
    write_segment(s3, 3, "late", "later")
    texts = [line.partition(" ")[2] for line in jobs.pod_log(f"{JOB}-0", None, since=None, follow=False)]
    assert texts == ["early\n", "late\n", "later\n"]
    newer = jobs.pod_log(f"{JOB}-0", None, since="1970-01-01T00:00:03Z", follow=False)
    assert [line.partition(" ")[2] for line in newer] == ["late\n", "later\n"]


def test_a_followed_log_continues_with_the_next_segment(s3: Any, jobs: SlurmJobs, monkeypatch: Any) -> None:
    monkeypatch.setattr("trainflow.client.observe.slurm.POLL_SECONDS", 0.01)
    write_segment(s3, 2, "first")
    stream, texts = jobs.pod_log(f"{JOB}-0", None, since=None, follow=True), []
    for line in stream:
        texts.append(line.partition(" ")[2])
        if len(texts) == 2:
            stream.close()
        else:
            write_segment(s3, 4, "second")
    assert texts == ["first\n", "second\n"]


def test_of_another_node_there_are_its_last_lines(s3: Any, jobs: SlurmJobs) -> None:
    s3.put_object(Bucket=BUCKET, Key=f"runs/{RUN}/tails/{JOB}-3.log", Body="1970-01-01T00:00:50+00:00 Killed\n")
    assert [*jobs.pod_log(f"{JOB}-3", None, since=None, follow=True)] == ["1970-01-01T00:00:50+00:00 Killed\n"]
    assert [*jobs.pod_log(f"{JOB}-4", None, since=None, follow=True)] == []


def test_the_watcher_that_follows_pods_follows_these(s3: Any, jobs: SlurmJobs, monkeypatch: Any) -> None:
    monkeypatch.setattr("trainflow.client.observe.slurm.POLL_SECONDS", 0.01)
    ended = threading.Event()
    watcher = PodWatcher(jobs, RUN, lambda pod: ended.set() if pod.finished else None)
    write_segment(s3, 2, "hello")
    watcher.start()
    write_record(s3, {"index": 0, "node": "n0", "exit_code": 0}, exit_code=0)
    assert ended.wait(10)
    watcher.stop()
    assert [pod.phase for pod in watcher.pods()] == ["Succeeded"]


def refuse(s3: Any, operation: str, code: str) -> None:
    """Let S3 answer an operation with this code from now on."""

    def refused(**_: object) -> None:
        raise ClientError({"Error": {"Code": code, "Message": "User x is not authorized"}}, operation)

    s3.meta.events.register(f"before-call.s3.{operation}", refused)


def asked(jobs: SlurmJobs) -> tuple[str, str]:
    """What the view of the pods says, and what their log says."""
    watcher = PodWatcher(jobs, RUN, lambda _pod: None)
    watcher.read()
    with pytest.raises(TrainflowError) as refused:
        list(jobs.pod_log(f"{JOB}-0", None, since=None, follow=False))
    return str(watcher.trouble), str(refused.value)


@pytest.mark.parametrize(
    ("operation", "action"),
    [
        ("ListObjectsV2", "s3:ListBucket"),
        ("GetObject", f"s3:GetObject{OR_OF_OBJECTS}"),
    ],
)
def test_a_missing_permission_is_the_sentence_that_names_it(
    s3: Any, jobs: SlurmJobs, operation: str, action: str
) -> None:
    write_segment(s3, 1, "began")
    refuse(s3, operation, "AccessDenied")
    sentence = f"These credentials may not call {action}: User x is not authorized."
    assert asked(jobs) == (sentence, sentence)


def test_s3_that_does_not_answer_well_is_one_sentence(s3: Any, jobs: SlurmJobs) -> None:
    write_segment(s3, 1, "began")
    refuse(s3, "GetObject", "InternalError")
    watched, log = asked(jobs)
    answered = "cannot be read: GetObject answered InternalError: User x is not authorized."
    assert watched == f"s3://{BUCKET}/runs/{RUN}/jobs/{JOB}.json {answered}"
    assert log.endswith(answered)
