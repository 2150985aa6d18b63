"""A Slurm cluster: jobs in slurmctld's queue, and their records and logs in S3.

slurmctld drops a job minutes after its end (MinJobAge), and knows neither its results nor its output. The job's record
has its results and its end.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from functools import lru_cache

from lambdas.backends.slurm.controller import Controller
from lambdas.backends.slurm.files import JobFiles, failed_pods, peer_pods, pod_name
from lambdas.backends.slurm.slurmrestd import RestController
from lambdas.backends.slurm.ssm import SCHEME, SsmController
from lambdas.backends.slurm.status import is_over, job_status, pending_reason, was_cancelled
from trainflow.deployment.slurm import JobComment, Partition, SlurmJob, Submission, default_partition
from trainflow.errors import JobConflict, JobNotFound
from trainflow.observed.job import NO_RECORD, JobStatus
from trainflow.observed.pod import Pod
from trainflow.protocol.slurm_job import JobRecord
from trainflow.workflow.leftovers import SLURM_JOB, Held, HeldObject
from trainflow.workflow.log_line import LogLine
from trainflow.workflow.run import JobPhase, JobRef, Stage

MAX_PODS_TO_DIAGNOSE = 10

END_POLL_SECONDS = 2.0
"""Pause between two questions whether a job that was cancelled has ended."""

WITHOUT_RECORD = (
    "ended with an error and without a record: its nodes have to reach SLURM_SHARED_FOLDER, SLURM_ENVIRONMENT and the "
    "artifact bucket"
)


@lru_cache(maxsize=2)
def connect(url: str, *, key_secret: str, user: str, claims: str, bucket: str) -> SlurmCluster:
    """A connection to the cluster, kept as long as the Lambda is warm.

    Args:
        url: URL of slurmrestd; or `ssm://<instance id>` of a machine with Slurm's commands, if slurmrestd is not used.
        key_secret: Secrets Manager's name of the key for slurmrestd's tokens.
        user: The user as whom the jobs run.
        claims: JSON object of further claims of the tokens; may be empty.
        bucket: Bucket of the artifacts.
    """
    controller: Controller
    if url.startswith(SCHEME):
        controller = SsmController(url.removeprefix(SCHEME), user=user)
    else:
        controller = RestController(url, key_secret=key_secret, user=user, claims=json.loads(claims or "{}"))
    return SlurmCluster(controller, JobFiles(bucket), user=user)


class SlurmCluster:
    """Jobs of one user of the cluster."""

    def __init__(self, controller: Controller, files: JobFiles, *, user: str) -> None:
        self._controller, self._files, self._user = controller, files, user
        self._ids: dict[str, int] = {}
        """Slurm's ids of jobs by their names, so that a job is searched for once."""

    def submit(self, objects: Sequence[Submission]) -> None:
        """Put each job into the queue unless it is there, or was there before.

        Two concurrent submits, or a retry after a lost answer, make one job. The name is searched for first. Of jobs
        submitted at the same moment all but the first are cancelled, and none of these can have started before
        (`dependency=singleton`). In any case the script runs only once per name.

        Raises:
            JobConflict: If a job of its name was made from another specification.
            JobRefused: If Slurm refuses it.
        """
        for job in objects:
            self._submit(job)

    def status(self, job: JobRef) -> JobStatus:
        """Status of the job: one call of constant size once it has been found, and one to S3 when it has ended.

        Raises:
            JobNotFound: If neither Slurm nor S3 has it (any more).
        """
        found = self._find(job.name)
        if found is not None and not is_over(found):
            return job_status(found)
        record = self._files.record(job.name)
        if record is not None and (found is None or record.exit_code == 0 or record.job_id != found.job_id):
            return _ended(record)
        if found is None:
            raise JobNotFound(f"The job '{job.name}' is not in Slurm's queue (any more), and has left no record.")
        if record is None and "FAILED" in found.states and found.reason in (None, "NonZeroExitCode"):
            return replace(job_status(found), failure_reason=NO_RECORD, failure_message=WITHOUT_RECORD)
        by = self._controller.cancelled_by(found.job_id) if was_cancelled(found) else None
        status = job_status(found, cancelled_by=by)
        return _ended(record) if record is not None and record.reason and status.phase is None else status

    def failed_pods(self, job: JobRef) -> list[Pod]:
        """The job's parts that failed, the first to fail first."""
        record = self._files.record(job.name)
        return failed_pods(job.name, record) if record else []

    def peer_pods(self, job: JobRef) -> list[Pod]:
        """The job's parts that ended with exit code 0, the first to end first."""
        record = self._files.record(job.name)
        return peer_pods(job.name, record) if record else []

    def failed_pods_of_run(self, run_id: str) -> list[Pod]:
        """Failed parts of the run's newest jobs, five at most."""
        return self._files.failed_nodes(run_id)

    def pods_to_diagnose(self, run_id: str) -> list[str]:
        """Parts of the run's newest jobs that have rank 0 or failed."""
        return self._files.pods_with_last_lines(run_id, limit=MAX_PODS_TO_DIAGNOSE)

    def pending_reason(self, job: JobRef) -> str | None:
        """The reason why the job is pending, as Slurm reports it and as a sentence."""
        found = self._find(job.name)
        return pending_reason(found) if found else None

    def rank0(self, job: JobRef) -> str | None:
        """The job's part on its first node: known as soon as the job has started."""
        found = self._find(job.name)
        if found is None:
            started = self._files.record(job.name) is not None
        else:
            started = is_over(found) or job_status(found).phase is not JobPhase.PENDING
        return pod_name(job.name, 0) if started else None

    def result(self, job: JobRef, *, pod: str | None = None) -> str | None:
        """The result of a part of the job; None while the job runs."""
        record, wanted = self._files.record(job.name), pod or pod_name(job.name, 0)
        nodes = record.nodes if record else ()
        return next((node.message for node in nodes if pod_name(job.name, node.index) == wanted), None)

    def read_log(self, pod: str, *, since: datetime | None = None, tail_lines: int | None = None) -> Iterator[LogLine]:
        """Lines in the order of writing: all lines of the first node; the last lines of other nodes that failed."""
        if tail_lines is not None:
            return iter(self._files.tail(pod, lines=tail_lines))
        return self._files.log(pod.rpartition("-")[0], since=since)

    def follow_log(self, pod: str, *, since: datetime | None, longest_seconds: float) -> Iterator[LogLine]:
        """The first node's lines when the job has ended, which outlive it; or those that are there by then."""
        name, end = pod.rpartition("-")[0], time.monotonic() + longest_seconds
        while any(not is_over(job) for job in self._named(name)) and time.monotonic() < end:
            time.sleep(END_POLL_SECONDS)
        yield from self.read_log(pod, since=since)

    def cancel(self, run_id: str) -> list[str]:
        """Cancel every job of the run that has not ended."""
        jobs = self._unfinished(run_id)
        for job in jobs:
            self._controller.cancel(job.job_id)
        return [job.name for job in jobs]

    def held(self) -> list[Held]:
        """Jobs of all runs that have not ended."""
        return [_held(job, job.comment) for job in self._ours() if job.comment and not is_over(job)]

    def is_stopped(self, run_id: str) -> bool:
        """Whether every job of the run has ended, its clean-up on the nodes included."""
        return not self._unfinished(run_id)

    def _unfinished(self, run_id: str) -> list[SlurmJob]:
        return [job for job in self._ours() if job.comment and job.comment.run_id == run_id and not is_over(job)]

    def delete(self, job: JobRef) -> None:
        """Cancel one job. Its end may take a while; the next job of its stage waits for it."""
        self.cancel_named(job.name)

    def cancel_named(self, name: str) -> None:
        """Cancel the jobs of a name that have not ended."""
        for found in self._named(name):
            if not is_over(found):
                self._controller.cancel(found.job_id)

    def partition(self, name: str | None) -> Partition | None:
        """The named partition, or Slurm's default; None if it does not exist or Slurm does not report a default."""
        return self._controller.partition(name) if name else default_partition(self._controller.partitions())

    def _submit(self, job: Submission) -> None:
        queue = self._ours()
        if same := [found for found in queue if found.name == job.name]:
            _require_same(job, [found.comment.spec_hash if found.comment else None for found in same])
            self._keep_one(same)
            return
        if (record := self._files.record(job.name)) is not None:
            _require_same(job, [record.spec_hash])
            return
        self._controller.submit(job, after=[found.job_id for found in queue if _comes_before(found, job)])
        self._keep_one(self._named(job.name))

    def _keep_one(self, same: Sequence[SlurmJob]) -> None:
        """Cancel all but the first of several jobs of one name: every caller picks the same."""
        for found in sorted(same, key=lambda each: each.job_id)[1:]:
            if not is_over(found):
                self._controller.cancel(found.job_id)

    def _find(self, name: str) -> SlurmJob | None:
        """The job of a name, as slurmctld knows it; None if it does not."""
        if name in self._ids:
            found = self._controller.job(self._ids[name])
            if found is not None and found.name == name:
                return found
            del self._ids[name]
        first = min(self._named(name), key=lambda each: each.job_id, default=None)
        if first is not None:
            self._ids[name] = first.job_id
        return first

    def _named(self, name: str) -> list[SlurmJob]:
        return [job for job in self._ours() if job.name == name]

    def _ours(self) -> list[SlurmJob]:
        return [job for job in self._controller.jobs() if job.user == self._user]


