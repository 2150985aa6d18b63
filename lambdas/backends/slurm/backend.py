"""Backend `slurm`: jobs of a Slurm cluster, which manages its own nodes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict
from datetime import datetime
from typing import Any

from lambdas.backends.backend import Examined
from lambdas.backends.deployment import Deployment
from lambdas.backends.slurm import cluster, job_script
from lambdas.backends.slurm.cluster import SlurmCluster
from lambdas.backends.slurm.fit import partition_findings
from lambdas.logic.capacity import Capacity
from lambdas.logic.jobs import Job
from lambdas.logic.preflight.findings import Finding
from trainflow.deployment.slurm import Submission
from trainflow.errors import BackendNotInstalled
from trainflow.observed.job import JobStatus
from trainflow.observed.pod import Pod
from trainflow.record.placement import Placement
from trainflow.workflow.leftovers import Held
from trainflow.workflow.log_line import LogLine
from trainflow.workflow.preflight import Probed
from trainflow.workflow.run import JobRef, Run


class SlurmBackend:
    """Runs jobs with Slurm. Implements `lambdas.backends.backend.Backend`."""

    def __init__(self, deployment: Deployment) -> None:
        self._deployment = deployment

    @property
    def _cluster(self) -> SlurmCluster:
        """The connection, made at its first use: Slurm is optional in a deployment.

        Raises:
            BackendNotInstalled: If the deployment does not have a Slurm cluster.
        """
        found = _connected(self._deployment)
        if found is None:
            raise BackendNotInstalled("compute.backend is 'slurm', but this deployment has no Slurm cluster.")
        return found

    def render(self, job: Job) -> list[dict[str, Any]]:
        """The job's script and its submission options, one document for each Slurm job."""
        return [asdict(submission) for submission in self._submissions(job)]

    def submit(self, job: Job) -> None:
        """Put the job's script into the queue."""
        self._cluster.submit(self._submissions(job))

    def _submissions(self, job: Job) -> list[Submission]:
        artifacts_url = self._deployment.artifacts.url_of(job.run_id)
        return job_script.render(job, self._deployment.slurm.site, artifacts_url=artifacts_url)

    def status(self, job: JobRef) -> JobStatus:
        """Status of the job, from one call of constant size and, when the job has ended, one call to S3."""
        return self._cluster.status(job)

    def failed_pods(self, job: JobRef) -> list[Pod]:
        """The job's parts that failed, the first to fail first."""
        return self._cluster.failed_pods(job)

    def peer_pods(self, job: JobRef) -> list[Pod]:
        """The job's parts that ended with exit code 0, the first to end first."""
        return self._cluster.peer_pods(job)

    def disrupted_pods(self, _job: JobRef) -> list[Pod]:
        """None: Slurm ends a job whose node it loses or takes away, as a whole and at once."""
        return []

    def running_pods(self, _job: JobRef) -> list[str]:
        """None: logs of other parts arrive in S3 late, and their last lines cannot be compared in time."""
        return []

    def failed_pods_of_run(self, run_id: str) -> list[Pod]:
        """A few failed parts of the run's newest jobs."""
        return self._cluster.failed_pods_of_run(run_id)

    def pending_reason(self, job: JobRef) -> str | None:
        """The reason why the job is pending."""
        return self._cluster.pending_reason(job)

    def rank0(self, job: JobRef) -> str | None:
        """The job's part on its first node. Slurm jobs are never elastic, so rank 0 is not announced."""
        return self._cluster.rank0(job)

    def present_rank0(self, _run_id: str, pod: str) -> str:
        """The same part of the job: it is not resumed under another name."""
        return pod

    def result(self, job: JobRef, *, pod: str | None = None) -> str | None:
        """The result of a part of the job."""
        return self._cluster.result(job, pod=pod)

    def read_log(self, pod: str, *, since: datetime | None = None, tail_lines: int | None = None) -> Iterator[LogLine]:
        """Lines that the job has shipped to S3."""
        return self._cluster.read_log(pod, since=since, tail_lines=tail_lines)

    def follow_log(self, pod: str, *, since: datetime | None, longest_seconds: float) -> Iterator[LogLine]:
        """Lines that the job has shipped to S3 when it has ended."""
        return self._cluster.follow_log(pod, since=since, longest_seconds=longest_seconds)

    def pods_to_diagnose(self, run_id: str) -> list[str]:
        """Parts of the run's newest jobs whose last lines are in S3."""
        return self._cluster.pods_to_diagnose(run_id)

    def placement(self, _run_id: str) -> Placement | None:
        """None: Container Insights knows nothing of Slurm's nodes."""
        return None

    def cancel(self, run_id: str) -> list[str]:
        """Cancel every job of the run that has not ended."""
        return self._cluster.cancel(run_id)

    def is_stopped(self, run_id: str) -> bool:
        """Whether every job of the run has ended."""
        return self._cluster.is_stopped(run_id)

    def delete(self, job: JobRef, *, grace_seconds: int | None = None) -> None:
        """Cancel one job. Slurm has one time for all jobs between SIGTERM and SIGKILL, `KillWait`."""
        self._cluster.delete(job)

    def ensure_nodes(self, run: Run, *, waiting_since: datetime) -> Capacity:
        """Capacity with all nodes ready: Slurm starts nodes for the jobs in its queue, where they wait for at most
        limits.gang_timeout_minutes."""
        return Capacity(nodes_ready=run.spec.compute.num_nodes, nodes_wanted=run.spec.compute.num_nodes)

    def release_nodes(self, _instance_type: str) -> int:
        """Always 0: Slurm releases its nodes itself when no job needs them."""
        return 0

    def examine(self, run: Run, *, start_probe: Callable[[], None], now: datetime) -> Examined:
        """Findings about the gang's partition."""
        # First, so that a cluster that does not answer boots no node. The probe also runs for a gang that does
        # not fit: small programs have their own partition, and the list of problems has to be complete.
        found = tuple(partition_findings(run.spec, self._cluster.partition(run.spec.compute.queue)))
        start_probe()
        return Examined(found, probe_started=True)

    def program_digest(self, _probe: JobRef, seen: Probed | Finding) -> str | None:
        """Digest of the installed Python packages, since Slurm jobs run without an image."""
        return seen.packages if isinstance(seen, Probed) else None


class SlurmRunObjects:
    """Jobs of all runs in the deployment's Slurm cluster, if any. Implements `RunObjects`."""

    def __init__(self, deployment: Deployment) -> None:
        self._deployment = deployment

    def held(self) -> list[Held]:
        """Jobs that have not ended."""
        connected = _connected(self._deployment)
        return connected.held() if connected is not None else []

    def delete(self, held: Held) -> None:
        """Cancel a job."""
        connected = _connected(self._deployment)
        if connected is not None:
            connected.cancel_named(held.thing.name)


def _connected(deployment: Deployment) -> SlurmCluster | None:
    """The deployment's Slurm cluster; None if it does not have one."""
    slurm = deployment.slurm
    if not slurm.slurm_api_url:
        return None
    return cluster.connect(
        slurm.slurm_api_url,
        key_secret=slurm.slurm_key_secret,
        user=slurm.slurm_user,
        claims=slurm.slurm_claims,
        bucket=deployment.artifacts.artifact_bucket,
    )
