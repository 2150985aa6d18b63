"""Makes the recorded runs of this folder: `python tests/assets/histories/generate.py`.

Each file holds what an observer meets: the events of the run's execution and of its watch windows in the form of
`GetExecutionHistory` (time stamps as ISO text), the run's pods as the Kubernetes API served them last, and rank 0's
log.
"""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent
START = datetime(2026, 11, 21, 9, 30, 0, tzinfo=UTC)
ARN = "arn:aws:states:us-east-1:123456789012:execution"
LAMBDA = "arn:aws:states:::lambda:invoke"

SPEC = {
    "version": 1,
    "name": "demo",
    "workload": {
        "module": "trainer.pretrain",
        "arguments": {"max_steps": 200, "micro_batch_size": 8, "learning_rate": 0.0004},
        "image": "trainflow:local",
    },
    "compute": {"instance_type": "m5.large", "num_nodes": 2, "processes_per_node": 2, "backend": "job"},
    "dataset": {"url": "s3://trainflow-data/demo.tar"},
    "precompile": {"enabled": True, "steps": 4},
}


class Execution:
    """Writes an execution's events while its clock goes on."""

    def __init__(self, state_machine: str, name: str, *, at: float, given: Any = None) -> None:
        self.arn = f"{ARN}:{state_machine}:{name}"
        self.events: list[dict[str, Any]] = []
        self.now = at
        self.add("ExecutionStarted", executionStartedEventDetails={"input": json.dumps(given or {}), "roleArn": "arn"})

    def add(self, kind: str, **details: Any) -> None:
        number = len(self.events) + 1
        stamp = (START + timedelta(seconds=self.now)).isoformat(timespec="milliseconds")
        self.events.append({"timestamp": stamp, "type": kind, "id": number, "previousEventId": number - 1, **details})

    def state(self, name: str, kind: str, seconds: float = 0.003, body: Callable[[], None] | None = None) -> None:
        self.add(f"{kind}StateEntered", stateEnteredEventDetails={"name": name, "input": "{}"})
        end = self.now + seconds
        if body is not None:
            body()
        self.now = max(self.now, end)
        self.add(f"{kind}StateExited", stateExitedEventDetails={"name": name, "output": "{}"})

    def task(self, name: str, payload: Any, *, seconds: float = 0.4, throttled: int = 0) -> None:
        resource = {"resourceType": "lambda", "resource": "invoke"}

        def tries() -> None:
            for _ in range(throttled):
                self.add(
                    "TaskScheduled", taskScheduledEventDetails={**resource, "region": "us-east-1", "parameters": "{}"}
                )
                self.add("TaskStarted", taskStartedEventDetails=resource)
                self.now += 0.2
                self.add(
                    "TaskFailed", taskFailedEventDetails={**resource, "error": "ServiceUnavailable", "cause": "{}"}
                )
                self.now += 1.0
            self.add("TaskScheduled", taskScheduledEventDetails={**resource, "region": "us-east-1", "parameters": "{}"})
            self.add("TaskStarted", taskStartedEventDetails=resource)
            self.now += seconds
            answer = {"ExecutedVersion": "$LATEST", "Payload": payload, "StatusCode": 200}
            self.add("TaskSucceeded", taskSucceededEventDetails={**resource, "output": json.dumps(answer)})

        self.state(name, "Task", body=tries)

    def failing_task(self, name: str, error: str, cause: str, *, seconds: float = 0.3) -> None:
        resource = {"resourceType": "lambda", "resource": "invoke"}

        def attempt() -> None:
            self.add("TaskScheduled", taskScheduledEventDetails={**resource, "region": "us-east-1", "parameters": "{}"})
            self.add("TaskStarted", taskStartedEventDetails=resource)
            self.now += seconds
            self.add("TaskFailed", taskFailedEventDetails={**resource, "error": error, "cause": cause})

        self.state(name, "Task", body=attempt)

    def watch(self, name: str, window: Execution) -> None:
        resource = {"resourceType": "states", "resource": "startExecution.sync:2"}

        def run() -> None:
            self.add("TaskScheduled", taskScheduledEventDetails={**resource, "region": "us-east-1", "parameters": "{}"})
            self.add("TaskStarted", taskStartedEventDetails=resource)
            submitted = json.dumps({"ExecutionArn": window.arn})
            self.add("TaskSubmitted", taskSubmittedEventDetails={**resource, "output": submitted})
            self.now = window.now + 0.1
            done = json.dumps({"ExecutionArn": window.arn, "Status": "SUCCEEDED", "Output": {"outcome": "succeeded"}})
            self.add("TaskSucceeded", taskSucceededEventDetails={**resource, "output": done})

        self.state(name, "Task", body=run)

    def fail(self, error: str, cause: str) -> None:
        self.add("FailStateEntered", stateEnteredEventDetails={"name": "RunFailed", "input": "{}"})
        self.add("ExecutionFailed", executionFailedEventDetails={"error": error, "cause": cause})


