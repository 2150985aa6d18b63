"""The jobs of a run: the program of each stage, its number of nodes and its environment.

Backends turn a `Job` into the objects of their system. Gangs and the preflight's probe are started by a plan
(`lambdas.logic.plans`), small programs of ours by their words.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import timedelta

from lambdas.logic.folders import cache_folder, data_folder, filled, own_cache, run_folder
from lambdas.logic.plans import plan_of, program_words, rendezvous_port
from lambdas.logic.run_limits import longest_job
from trainflow.deployment.backends import DESCRIPTIONS, BackendName
from trainflow.nodes.instances import InstanceType
from trainflow.protocol import announcement, compile_cache, variables
from trainflow.protocol.plan import Plan
from trainflow.protocol.pods import (
    CACHE_MOUNT,
    DATA_MOUNT,
    LOCAL_CHECKPOINTS_MOUNT,
    PACKAGES_FOLDER,
    RUNS_MOUNT,
    SCRATCH_CHECKPOINTS,
    SCRATCH_MOUNT,
)
from trainflow.protocol.publication import KEPT_GIB
from trainflow.protocol.result import RESULT_FILE
from trainflow.protocol.resume_bounds import bounds_text
from trainflow.spec.checkpoint import KeepLocal
from trainflow.spec.run_spec import Dataset, Elastic, RunSpec
from trainflow.spec.workload import SHARED_MEMORY_GIB, Secret, Volume
from trainflow.workflow.compile_cache import CacheUse, Hold
from trainflow.workflow.run import JobRef, Run, Stage, job_name

GANGS = (Stage.PRECOMPILE, Stage.TRAINING)
"""Stages that take the run's nodes and run on its backend; the others are one small program."""

TOOLS = (Stage.STAGE, Stage.PUBLISH)
"""Stages that do not need the workload's program: they run in Trainflow's own image. The preflight's probe examines
that program, so it runs in the workload's image."""

EFA_ENVIRONMENT = {
    "FI_PROVIDER": "efa",
    "FI_EFA_USE_DEVICE_RDMA": "1",
}
"""Variables that the Neuron tutorials set for EFA; FI_EFA_FORK_SAFE is for kernels before 5.15 only."""

WITHOUT_HUGE_PAGES = {"FI_EFA_USE_HUGE_PAGE": "0"}
"""libfabric's EFA provider allocates its buffers in ordinary pages (fi_efa(7)). Where a container may use no huge page
although the node has some, an allocation of one can succeed and the first access end the program (SIGBUS)."""

INTERFACE_VARIABLE = "CCOM_SOCKET_IFNAME"
"""Network interface of the first connection between nodes. The TorchX tutorial sets it for pods."""

NEURON_ENVIRONMENT = {"NEURON_RT_RESET_CORES": "1", "XLA_TRANSFER_SEED_ASYNC": "1"}
"""Variables that the TorchX tutorial sets for every pod with NeuronCores."""

_FOLDER_OF_A_RUN = re.compile(rf"(?<![\w./-]){RUNS_MOUNT}/(?P<name>[A-Za-z0-9][\w.-]*)")
"""The folder of a run in a path, as `/runs/bert-0123456789ab` in `--weights=/runs/bert-0123456789ab/checkpoints`."""

READER_OF_SHARDS = "trainer.pretrain"
"""Program that needs at least one shard, which is the stager's default. The input of other programs is unknown."""


@dataclass(frozen=True, kw_only=True)
class SharedFolder:
    """A folder of the shared file system that a job's program sees at the same path."""

    path: str
    read_only: bool = False


