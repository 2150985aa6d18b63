"""The jobs of a run: the program of each stage, its number of nodes and its environment.

Backends turn a `Job` into the objects of their system. This module knows one thing about backends: the addresses of
their pods, because they are part of the program's command line.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import timedelta

from lambdas.logic.run_limits import longest_job
from trainflow.models.backends import DESCRIPTIONS, BackendName
from trainflow.models.compile_cache import CacheUse, Hold, own_files, own_folder
from trainflow.models.instances import HUGE_PAGES_OF_EFA_POD_MIB, InstanceType
from trainflow.models.progress import Format, read_from_files
from trainflow.models.run import JobRef, Run, Stage, job_name
from trainflow.models.run_spec import Dataset, Elastic, RunSpec
from trainflow.models.workload import SHARED_MEMORY_GIB, Secret, Volume, Workload, option_words
from trainflow.protocol import announcement, compile_cache, placeholders, variables
from trainflow.protocol.placeholders import filled_by_workflow
from trainflow.protocol.pods import (
    CACHE_MOUNT,
    DATA_MOUNT,
    HELPERS,
    RUNS_MOUNT,
    SCRATCH_MOUNT,
    WORKSPACE,
)
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
    secrets: Mapping[str, Secret] = field(default_factory=dict)
    """Variables with values that the pods alone know: references to Kubernetes Secrets are in the pod, and the command
    reads the values of Secrets Manager."""
    shared_memory_gib: int = SHARED_MEMORY_GIB
    volumes: tuple[Volume, ...] = ()
    helpers_image: str | None = None
    """Image that helpers are installed from into the program's container; None where they are installed already."""
    code: str | None = None
    """URL of packed code that is unpacked beside the helpers; None without code, and where the command fetches it."""
    avoided_nodes: tuple[str, ...] = ()
    """Nodes that the gang does not use: earlier jobs of the run failed there."""
    folders: tuple[SharedFolder, ...] = ()
    """What the program sees of the shared file system, where the backend can limit it: pods do, Slurm's jobs do not."""

    @property
    def port(self) -> int:
        """Port of the job's rendezvous."""
        return rendezvous_port(self.ref.name)

    @property
    def spec_hash(self) -> str:
        """Hash of everything that the job would do, in 16 hex digits. It distinguishes two jobs of the same name."""
        instance = None if self.instance is None else self.instance.name
        content = json.dumps({**asdict(self), "instance": instance}, sort_keys=True, default=str)
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
        longest: Time after which the cluster ends it; that of any job of the run by default.
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
        deadline_seconds=round((longest or longest_job(run)).total_seconds()),
        queue=spec.compute.queue if gang else None,
        priority_class=spec.compute.priority_class if gang else None,
        elastic=spec.compute.elastic if ref.elastic else None,
        writable_root=spec.workload.writable_root if gang else False,
        python_environment=spec.workload.python_environment,
        # The probe too: it does not start with a secret that does not exist, and no node has been asked for by then.
        secrets=spec.workload.secrets if gang or stage is Stage.PREFLIGHT else {},
        shared_memory_gib=spec.workload.shared_memory_gib if gang else SHARED_MEMORY_GIB,
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


def _folders(run: Run, stage: Stage, cache: CacheUse | None) -> tuple[SharedFolder, ...]:
    """What a stage's program sees of the shared file system: it can damage the files of its own run and no others.

    Data sets are written by the stager alone. The init container of the tools image makes the folders; in runs that
    began before there was one, programs see all of `/runs` and `/cache`.
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
    texts = (*_program(workload), *workload.words, *workload.env.values())
    named = (match["name"] for text in texts for match in _FOLDER_OF_A_RUN.finditer(text))
    return tuple(dict.fromkeys(run_folder(name) for name in (*spec.resume_from, *named)))


def announcement_url(job: str, *, artifacts_url: str) -> str:
    """URL of the object in which rank 0 of an elastic job announces its pod."""
    return f"{artifacts_url}{announcement.object_name(job)}"


def run_folder(run_id: str) -> str:
    """Folder of a run's checkpoints and event files inside its pods."""
    return f"{RUNS_MOUNT}/{run_id}"


