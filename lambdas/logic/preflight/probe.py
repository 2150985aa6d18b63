"""Judging the probe, a small pod in the workload's image: program, arguments, room for data and checkpoints."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from lambdas.logic.preflight.dataset import folder_findings, is_staged
from lambdas.logic.preflight.findings import Finding, Note, Problem, shortened
from trainflow.deployment.kubernetes_names import NO_IMAGE
from trainflow.errors import (
    AccessDenied,
    ContainerNotStarted,
    JobDeadlineExceeded,
    OutOfMemory,
    ScriptFailed,
    StorageFailed,
    TrainflowError,
    WorkerFailed,
)
from trainflow.spec.run_spec import Dataset, RunSpec
from trainflow.workflow.preflight import DatasetFacts, Probed, Unknown
from trainflow.workflow.run import Run

FAILURES = (
    AccessDenied,
    ContainerNotStarted,
    JobDeadlineExceeded,
    OutOfMemory,
    ScriptFailed,
    StorageFailed,
    WorkerFailed,
)
"""Failures of the probe whose cause is the image it ran in."""

WRONG_MACHINE = "exec format error"
"""Linux's error message for a program of another architecture."""

COMPRESSED = 3.0
"""Ratio of an archive's content to its size: Zstandard's README gives 2.9 and zlib 2.7 for the Silesia corpus."""

SIZES = ("free_bytes", "checkpoint_bytes")
TEXTS = tuple(name for name in Probed.__dataclass_fields__ if name not in (*SIZES, "versions"))
"""Facts of the probe's result by their types. The image's own code may write the result, too."""

FIRST_ATTEMPT = "ErrImagePull"
"""Reason after the first failed pull. The kubelet tries again: the image counts as unavailable only in back-off."""


def probed(result: Mapping[str, Any]) -> Probed:
    """The probe's result, whatever the version of the trainer in the image; values of another type are left out."""
    versions = result.get("versions")
    named = versions.items() if isinstance(versions, dict) else ()
    known: dict[str, Any] = {name: result[name] for name in TEXTS if isinstance(result.get(name), str)}
    sizes = {name: result[name] for name in SIZES if _is_size(result.get(name))}
    return Probed(
        **{"machine": "", **known, **sizes},
        versions={name: version for name, version in named if isinstance(version, str)},
    )