@dataclass(frozen=True, kw_only=True)
class Job:
    """One program on one gang of nodes."""

    ref: JobRef
    run_id: str
    team: str | None = None
    project: str | None = None
    image: str | None
    """Image of the container; None where Slurm's nodes have the program installed."""
    command: tuple[str, ...] = ()
    """Words of a small program of ours; empty for a job with a plan."""
    plan: Plan | None = None
    """Steps that the supervisor executes on each node; None for a small program."""
    environment: Mapping[str, str] = field(default_factory=dict)
    instance: InstanceType | None = None
    """Instance type of every node; None for small programs, which run on any node with room."""
    processes_per_node: int = 1
    deadline_seconds: int
    """The cluster kills the job after this time."""
    queue: str | None = None
    priority_class: str | None = None
    elastic: Elastic | None = None
    """Limits of a gang that may shrink; None for one that needs all of its nodes."""
    writable_root: bool = False
    """Whether the program may write into its image's file system."""
    python_environment: str | None = None
    """Folder of the virtual environment on Slurm's nodes; None for the deployment's."""
    secrets: Mapping[str, Secret] = field(default_factory=dict)
    """Variables whose values only the pods know. The pod refers to Kubernetes Secrets; the command reads
    AWS Secrets Manager."""
    shared_memory_gib: int = SHARED_MEMORY_GIB
    local_checkpoints_gib: int | None = None
    """Size of a folder in the node's memory for checkpoints; None without one."""
    volumes: tuple[Volume, ...] = ()
    helpers_image: str | None = None
    """Image that helpers are installed from into the program's container; None where they are installed already."""
    code: str | None = None
    """URL of packed code that is unpacked beside the helpers; None without code, and where the command fetches it."""
    avoided_nodes: tuple[str, ...] = ()
    """Nodes that the gang does not use: earlier jobs of the run failed there."""
    cluster_makes_nodes: bool = False
    """Whether the nodes of its gang belong to no node group: the cluster makes them by itself."""
    folders: tuple[SharedFolder, ...] = ()
    """Folders of the shared file system that the program sees. Pods are limited to them; Slurm's jobs see all."""

    @property
    def port(self) -> int:
        """Port of the job's rendezvous."""
        return rendezvous_port(self.ref.name)

    @property
    def spec_hash(self) -> str:
        """Hash of everything that the job would do, in 16 hex digits. It distinguishes two jobs of the same name. Team,
        project and the origin of its nodes change nothing that it does."""
        instance = None if self.instance is None else self.instance.name
        ignored = ("team", "project", "cluster_makes_nodes")
        does = {name: value for name, value in asdict(self).items() if name not in ignored}
        if self.local_checkpoints_gib is None:
            del does["local_checkpoints_gib"]  # jobs of earlier versions lack the field
        content = json.dumps({**does, "instance": instance}, sort_keys=True, default=str)
        return hashlib.sha256(content.encode()).hexdigest()[:16]


def job_of(
    run: Run,
    stage: Stage,
    attempt: int,
    *,
    artifacts_url: str,
    cache: CacheUse | None = None,
    longest: timedelta | None = None,
) -> Job:
    """The job of one stage.

    Args:
        run: The run that the job belongs to.
        stage: Stage of the run that the job executes.
        attempt: 1 for the first try; part of the job's name.
        artifacts_url: `s3://bucket/prefix/` that the run's artifacts are published to.
        cache: Cache of its compiled graphs; None for a run without precompilation, which uses a folder of its own.
        longest: Time limit that the cluster enforces; by default the longest time of any job of the run.
    """
    spec, gang = run.spec, stage in GANGS
    ref = _ref(run, stage, attempt)
    return Job(
        ref=ref,
        run_id=run.run_id,
        team=spec.team,
        project=spec.project,
        image=run.tools_image or spec.workload.image if stage in TOOLS else spec.workload.image,
        command=_command(run, stage, artifacts_url=artifacts_url) if stage in TOOLS else (),
        plan=None if stage in TOOLS else plan_of(run, ref, cache=cache),
        environment=_environment(run, ref, artifacts_url=artifacts_url, cache=cache),
        instance=spec.compute.instance if gang else None,
        processes_per_node=spec.compute.processes_per_node if gang else 1,
        deadline_seconds=round((longest or longest_job(run)).total_seconds()),
        queue=spec.compute.queue if gang else None,
        priority_class=spec.compute.priority_class if gang else None,
        elastic=spec.compute.elastic if ref.elastic else None,
        writable_root=spec.workload.writable_root if gang else False,
        python_environment=spec.workload.python_environment,
        # The probe too: it does not start with a secret that does not exist, and no node has been asked for by then.
        secrets=spec.workload.secrets if gang or stage is Stage.PREFLIGHT else {},
        shared_memory_gib=spec.workload.shared_memory_gib if gang else SHARED_MEMORY_GIB,
        local_checkpoints_gib=_local_checkpoints_gib(run, stage),
        volumes=tuple(spec.workload.volumes) if gang else (),
        helpers_image=None if stage in TOOLS else run.tools_image,
        code=None if stage in TOOLS or run.tools_image is None else spec.workload.code,
        avoided_nodes=run.failed_nodes.avoided if gang else (),
        folders=_folders(run, stage, cache),
    )