def data_folder(run: Run) -> str | None:
    """Folder of a run's data set inside its pods; None for a run without one."""
    if run.spec.dataset is None:
        return None
    return run.linked_folder or f"{DATA_MOUNT}/{run.spec.dataset.folder}"


def own_cache(run_id: str) -> str:
    """Folder inside a run's pods for files of its own that may be lost: packages, and what its program keeps."""
    return f"{CACHE_MOUNT}/{own_files(run_id)}"


def cache_folder(run_id: str, cache: CacheUse | None) -> str:
    """Folder of a run's compiled graphs inside its pods."""
    return f"{CACHE_MOUNT}/{cache.folder if cache else own_folder(run_id)}"


def _command(run: Run, ref: JobRef, *, artifacts_url: str, cache: CacheUse | None) -> tuple[str, ...]:
    """The words that the container starts."""
    words = _words(run, ref, artifacts_url=artifacts_url, cache=cache)
    return words if ref.stage in TOOLS else (*_with_secrets(run), *words)


def _with_secrets(run: Run) -> tuple[str, ...]:
    """Words that set variables to values of Secrets Manager; empty without any. They come first, so that every part of
    the command has these variables, as it has those of Kubernetes Secrets."""
    from_service = {
        name: {"secret": secret.secrets_manager, **({"key": secret.key} if secret.key else {})}
        for name, secret in sorted(run.spec.workload.secrets.items())
        if secret.secrets_manager is not None
    }
    return (*_helper(run, "fetch_secrets"), "--variables", json.dumps(from_service), "--") if from_service else ()


def _words(run: Run, ref: JobRef, *, artifacts_url: str, cache: CacheUse | None) -> tuple[str, ...]:
    spec, workload = run.spec, run.spec.workload
    match ref.stage:
        case Stage.PREFLIGHT:
            gang = {"world_size": spec.compute.world_size, "processes_per_node": spec.compute.processes_per_node}
            continued = spec.checkpoint_words if spec.resume_from else ()
            flags = (*_named_program(workload), *option_words(gang), *continued)
            words = _filled(run, workload.words)
            return (*_in_workspace(run), *_helper(run, "probe"), *flags, "--", *words)
        case Stage.STAGE:
            if spec.dataset is None:
                raise ValueError("a run without a data set has nothing to stage")
            source = _source(spec.dataset, linked_folder=run.linked_folder, module=workload.module)
            return ("python", "-m", "trainer.stage", *source)
        case Stage.PUBLISH:
            source = ("--source", run_folder(run.run_id), "--url", artifacts_url)
            return ("python", "-m", "trainer.publish", *source, *spec.checkpoint_words)
        case Stage.PRECOMPILE:
            again = ("--retry_failed",) if ref.attempt > 1 else ()
            program = _filled(run, _of_few_steps(run))
            compiling = (*_helper(run, "precompile"), *again, "--", *_launched(run, ref, program))
            return (*_with_locked_memory(run, ref), *compiling)
        case Stage.TRAINING:
            copying = _with_copy_of(run, cache_folder(run.run_id, cache)) if cache else ()
            program = _filled(run, (*_program(workload), *workload.words))
            return (
                *_with_locked_memory(run, ref),
                *_with_healthy_nodes(run, ref),
                *copying,
                *_with_relay(run),
                *_with_checkpoint(run, ref),
                *_launched(run, ref, program),
            )


def _with_relay(run: Run) -> tuple[str, ...]:
    """Words that start the program beside one that tells its steps in files, or none at all: the functions read the log
    alone. Of the last kind it says when files below the run's folder change."""
    progress = run.spec.progress
    if progress == "auto" or (isinstance(progress, Format) and not read_from_files(progress)):
        return ()
    files = {} if progress == "none" else {name: value for name, value in progress if value is not None}
    flags = (f"--{name}={value}" for name, value in files.items())
    return (*_helper(run, "relay_progress"), *flags, "--")