def _is_size(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63


def image_out_of_reach(run: Run, pending_reason: str | None) -> Problem | None:
    """The problem of a probe whose image cannot be pulled; None if its pod may still start.

    Args:
        run: The run.
        pending_reason: Reason why the pod is pending, as its kubelet or the scheduler reports it.
    """
    reason, _, message = (pending_reason or "").partition(": ")
    if reason not in NO_IMAGE or reason == FIRST_ATTEMPT:
        return None
    if run.tools_image is not None and run.tools_image in message:
        return Problem(
            f"The tools image '{run.tools_image}', from which every pod takes Trainflow's helpers, cannot be pulled "
            f"({shortened(message)}); let the nodes' role read its repository."
        )
    return Problem(
        f"workload.image is '{run.spec.workload.image}', which cannot be pulled ({shortened(message) or reason}); "
        "correct it, or let the nodes' role read the repository."
    )


def secret_out_of_reach(spec: RunSpec, pending_reason: str | None) -> Problem | None:
    """The problem of a probe whose container lacks a Secret or its key; None if its pod may still start.

    The probe is given the program's Secrets, so that no function needs the right to read them.

    Args:
        spec: Spec of the run.
        pending_reason: Reason why the pod is pending, as its kubelet reports it.
    """
    reason, _, message = (pending_reason or "").partition(": ")
    if reason != "CreateContainerConfigError" or not spec.workload.secrets:
        return None
    return Problem(
        f"workload.secrets: {shortened(message).rstrip('.')}; create it in the runs' namespace, or correct the spec."
    )


def probe_timeout(spec: RunSpec, pending_reason: str | None) -> Problem:
    """The problem of a probe that did not end in time."""
    waited = f"limits.gang_timeout_minutes: a small program in {_program_place(spec)} did not end within "
    waited += f"{spec.limits.gang_timeout_minutes:g} minutes"
    return Problem(
        f"{waited}: {shortened(pending_reason)}"
        if pending_reason
        else f"{waited}; check the cluster's nodes for small programs."
    )


def _program_place(spec: RunSpec) -> str:
    """Place of the programs: an image, or a virtual environment on Slurm's nodes."""
    if spec.workload.image is not None:
        return f"the image '{spec.workload.image}'"
    named = spec.workload.python_environment
    return f"the virtual environment '{named}'" if named else "the deployment's virtual environment"


def probe_failure(spec: RunSpec, failed: TrainflowError) -> Problem:
    """The problem of a probe that failed: the image cannot run it, so it can run no helper either."""
    reason = shortened(str(failed)).rstrip(".")
    if spec.workload.image is None:
        return Problem(
            f"workload.python_environment: in {_program_place(spec)}, `python -m trainer.probe` does not run "
            f"({reason}); install what it needs there, and the packages trainer and trainflow.protocol into "
            "SLURM_PROGRAM_FOLDER."
        )
    image = f"workload.image is '{spec.workload.image}'"
    if WRONG_MACHINE in str(failed).lower():
        machine = spec.compute.instance.architecture
        return Problem(f"{image}, which is not built for {machine}; build it with `--platform linux/{_oci(machine)}`.")
    return Problem(
        f"{image}, in which Trainflow's probe does not run ({reason}); choose an image that has Python 3.10 or newer "
        "as `python`."
    )


def probe_findings(run: Run, seen: Probed, data: DatasetFacts) -> Iterator[Finding]:
    """Findings from the probe's result.

    Args:
        run: The run.
        seen: Result of the probe.
        data: Facts about the source of the run's data set.
    """
    spec = run.spec
    field = f"workload.{_program_field(spec)}"
    if seen.program:
        yield Problem(f"{field}: {shortened(seen.program)}")
    if seen.arguments:
        yield Problem(f"workload.arguments: {shortened(seen.arguments)}")
    if seen.continues:
        yield Problem(f"resume_from: {shortened(seen.continues)}")
    if seen.machine and seen.machine != spec.compute.instance.architecture:
        yield Note(
            f"workload.image: the probe ran on {seen.machine}; whether the image runs on {spec.compute.instance_type} "
            f"({spec.compute.instance.architecture}) too is not known."
        )
    if spec.dataset is not None and run.linked_folder is None:
        yield from folder_findings(spec.dataset, seen)
    yield from _room(run, seen, data)


def _program_field(spec: RunSpec) -> str:
    return next(field for field in ("module", "script", "command") if getattr(spec.workload, field) is not None)


def _room(run: Run, seen: Probed, source: DatasetFacts) -> Iterator[Finding]:
    """Findings about the room for data set and checkpoints, which share one file system.

    Known sizes have to fit: those of the archive and of the checkpoints. The size of the archive's content is an
    estimate, and an estimate stops no run.
    """
    if seen.free_bytes is None:
        yield Note("Whether there is room for data and checkpoints: the probe did not report how much is free.")
        return
    dataset = run.spec.dataset
    to_stage = dataset is not None and run.linked_folder is None and not is_staged(dataset, source, seen)
    if to_stage and isinstance(source.num_bytes, Unknown):
        yield Note(f"dataset.url: whether there is room for the data set: {source.num_bytes.reason}.")
    data = source.num_bytes if to_stage and not isinstance(source.num_bytes, Unknown) else 0
    checkpoints = seen.checkpoint_bytes or 0
    if data + checkpoints > seen.free_bytes:
        yield Problem(_too_little(run, seen.free_bytes, data=data, checkpoints=checkpoints))
    elif dataset is not None and data * _growth(dataset) + checkpoints > seen.free_bytes:
        yield Note(
            f"dataset.url: the archive has {_gib(data)}, its content perhaps {_GROWN}, and {_gib(seen.free_bytes)} "
            "are free on the shared file system."
        )


_GROWN = f"{COMPRESSED:g} times as much"


def _too_little(run: Run, free: int, *, data: int, checkpoints: int) -> str:
    parts = []
    if data and run.spec.dataset is not None:
        parts.append(f"{_gib(data)} for {run.spec.dataset.url}")
    if checkpoints:
        parts.append(f"{_gib(checkpoints)} for checkpoints")
    field = "dataset.url" if data else "workload.arguments"
    return (
        f"{field}: the shared file system has {_gib(free)} free, but the run needs {' and '.join(parts)}; remove old "
        "runs and data sets, or give the file system more storage."
    )


def _growth(dataset: Dataset) -> float:
    return 1.0 if dataset.is_prefix or dataset.url.endswith(".tar") else COMPRESSED


def _gib(size: int) -> str:
    return f"{size / 2**30:,.1f} GiB"


def _oci(machine: str) -> str:
    return {"x86_64": "amd64", "aarch64": "arm64"}.get(machine, machine)
