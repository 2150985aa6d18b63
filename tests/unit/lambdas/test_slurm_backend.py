"""Jobs on Slurm: one for a name however often it is submitted, and known of after slurmctld has forgotten it."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from botocore.stub import Stubber

from lambdas.backends.slurm import cluster as slurm_cluster
from lambdas.backends.slurm import files as slurm_files
from lambdas.backends.slurm.cluster import SlurmCluster
from lambdas.backends.slurm.files import JobFiles
from lambdas.backends.slurm.job_script import render
from lambdas.handlers import backends, ensure_capacity, locate_rank0, poll_job, preflight, tear_down
from lambdas.logic.jobs import Job, job_of
from tests.fakes.runs import run_on
from tests.fakes.slurm import NOW, USER, FakeController, job_in_queue
from tests.unit.lambdas.conftest import ARTIFACT_BUCKET, CONTEXT, Aws
from tests.wording import wording
from trainflow.deployment.functions import SLURM
from trainflow.deployment.slurm import JobComment, Partition, Site, Submission
from trainflow.errors import (
    BackendNotInstalled,
    ClusterUnavailable,
    JobConflict,
    JobNotFound,
    PreflightFailed,
    ServiceUnavailable,
    StorageFailed,
    WorkerFailed,
)
from trainflow.observed.job import NO_RECORD, JobStatus
from trainflow.protocol.slurm_job import MAX_LOG_BYTES, MAX_RECORD_BYTES
from trainflow.workflow.pauses import watch_seconds
from trainflow.workflow.run import JobPhase, JobRef, Run, Stage

SITE = Site(shared_folder="/fsx", environment="/opt/venv", program_folder="/opt/trainflow")
URL = f"s3://{ARTIFACT_BUCKET}/runs/bert-slurm-0123456789ab/"


@pytest.fixture
def slurm() -> FakeController:
    return FakeController()


@pytest.fixture
def backend(aws: Aws, slurm: FakeController) -> SlurmCluster:
    return SlurmCluster(slurm, JobFiles(ARTIFACT_BUCKET), user=USER)


@pytest.fixture
def run() -> Run:
    return run_on("slurm", workload__image=None)


@pytest.fixture
def ref(run: Run) -> JobRef:
    return job(run).ref


def job(run: Run, *, attempt: int = 1, stage: Stage = Stage.TRAINING) -> Job:
    return job_of(run, stage, attempt, artifacts_url=URL)


def submission(run: Run, **which: Any) -> list[Submission]:
    return render(job(run, **which), SITE, artifacts_url=URL)


def leave(aws: Aws, key: str, content: str | bytes) -> None:
    body = content.encode() if isinstance(content, str) else content
    aws.client("s3").put_object(Bucket=ARTIFACT_BUCKET, Key=f"runs/bert-slurm-0123456789ab/{key}", Body=body)


def leave_record(aws: Aws, ref: JobRef, *, size: int = 0, **fields: Any) -> None:
    node = {"index": 0, "node": "n0", "exit_code": fields.get("exit_code", 0), "message": "{}", "finished_at": None}
    record = {
        "job_id": 1,
        "spec_hash": "feed",
        "exit_code": 0,
        "reason": None,
        "started_at": NOW.isoformat(),
        "ended_at": NOW.isoformat(),
        "nodes": [node],
        **fields,
    }
    leave(aws, f"jobs/{ref.name}.json", json.dumps(record).ljust(size))


def test_the_same_submit_twice_makes_one_job(backend: SlurmCluster, slurm: FakeController, run: Run) -> None:
    backend.submit(submission(run))
    backend.submit(submission(run))
    assert slurm.states() == [("bert-slurm-0123456789ab-training-1", "PENDING")]


def test_a_submit_whose_answer_got_lost_makes_one_job(backend: SlurmCluster, slurm: FakeController, run: Run) -> None:
    slurm.loses_answers = True
    with pytest.raises(ClusterUnavailable):
        backend.submit(submission(run))
    backend.submit(submission(run))
    assert len(slurm.queue) == 1


def test_of_two_submits_in_the_same_moment_the_first_job_stays(
    backend: SlurmCluster, slurm: FakeController, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    other, alone = SlurmCluster(slurm, JobFiles(ARTIFACT_BUCKET), user=USER), FakeController.submit

    def crossed(controller: FakeController, job: Submission, *, after: Any) -> None:
        monkeypatch.setattr(FakeController, "submit", alone)
        other.submit([job])  # after our request for the queue and before our submit
        alone(controller, job, after=after)

    monkeypatch.setattr(FakeController, "submit", crossed)
    backend.submit(submission(run))
    name = "bert-slurm-0123456789ab-training-1"
    assert slurm.states() == [(name, "PENDING"), (name, "CANCELLED")]


def test_a_job_of_that_name_from_another_spec_is_a_conflict(
    backend: SlurmCluster, slurm: FakeController, run: Run
) -> None:
    backend.submit(submission(run))
    conflict = (
        r"^A Slurm job named 'bert-slurm-0123456789ab-training-1' exists and was made from another specification\.$"
    )
    with pytest.raises(JobConflict, match=conflict):
        backend.submit(submission(run_on("slurm", workload__image=None, workload__arguments={"max_steps": 7})))


def test_a_job_of_that_name_of_another_user_is_not_ours(
    backend: SlurmCluster, slurm: FakeController, run: Run, ref: JobRef
) -> None:
    slurm.queue.append(job_in_queue(ref.name, user="ada"))
    backend.submit(submission(run))
    assert [job.user for job in slurm.queue] == ["ada", USER]
    backend.cancel("bert-slurm-0123456789ab")
    assert [job.states for job in slurm.queue] == [{"PENDING"}, {"CANCELLED"}]


def test_a_job_that_slurm_has_forgotten_is_not_submitted_again(
    backend: SlurmCluster, slurm: FakeController, aws: Aws, run: Run, ref: JobRef
) -> None:
    (wanted,) = submission(run)
    leave_record(aws, ref, spec_hash=wanted.comment.spec_hash)
    backend.submit([wanted])
    assert slurm.queue == []
    leave_record(aws, ref, spec_hash="another")
    with pytest.raises(JobConflict):
        backend.submit([wanted])


def test_a_restart_waits_until_the_try_before_has_ended(backend: SlurmCluster, slurm: FakeController, run: Run) -> None:
    backend.submit(submission(run, stage=Stage.PRECOMPILE))
    backend.submit(submission(run))
    slurm.change(2, states=frozenset({"COMPLETING"}))
    backend.submit(submission(run, attempt=2))
    assert slurm.waits_for == {1: [], 2: [], 3: [2]}


def test_watching_a_job_costs_one_call_of_constant_size(
    backend: SlurmCluster, slurm: FakeController, run: Run, ref: JobRef
) -> None:
    backend.submit(submission(run))
    backend.status(ref)
    slurm.asked.clear()
    slurm.change(1, states=frozenset({"RUNNING"}), started_at=NOW)
    assert backend.status(ref).phase is JobPhase.RUNNING
    assert slurm.asked == ["job"]


def test_a_number_that_slurm_has_given_to_another_users_job_is_not_trusted(
    backend: SlurmCluster, slurm: FakeController, run: Run, ref: JobRef
) -> None:
    backend.submit(submission(run))
    assert backend.status(ref).phase is JobPhase.PENDING
    slurm.queue = [job_in_queue("somebody-else", 1)]
    with pytest.raises(JobNotFound):
        backend.status(ref)


def test_a_forgotten_job_is_known_by_its_record(backend: SlurmCluster, aws: Aws, ref: JobRef) -> None:
    with pytest.raises(JobNotFound) as missing:
        backend.status(ref)
    assert str(missing.value) == (f"The job '{ref.name}' is not in Slurm's queue (any more), and has left no record.")
    leave_record(aws, ref)
    assert backend.status(ref).phase is JobPhase.SUCCEEDED
    assert backend.rank0(ref) == f"{ref.name}-0"
    leave_record(aws, ref, exit_code=143, reason="DeadlineExceeded")
    assert (backend.status(ref).phase, backend.status(ref).failure_reason) == (None, "DeadlineExceeded")


def test_a_program_that_ended_well_counts_whatever_happened_to_its_job_afterwards(
    backend: SlurmCluster, slurm: FakeController, aws: Aws, run: Run, ref: JobRef
) -> None:
    backend.submit(submission(run))
    slurm.change(1, states=frozenset({"NODE_FAIL"}))
    assert backend.status(ref).failure_reason == "NodeLost"
    leave_record(aws, ref)
    assert backend.status(ref).phase is JobPhase.SUCCEEDED


def test_a_record_of_a_failure_counts_less_than_slurms_reason_unless_it_is_of_another_job(
    backend: SlurmCluster, slurm: FakeController, aws: Aws, run: Run, ref: JobRef
) -> None:
    backend.submit(submission(run))
    slurm.change(1, states=frozenset({"NODE_FAIL"}))
    leave_record(aws, ref, job_id=1, exit_code=1)
    assert backend.status(ref).failure_reason == "NodeLost"
    leave_record(aws, ref, job_id=2, exit_code=1)
    assert backend.status(ref).failure_reason != "NodeLost"


def test_a_reason_in_the_record_is_more_than_slurms_state(
    backend: SlurmCluster, slurm: FakeController, aws: Aws, run: Run, ref: JobRef
) -> None:
    """Slurm knows that the job was cancelled, and the record that it was at its time limit."""
    backend.submit(submission(run))
    slurm.change(1, states=frozenset({"CANCELLED"}))
    leave_record(aws, ref, exit_code=143, reason="DeadlineExceeded")
    assert backend.status(ref) == JobStatus(
        phase=None,
        failure_reason="DeadlineExceeded",
        failure_message="ended with exit code 143",
        submitted_at=NOW,
        started_at=NOW,
    )
    slurm.change(1, states=frozenset({"COMPLETED"}))
    assert backend.status(ref).phase is JobPhase.SUCCEEDED


@pytest.mark.parametrize(
    ("state", "reason", "expected"),
    [
        ("FAILED", None, NO_RECORD),
        ("FAILED", "NonZeroExitCode", NO_RECORD),
        ("FAILED", "JobLaunchFailure", "JobFailed"),
        ("TIMEOUT", None, "DeadlineExceeded"),
    ],
)
def test_a_record_is_missed_only_where_the_program_itself_has_failed(
    backend: SlurmCluster,
    slurm: FakeController,
    run: Run,
    ref: JobRef,
    state: str,
    reason: str | None,
    expected: str,
) -> None:
    backend.submit(submission(run))
    slurm.change(1, states=frozenset({state}), reason=reason, started_at=NOW)
    found = backend.status(ref)
    assert (found.phase, found.failure_reason, found.started_at) == (None, expected, NOW)
    if expected == NO_RECORD:
        assert found.failure_message == (
            wording(
                "slurm_backend.a_record_is_missed_only_where_the_program_itself_has_failed", "ENVIRONMENT", "artifact"
            )
        )


def test_a_record_without_a_reason_gives_the_exit_code(backend: SlurmCluster, aws: Aws, ref: JobRef) -> None:
    leave_record(aws, ref, exit_code=3)
    assert backend.status(ref) == JobStatus(
        phase=None,
        failure_reason="JobFailed",
        failure_message="ended with exit code 3",
        submitted_at=NOW,
        started_at=NOW,
    )
    leave_record(aws, ref)
    assert backend.status(ref) == JobStatus(phase=JobPhase.SUCCEEDED, submitted_at=NOW, started_at=NOW)


def test_before_any_job_has_ended_a_run_has_no_failed_nodes_and_no_last_lines(backend: SlurmCluster) -> None:
    assert backend.failed_pods_of_run("bert-slurm-0123456789ab") == []
    assert backend.pods_to_diagnose("bert-slurm-0123456789ab") == []


def test_of_many_last_lines_a_few_are_read(
    backend: SlurmCluster, aws: Aws, ref: JobRef, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slurm_cluster, "MAX_PODS_TO_DIAGNOSE", 2)
    for index in range(3):
        leave(aws, f"tails/{ref.name}-{index}.log", "")
    assert len(backend.pods_to_diagnose("bert-slurm-0123456789ab")) == 2


def test_a_bucket_that_is_throttled_is_named_with_the_action(aws: Aws, monkeypatch: pytest.MonkeyPatch) -> None:
    files, s3 = JobFiles(ARTIFACT_BUCKET), aws.client("s3")
    monkeypatch.setattr(slurm_files, "client", lambda _service: s3)
    for ask in (
        lambda: files.failed_nodes("bert-slurm-0123456789ab"),
        lambda: list(files.log("bert-slurm-0123456789ab-training-1", since=None)),
    ):
        with Stubber(s3) as stub:
            stub.add_client_error("list_objects_v2", "SlowDown")
            with pytest.raises(ServiceUnavailable, match=r"^s3:ListObjectsV2 answered SlowDown\.$"):
                ask()


def test_a_pods_name_without_a_number_has_no_last_lines(backend: SlurmCluster, ref: JobRef) -> None:
    assert list(backend.read_log(f"{ref.name}-x", tail_lines=1)) == []


def test_a_job_that_could_not_even_leave_a_record_says_what_to_check(
    deployed: None, backend: SlurmCluster, slurm: FakeController, run: Run, ref: JobRef
) -> None:
    backend.submit(submission(run))
    slurm.change(1, states=frozenset({"FAILED"}), reason="NonZeroExitCode")
    sentence = "ended with an error and without a record: its nodes have to reach SLURM_SHARED_FOLDER"
    with pytest.raises(StorageFailed, match=sentence):  # not restarted: the nodes would lack the same again
        poll_job.lambda_handler(event(run, ref, progress={}), CONTEXT)
    with pytest.raises(WorkerFailed, match=sentence):
        poll_job.lambda_handler(event(run, ref, progress={"last_step": 3}), CONTEXT)


def test_a_probe_that_leaves_no_record_is_one_of_the_problems_that_preflight_lists(
    deployed: None, backend: SlurmCluster, slurm: FakeController, run: Run
) -> None:
    slurm.known_partitions.append(Partition(name="trn1", num_nodes=2))
    asked = run.model_copy(update={"spec": run.spec.model_copy(update={"dataset": None})}, deep=True)
    backend.submit(submission(asked, stage=Stage.PREFLIGHT))
    slurm.change(1, states=frozenset({"FAILED"}), reason="NonZeroExitCode")
    named = r"workload.python_environment: .* without a record.* SLURM_SHARED_FOLDER"
    with pytest.raises(PreflightFailed, match=named):
        preflight.lambda_handler({"run": asked.model_dump(mode="json")}, CONTEXT)


def test_who_cancelled_a_job_is_asked_for(backend: SlurmCluster, slurm: FakeController, run: Run, ref: JobRef) -> None:
    backend.submit(submission(run))
    slurm.canceller = "ada"
    slurm.cancel(1)
    assert backend.status(ref).failure_message == "was cancelled by the user 'ada'"


def test_rank_0_is_on_the_first_node_once_the_job_runs(
    backend: SlurmCluster, slurm: FakeController, run: Run, ref: JobRef
) -> None:
    assert backend.rank0(ref) is None
    backend.submit(submission(run))
    assert backend.rank0(ref) is None
    slurm.change(1, states=frozenset({"RUNNING"}))
    assert backend.rank0(ref) == f"{ref.name}-0"


def test_a_result_is_there_when_the_program_has_ended(backend: SlurmCluster, aws: Aws, ref: JobRef) -> None:
    assert backend.result(ref) is None
    node = {"index": 0, "node": "n0", "message": '{"result": {"steps": 3}}'}
    leave_record(aws, ref, nodes=[node])
    assert backend.result(ref) == backend.result(ref, pod=f"{ref.name}-0") == '{"result": {"steps": 3}}'
    assert backend.result(ref, pod=f"{ref.name}-1") is None


def test_what_is_no_record_is_none(backend: SlurmCluster, aws: Aws, ref: JobRef) -> None:
    leave(aws, f"jobs/{ref.name}.json", "{}")
    assert backend.failed_pods(ref) == []
    assert backend.failed_pods_of_run("bert-slurm-0123456789ab") == []


def test_what_is_too_large_to_be_a_record_is_none(backend: SlurmCluster, aws: Aws, ref: JobRef) -> None:
    """Every program of a run may write objects there, and they have any size."""
    failed = {"index": 0, "node": "n0", "exit_code": 1, "message": "bad"}
    leave_record(aws, ref, exit_code=1, nodes=[failed], size=MAX_RECORD_BYTES + 1)
    assert backend.failed_pods_of_run("bert-slurm-0123456789ab") == []
    leave_record(aws, ref, exit_code=1, nodes=[failed], size=MAX_RECORD_BYTES)
    assert [pod.termination_message for pod in backend.failed_pods_of_run("bert-slurm-0123456789ab")] == ["bad"]


def test_a_job_has_no_log_before_its_program_prints(backend: SlurmCluster, ref: JobRef) -> None:
    assert list(backend.read_log(f"{ref.name}-0")) == []


def test_of_a_log_that_is_too_large_the_beginning_is_read(backend: SlurmCluster, aws: Aws, ref: JobRef) -> None:
    line = f"{NOW.isoformat(timespec='microseconds')} {'x' * 2**20}\n"
    leave(aws, f"logs/{ref.name}/{10**15:020d}-{1:015d}.log", line * 40)
    read = [len(line.text) for line in backend.read_log(f"{ref.name}-0")]
    assert sum(read) < MAX_LOG_BYTES < 40 * 2**20
    assert read[:34] == [2**20] * 34


def test_the_failed_nodes_of_a_run_and_their_last_lines_are_found(backend: SlurmCluster, aws: Aws, ref: JobRef) -> None:
    nodes = [{"index": 0, "node": "n0", "exit_code": 0}, {"index": 2, "node": "n2", "exit_code": 1, "message": "bad"}]
    leave_record(aws, ref, exit_code=1, nodes=nodes)
    leave(
        aws, f"tails/{ref.name}-2.log", "2026-11-21T12:00:00.000000+00:00 one\n2026-11-21T12:00:00.000000+00:00 two\n"
    )
    (pod,) = backend.failed_pods_of_run("bert-slurm-0123456789ab")
    assert (pod.name, pod.node, pod.exit_code, pod.termination_message) == (f"{ref.name}-2", "n2", 1, "bad")
    assert [line.text for line in backend.read_log(pod.name, tail_lines=1)] == ["two"]
    assert backend.pods_to_diagnose("bert-slurm-0123456789ab") == [f"{ref.name}-2"]
    assert list(backend.read_log(f"{ref.name}-1", tail_lines=1)) == []


def test_cancelling_a_run_ends_all_of_its_jobs_and_no_other(
    backend: SlurmCluster, slurm: FakeController, run: Run
) -> None:
    backend.submit(submission(run))
    backend.submit(submission(run, attempt=2))
    slurm.queue.append(job_in_queue("bert-slurm-ffffffffffff-training-1", 3))
    slurm.change(1, states=frozenset({"COMPLETED"}))
    assert backend.cancel("bert-slurm-0123456789ab") == ["bert-slurm-0123456789ab-training-2"]
    assert [state for _, state in slurm.states()] == ["COMPLETED", "CANCELLED", "PENDING"]
    assert backend.cancel("bert-slurm-0123456789ab") == []


# --- The log in segments -------------------------------------------------------------------------------------------


def stamps(number: int) -> datetime:
    return NOW + timedelta(milliseconds=300 * number)


def leave_log(aws: Aws, ref: JobRef, *, lines: int, segment: int) -> None:
    """Lines 300 ms apart, some to a segment."""
    for first in range(0, lines, segment):
        some = range(first, min(first + segment, lines))
        stamp = int((stamps(some[-1]) - datetime.fromtimestamp(0, UTC)).total_seconds() * 1_000_000)
        text = "".join(f"{stamps(each).isoformat(timespec='microseconds')} line {each}\n" for each in some)
        leave(aws, f"logs/{ref.name}/{stamp:020d}-{some[-1]:015d}.log", text)


@pytest.mark.parametrize("segment", [1, 4, 100])
def test_a_log_read_from_a_second_on_has_every_line_of_that_second_and_none_before(
    backend: SlurmCluster, aws: Aws, ref: JobRef, segment: int
) -> None:
    leave_log(aws, ref, lines=40, segment=segment)
    pod = f"{ref.name}-0"
    assert [line.text for line in backend.read_log(pod)] == [f"line {each}" for each in range(40)]
    since = NOW + timedelta(seconds=6)
    assert [line.logged_at for line in backend.read_log(pod, since=since)] == [stamps(each) for each in range(20, 40)]


def test_older_segments_are_not_even_asked_for(
    backend: SlurmCluster, aws: Aws, ref: JobRef, monkeypatch: pytest.MonkeyPatch
) -> None:
    leave_log(aws, ref, lines=40, segment=4)
    asked: list[str] = []
    get = JobFiles._get
    monkeypatch.setattr(JobFiles, "_get", lambda files, key: asked.append(key) or get(files, key))
    list(backend.read_log(f"{ref.name}-0", since=stamps(37).replace(microsecond=0)))
    assert len(asked) == 1


def test_a_line_comes_back_as_it_was_printed(backend: SlurmCluster, aws: Aws, ref: JobRef) -> None:
    lines = ["", " spaces  ", "50%\r100%", "\u2028\x0b\x1c", "2026-11-21T12:00:00+00:00 not its time"]
    text = "".join(f"{NOW.isoformat(timespec='microseconds')} {line}\n" for line in lines)
    leave(aws, f"logs/{ref.name}/{10**15:020d}-{1:015d}.log", text)
    assert [line.text for line in backend.read_log(f"{ref.name}-0")] == lines


def test_a_log_is_followed_until_its_job_has_ended(
    backend: SlurmCluster, slurm: FakeController, run: Run, aws: Aws, ref: JobRef, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a cancelled job logs while its program ends is shipped before Slurm counts the job as over."""
    backend.submit(submission(run))
    slurm.change(1, states=frozenset({"RUNNING", "COMPLETING"}))

    def ends(_seconds: float) -> None:
        leave_log(aws, ref, lines=8, segment=4)
        slurm.change(1, states=frozenset({"CANCELLED"}))

    monkeypatch.setattr(slurm_cluster.time, "sleep", ends)
    lines = backend.follow_log(f"{ref.name}-0", since=None, longest_seconds=60)
    assert [line.text for line in lines] == [f"line {each}" for each in range(8)]


