"""The twin as a place where runs execute; the entry point `local` of the group `trainflow.places`."""

from __future__ import annotations

import shutil
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import Self

from local import preflight
from local.aws import folder_buckets
from local.aws.deployment import ARTIFACT_BUCKET, DEPLOYMENT_NAME
from local.slurm.configuration import SlurmSettings
from local.slurm.errors import SlurmError
from local.twin import REPOSITORY, Twin, TwinError
from trainflow.client.observe.cluster import READ_SECONDS
from trainflow.client.place import FollowedRun, PlaceOptions, PlaceUnavailable, RunNotFound, RunSummary, new_run_id
from trainflow.client.runs import STOP_SECONDS, DeployedRuns
from trainflow.kubernetes.api import KubernetesApi
from trainflow.kubernetes.connection import from_kubeconfig
from trainflow.models.run_record import RunError
from trainflow.models.run_spec import RunSpec


class TwinRuns(DeployedRuns):
    """The runs of a twin that has been started."""

    def __init__(self, twin: Twin) -> None:
        assert twin.deployment is not None, "the twin runs, with everything deployed"  # noqa: S101
        super().__init__(
            client=twin.client,
            state_machine_arn=twin.deployment.training_state_machine_arn,
            deployment=DEPLOYMENT_NAME,
            artifact_bucket=ARTIFACT_BUCKET,
            kubernetes=lambda: KubernetesApi(from_kubeconfig(twin.kubeconfig), read_seconds=READ_SECONDS),
            namespace=twin.namespace,
        )
        self._targets = twin.aws.targets

    def settle(self) -> None:
        """Wait until every target of an event has answered: clean-up and record are done then."""
        self._targets.drain(STOP_SECONDS)


class TwinPlace:
    """A `Place` on this machine. The twin starts with its first run, and ends with the context."""

    def __init__(self, options: PlaceOptions) -> None:
        self._options = options
        self._twin: Twin | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._twin is not None:
            self._twin.stop()
            self._twin = None

    def start(self, spec: RunSpec) -> str:
        """See `Place`.

        Raises:
            TrainflowError: If the spec, the data, the program or the machine is at fault; nothing was created then.
            PlaceUnavailable: If the twin cannot be started.
        """
        self._check(spec)
        run_id = new_run_id(spec, datetime.now(UTC))
        if self._twin is None:
            self._twin = self._started_twin(spec, folder=self._options.out / run_id)
        elif spec.compute.backend_description.needs_slurm and self._twin.slurm is None:
            raise PlaceUnavailable("compute.backend: this twin was started without Slurm; start the run by itself.")
        return TwinRuns(self._twin).start(spec, run_id=run_id)

    def runs(self) -> list[RunSummary]:
        """See `Place`."""
        return TwinRuns(self._twin).runs() if self._twin else []

    def describe(self, run_id: str) -> RunSummary:
        """See `Place`."""
        return self._runs(run_id).describe(run_id)

    def follow(self, run_id: str, *, log_dir: Path) -> FollowedRun:
        """See `Place`."""
        return self._runs(run_id).follow(run_id, log_dir=log_dir)

    def stop(self, run_id: str, *, reason: RunError) -> None:
        """See `Place`."""
        self._runs(run_id).stop(run_id, reason=reason)

    def _runs(self, run_id: str) -> TwinRuns:
        if self._twin is None:
            raise RunNotFound(f"There is no run '{run_id}': the twin knows those that it has started since it began.")
        return TwinRuns(self._twin)

    def _check(self, spec: RunSpec) -> None:
        preflight.require_program(spec.workload, REPOSITORY)
        preflight.require_backend(spec)
        if spec.dataset is not None and spec.dataset.bucket == folder_buckets.DEMO_BUCKET:
            self._make_demo_data()
        preflight.require_dataset(spec, self._options.home / "s3")
        preflight.require_machine(self._options.out)

    def _make_demo_data(self) -> None:
        home = self._options.home
        try:
            with self._options.busy("Making the demo's data set from Python's own documentation …"):
                folder_buckets.ensure_demo_data(home / "s3")
        except (subprocess.CalledProcessError, OSError) as error:
            raise PlaceUnavailable(f"{home}: the demo's data set could not be made ({error}).") from None

    def _started_twin(self, spec: RunSpec, *, folder: Path) -> Twin:
        try:
            twin = Twin(
                home=self._options.home,
                log_dir=folder / "logs" / "twin",
                time_scale=self._options.time_scale,
                kubeconfig=self._options.kubeconfig,
                slurm=SlurmSettings() if spec.compute.backend_description.needs_slurm else None,
            )
            with self._options.busy("Starting the twin …"):
                twin.start()
        except (TwinError, SlurmError, OSError) as error:
            shutil.rmtree(folder, ignore_errors=True)
            raise PlaceUnavailable(str(error)) from None
        return twin
