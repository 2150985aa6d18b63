"""One run in the twin: from the spec's file to the record and the report."""

from __future__ import annotations

import hashlib
import shutil
import signal
import subprocess
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.console import Console

from local import preflight
from local.aws import folder_buckets
from local.aws.deployment import ARTIFACT_BUCKET, DEPLOYMENT_NAME
from local.slurm.configuration import SlurmSettings
from local.slurm.errors import SlurmError
from local.twin import REPOSITORY, Twin, TwinError
from trainflow.cli.follow import follow, summarize
from trainflow.cli.spec_file import read_spec
from trainflow.client.files import write_record, write_report
from trainflow.client.observe import RunObserver
from trainflow.client.observe.slurm import SlurmJobs
from trainflow.errors import named_errors
from trainflow.models.run_record import RunRecord, RunStatus
from trainflow.models.run_spec import RunSpec
from trainflow.record.failure import explained
from trainflow.record.steps import FILE_NAME as STEPS_FILE
from trainflow.record.steps import KeptSteps, kept_steps_from_json

EXIT_STATUS = {RunStatus.SUCCEEDED: 0, RunStatus.ABORTED: 130}
"""130 is 128 + SIGINT, as shells have it."""

ABORTED = explained("Aborted", "The run was stopped from the keyboard.")

STOP_SECONDS = 30.0
"""For an execution to end, and again for the clean-up to have its answer: as long as a slow call and its retry."""


class Refused(Exception):
    """The run was not started; the message says why and what to do."""


def run_local(
    spec_path: Path,
    overrides: Sequence[Path],
    *,
    out: Path,
    home: Path,
    time_scale: float,
    kubeconfig: Path | None,
    console: Console,
) -> int:
    """Run a spec, with what files of overrides say instead, in the twin.

    Returns:
        The command's exit status.

    Raises:
        TrainflowError: If the input is at fault; nothing was created.
        Refused: If the twin cannot be started.
    """
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _interrupt_once)
    spec = read_spec(spec_path, overrides)
    preflight.require_program(spec.workload, REPOSITORY)
    preflight.require_backend(spec)
    if spec.dataset is not None and spec.dataset.bucket == folder_buckets.DEMO_BUCKET:
        _make_demo_data(home, console)
    preflight.require_dataset(spec, home / "s3")
    preflight.require_machine(out)
    started_at = datetime.now(UTC)
    run_id = f"{spec.name}-{_twelve_hex(spec, started_at)}"
    folder = out / run_id
    try:
        twin = Twin(
            home=home,
            log_dir=folder / "logs" / "twin",
            time_scale=time_scale,
            kubeconfig=kubeconfig,
            slurm=SlurmSettings() if spec.compute.backend == "slurm" else None,
        )
        with console.status("Starting the twin …"):
            twin.start()
    except (TwinError, SlurmError, OSError) as error:
        shutil.rmtree(folder, ignore_errors=True)
        raise Refused(str(error)) from None
    try:
        record = follow_run(twin, spec, run_id, folder=folder, console=console)
    finally:
        twin.stop()
    _point_latest(out, run_id)
    summarize(record, console, report=folder / "report.html")
    return _exit_status(record)


def _make_demo_data(home: Path, console: Console) -> None:
    try:
        with console.status("Making the demo's data set from Python's own documentation …"):
            folder_buckets.ensure_demo_data(home / "s3")
    except (subprocess.CalledProcessError, OSError) as error:
        raise Refused(f"{home}: the demo's data set could not be made ({error}).") from None


def _twelve_hex(spec: RunSpec, started_at: datetime) -> str:
    return hashlib.sha256(f"{spec.model_dump_json()}{started_at.isoformat()}".encode()).hexdigest()[:12]


def _interrupt_once(_number: int, _frame: object) -> None:
    """Ctrl-C and `kill` stop the run; a second one must not stop the stopping."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt


def follow_run(twin: Twin, spec: RunSpec, run_id: str, *, folder: Path, console: Console) -> RunRecord:
    """Start a run in a running twin, follow it to its end, and leave its record and report in `folder`."""
    stepfunctions = twin.client("stepfunctions")
    assert twin.deployment is not None, "the twin runs"  # noqa: S101
    arn: str = stepfunctions.start_execution(
        stateMachineArn=twin.deployment.training_state_machine_arn, name=run_id, input=spec.model_dump_json()
    )["executionArn"]
    observer = RunObserver(
        stepfunctions=stepfunctions,
        cloudwatch=twin.client("cloudwatch"),
        kubeconfig=twin.kubeconfig,
        run_id=run_id,
        execution_arn=arn,
        deployment=DEPLOYMENT_NAME,
        log_dir=folder / "logs",
        namespace=twin.namespace,
        poll_seconds=0.5,
        cluster=_slurm_jobs(twin, run_id) if spec.compute.backend == "slurm" else None,
    )
    observer.start()
    aborted = False
    try:
        follow(observer, console, lambda: _has_ended(stepfunctions, arn))
    except KeyboardInterrupt:
        aborted = True
        console.print("Stopping: the run's executions, jobs and nodes …", style="yellow")
        _abort(twin, arn)
    finally:
        observer.stop()
    # The end of the execution has a record written of it; this one is made of the same facts and what was observed.
    twin.aws.targets.drain(STOP_SECONDS)
    record = observer.record(
        status=RunStatus.ABORTED if aborted else None,
        error=ABORTED if aborted else None,
        kept=_kept_steps(twin, run_id),
        settle_seconds=0.0,
    )
    write_record(record, folder / "run.json")
    write_report(record, observer.steps(), folder / "report.html")
    return record


def _kept_steps(twin: Twin, run_id: str) -> KeptSteps | None:
    """The steps that the workflow kept; None if there are none."""
    s3 = twin.client("s3")
    try:
        found = s3.get_object(Bucket=ARTIFACT_BUCKET, Key=f"runs/{run_id}/{STEPS_FILE}")
    except s3.exceptions.NoSuchKey:
        return None
    return kept_steps_from_json(found["Body"].read())


def _slurm_jobs(twin: Twin, run_id: str) -> SlurmJobs:
    return SlurmJobs(twin.client("s3"), bucket=ARTIFACT_BUCKET, run_id=run_id)


def _has_ended(stepfunctions: Any, arn: str) -> bool:
    return bool(stepfunctions.describe_execution(executionArn=arn)["status"] != "RUNNING")


def _abort(twin: Twin, arn: str) -> None:
    """Stop the run; what it holds is given back by the rule for executions that are stopped."""
    stepfunctions = twin.client("stepfunctions")
    stepfunctions.stop_execution(executionArn=arn, error=ABORTED.name, cause=ABORTED.message)
    deadline = time.monotonic() + STOP_SECONDS
    while not _has_ended(stepfunctions, arn) and time.monotonic() < deadline:
        time.sleep(0.1)
    twin.aws.targets.drain(STOP_SECONDS)


def _point_latest(out: Path, run_id: str) -> None:
    """Let `out/latest` lead to the newest run, at no moment to nothing."""
    link, fresh = out / "latest", out / f".latest-{run_id}"
    fresh.symlink_to(run_id)
    fresh.replace(link)


def _exit_status(record: RunRecord) -> int:
    if record.status in EXIT_STATUS:
        return EXIT_STATUS[record.status]
    error = named_errors().get(record.error.name) if record.error else None
    return 2 if error is not None and error.input_at_fault else 1