def window(
    run_id: str, stage: str, *, at: float, until: float, metrics: bool, failure: tuple[str, str] | None
) -> Execution:
    """A watch window: laps of Wait, PollJob and PublishMetrics until a time."""
    child = Execution("trainflow-watch-job", f"{run_id}-{stage}-1-1", at=at)
    child.state("InitializeWindow", "Pass")
    located = False
    while child.now < until:
        child.state("Wait", "Wait", seconds=min(3.0, max(0.5, until - child.now)))
        if failure is not None and child.now >= until:
            child.failing_task("PollJob", *failure)
            child.task("PublishLastMetrics", {"cursor": {}}, seconds=0.2)
            child.state("ReportFailure", "Pass")
            break
        child.task("PollJob", {"phase": "running"}, seconds=0.15)
        child.state("HasMetrics", "Choice")
        if metrics and not located:
            child.task("LocateRank0", {"pod": "pod"}, seconds=0.1)
            located = True
        if metrics:
            child.task("PublishMetrics", {"cursor": {}}, seconds=0.12)
        child.state("IsJobFinished", "Choice")
    if failure is None:
        child.state("ReportSuccess", "Pass")
    child.add("ExecutionSucceeded", executionSucceededEventDetails={"output": "{}"})
    return child


def pod(
    run_id: str, stage: str, index: int, *, start: float, end: float, exit_code: int = 0, said: Any = None
) -> dict[str, Any]:
    """A finished pod."""
    job, stamp = f"{run_id}-{stage}-1", lambda at: (START + timedelta(seconds=at)).strftime("%Y-%m-%dT%H:%M:%SZ")
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"{job}-{index}-{'k7x2p' if index == 0 else 'q9d4w'}",
            "uid": f"{job}-{index}",
            "creationTimestamp": stamp(start - 1),
            "labels": {
                "app.kubernetes.io/managed-by": "trainflow",
                "trainflow/run": run_id,
                "trainflow/stage": stage,
                "trainflow/attempt": "1",
                "batch.kubernetes.io/job-name": job,
                "batch.kubernetes.io/job-completion-index": str(index),
            },
        },
        "spec": {"nodeName": f"node-{index}", "containers": [{"name": stage, "image": "trainflow:local"}]},
        "status": {
            "phase": "Failed" if exit_code else "Succeeded",
            "containerStatuses": [
                {
                    "name": stage,
                    "state": {
                        "terminated": {
                            "exitCode": exit_code,
                            "reason": "Error" if exit_code else "Completed",
                            "startedAt": stamp(start),
                            "finishedAt": stamp(end),
                            **({"message": json.dumps(said)} if said else {}),
                        }
                    },
                }
            ],
        },
    }


def training_log(*, start: float, end: float, steps: int, total: int) -> list[str]:
    """Rank 0's log: a loss that falls, warm-up and linear decay, a throughput with a slow first step."""
    chance = random.Random(7)
    lines = ["Rank 0 of 4, 8 sequences a step and rank", "Training on /data/demo: 8 shards"]
    for step in range(1, steps + 1):
        at = (START + timedelta(seconds=start + (end - start) * step / steps)).strftime("%a %b %d %H:%M:%S %Y")
        loss = 6.2 + 3.1 * math.exp(-step / 55) + chance.gauss(0, 0.09)
        rate = 4e-4 * (step / 20 if step < 20 else (total - step) / (total - 20))
        speed = (90 if step == 1 else 118) + chance.gauss(0, 4)
        lines.append(
            f"LOG {at} - (0, {step}) step_loss : {loss:.4f} learning_rate : {rate:.2e} throughput : {speed:.2f}"
        )
    return lines