# --- Through the handlers ------------------------------------------------------------------------------------------


@pytest.fixture
def deployed(aws: Aws, slurm: FakeController, monkeypatch: pytest.MonkeyPatch) -> None:
    def connect(_url: str, *, bucket: str, **_options: str) -> SlurmCluster:
        return SlurmCluster(slurm, JobFiles(bucket), user=USER)

    monkeypatch.setattr(slurm_cluster, "connect", connect)
    environment = {"SLURM_SHARED_FOLDER": SITE.shared_folder, "SLURM_API_URL": "http://slurm", "SLURM_PROPERTIES": "{}"}
    for name in SLURM:
        monkeypatch.setenv(name, environment.get(name, ""))


def event(run: Run, ref: JobRef, **more: Any) -> dict[str, Any]:
    return {"run": run.model_dump(mode="json"), "job": ref.model_dump(mode="json"), **more}


def test_the_workflow_selects_slurm_by_the_runs_backend(
    deployed: None, slurm: FakeController, backend: SlurmCluster, run: Run, ref: JobRef
) -> None:
    backend.submit(submission(run))
    assert locate_rank0.lambda_handler(event(run, ref), CONTEXT) == {"pod": None}
    slurm.change(1, states=frozenset({"RUNNING"}), started_at=datetime.now(UTC))
    polled = poll_job.lambda_handler(event(run, ref, progress={}), CONTEXT)
    pause = watch_seconds(datetime.now(UTC) - run.started_at, shortest=run.spec.limits.poll_seconds)
    assert (polled["phase"], polled["wait_seconds"]) == ("running", pause)
    torn_down = tear_down.lambda_handler({**event(run, ref), "job": None}, CONTEXT)
    assert (torn_down["deleted_jobs"], torn_down["nodes_released"]) == ([ref.name], 0)


