"""The plans of gangs and of the preflight's probe: the steps that a run needs on its nodes."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from lambdas.logic.folders import cache_folder, filled, own_cache, own_packages, run_folder
from trainflow.deployment.backends import DESCRIPTIONS
from trainflow.nodes.instances import HUGE_PAGES_OF_EFA_POD_MIB
from trainflow.protocol.plan import (
    AbandonedLocks,
    Code,
    CompileCache,
    Elastic,
    Fetch,
    Launch,
    LockedMemory,
    NodeTest,
    Plan,
    Precompile,
    Probe,
    Progress,
    Report,
    Restart,
    Resume,
    Secrets,
    SecretSource,
)
from trainflow.protocol.pods import PACKAGES_FOLDER, WORKSPACE
from trainflow.spec.progress import Format, read_from_files
from trainflow.spec.workload import Workload, option_words
from trainflow.workflow.compile_cache import CacheUse
from trainflow.workflow.run import JobRef, Run, Stage


def plan_of(run: Run, ref: JobRef, *, cache: CacheUse | None) -> Plan:
    """The plan of a job.

    Args:
        run: The run that the job belongs to.
        ref: The job.
        cache: Cache of its compiled graphs; None for a run without precompilation.
    """
    match ref.stage:
        case Stage.PREFLIGHT:
            return Plan(secrets=_secrets(run), code=_code(run), probe=_probe(run))
        case Stage.PRECOMPILE:
            return Plan(
                secrets=_secrets(run),
                locked_memory=_locked_memory(run, ref),
                abandoned_locks=_abandoned_locks(run, ref, compiled=cache_folder(run.run_id, cache)),
                code=_code(run),
                precompile=Precompile(retry_failed=ref.attempt > 1),
                report=_report(run),
                launch=_precompiled(run, ref),
            )
        case Stage.TRAINING:
            return Plan(
                secrets=_secrets(run),
                locked_memory=_locked_memory(run, ref),
                abandoned_locks=_abandoned_locks(run, ref),
                node_test=_node_test(run, ref),
                compile_cache=CompileCache(source=cache_folder(run.run_id, cache)) if cache else None,
                resume=_resume(run, ref),
                code=_code(run),
                progress=_progress(run),
                report=_report(run),
                restart=_restart(run, ref),
                launch=_launch(run, ref, words=run.spec.workload.words),
            )
    raise ValueError(f"the stage {ref.stage} is a small program, which needs no plan")


def fetch_plan(plan: Plan | None) -> Plan | None:
    """The plan of an init container that fetches required packages before the preflight's probe; None for other jobs.

    Args:
        plan: The plan of the job's program.
    """
    if plan is None or plan.probe is None or plan.code is None or plan.code.requirements is None:
        return None
    return Plan(secrets=plan.secrets, fetch=Fetch(code=plan.code))


def _secrets(run: Run) -> Secrets | None:
    sources = {
        name: SecretSource(secret=secret.secrets_manager, key=secret.key)
        for name, secret in sorted(run.spec.workload.secrets.items())
        if secret.secrets_manager is not None
    }
    return Secrets(variables=sources) if sources else None


def _locked_memory(run: Run, ref: JobRef) -> LockedMemory | None:
    """The check of a gang over EFA; other gangs need none."""
    over_efa = run.spec.compute.instance.uses_efa(ref.num_nodes)
    return LockedMemory(mebibytes=HUGE_PAGES_OF_EFA_POD_MIB) if over_efa else None


def _abandoned_locks(run: Run, ref: JobRef, *, compiled: str | None = None) -> AbandonedLocks | None:
    """The removal of locks that an attempt before this one has left; None for the first attempt.

    Args:
        run: The run.
        ref: The job.
        compiled: Folder of the graphs that this job compiles for others.
    """
    if ref.attempt == 1:
        return None
    caches = dict.fromkeys(filter(None, (own_cache(run.run_id), compiled)))
    return AbandonedLocks(job=ref.name, caches=tuple(caches), results=(run_folder(run.run_id),))


def _node_test(run: Run, ref: JobRef) -> NodeTest | None:
    """The test of a gang's nodes; none for one node, and for an elastic gang, whose nodes come and go."""
    if not run.tests_nodes or ref.elastic or ref.num_nodes == 1:
        return None
    return NodeTest(processes=run.spec.compute.processes_per_node)


def _resume(run: Run, ref: JobRef) -> Resume | None:
    """The choice of the newest complete checkpoint; none for programs that find it themselves."""
    checkpoint = run.spec.described_checkpoint
    if checkpoint is None:
        return None
    return Resume(
        path=checkpoint.path,
        words=tuple(checkpoint.resume),
        marker=checkpoint.marker,
        settled_seconds=checkpoint.settled_seconds,
        decision=ref.name,
        passed_over=run.failed_checkpoints.unusable,
    )