def prelude(run_id: str) -> Execution:
    """What every run begins with, until the training job is submitted."""
    run = Execution("trainflow-training", run_id, at=0.0, given=SPEC)
    run.task("ValidateRun", {"run": {"run_id": run_id}}, seconds=0.8)
    for done in (False, True):
        run.task("Preflight", {"done": done}, seconds=0.4)
        run.state("IsPreflightDone", "Choice")
        if not done:
            run.state("WaitForPreflight", "Wait", seconds=0.5)
    run.state("NeedsDataset", "Choice")
    for finished in (False, False, True):
        run.task("StageData", {"finished": finished}, seconds=0.3)
        run.state("IsDataStaged", "Choice")
        if not finished:
            run.state("WaitForStaging", "Wait", seconds=2.0)
    run.state("NeedsCache", "Choice")
    run.task("AcquireCache", {"granted": True}, seconds=0.2)
    run.state("BeginToAskForNodes", "Pass")
    for ready in (False, True):
        run.task("EnsureCapacity", {"ready": ready}, seconds=0.5, throttled=int(ready))
        run.state("AreNodesReady", "Choice")
        if not ready:
            run.state("WaitForNodes", "Wait", seconds=1.0)
    run.state("NeedsPrecompile", "Choice")
    run.task("SubmitPrecompile", {"job": {}}, seconds=0.4)
    return run


def succeeded() -> dict[str, Any]:
    """The demo from end to end."""
    run_id = "demo-3f2a9c1b4d5e"
    run = prelude(run_id)
    first = window(run_id, "precompile", at=run.now, until=54.0, metrics=False, failure=None)
    run.watch("WatchPrecompile", first)
    run.state("IsPrecompileFinished", "Choice")
    run.task("CheckCompilation", {"graphs": 1, "succeeded": 1, "failed": 0, "cache": "miss"})
    run.task("SubmitTraining", {"job": {}})
    second = window(run_id, "training", at=run.now, until=126.0, metrics=True, failure=None)
    run.watch("WatchTraining", second)
    run.state("IsTrainingFinished", "Choice")
    run.state("ShouldTearDown", "Choice")
    run.task("TearDown", {"deleted": 3, "trained_steps": 200}, seconds=0.6)
    checkpoint = f"s3://trainflow-artifacts/runs/{run_id}/checkpoints/step-200.pt"
    for finished in (False, True):
        artifacts = {"url": f"s3://trainflow-artifacts/runs/{run_id}/", "checkpoint": checkpoint} if finished else None
        run.task("PublishArtifacts", {"finished": finished, "artifacts": artifacts}, seconds=0.3)
        run.state("AreArtifactsPublished", "Choice")
        if not finished:
            run.state("WaitForArtifacts", "Wait", seconds=3.0)
    run.task("Notify", {"message_id": "1"}, seconds=0.2)
    run.state("RunSucceeded", "Succeed")
    run.add("ExecutionSucceeded", executionSucceededEventDetails={"output": "{}"})
    pods = [
        pod(run_id, "stage", 0, start=3, end=7, said={"result": {"shards": 8, "samples": 4096}}),
        *(pod(run_id, "precompile", index, start=13, end=52) for index in (0, 1)),
        pod(run_id, "training", 0, start=57, end=124, said={"result": {"steps": 200, "last_loss": 6.3}}),
        pod(run_id, "training", 1, start=57, end=124),
        pod(run_id, "publish", 0, start=128, end=130, said={"result": {"checkpoint": checkpoint}}),
    ]
    return recording(run_id, run, [first, second], pods, training_log(start=62, end=123, steps=200, total=200))