def _ref(run: Run, stage: Stage, attempt: int) -> JobRef:
    compute, gang = run.spec.compute, stage in GANGS
    backend: BackendName = compute.backend if gang else compute.backend_description.small_programs
    # Compiling needs every node: a graph that one of them did not see would be compiled while the others wait.
    elastic = compute.elastic if stage is Stage.TRAINING else None
    return JobRef(
        name=job_name(run.run_id, stage, attempt),
        stage=stage,
        attempt=attempt,
        num_nodes=compute.num_nodes if gang else 1,
        backend=backend,
        min_nodes=elastic.min_nodes if elastic else None,
    )


def _keep_local(run: Run, stage: Stage) -> KeepLocal | None:
    """The folder of each node for checkpoints; only a training writes any."""
    checkpoint = run.spec.checkpoint
    return None if checkpoint is None or stage is not Stage.TRAINING else checkpoint.keep_local


def _local_checkpoints_gib(run: Run, stage: Stage) -> int | None:
    kept = _keep_local(run, stage)
    return None if kept is None else kept.gib


def _folders(run: Run, stage: Stage, cache: CacheUse | None) -> tuple[SharedFolder, ...]:
    """Folders that a stage's program sees. It can damage the files of its own run and no others.

    Only the stager writes data sets. The init container of the tools image makes the folders. Runs of earlier versions
    lack this container: their programs see all of `/runs` and `/cache`.
    """
    own = run_folder(run.run_id)
    match stage:
        case Stage.STAGE:
            return (SharedFolder(path=DATA_MOUNT),)
        case Stage.PUBLISH:
            return (SharedFolder(path=own, read_only=True),)
    data = SharedFolder(path=DATA_MOUNT, read_only=True)
    if run.tools_image is None:
        return (data, SharedFolder(path=RUNS_MOUNT), SharedFolder(path=CACHE_MOUNT))
    others = (path for path in runs_that_are_read(run.spec) if path != own)
    return (
        data,
        SharedFolder(path=own),
        *(SharedFolder(path=path, read_only=True) for path in others),
        SharedFolder(path=own_cache(run.run_id)),
        *((SharedFolder(path=PACKAGES_FOLDER, read_only=True),) if run.spec.workload.requirements else ()),
        *_shared_caches(stage, cache),
    )


def _shared_caches(stage: Stage, cache: CacheUse | None) -> tuple[SharedFolder, ...]:
    """The caches of the run's key, which the run that compiles writes, and a training copies from."""
    if cache is None or cache.hold is Hold.OWN:
        return ()
    return (SharedFolder(path=f"{CACHE_MOUNT}/{cache.key}", read_only=stage is not Stage.PRECOMPILE),)


def runs_that_are_read(spec: RunSpec) -> tuple[str, ...]:
    """Folders of other runs that a spec names: in `resume_from`, or as a path in the program's words or variables."""
    workload = spec.workload
    texts = (*program_words(workload), *workload.words, *workload.env.values())
    named = (match["name"] for text in texts for match in _FOLDER_OF_A_RUN.finditer(text))
    return tuple(dict.fromkeys(run_folder(name) for name in (*spec.resume_from, *named)))


