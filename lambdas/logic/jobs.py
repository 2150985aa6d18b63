"""The jobs of a run: the program of each stage, its number of nodes and its environment.

Backends turn a `Job` into the objects of their system. This module knows one thing about backends: the addresses of
their pods, because they are part of the program's command line.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field

from trainflow.models.backends import DESCRIPTIONS, BackendName
from trainflow.models.compile_cache import CacheUse, own_folder
from trainflow.models.instances import HUGE_PAGES_OF_EFA_POD_MIB, InstanceType
from trainflow.models.run import JobRef, Run, Stage, job_name
from trainflow.models.run_spec import Argument, Dataset, Elastic, RunSpec
from trainflow.protocol import announcement, compile_cache, variables
from trainflow.protocol.pods import CACHE_MOUNT, DATA_MOUNT, RUNS_MOUNT, SCRATCH_MOUNT
from trainflow.protocol.result import RESULT_FILE

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

INTERFACE_VARIABLE = "CCOM_SOCKET_IFNAME"
"""Network interface of the first connection between nodes. The TorchX tutorial sets it for pods."""

NEURON_ENVIRONMENT = {"NEURON_RT_RESET_CORES": "1", "XLA_TRANSFER_SEED_ASYNC": "1"}
"""Variables that the TorchX tutorial sets for every pod with NeuronCores."""

READER_OF_SHARDS = "trainer.pretrain"
"""Program that needs at least one shard, which is the stager's default. The input of other programs is unknown."""


@dataclass(frozen=True, kw_only=True)
class Job:
    """One program on one gang of nodes."""

    ref: JobRef
    run_id: str
    image: str | None
    """Image of the container; None where Slurm's nodes have the program installed."""
    command: tuple[str, ...]
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

    @property
    def port(self) -> int:
        """Port of the job's rendezvous."""
        return rendezvous_port(self.ref.name)

    @property
    def spec_hash(self) -> str:
        """Hash of everything that the job would do, in 16 hex digits. It distinguishes two jobs of the same name."""
        content = json.dumps(asdict(self), sort_keys=True, default=str)
        return hashlib.sha256(content.encode()).hexdigest()[:16]


def job_of(run: Run, stage: Stage, attempt: int, *, artifacts_url: str, cache: CacheUse | None = None) -> Job:
    """The job of one stage.

    Args:
        run: The run that the job belongs to.
        stage: Stage of the run that the job executes.
        attempt: 1 for the first try; part of the job's name.
        artifacts_url: `s3://bucket/prefix/` that the run's artifacts are published to.
        cache: Cache of its compiled graphs; None for a run without precompilation, which uses a folder of its own.
    """
    spec, gang = run.spec, stage in GANGS
    ref = _ref(run, stage, attempt)
    return Job(
        ref=ref,
        run_id=run.run_id,
        image=run.tools_image or spec.workload.image if stage in TOOLS else spec.workload.image,
        command=_command(run, ref, artifacts_url=artifacts_url, cache=cache),
        environment=_environment(run, ref, artifacts_url=artifacts_url, cache=cache),
        instance=spec.compute.instance if gang else None,
        processes_per_node=spec.compute.processes_per_node if gang else 1,
        deadline_seconds=round(spec.limits.max_duration_hours * 3600),
        queue=spec.compute.queue if gang else None,
        priority_class=spec.compute.priority_class if gang else None,
        elastic=spec.compute.elastic if ref.elastic else None,
        writable_root=spec.workload.writable_root if gang else False,
        python_environment=spec.workload.python_environment,
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


def announcement_url(job: str, *, artifacts_url: str) -> str:
    """URL of the object in which rank 0 of an elastic job announces its pod."""
    return f"{artifacts_url}{announcement.object_name(job)}"


def run_folder(run_id: str) -> str:
    """Folder of a run's checkpoints and event files inside its pods."""
    return f"{RUNS_MOUNT}/{run_id}"


def cache_folder(run_id: str, cache: CacheUse | None) -> str:
    """Folder of a run's compiled graphs inside its pods."""
    return f"{CACHE_MOUNT}/{cache.folder if cache else own_folder(run_id)}"


def _command(run: Run, ref: JobRef, *, artifacts_url: str, cache: CacheUse | None) -> tuple[str, ...]:
    spec, workload = run.spec, run.spec.workload
    match ref.stage:
        case Stage.PREFLIGHT:
            program = ("--module", workload.module) if workload.module else ("--script", str(workload.script))
            gang = {"world_size": spec.compute.world_size, "processes_per_node": spec.compute.processes_per_node}
            flags = (*program, *_options(gang), "--", *_options(workload.arguments))
            return ("python", "-m", "trainer.probe", *flags)
        case Stage.STAGE:
            if spec.dataset is None:
                raise ValueError("a run without a data set has nothing to stage")
            source = _source(spec.dataset, linked_folder=run.linked_folder, module=workload.module)
            return ("python", "-m", "trainer.stage", *source)
        case Stage.PUBLISH:
            return ("python", "-m", "trainer.publish", "--source", run_folder(run.run_id), "--url", artifacts_url)
        case Stage.PRECOMPILE:
            few_steps = {**spec.workload.arguments, "steps_this_run": spec.precompile.steps}
            again = ("--retry_failed",) if ref.attempt > 1 else ()
            compiling = ("python", "-m", "trainer.precompile", *again, "--", *_torchrun(spec, ref, few_steps))
            return (*_with_locked_memory(spec, ref), *compiling)
        case Stage.TRAINING:
            copying = _with_copy_of(cache_folder(run.run_id, cache)) if cache else ()
            return (*_with_locked_memory(spec, ref), *copying, *_torchrun(spec, ref, workload.arguments))


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
        "linked_folder": linked_folder,
        "min_shards": None if min_shards is None else str(min_shards),
    }
    return tuple(text for name, value in given.items() if value is not None for text in (f"--{name}", value))