def _with_checkpoint(run: Run, ref: JobRef) -> tuple[str, ...]:
    """Words that choose the newest complete checkpoint; empty for programs that find it themselves."""
    checkpoint = run.spec.checkpoint
    if checkpoint is None:
        return ()
    words = ("--words", json.dumps(checkpoint.resume)) if checkpoint.resume else ()
    marker = ("--marker", checkpoint.marker) if checkpoint.marker else ()
    complete = (*marker, "--settled_seconds", f"{checkpoint.settled_seconds:g}")
    return (*_helper(run, "resume"), "--path", checkpoint.path, *words, *complete, "--decision", ref.name, "--")


def _filled(run: Run, words: Sequence[str]) -> tuple[str, ...]:
    """Words of the spec with their placeholders filled in; `{rank}` is left to launchers that fill it in."""
    values, by_launcher = _values(run), run.spec.workload.launcher != "torchrun"
    return tuple(filled_by_workflow(word, values, by_launcher=by_launcher) for word in words)


def _values(run: Run) -> dict[str, str]:
    return {
        placeholders.DATA_DIR: data_folder(run) or "",
        placeholders.RUN_DIR: run_folder(run.run_id),
        placeholders.CACHE_DIR: own_cache(run.run_id),
        placeholders.RUN_ID: run.run_id,
    }


def _named_program(workload: Workload) -> tuple[str, ...]:
    """The probe's options for the program."""
    if workload.module is not None:
        return ("--module", workload.module)
    if workload.script is not None:
        return ("--script", workload.script)
    return ("--executable", (workload.command or [""])[0])


def _program(workload: Workload) -> tuple[str, ...]:
    """The program, as the interpreter takes it behind `python`; a command as it is."""
    if workload.module is not None:
        return ("-m", workload.module)
    return (workload.script,) if workload.script is not None else tuple(workload.command or ())


def _of_few_steps(run: Run) -> tuple[str, ...]:
    """The program and its words, so that it ends after the steps of a precompilation."""
    workload, precompile = run.spec.workload, run.spec.precompile
    program, argument = _program(workload), precompile.steps_argument
    if argument is None and workload.is_ours:
        argument = "steps_this_run"
    if argument is None:
        limited = (*_as_program(run, "limit_steps"), "--steps", str(precompile.steps), "--", *program)
        return (*limited, *workload.words)
    fewer = workload.model_copy(update={"arguments": {**workload.arguments, argument: precompile.steps}})
    return (*program, *fewer.words)


def _launched(run: Run, ref: JobRef, program: Sequence[str]) -> tuple[str, ...]:
    """The words that start a program on one node of the gang."""
    compute, workload, static = run.spec.compute, run.spec.workload, _static_rendezvous(ref)
    elastic = compute.elastic if ref.elastic else None
    if workload.launcher == "torchrun":
        return (
            *_in_workspace(run),
            *_with_error_file(run),
            "torchrun",
            *(_elastic_rendezvous(ref, elastic) if elastic else static),
            *("--nproc_per_node", str(compute.processes_per_node)),
            *(("--no-python",) if workload.command is not None else ()),
            *(_as_program(run, "announce") if elastic else ()),
            *program,
        )
    processes = compute.processes_per_node if workload.launcher == "mpi" else 0
    python = () if workload.command is not None else ("python", "-u")
    launching = (*_helper(run, "launch"), *static, "--nproc_per_node", str(processes))
    return (*_in_workspace(run), *_with_error_file(run), *launching, "--", *python, *program)