def announcement_url(job: str, *, artifacts_url: str) -> str:
    """URL of the object that holds the name of rank 0's pod in an elastic job."""
    return f"{artifacts_url}{announcement.object_name(job)}"


def _command(run: Run, stage: Stage, *, artifacts_url: str) -> tuple[str, ...]:
    """The words of a small program of ours."""
    spec = run.spec
    if stage is Stage.PUBLISH:
        published = ("--source", run_folder(run.run_id), "--url", artifacts_url)
        kept = spec.workload.kept_gib
        limit = () if kept == KEPT_GIB else ("--kept_gib", str(kept))
        return ("python", "-m", "trainer.publish", *published, *limit, *spec.checkpoint_words)
    if spec.dataset is None:
        raise ValueError("a run without a data set has nothing to stage")
    source = _source(spec.dataset, linked_folder=run.linked_folder, module=spec.workload.module)
    return ("python", "-m", "trainer.stage", *source)


def _source(dataset: Dataset, *, linked_folder: str | None, module: str | None) -> tuple[str, ...]:
    min_shards = dataset.min_shards
    if min_shards is None and module != READER_OF_SHARDS:
        min_shards = 0
    given = {
        "url": dataset.url,
        "no_sign_request": "true" if dataset.public else None,
        "region": dataset.region,
        "sha256": dataset.sha256,
        "manifest_url": dataset.manifest_url,
        "max_expansion": None if dataset.max_expansion is None else f"{dataset.max_expansion:g}",
        "linked_folder": linked_folder,
        "min_shards": None if min_shards is None else str(min_shards),
    }
    return tuple(text for name, value in given.items() if value is not None for text in (f"--{name}", value))


def _environment(run: Run, ref: JobRef, *, artifacts_url: str, cache: CacheUse | None) -> dict[str, str]:
    environment = {
        "PYTHONUNBUFFERED": "1",
        variables.RUN_ID: run.run_id,
        variables.STAGE: ref.stage.value,
        variables.ATTEMPT: str(ref.attempt),
        variables.RUN_DIR: run_folder(run.run_id),
        variables.RESULT_FILE: RESULT_FILE,
    }
    if ref.stage in GANGS:
        environment |= compile_cache.environment(cache_folder(run.run_id, cache))
    if run.spec.resume_from and ref.stage not in TOOLS:
        environment[variables.RESUME_FROM] = ",".join(run.spec.resume_from)
    if run.spec.resume_until and ref.stage not in TOOLS:
        environment[variables.RESUME_UNTIL] = bounds_text(run.spec.bounds)
    if (folder := data_folder(run)) is not None:
        environment[variables.DATA_DIR] = folder
    instance = run.spec.compute.instance
    if instance.uses_neuron:
        environment |= NEURON_ENVIRONMENT
    if instance.has_scratch and ref.stage in GANGS:
        environment[variables.SCRATCH_DIR] = SCRATCH_MOUNT
    if (kept := _keep_local(run, ref.stage)) is not None:
        in_memory = kept.medium == "memory"
        environment[variables.LOCAL_CHECKPOINTS] = LOCAL_CHECKPOINTS_MOUNT if in_memory else SCRATCH_CHECKPOINTS
    if ref.stage is Stage.TRAINING and instance.tflops_per_process is not None:
        environment[variables.PEAK_TFLOPS] = f"{instance.tflops_per_process:g}"
    if instance.uses_efa(ref.num_nodes):
        environment |= EFA_ENVIRONMENT
        if not instance.huge_pages_of_pod_mib(ref.num_nodes):
            environment |= WITHOUT_HUGE_PAGES
        interface = DESCRIPTIONS[ref.backend].network_interface
        if instance.uses_neuron and interface is not None:
            environment[INTERFACE_VARIABLE] = interface
    if ref.elastic:
        environment[variables.RANK0_URL] = announcement_url(ref.name, artifacts_url=artifacts_url)
    if ref.stage in GANGS:
        names, texts = run.spec.workload.env.keys(), run.spec.workload.env.values()
        environment |= dict(zip(names, filled(run, tuple(texts)), strict=True))
    return environment