def worker_failed() -> dict[str, Any]:
    """A worker of the training job is killed after 61 steps."""
    run_id = "demo-9b0e77d2c41a"
    run = prelude(run_id)
    first = window(run_id, "precompile", at=run.now, until=22.0, metrics=False, failure=None)
    run.watch("WatchPrecompile", first)
    run.state("IsPrecompileFinished", "Choice")
    run.task("CheckCompilation", {"graphs": 1, "succeeded": 1, "failed": 0, "cache": "hit"})
    run.task("SubmitTraining", {"job": {}})
    name = f"{run_id}-training-1-1-q9d4w"
    message = f"Pod '{name}' on node 'node-1' ended with exit code 137 (Error) after step 61."
    cause = json.dumps({"errorMessage": message, "errorType": "WorkerFailed", "stackTrace": ["<b>frame</b>"]})
    second = window(run_id, "training", at=run.now, until=52.0, metrics=True, failure=("WorkerFailed", cause))
    run.watch("WatchTraining", second)
    run.state("IsTrainingFinished", "Choice")
    last = ["step 61 done", "<script>alert('from a log')</script>", "Killed & gone"]
    diagnosis = {"pod": name, "node": "node-1", "exit_code": 137, "reason": "Error", "last_lines": last}
    run.task("CollectDiagnostics", {"error": {"name": "WorkerFailed"}, "diagnostics": [diagnosis]}, seconds=0.5)
    run.state("ShouldTearDownAfterFailure", "Choice")
    run.task("TearDownAfterFailure", {"deleted": 3}, seconds=0.7)
    run.task("NotifyFailure", {"message_id": "2"}, seconds=0.2)
    run.state("DescribeFailure", "Pass")
    run.fail("WorkerFailed", cause)
    pods = [
        pod(run_id, "stage", 0, start=3, end=4, said={"result": {"shards": 8}}),
        *(pod(run_id, "precompile", index, start=13, end=20) for index in (0, 1)),
        pod(run_id, "training", 0, start=25, end=51, exit_code=1),
        pod(run_id, "training", 1, start=25, end=49, exit_code=137),
    ]
    return recording(run_id, run, [first, second], pods, training_log(start=29, end=48, steps=61, total=200))


def rejected() -> dict[str, Any]:
    """A run whose data set does not exist: no pod was ever made."""
    run_id = "demo-000000000bad"
    run = Execution("trainflow-training", run_id, at=0.0, given=SPEC)
    cause = json.dumps(
        {
            "errorMessage": "dataset.url: there is no object 's3://trainflow-data/demo.tar'.",
            "errorType": "DatasetNotFound",
        }
    )
    run.failing_task("ValidateRun", "DatasetNotFound", cause)
    run.task("NotifyRejection", {"message_id": "3"}, seconds=0.2)
    run.state("DescribeFailure", "Pass")
    run.fail("DatasetNotFound", cause)
    return recording(run_id, run, [], [], [])


def aborted() -> dict[str, Any]:
    """Stopped from outside while it waited for nodes; one branch of events ends in the middle of a state."""
    run_id = "demo-aaaaaaaaaaaa"
    run = Execution("trainflow-training", run_id, at=0.0, given=SPEC)
    run.task("ValidateRun", {"run": {"run_id": run_id}}, seconds=0.8)
    run.add("WaitStateEntered", stateEnteredEventDetails={"name": "WaitForNodes", "input": "{}"})
    run.now += 5
    run.add("ExecutionAborted", executionAbortedEventDetails={})
    return recording(run_id, run, [], [], [])


def recording(
    run_id: str, run: Execution, children: Sequence[Execution], pods: list[dict[str, Any]], log: list[str]
) -> dict[str, Any]:
    """A run as it stands in its file."""
    return {
        "run_id": run_id,
        "execution": {"arn": run.arn, "events": run.events},
        "children": [{"arn": child.arn, "events": child.events} for child in children],
        "pods": pods,
        "rank0_log": log,
    }


def main() -> None:
    """Writes every file anew."""
    for make in (succeeded, worker_failed, rejected, aborted):
        text = json.dumps(make(), indent=1) + "\n"
        (FOLDER / f"{make.__name__}.json").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