def _held(job: SlurmJob, comment: JobComment) -> Held:
    """A job as something that its run holds. Slurm keeps the nodes of a gang up for it."""
    num_nodes = None if comment.stage in (Stage.PRECOMPILE, Stage.TRAINING) else 0
    return Held(thing=HeldObject(kind=SLURM_JOB, name=job.name), run_id=comment.run_id, num_nodes=num_nodes)


def _require_same(job: Submission, hashes: Sequence[str | None]) -> None:
    if any(spec_hash != job.comment.spec_hash for spec_hash in hashes):
        raise JobConflict(f"A Slurm job named '{job.name}' exists and was made from another specification.")


def _comes_before(found: SlurmJob, job: Submission) -> bool:
    """Whether it is an earlier attempt of the same stage: attempts write the same folder, so they run one by one."""
    mine, its = job.comment, found.comment
    return its is not None and (its.run_id, its.stage) == (mine.run_id, mine.stage) and not is_over(found)


def _ended(record: JobRecord) -> JobStatus:
    """The status of a job whose record has its exit code."""
    if record.exit_code == 0:
        return JobStatus(phase=JobPhase.SUCCEEDED, submitted_at=record.started_at, started_at=record.started_at)
    return JobStatus(
        phase=None,
        failure_reason=record.reason or "JobFailed",
        failure_message=f"ended with exit code {record.exit_code}",
        submitted_at=record.started_at,
        started_at=record.started_at,
    )
