"""The twin as a place where runs execute; the entry point `local` of the group `trainflow.places`."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from local import preflight
from local.aws import folder_buckets
from local.aws.deployment import ARTIFACT_BUCKET
from local.aws.faults import no_faults, no_throttling
from local.aws.server import REGION
from local.continued_runs import nothing_to_continue
from local.slurm.configuration import SlurmSettings
from local.slurm.errors import SlurmError
from local.twin import REPOSITORY, Twin, TwinError
from trainflow.client.code import PackedCode
from trainflow.client.continuing import CannotContinue, resume_note
from trainflow.client.local_runs import LocalOptions, LocalRuns
from trainflow.client.local_start import LocalStart, write_start
from trainflow.client.observe.cluster import READ_SECONDS
from trainflow.client.observe.utilization import Utilization
from trainflow.client.owned_folder import OwnedFolder
from trainflow.client.place import (
    FollowedRun,
    LogRequest,
    PlaceOptions,
    PlaceUnavailable,
    RunNotFound,
    RunSummary,
    new_run_id,
)
from trainflow.client.runs import STOP_SECONDS, DeployedRuns
from trainflow.client.twin_address import HeldAddress, HeldStart
from trainflow.kubernetes.api import KubernetesApi
from trainflow.kubernetes.connection import from_kubeconfig
from trainflow.protocol.pods import RUNS
from trainflow.spec.code import packed_key
from trainflow.spec.limits import require_limits_ahead
from trainflow.spec.run_spec import RunSpec
from trainflow.workflow.planned_run import PlannedRun
from trainflow.workflow.run_record import RunError

if TYPE_CHECKING:  # a run without faults imports no plan of them
    from local.planned_faults import PlannedFaults

NOT_PROVEN = (
    "Pods are processes of your user here, without walls: their programs can read and change what you can, your "
    "credentials included. This run does not show whether their user ids, read-only file systems, "
    f"mounts and images work in a cluster ({REPOSITORY / 'docs' / 'twin.md'}, Isolation)."
)
"""Sentence that a run in the twin prints once."""

NOT_PROVEN_BEHIND_WALLS = (
    "Pods are processes of this machine here, with their user, root file system and mounts. This run does not show "
    f"whether their images work in a cluster ({REPOSITORY / 'docs' / 'twin.md'}, Isolation)."
)
"""The same, where containers have walls."""

SHARED_NETWORK = (
    "Programs in pods listen in this machine's network, because {reason}: its other users reach them, and so do other "
    f"machines if its firewall lets them ({REPOSITORY / 'docs' / 'security.md'}, The twin)."
)
"""Sentence that a run prints once in addition where pods share the machine's network."""