def _with_locked_memory(spec: RunSpec, ref: JobRef) -> tuple[str, ...]:
    """Words that check the limit of locked memory before a gang starts over EFA; empty for other gangs."""
    if not spec.compute.instance.uses_efa(ref.num_nodes):
        return ()
    return ("python", "-m", "trainer.locked_memory", "--mebibytes", str(HUGE_PAGES_OF_EFA_POD_MIB), "--")


def _with_copy_of(folder: str) -> tuple[str, ...]:
    """Words that copy the cache first: other runs may read it, so a training's compiler uses a copy."""
    return ("python", "-m", "trainer.compile_cache", "--source", folder, "--")


def _torchrun(spec: RunSpec, ref: JobRef, arguments: Mapping[str, Argument]) -> tuple[str, ...]:
    workload, elastic = spec.workload, spec.compute.elastic if ref.elastic else None
    program = ("-m", workload.module) if workload.module else (str(workload.script),)
    return (
        "torchrun",
        *(_elastic_rendezvous(ref, elastic) if elastic else _static_rendezvous(ref)),
        *("--nproc_per_node", str(spec.compute.processes_per_node)),
        *(("-m", "trainer.announce") if elastic else ()),
        *program,
        *_options(arguments),
    )


def _options(arguments: Mapping[str, Argument]) -> tuple[str, ...]:
    return tuple(text for name, value in arguments.items() for text in (f"--{name}", as_text(value)))


def _static_rendezvous(ref: JobRef) -> tuple[str, ...]:
    """Flags for a gang whose node rank is the index in the gang: rank 0 is always in the pod of index 0."""
    backend = DESCRIPTIONS[ref.backend]
    return (
        *("--nnodes", str(ref.num_nodes)),
        *("--node_rank", backend.node_rank),
        *("--master_addr", backend.rank0_address(ref.name)),
        *("--master_port", str(rendezvous_port(ref.name))),
    )


def _elastic_rendezvous(ref: JobRef, elastic: Elastic) -> tuple[str, ...]:
    """Flags for a gang that meets in a store on one of its nodes; the store assigns the ranks."""
    store = DESCRIPTIONS[ref.backend].elastic_address(ref.name)
    return (
        *("--nnodes", f"{elastic.min_nodes}:{elastic.max_nodes}"),
        *("--rdzv_backend", "c10d"),
        *("--rdzv_endpoint", f"{store}:{rendezvous_port(ref.name)}"),
        *("--rdzv_id", ref.name),
        *("--max_restarts", str(elastic.max_restarts)),
    )


def rendezvous_port(job: str) -> int:
    """Port of a job's rendezvous. It depends on the job, so that two jobs on one network do not join each other.

    Between 20000 and 29999: above the registered services, below Linux's ephemeral ports (32768).
    """
    return 20000 + int(hashlib.sha256(job.encode()).hexdigest()[:8], 16) % 10000


def as_text(value: Argument) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


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
    if run.spec.dataset is not None:
        environment[variables.DATA_DIR] = run.linked_folder or f"{DATA_MOUNT}/{run.spec.dataset.folder}"
    instance = run.spec.compute.instance
    if instance.accelerated:
        environment |= NEURON_ENVIRONMENT
    if instance.has_scratch and ref.stage in GANGS:
        environment[variables.SCRATCH_DIR] = SCRATCH_MOUNT
    if ref.stage is Stage.TRAINING and instance.tflops_per_process is not None:
        environment[variables.PEAK_TFLOPS] = f"{instance.tflops_per_process:g}"
    if instance.uses_efa(ref.num_nodes):
        environment |= EFA_ENVIRONMENT
        if (interface := DESCRIPTIONS[ref.backend].network_interface) is not None:
            environment[INTERFACE_VARIABLE] = interface
    if ref.elastic:
        environment[variables.RANK0_URL] = announcement_url(ref.name, artifacts_url=artifacts_url)
    return environment
