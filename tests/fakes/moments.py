"""A library of runs at every moment that a person knows: waiting, hung, recovering, ended in each way."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from trainflow.failures.error_table import NamedError
from trainflow.observed.node_wait import NodeWait
from trainflow.observed.pod import Pod
from trainflow.observed.run_state import RunState
from trainflow.observed.step import Step
from trainflow.observed.visit import Visit
from trainflow.protocol.checkpoint_line import CheckpointReport
from trainflow.record.failure import explained
from trainflow.workflow.blockage import Blockage
from trainflow.workflow.run_cost import Cost
from trainflow.workflow.run_record import Restart
from trainflow.workflow.run_status import RunStatus

BEGIN = (("ValidateRun", 1.0), ("Preflight", 9.0))
NODES = (*BEGIN, ("BeginToAskForNodes", 0.0), ("EnsureCapacity", 95.0))
TRAINED = (*NODES, ("SubmitTraining", 1.0), ("WatchTraining", 400.0))
FAILED = (*TRAINED, ("CollectDiagnostics", 2.0), ("TearDownAfterFailure", 3.0), ("RunFailed", 0.0))
SUCCEEDED = (*TRAINED, ("TearDown", 2.0), ("PublishArtifacts", 8.0), ("RunSucceeded", 0.0))
SPEC: Mapping[str, Any] = {
    "name": "bert",
    "compute": {"instance_type": "trn1.32xlarge", "num_nodes": 2},
    "limits": {"stall_minutes": 30},
}
TRACEBACK = (
    "Traceback (most recent call last):",
    '  File "/runs/bert/workspace/fit.py", line 36, in <module>',
    "    loss = head(features, labels)",
    "ValueError: label 7 is out of range for 4 classes",
)


class Moment:
    """A run that stands still at one moment, as a followed run is asked for it."""

    def __init__(self, state: RunState) -> None:
        self.state = state

    def snapshot(self) -> RunState:
        return self.state


def visits(stays: Sequence[tuple[str, float]], now: datetime, *, goes_on: bool) -> tuple[Visit, ...]:
    """Visits of these lengths that end now, or go on."""
    found, at = [], now - timedelta(seconds=sum(seconds for _, seconds in stays))
    for place, (name, seconds) in enumerate(stays):
        until = at + timedelta(seconds=seconds)
        is_open = goes_on and place == len(stays) - 1
        found.append(Visit(name=name, kind="Task", entered_at=at, exited_at=None if is_open else until))
        at = until
    return tuple(found)


def steps(newest: datetime, number: int = 600, *, spoilt_from: int | None = None) -> tuple[Step, ...]:
    """Steps half a second apart, the newest at this moment."""
    return tuple(
        Step(
            logged_at=newest - timedelta(seconds=(number - at) / 2),
            epoch=None,
            step=at,
            loss=math.nan if spoilt_from and at >= spoilt_from else 6 / (1 + at / 80) + 0.15 * math.sin(at * 1.7),
            learning_rate=4e-4 * min(1.0, at / 100),
            throughput=3200.0 + 60 * math.sin(at / 9),
            metrics={"tokens_seen": float(at * 65_536), "grad_norm": 1.2 + 0.5 * math.cos(at / 11)},
        )
        for at in range(1, number + 1)
    )


def moments(given: datetime | None = None) -> dict[str, RunState]:
    """A run for each moment, by its name."""
    now = given or datetime.now(UTC)

    def ago(seconds: float) -> datetime:
        return now - timedelta(seconds=seconds)

    def pod(index: int, phase: str = "Running", **fields: Any) -> Pod:
        started = {} if phase == "Pending" else {"started_at": ago(300)}
        return Pod(
            name=f"bert-training-1-{index}",
            uid=f"uid-{index}",
            stage="training",
            index=index,
            phase=phase,
            **{"node": f"trn1-{index}", **started, **fields},
        )

    def run(stays: Sequence[tuple[str, float]], **fields: Any) -> RunState:
        status = fields.pop("status", RunStatus.RUNNING)
        end = {} if status is RunStatus.RUNNING else {"ended_at": now}
        return RunState(
            **{
                "run_id": "bert",
                "status": status,
                "observed_at": now,
                "arn": "arn:aws:states:us-east-1:1:execution:trainflow-training:bert",
                "spec": SPEC,
                "started_at": ago(sum(seconds for _, seconds in stays)),
                "states": visits(stays, now, goes_on=not end),
                "state": None if end else stays[-1][0],
                **end,
                **fields,
            }
        )

    both = (pod(0), pod(1))
    held = Cost(usd=5.42, node_hours=0.25, region="us-east-1")
    trained = {"pods": both, "steps": steps(ago(1)), "total_steps": 2000, "cost": held}
    ended_pods = (pod(0, "Failed", exit_code=1), pod(1, "Failed", exit_code=143))
    lost = Restart(stage="training", attempt=1, at=ago(20), error="NodeLost", message="gone", last_step=600)

    def failed(name: str, message: str, **fields: Any) -> RunState:
        error = replace(explained(name, message), **{"pod": "bert-training-1-0", "rank": 0, **fields.pop("error", {})})
        return run(
            FAILED,
            status=RunStatus.FAILED,
            **{
                "pods": ended_pods,
                "steps": steps(ago(90)),
                "total_steps": 2000,
                "cost": held,
                **fields,
                "error": error,
            },
        )

    return {
        "starting": run(BEGIN),
        "queued": run(
            NODES,
            node_wait=NodeWait(
                nodes_ready=0,
                blockage=Blockage(maximum=4, held={"gpt-0a1b": 3}, num_held=3, ahead=("llama-9f8e",), num_ahead=1),
                instance_type="trn1.32xlarge",
                nodes_wanted=2,
            ),
        ),
        "waiting": run(
            NODES,
            node_wait=NodeWait(
                nodes_ready=1, shortage="Insufficient capacity.", instance_type="trn1.32xlarge", nodes_wanted=2
            ),
            cost=held,
        ),
        "compiling": run((*NODES, ("SubmitPrecompile", 1.0), ("WatchPrecompile", 700.0)), cost=held),
        "submitted": run((*NODES, ("WatchTraining", 30.0)), pods=(pod(0), pod(1, "Pending")), cost=held),
        "training": run(TRAINED, checkpoints=(CheckpointReport(step=400, num_bytes=7, saved_at=ago(100)),), **trained),
        "no-step": run(TRAINED, **{**trained, "steps": steps(ago(372))}),
        "recovering": run(
            (*TRAINED, ("CountRestart", 0.1), ("DeleteJob", 6.0), ("EnsureCapacity", 14.0)),
            **{**trained, "pods": ended_pods, "steps": steps(ago(45))},
            restarts=(lost,),
            avoided_nodes=("trn1-1",),
            checkpoints=(CheckpointReport(step=400, num_bytes=7, saved_at=ago(100)),),
        ),
        "succeeded": run(SUCCEEDED, status=RunStatus.SUCCEEDED, **{**trained, "steps": steps(ago(20), 2000)}),
        "with-warnings": run(
            SUCCEEDED,
            status=RunStatus.SUCCEEDED,
            **{**trained, "steps": steps(ago(20), 2000)},
            restarts=(lost,),
            warnings=("2 files (6 KiB) in ckpt/ were not published and are gone; write below {run_dir}.",),
        ),
        "failed": failed(
            "ScriptFailed",
            "Pod 'bert-training-1-0' on node 'trn1-0' ended with exit code 1 (Error) after step 600: "
            "ValueError: label 7 is out of range for 4 classes (fit.py:36)",
            error={"line": TRACEBACK[-1], "excerpt": TRACEBACK, "place": "fit.py:36", "rule": "error in the program"},
        ),
        "nan": failed(
            "LossNotFinite",
            "The loss of the steps from 540 on was NaN or infinite.",
            steps=steps(ago(90), spoilt_from=540),
        ),
        "hang": failed(
            "ProgramHangs",
            "No step came after step 600 for 3 min. Rank 1 stands still in data.py:17 (read), rank 0 waits.",
            error={
                "line": "rank 1: read, data.py:17",
                "excerpt": ("rank 0: wait, fit.py:52", "rank 1: read, data.py:17"),
            },
        ),
        "staging": run((*BEGIN, ("StageData", 40.0))),
        "stopping": run((*TRAINED, ("StopAtLimit", 4.0)), **trained),
        "finishing": run((*TRAINED, ("PublishArtifacts", 4.0)), **trained),
        "failing": run((*TRAINED, ("CollectDiagnostics", 2.0)), **{**trained, "pods": ended_pods}),
        "timed-out": run(
            TRAINED,
            status=RunStatus.TIMED_OUT,
            error=explained("TimedOut", "The execution ran longer than its limit."),
            **trained,
        ),
        "stopped": run(
            TRAINED,
            status=RunStatus.ABORTED,
            error=explained("Aborted", "The run was stopped from the page."),
            **trained,
        ),
    }


@functools.cache
def _failed() -> RunState:
    return moments()["failed"]


def failed_with(error: NamedError) -> RunState:
    """A run that has failed with a named error."""
    failed = _failed()
    shown = explained(error.name, error.means)
    return replace(failed, error=replace(shown, pod=failed.error.pod if failed.error else None))


def write_logs(state: RunState, folder: Path) -> None:
    """A log of each pod of a run that has started."""
    folder.mkdir(parents=True, exist_ok=True)
    for pod in state.pods:
        if pod.started_at is None:
            continue
        lines = [f"step {step.step} loss {step.loss:.4f}" for step in state.steps]
        if state.error is not None and state.error.pod == pod.name:
            lines += state.error.excerpt
        (folder / f"{pod.name}.log").write_text("".join(f"{line}\n" for line in lines))