def _with_error_file(run: Run) -> tuple[str, ...]:
    """Words that report the exception of the rank that failed first, and the files that the program leaves in its
    working folder. Slurm signals every process of a job itself, so that a program between them would pass on each
    signal once more; its job script reports the files."""
    if run.tools_image is None:
        return ()
    mounts = [volume.mount for volume in run.spec.workload.volumes]
    return (*_helper(run, "error_file"), *(("--volumes", *mounts) if mounts else ()), "--")


def _helper(run: Run, name: str) -> tuple[str, ...]:
    """Words that start a helper in the container of the workload's program.

    Args:
        run: The run.
        name: Module of the trainer.
    """
    return ("python", *_as_program(run, name))


def _in_workspace(run: Run) -> tuple[str, ...]:
    """Words that start a command in the folder of the run's code; empty for a run without code.

    An init container has filled the folder. On Slurm's nodes the first of the two programs does, below the folder in
    which the node starts the command.
    """
    if run.spec.workload.code is None:
        return ()
    required = run.spec.workload.requirements
    packages = ("--requirements", required, "--packages", f"{own_cache(run.run_id)}/packages") if required else ()
    if run.tools_image is not None:
        return (*_helper(run, "workspace"), "--folder", WORKSPACE, *packages, "--")
    folder = WORKSPACE.lstrip("/")
    fetching = (*_helper(run, "code"), "--url", run.spec.workload.code, "--into", folder, "--")
    return (*fetching, *_helper(run, "workspace"), "--folder", folder, *packages, "--")


def _as_program(run: Run, name: str) -> tuple[str, ...]:
    """A helper as `python` and torchrun start it: from the folder that an init container of the tools image fills.

    Without that image the packages are installed: on Slurm's nodes, and in the images of runs that began before there
    was one.
    """
    return ("-m", f"trainer.{name}") if run.tools_image is None else (HELPERS, name)


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


def _with_locked_memory(run: Run, ref: JobRef) -> tuple[str, ...]:
    """Words that check the limit of locked memory before a gang starts over EFA; empty for other gangs."""
    if not run.spec.compute.instance.uses_efa(ref.num_nodes):
        return ()
    return (*_helper(run, "locked_memory"), "--mebibytes", str(HUGE_PAGES_OF_EFA_POD_MIB), "--")


def _with_healthy_nodes(run: Run, ref: JobRef) -> tuple[str, ...]:
    """Words that test a gang's nodes before its training; empty for one node, and for an elastic gang, whose nodes come
    and go."""
    if not run.tests_nodes or ref.elastic or ref.num_nodes == 1:
        return ()
    return (*_helper(run, "node_health"), "--processes", str(run.spec.compute.processes_per_node), "--")


def _with_copy_of(run: Run, folder: str) -> tuple[str, ...]:
    """Words that copy the cache first: other runs may read it, so a training's compiler uses a copy."""
    return (*_helper(run, "compile_cache"), "--source", folder, "--")


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
    if (folder := data_folder(run)) is not None:
        environment[variables.DATA_DIR] = folder
    instance = run.spec.compute.instance
    if instance.uses_neuron:
        environment |= NEURON_ENVIRONMENT
    if instance.has_scratch and ref.stage in GANGS:
        environment[variables.SCRATCH_DIR] = SCRATCH_MOUNT
    if ref.stage is Stage.TRAINING and instance.tflops_per_process is not None:
        environment[variables.PEAK_TFLOPS] = f"{instance.tflops_per_process:g}"
    if instance.uses_efa(ref.num_nodes):
        environment |= EFA_ENVIRONMENT
        interface = DESCRIPTIONS[ref.backend].network_interface
        if instance.uses_neuron and interface is not None:
            environment[INTERFACE_VARIABLE] = interface
    if ref.elastic:
        environment[variables.RANK0_URL] = announcement_url(ref.name, artifacts_url=artifacts_url)
    if ref.stage in GANGS:
        names, texts = run.spec.workload.env.keys(), run.spec.workload.env.values()
        environment |= dict(zip(names, _filled(run, tuple(texts)), strict=True))
    return environment