class TwinRuns(DeployedRuns):
    """The runs of a twin that has been started."""

    def __init__(self, twin: Twin) -> None:
        assert twin.deployment is not None, "the twin runs, with everything deployed"  # noqa: S101
        super().__init__(
            twin.deployment.address,
            client=twin.client,
            kubernetes=lambda: KubernetesApi(from_kubeconfig(twin.kubeconfig), read_seconds=READ_SECONDS),
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
        self._faults: PlannedFaults | None = None
        self._faults_opened = ExitStack()
        self._addresses: list[HeldAddress] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with ExitStack() as last:
            for address in self._addresses:
                last.callback(address.close)
            if self._faults is not None and self._twin is not None:
                last.callback(self._report_faults, self._faults)
            if self._twin is not None:
                last.callback(self._twin.stop)
            last.callback(self._faults_opened.close)
        self._twin, self._faults, self._addresses = None, None, []

    def _report_faults(self, faults: PlannedFaults) -> None:
        for sentence in faults.results():
            self._options.say(sentence)

    def start(self, spec: RunSpec, *, code: PackedCode | None = None, run_id: str | None = None) -> str:
        """See `Place`.

        Raises:
            TrainflowError: If the spec, the data, the program or the machine is at fault; nothing was created then.
            PlaceUnavailable: If the twin cannot be started.
        """
        return self._begin(spec, self._image_root(spec), code=code, run_id=run_id)

    def require_startable(self, spec: RunSpec) -> None:
        """See `Place`."""
        self._require_startable(spec, self._image_root(spec))

    def _require_startable(self, spec: RunSpec, image_root: Path) -> None:
        self._check(spec, image_root)
        preflight.require_nodes(spec, SlurmSettings())

    def plan(self, spec: RunSpec, *, code: PackedCode | None = None) -> PlannedRun:
        """See `Place`. A twin without a run is started for the answer; data sets and programs are those of `run`."""
        image_root = self._image_root(spec)
        self._check(spec, image_root)
        if self._twin is not None:
            return TwinRuns(self._twin).plan(spec, code=code)
        with OwnedFolder("trainflow-plan-") as folder:
            twin = self._started_twin(spec, image_root, folder=Path(folder))
            try:
                return TwinRuns(twin).plan(spec, code=code)
            finally:
                twin.stop()

    def resume(self, run_id: str, *, changes: Mapping[str, Any] | None = None, from_step: int | None = None) -> str:
        """See `Place`. The earlier run is one of this machine: its folder and its checkpoints are found here.

        Raises:
            CannotContinue: Also if it has left no checkpoint.
        """
        earlier = LocalRuns(LocalOptions(out=self._options.out, home=self._options.home))
        spec = earlier.spec_continuing(run_id, changes, from_step=from_step)
        runs = self._options.home / "volumes" / RUNS
        own_cluster = self._options.kubeconfig is None  # another one has other storage, which only its pods see
        reason = nothing_to_continue(spec, runs=runs, repository=REPOSITORY) if own_cluster else None
        if reason is not None:
            raise CannotContinue(
                f"The run {spec.resume_from[0]} cannot be continued: {reason} Its files would be in {runs}; if the run "
                "had another home, name that with --home, otherwise start its spec anew with `trainflow run`."
            )
        if (sentence := resume_note(spec)) is not None:
            self._options.say(sentence)
        started = earlier.started(spec.resume_from[0])
        same_root = started.image_root if started and self._options.image_root is None else None
        return self._begin(spec, same_root or self._image_root(spec))

    def _begin(
        self, spec: RunSpec, image_root: Path, *, code: PackedCode | None = None, run_id: str | None = None
    ) -> str:
        self._require_startable(spec, image_root)
        if self._faults is None and self._options.faults is not None:
            self._faults = self._planned_faults(self._options.faults)
        if code is not None:
            spec = code.named_in(spec, bucket=ARTIFACT_BUCKET)
        run_id = run_id or new_run_id(spec, datetime.now(UTC))
        folder = self._options.out / run_id
        with _removed_unless_done(folder), HeldStart(folder) as began:
            if self._twin is None:
                self._twin = self._started_twin(spec, image_root, folder=folder, faults=self._faults)
                self._say_what_is_not_proven(spec, self._twin)
                if self._faults is not None:
                    self._faults_opened.enter_context(self._faults.opened(self._twin))
            elif spec.compute.backend_description.needs_slurm and self._twin.slurm is None:
                raise PlaceUnavailable("compute.backend: this twin was started without Slurm; start the run by itself.")
            elif self._twin.image_root != image_root:
                raise PlaceUnavailable(
                    f"This twin was started with {self._twin.image_root} for the image, but this spec's program is in "
                    f"{image_root}; start the run by itself."
                )
            if code is not None:  # also for a run that continues this one after its twin was killed
                folder_buckets.put(self._options.home / "s3", ARTIFACT_BUCKET, packed_key(code.sha256), code.content)
            start = LocalStart(spec=spec.model_dump(mode="json"), image_root=image_root)
            write_start(folder, start)
            if self._faults is not None:
                self._faults.started()
            TwinRuns(self._twin).start(spec, code=code, run_id=run_id)
            self._addresses.append(HeldAddress(folder, self._twin.address(started_at=began.started_at)))
        return run_id

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

    def log(self, run_id: str, request: LogRequest) -> Iterator[str]:
        """See `DeployedRuns`."""
        return self._runs(run_id).log(run_id, request)

    def node_utilization(self, run_id: str, nodes: Collection[str]) -> Utilization | None:
        """See `DeployedRuns`."""
        return self._runs(run_id).node_utilization(run_id, nodes)

    def _runs(self, run_id: str) -> TwinRuns:
        if self._twin is None:
            raise RunNotFound(f"There is no run '{run_id}': the twin knows those that it has started since it began.")
        return TwinRuns(self._twin)

    def _image_root(self, spec: RunSpec) -> Path:
        """The folder that stands for the image: the one that was given, else the spec's folder if it has the program,
        else the repository."""
        given, beside = self._options.image_root, self._options.spec_folder
        if given is None and beside is not None and preflight.has_program(spec.workload, beside):
            given = beside
        return (given or REPOSITORY).resolve()

    def _check(self, spec: RunSpec, image_root: Path) -> None:
        require_limits_ahead(spec, now=datetime.now(UTC), region=REGION)
        if spec.workload.code is None:
            preflight.require_program(spec.workload, image_root)
        if not image_root.is_dir():
            raise PlaceUnavailable(f"--image-root {image_root}: there is no such folder.")
        preflight.require_backend(spec)
        preflight.require_shared_memory()
        makes_dataset = spec.dataset is not None and spec.dataset.bucket == folder_buckets.DEMO_BUCKET
        if not makes_dataset:
            preflight.require_dataset(spec, self._options.home / "s3")
        preflight.require_folders(out=self._options.out, home=self._options.home)
        if makes_dataset:
            self._make_demo_data()
            preflight.require_dataset(spec, self._options.home / "s3")

    def _make_demo_data(self) -> None:
        home = self._options.home
        try:
            with self._options.busy("Making the demo's data set from Python's own documentation …"):
                folder_buckets.ensure_demo_data(home / "s3")
        except (subprocess.CalledProcessError, OSError) as error:
            raise PlaceUnavailable(f"{home}: the demo's data set could not be made ({error}).") from None

    def _planned_faults(self, path: Path) -> PlannedFaults:
        from local.fault_file import read_faults
        from local.planned_faults import PlannedFaults

        faults = read_faults(path)
        if self._options.kubeconfig is not None and (faults.kubernetes_api or faults.nodes):
            raise PlaceUnavailable(
                f"--faults {path}: kubernetes_api and nodes are faults of the twin's own cluster; leave out "
                "--kubeconfig."
            )
        planned = PlannedFaults(faults, time_scale=self._options.time_scale)
        for sentence in planned.announced():
            self._options.say(sentence)
        return planned

    def _started_twin(
        self, spec: RunSpec, image_root: Path, *, folder: Path, faults: PlannedFaults | None = None
    ) -> Twin:
        try:
            twin = Twin(
                home=self._options.home,
                log_dir=folder / "logs" / "twin",
                time_scale=self._options.time_scale,
                kubeconfig=self._options.kubeconfig,
                image_root=image_root,
                walls=self._options.walls,
                hidden=self._hidden(image_root, folder),
                faults=faults or no_faults,
                throttled=faults.throttle if faults else no_throttling,
                slurm=SlurmSettings() if spec.compute.backend_description.needs_slurm else None,
            )
            with self._options.busy("Starting the twin …"):
                twin.start()
        except (TwinError, SlurmError, OSError) as error:
            raise PlaceUnavailable(str(error)) from None
        return twin

    def _hidden(self, image_root: Path, folder: Path) -> list[Path]:
        """Files that earlier and present runs leave, also in other homes than that of this run."""
        beside = [root / name for root in (image_root, REPOSITORY) for name in (".trainflow", "out")]
        home = [self._options.home / name for name in ("s3", "secrets", "volumes")]
        return [self._options.out, folder, *home, *beside]

    def _say_what_is_not_proven(self, spec: RunSpec, twin: Twin) -> None:
        if spec.compute.backend_description.needs_slurm:
            self._options.say(SHARED_NETWORK.format(reason="jobs of Slurm have no network of their own"))
            return
        self._options.say(NOT_PROVEN_BEHIND_WALLS if twin.is_isolated else NOT_PROVEN)
        if (reason := twin.missing_network) is not None:
            self._options.say(SHARED_NETWORK.format(reason=reason))


@contextmanager
def _removed_unless_done(folder: Path) -> Iterator[None]:
    """Remove a folder that is made inside the block if the block does not come to its end, by Ctrl-C, too."""
    is_new = not folder.exists()
    try:
        yield
    except BaseException:
        if is_new:
            shutil.rmtree(folder, ignore_errors=True)
        raise
