"""Runs that have ended, from the folders that they left: `<out>/<run id>/run.json`, `steps.json` and `logs/`."""

from __future__ import annotations

from pathlib import Path

from pydantic import ValidationError

from trainflow.client.files import read_record
from trainflow.client.observe.snapshot import RunSnapshot
from trainflow.models.run_record import Job, Pod, RunRecord
from trainflow.models.total_steps import total_steps
from trainflow.protocol.checkpoint_line import CheckpointReport
from trainflow.record.build import own_execution
from trainflow.record.history import Visit
from trainflow.record.pods import PodView
from trainflow.record.steps import FILE_NAME as STEPS_FILE
from trainflow.record.steps import KeptSteps, kept_steps_from_json

RECORD_FILE = "run.json"


class EndedRuns:
    """The records in a folder, each read once while its file stays the same."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._records: dict[Path, tuple[int, RunRecord | None]] = {}

    def records(self) -> list[RunRecord]:
        """Every record that can be read."""
        found = (self._record(path) for path in self.folder.glob(f"*/{RECORD_FILE}") if not path.parent.is_symlink())
        return [record for record in found if record is not None]

    def snapshot(self, run_id: str) -> RunSnapshot | None:
        """Final state of the run; None if the folder does not contain its record."""
        record = self._record(self.folder / run_id / RECORD_FILE) if is_name(run_id) else None
        if record is None:
            return None
        return final_snapshot(record, _steps(self.folder / run_id / STEPS_FILE))

    def log_dir(self, run_id: str) -> Path:
        """The folder with the logs of the run's pods."""
        return self.folder / run_id / "logs"

    def report(self, run_id: str) -> Path:
        """The run's report, which may not be there."""
        return self.folder / run_id / "report.html"

    def _record(self, path: Path) -> RunRecord | None:
        try:
            changed = path.stat().st_mtime_ns
            known = self._records.get(path)
            if known is None or known[0] != changed:
                known = self._records[path] = (changed, _read(path))
            return known[1]
        except OSError:
            return None


def is_name(text: str) -> bool:
    """Whether a text is the name of a file in a folder, and no path."""
    return text not in ("", ".", "..") and "/" not in text and "\\" not in text and "\0" not in text


def final_snapshot(record: RunRecord, kept: KeptSteps) -> RunSnapshot:
    """A run that has ended, as an observer would have seen it last."""
    steps = kept.steps
    return RunSnapshot(
        run_id=record.run_id,
        status=record.status,
        observed_at=record.ended_at or record.started_at,
        execution=own_execution(record),
        arn=record.executions[0].arn if record.executions else "",
        spec=record.spec,
        instance_type=record.instance_type,
        started_at=record.started_at,
        ended_at=record.ended_at,
        states=tuple(
            Visit(
                name=visit.name,
                kind="",
                entered_at=visit.entered_at,
                exited_at=visit.exited_at,
                attempts=visit.attempts,
                execution=visit.execution,
            )
            for visit in record.states
        ),
        pods=tuple(_pod(stage, job, pod) for stage, job in record.jobs.items() for pod in _pods(job)),
        steps=steps,
        total_steps=total_steps(record.spec, steps[0].step if steps else None),
        checkpoints=tuple(
            CheckpointReport(step=saved.step, num_bytes=saved.size_bytes, saved_at=saved.saved_at)
            for saved in record.checkpoints
            if saved.step is not None and saved.saved_at is not None
        ),
        restarts=tuple(record.restarts),
        avoided_nodes=tuple(record.avoided_nodes),
        cost=record.cost,
        nodes_busy=record.nodes_busy,
        error=record.error,
        warnings=tuple(record.warnings),
    )


def _pods(job: Job) -> list[Pod]:
    """The pods of a job. The workflow's own record has the failed ones, and of the others the name of rank 0's."""
    if job.rank0 is None or job.rank0 in {pod.name for pod in job.pods}:
        return job.pods
    phase = job.phase if job.phase == "Succeeded" else "Unknown"
    return [Pod(name=job.rank0, phase=phase), *job.pods]


def _pod(stage: str, job: Job, pod: Pod) -> PodView:
    return PodView(
        name=pod.name,
        uid=pod.name,
        stage=stage,
        attempt=job.attempts,
        index=0 if pod.name == job.rank0 else 1,
        job_name=job.name,
        node=pod.node,
        phase=pod.phase,
        exit_code=pod.exit_code,
        started_at=pod.started_at,
        finished_at=pod.finished_at,
        message=pod.message,
    )


def _read(path: Path) -> RunRecord | None:
    try:
        return read_record(path)
    except (ValidationError, UnicodeDecodeError):
        return None


def _steps(path: Path) -> KeptSteps:
    try:
        return kept_steps_from_json(path.read_bytes())
    except OSError:
        return KeptSteps()
