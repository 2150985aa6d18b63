"""Backend `slurm`: jobs of a Slurm cluster, which brings its own nodes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime

from lambdas.backends.backend import Examined
from lambdas.backends.deployment import Deployment
from lambdas.backends.slurm import cluster, job_script
from lambdas.backends.slurm.cluster import SlurmCluster
from lambdas.backends.slurm.fit import of_partition
from lambdas.logic.capacity import Capacity
from lambdas.logic.jobs import Job
from lambdas.logic.preflight.findings import Finding
from trainflow.errors import BackendNotInstalled
from trainflow.models.job_status import JobStatus, WorkerPod
from trainflow.models.log_line import LogLine
from trainflow.models.preflight import Probed
from trainflow.models.run import JobRef, Run


class SlurmBackend:
    """Runs jobs with Slurm. Implements `lambdas.backends.backend.Backend`."""

    def __init__(self, deployment: Deployment) -> None:
        self._deployment = deployment

    @property
    def _cluster(self) -> SlurmCluster:
        """The connection, made when something is asked: a deployment need not have Slurm.

        Raises:
            BackendNotInstalled: If this one has none.
        """
        slurm = self._deployment.slurm
        if not slurm.url:
            raise BackendNotInstalled("compute.backend is 'slurm', but this deployment has no Slurm cluster.")
        return cluster.connect(
            slurm.url,
            key_secret=slurm.key_secret,
            user=slurm.user,
            claims=slurm.claims,
            bucket=self._deployment.artifacts.artifact_bucket,
        )

    def submit(self, job: Job) -> None:
        """Put the job's script into the queue."""
        artifacts_url = self._deployment.artifacts.url_of(job.run_id)
        self._cluster.submit(job_script.render(job, self._deployment.slurm.site, artifacts_url=artifacts_url))

    def status(self, job: JobRef) -> JobStatus:
        """One call of constant size, and one of S3's when the job is over."""
        return self._cluster.status(job)

    def failed_pods(self, job: JobRef) -> list[WorkerPod]:
        """The job's parts that failed, the first to fail first."""
        return self._cluster.failed_pods(job)

    def failed_pods_of_run(self, run_id: str) -> list[WorkerPod]:
        """A few failed parts of the run's newest jobs."""
        return self._cluster.failed_pods_of_run(run_id)

    def pending_reason(self, job: JobRef) -> str | None:
        """Why the job waits."""
        return self._cluster.pending_reason(job)

    def rank0(self, job: JobRef) -> str | None:
        """The job's part on its first node. There is no elastic job, so it never has to be announced."""
        return self._cluster.rank0(job)

    def result(self, job: JobRef, *, pod: str | None = None) -> str | None:
        """What a part of the job left as its result."""
        return self._cluster.result(job, pod=pod)

    def read_log(self, pod: str, *, since: datetime | None = None, tail_lines: int | None = None) -> Iterator[LogLine]:
        """Lines as the job ships them to S3."""
        return self._cluster.read_log(pod, since=since, tail_lines=tail_lines)

    def pods_to_diagnose(self, run_id: str) -> list[str]:
        """Parts of the run's newest jobs whose last lines are in S3."""
        return self._cluster.pods_to_diagnose(run_id)

    def cancel(self, run_id: str) -> list[str]:
        """Cancel every job of the run that has not ended."""
        return self._cluster.cancel(run_id)

    def delete(self, job: JobRef) -> None:
        """Cancel one job."""
        self._cluster.delete(job)

    def ensure_nodes(self, run: Run) -> Capacity:
        """All of them: Slurm starts nodes for the jobs in its queue; they wait there, within
        limits.gang_timeout_minutes."""
        return Capacity(nodes_ready=run.spec.compute.num_nodes, nodes_wanted=run.spec.compute.num_nodes)

    def release_nodes(self, _instance_type: str) -> int:
        """None: Slurm ends its nodes itself when no job wants them."""
        return 0

    def examine(self, run: Run, *, start_probe: Callable[[], None], now: datetime) -> Examined:
        """What is wrong with the gang's partition."""
        # First, so that a cluster that does not answer boots no node. A gang that does not fit is probed all the same:
        # small programs have a partition of their own, and the list is to be whole.
        found = tuple(of_partition(run.spec, self._cluster.partition(run.spec.compute.queue)))
        start_probe()
        return Examined(found, probe_started=True)

    def program_digest(self, _probe: JobRef, seen: Probed | Finding) -> str | None:
        """Digest of the installed Python packages: there is no image."""
        return seen.packages if isinstance(seen, Probed) else None