def test_the_workflow_is_told_of_the_job_and_the_part_that_it_asks_about(
    deployed: None, slurm: FakeController, backend: SlurmCluster, aws: Aws, run: Run, ref: JobRef
) -> None:
    asked = backends.connect("slurm")
    backend.submit(submission(run))
    slurm.change(1, reason="PartitionTimeLimit")
    assert asked.pending_reason(ref) == "its time limit is above its partition's: PartitionTimeLimit"
    nodes = [{"index": each, "node": f"n{each}", "exit_code": each, "message": f"of {each}"} for each in (0, 1)]
    leave_record(aws, ref, exit_code=1, nodes=nodes)
    assert (asked.result(ref), asked.result(ref, pod=f"{ref.name}-1")) == ("of 0", "of 1")
    assert [pod.name for pod in asked.failed_pods(ref)] == [f"{ref.name}-1"]
    leave(aws, f"tails/{ref.name}-1.log", f"{NOW.isoformat(timespec='microseconds')} last\n")
    assert asked.pods_to_diagnose(run.run_id) == [f"{ref.name}-1"]
    assert [line.text for line in asked.read_log(f"{ref.name}-1", tail_lines=1)] == ["last"]


def test_nodes_are_slurms_to_start(deployed: None, slurm: FakeController, run: Run) -> None:
    asked = {"run": run.model_dump(mode="json"), "waiting_since": NOW.isoformat()}
    ready = {"ready": True, "nodes_ready": 2, "nodes_wanted": 2, "wait_seconds": 0}
    found = ensure_capacity.lambda_handler(asked, CONTEXT)
    assert {key: found[key] for key in ready} == ready
    assert found["next_run"] is None
    assert slurm.asked == []