def _code(run: Run) -> Code | None:
    """The run's code. An init container has filled its folder; Slurm's nodes fetch it into a folder
    below that of the supervisor."""
    workload = run.spec.workload
    if workload.code is None:
        return None
    has_init_container = run.tools_image is not None
    return Code(
        folder=WORKSPACE if has_init_container else WORKSPACE.lstrip("/"),
        url=None if has_init_container else workload.code,
        requirements=workload.requirements,
        packages=own_packages(run.run_id) if workload.requirements else None,
        shared_packages=PACKAGES_FOLDER if workload.requirements else None,
        writes_shared=bool(workload.requirements) and not has_init_container,
        replace_packages=tuple(workload.replace_packages),
        kept_gib=workload.kept_gib,
    )


def _progress(run: Run) -> Progress | None:
    """The relay of what a program writes to files: its steps, and that it goes on.

    Our own programs print their steps. In a Slurm job, whose working folder may be a home folder, only files that the
    spec names are read.
    """
    progress = run.spec.progress
    if isinstance(progress, Format) and read_from_files(progress):
        return Progress(tensorboard=progress.tensorboard, trainer_state=progress.trainer_state)
    if progress == "none":
        return Progress()
    # Decision 88: the log may show no step although the program writes them to files.
    is_searched = not run.spec.workload.is_ours and run.tools_image is not None
    return Progress(search=True) if is_searched else None


def _report(run: Run) -> Report | None:
    """The report of what the program leaves. Slurm signals every process of a job itself, so that a parent of the
    program would pass on each signal once more; its job script reports the files."""
    if run.tools_image is None:
        return None
    return Report(
        volumes=tuple(volume.mount for volume in run.spec.workload.volumes),
        # The stacks have to be in the log before the job is ended.
        quiet_seconds=min(Report.quiet_seconds, run.spec.limits.stall_minutes * 60 / 2),
    )


def _restart(run: Run, ref: JobRef) -> Restart | None:
    """A restart in the pods, where the run has a restart left; Slurm's supervisors are replaced by their programs, and
    torchrun restarts elastic gangs itself."""
    limits = run.spec.limits
    is_left = limits.restart_in_place and run.restarts_in_vain < limits.max_restarts
    return Restart(job=ref.name) if is_left and run.tools_image is not None and not ref.elastic else None


def _precompiled(run: Run, ref: JobRef) -> Launch:
    """The program, which ends after the steps of a precompilation: by its own flag, or by its optimizer's steps."""
    workload, precompile = run.spec.workload, run.spec.precompile
    argument = precompile.steps_argument
    if argument is None and workload.is_ours:
        argument = "steps_this_run"
    if argument is None:
        return _launch(run, ref, words=workload.words, max_steps=precompile.steps)
    fewer = workload.model_copy(update={"arguments": {**workload.arguments, argument: precompile.steps}})
    return _launch(run, ref, words=fewer.words)


def _launch(run: Run, ref: JobRef, *, words: Sequence[str], max_steps: int | None = None) -> Launch:
    workload = run.spec.workload
    return Launch(
        launcher=workload.launcher,
        num_nodes=ref.num_nodes,
        processes=run.spec.compute.processes_per_node,
        port=rendezvous_port(ref.name),
        elastic=_elastic(run, ref),
        max_steps=max_steps,
        is_python=workload.command is None,
        program=filled(run, (*program_words(workload), *words)),
    )


def _elastic(run: Run, ref: JobRef) -> Elastic | None:
    """The rendezvous of a gang that meets in a store on one of its nodes; None for other gangs."""
    elastic = run.spec.compute.elastic
    if elastic is None or not ref.elastic:
        return None
    return Elastic(
        min_nodes=elastic.min_nodes,
        max_nodes=elastic.max_nodes,
        store=f"{DESCRIPTIONS[ref.backend].elastic_address(ref.name)}:{rendezvous_port(ref.name)}",
        id=ref.name,
        max_restarts=elastic.max_restarts,
    )


def rendezvous_port(job: str) -> int:
    """Port of a job's rendezvous. It depends on the job, so that two jobs on one network do not join each other.

    Between 20000 and 29999: above the registered services, below Linux's ephemeral ports (32768).
    """
    return 20000 + int(hashlib.sha256(job.encode()).hexdigest()[:8], 16) % 10000


def program_words(workload: Workload) -> tuple[str, ...]:
    """The program, as the interpreter takes it behind `python`; a command as it is."""
    if workload.module is not None:
        return ("-m", workload.module)
    return (workload.script,) if workload.script is not None else tuple(workload.command or ())


def _probe(run: Run) -> Probe:
    spec, compute = run.spec, run.spec.compute
    gang = {"world_size": compute.world_size, "processes_per_node": compute.processes_per_node}
    continued = spec.checkpoint_words if spec.resume_from else ()
    flags = (*_named_program(spec.workload), *option_words(gang), *continued)
    return Probe(words=(*flags, "--", *filled(run, spec.workload.words)))


def _named_program(workload: Workload) -> tuple[str, ...]:
    """The probe's options for the program."""
    if workload.module is not None:
        return ("--module", workload.module)
    if workload.script is not None:
        return ("--script", workload.script)
    return ("--executable", (workload.command or [""])[0])