def test_a_partition_is_found_by_its_name_or_by_being_the_default(backend: SlurmCluster, slurm: FakeController) -> None:
    slurm.known_partitions = [Partition(name="a", num_nodes=1), Partition(name="b", num_nodes=2, is_default=True)]
    found = [backend.partition(name) for name in ("a", None, "c")]
    assert [partition and partition.name for partition in found] == ["a", "b", None]


def test_a_cluster_that_does_not_tell_of_its_partitions_is_not_asked_to_boot_a_node_for_the_probe(
    deployed: None, slurm: FakeController, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def silent() -> list[Partition]:
        raise ClusterUnavailable("slurmrestd did not answer")

    monkeypatch.setattr(slurm, "partitions", silent)
    with pytest.raises(ClusterUnavailable):
        preflight.lambda_handler({"run": run.model_dump(mode="json")}, CONTEXT)
    assert slurm.queue == []


def test_a_deployment_without_slurm_is_a_named_error(aws: Aws, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in SLURM:
        monkeypatch.setenv(name, "")
    with pytest.raises(BackendNotInstalled) as missing:
        backends.connect("slurm").cancel("bert-slurm-0123456789ab")
    assert str(missing.value) == wording(
        "slurm_backend.a_deployment_without_slurm_is_a_named_error", "compute.backend", "'slurm'"
    )


def test_what_runs_hold_are_their_jobs_that_have_not_ended_and_no_job_of_others() -> None:
    controller = FakeController()
    comment = JobComment(run_id="bert", stage="training", attempt=1, spec_hash="0")
    small = JobComment(run_id="bert", stage="publish", attempt=1, spec_hash="0")
    controller.queue = [
        job_in_queue("bert-training-1", 1, comment=comment),
        job_in_queue("bert-publish-1", 2, comment=small),
        job_in_queue("bert-stage-1", 3, comment=small, states=frozenset({"COMPLETED"})),
        job_in_queue("of-a-person", 4),
    ]
    cluster = SlurmCluster(controller, JobFiles("artifacts"), user=USER)
    assert [(held.thing.name, held.run_id, held.num_nodes) for held in cluster.held()] == [
        ("bert-training-1", "bert", None),
        ("bert-publish-1", "bert", 0),
    ]
    cluster.cancel_named("bert-training-1")
    assert [held.thing.name for held in cluster.held()] == ["bert-publish-1"]


def test_a_plan_shows_the_script_that_sbatch_would_be_given(
    aws: Aws, slurm: FakeController, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without Slurm in the deployment, the plan says so and shows nothing."""
    spec = run.spec.model_dump(mode="json")
    request = {
        "spec": spec,
        "execution_name": run.run_id,
        "execution_arn": run.execution_arn,
        "started_at": run.started_at.isoformat(),
    }
    found = preflight.lambda_handler({"plan": request}, CONTEXT)
    assert (found["jobs"], found["problems"]) == (
        [],
        [wording("slurm_backend.a_plan_shows_the_script_that_sbatch_would_be_given", "compute.backend", "'slurm'")],
    )
    monkeypatch.setenv("SLURM_API_URL", "https://slurm:6820")
    monkeypatch.setattr(
        slurm_cluster, "connect", lambda *_, **__: SlurmCluster(slurm, JobFiles(ARTIFACT_BUCKET), user=USER)
    )
    found = preflight.lambda_handler({"plan": request}, CONTEXT)
    assert [job["stage"] for job in found["jobs"]] == [
        stage.value for stage in Stage if stage is not Stage.PRECOMPILE or run.spec.precompiles
    ]
    (training,) = next(job["objects"] for job in found["jobs"] if job["stage"] == "training")
    assert training["script"].startswith("#!/bin/bash")
    assert training["comment"]["run_id"] == run.run_id
    assert slurm.jobs() == []


def test_a_plan_of_a_wrong_spec_names_the_field(aws: Aws, run: Run) -> None:
    request = {
        "spec": {"version": 1},
        "execution_name": run.run_id,
        "execution_arn": run.execution_arn,
        "started_at": run.started_at.isoformat(),
    }
    found = preflight.lambda_handler({"plan": request}, CONTEXT)
    assert found["jobs"] == []
    (problem,) = found["problems"]
    assert "name" in problem
