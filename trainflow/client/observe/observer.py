"""Observes a run from outside: executions, pods, logs, and in the end what was published."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainflow.background import Worker, described
from trainflow.client.log_index import add_log
from trainflow.client.observe.cluster import PodSource
from trainflow.client.observe.executions import ExecutionTree
from trainflow.client.observe.logs import NUM_LAST_LINES, LogFollower
from trainflow.client.observe.pods import PodWatcher
from trainflow.client.observe.statistics import read_statistics
from trainflow.client.observe.training_log import MAX_FOLLOWED_GANG, TrainingLog, may_hold_rank0
from trainflow.client.observe.utilization import read_mean_utilization
from trainflow.client.place import PlaceRefused
from trainflow.client.private_folder import make_private
from trainflow.observed.pod import Pod
from trainflow.observed.run_state import RunState, length_of_training
from trainflow.observed.step import Step
from trainflow.protocol.staging_line import StagingReport, parse_staging_line
from trainflow.record.build import build_record
from trainflow.record.cost import NodeUse, node_use
from trainflow.record.placement import placement_of
from trainflow.record.published import compare
from trainflow.record.restarts import all_restarts
from trainflow.record.run_states import state_of_history
from trainflow.record.steps import KeptSteps, kept_steps_of, newest_checkpoints
from trainflow.workflow.log_line import LogLine
from trainflow.workflow.owner import spec_of_input
from trainflow.workflow.run import Stage
from trainflow.workflow.run_record import MetricsPublished, NodesBusy, RunError, RunRecord, RunStatus

if TYPE_CHECKING:
    from mypy_boto3_cloudwatch.client import CloudWatchClient
    from mypy_boto3_stepfunctions.client import SFNClient

LOG_GRACE_SECONDS = 10.0
"""Seconds to wait, at the end of a run, for the last lines of the pods that have ended."""

SETTLE_PAUSE_SECONDS = 5.0
"""Time between two polls for metrics that CloudWatch does not return yet."""


class RunObserver:
    """Follows one run in threads of its own; `snapshot` returns the present state at any time."""

    def __init__(
        self,
        *,
        stepfunctions: SFNClient,
        cloudwatch: CloudWatchClient,
        pods: PodSource,
        run_id: str,
        execution_arn: str,
        deployment: str,
        log_dir: Path,
        cluster: str | None = None,
        poll_seconds: float = 1.0,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        """Prepares to observe; makes no request yet.

        Args:
            stepfunctions: boto3's client.
            cloudwatch: boto3's client.
            pods: The run's pods.
            run_id: Label value of the run's pods and dimension of its metrics.
            execution_arn: The run's execution.
            deployment: The other dimension of its metrics.
            log_dir: Folder for the pods' logs, one `<pod>.log` each.
            cluster: Name of the EKS cluster, for the utilization of its nodes; None to skip it.
            poll_seconds: Time between two polls of the execution's history.
            clock: Returns the time.
        """
        self._clock = clock
        self._cloudwatch = cloudwatch
        self._run_id = run_id
        self._deployment = deployment
        self._log_dir = log_dir
        self._poll_seconds = poll_seconds
        self._cluster = pods
        self._cluster_name = cluster
        self._executions = ExecutionTree(stepfunctions, execution_arn)
        self._watcher = PodWatcher(self._cluster, run_id, self._on_pod)
        self._followers: dict[str, LogFollower] = {}
        self._training = TrainingLog(self._spec_of_log, run_id=run_id)
        self._staging: StagingReport | None = None
        self._state = self._state_of_executions()
        """The state that the executions show: taken over when all of them have been read, since a history without its
        states would date pods and steps before the states that made them."""
        self._node_use: NodeUse | None = None
        self._not_compared: str | None = None
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._unexpected: str | None = None
        """Unexpected error of the last poll of the executions, if there was one."""
        self._poller = Worker(self._poll, name="executions", on_error=self._note_error)

    def start(self) -> None:
        """Begins to observe.

        Raises:
            OSError: If the folder for the logs cannot be made.
        """
        make_private(self._log_dir)
        self._watcher.start()
        self._poller.start()

    def stop(self) -> None:
        """Polls everything a last time, waits for the ended pods' last lines, and ends all threads."""
        self._stopping.set()
        if self._poller.is_alive():
            self._poller.join(timeout=LOG_GRACE_SECONDS)
        self._read_executions()
        self._watcher.stop()
        self._finish_logs()

    def snapshot(self) -> RunState:
        """Return the present knowledge about the run."""
        state, now, pods, steps = self._state, self._clock(), self._watcher.pods(), self._training.steps()
        return replace(
            state,
            observed_at=now,
            pods=pods,
            restarts=tuple(all_restarts(state.restarts, self._training.restarts(), self._training.steps_again())),
            staging=self._staging if any(pod.stage == Stage.STAGE and pod.phase == "Running" for pod in pods) else None,
            steps=steps,
            total_steps=length_of_training(state.spec, steps),
            checkpoints=newest_checkpoints(self._training.checkpoints()),
            cost=self._node_use.cost(end=state.ended_at or now) if self._node_use else None,
            last_lines=self._last_lines(pods),
            log_tail=self._log_tail(pods),
            warnings=(*state.warnings, *self._training.warnings(None if state.ended_at else now)),
            trouble=self._trouble(),
        )

    def record(
        self,
        *,
        status: RunStatus | None = None,
        error: RunError | None = None,
        kept: KeptSteps | None = None,
        settle_seconds: float = 0.0,
    ) -> RunRecord:
        """The run record of what was observed; to be asked for after `stop`.

        Args:
            status: Overrules the execution's, for a run that was given up before its execution ended.
            error: Overrules the execution's.
            kept: The steps that the workflow kept, so that this record has the figures of its own; without any, the
                observed steps are used.
            settle_seconds: How long to wait for metrics that CloudWatch does not show yet (AWS: up to two minutes).

        Raises:
            PlaceRefused: If the caller may not read the executions, and no status is given: how they ended is unknown.
        """
        if self._executions.is_refused and status is None:
            raise PlaceRefused(str(self._executions.trouble))
        now = self._clock()
        record = build_record(
            run_id=self._run_id,
            history=self._executions.history,
            children=self._executions.children,
            pods=self._watcher.pods(),
            kept=kept or self._observed_steps(),
            published=self._published(settle_seconds),
            now=now,
            status=status,
            error=error,
        )
        busy = self._nodes_busy()
        not_checked = [*record.not_checked, *([self._not_compared] if self._not_compared else [])]
        return record.model_copy(update={"nodes_busy": busy, "not_checked": not_checked})

    def _observed_steps(self) -> KeptSteps:
        log = self._training
        return kept_steps_of(
            log.lines(),
            log.checkpoints(),
            lost_files=log.lost_files(),
            since_step=log.since_step(),
            reported_checkpoint=log.reported_checkpoint(),
            in_place=log.restarts(),
            steps_again=log.steps_again(),
        )

    def steps(self) -> list[Step]:
        """Logged steps of the training job in their order, repeated ones once: the report's curves."""
        return list(self._training.steps())

    def _poll(self) -> None:
        while not self._stopping.is_set():
            try:
                self._read_executions()
                self._unexpected = None
            except Exception as error:  # noqa: BLE001 (shown as trouble; the next poll may be read)
                self._note_error(error)
            self._stopping.wait(self._poll_seconds)

    def _note_error(self, error: BaseException) -> None:
        self._unexpected = f"The executions cannot be read ({described(error)})."

    def _read_executions(self) -> None:
        if self._executions.read():
            self._state = self._state_of_executions()
            self._node_use = node_use(self._executions.history, self._state.spec)

    def _state_of_executions(self) -> RunState:
        return state_of_history(self._run_id, self._executions.history, self._executions.children, now=self._clock())

    def _spec(self) -> Mapping[str, Any]:
        spec = spec_of_input(self._executions.history.input())
        return spec if isinstance(spec, Mapping) else {}

    def _spec_of_log(self) -> Mapping[str, Any] | None:
        """The spec; None as long as a later poll of the history may contain it."""
        is_known = self._executions.history.events or self._executions.is_refused
        return self._spec() if is_known else None

    def _trouble(self) -> str | None:
        troubles = (
            self._unexpected,
            self._executions.trouble,
            self._watcher.trouble,
            *(log.trouble for log in self._logs()),
        )
        return next((trouble for trouble in troubles if trouble), None)

    def _logs(self) -> list[LogFollower]:
        with self._lock:
            return list(self._followers.values())

    def _on_pod(self, pod: Pod) -> None:
        """Begins to follow a pod's log as soon as there is one."""
        if not pod.has_log or not self._is_followed(pod):
            return
        with self._lock:
            if pod.uid in self._followers:
                return
            follower = self._new_follower(pod)
            self._followers[pod.uid] = follower
        with suppress(OSError):  # the follower reports a disk that is full
            add_log(self._log_dir, pod)
        follower.start()

    def _is_followed(self, pod: Pod) -> bool:
        if pod.index == 0 or pod.phase == "Failed":
            return True
        gang = [other for other in self._watcher.pods() if (other.stage, other.attempt) == (pod.stage, pod.attempt)]
        return len(gang) <= MAX_FOLLOWED_GANG

    def _new_follower(self, pod: Pod) -> LogFollower:
        return LogFollower(
            self._cluster,
            pod=pod.name,
            container=pod.container,
            path=self._log_dir / f"{pod.name}.log",
            has_ended=lambda: self._has_ended(pod.uid),
            on_line=self._step_reader(pod),
        )

    def _step_reader(self, pod: Pod) -> Callable[[LogLine], None] | None:
        """Return the reader of the pod's lines; None for a pod without steps."""
        if pod.stage == Stage.STAGE:
            return self._on_staging_line
        return partial(self._training.read, pod=pod.name) if may_hold_rank0(pod) else None

    def _has_ended(self, uid: str) -> bool:
        return any(pod.uid == uid and pod.finished for pod in self._watcher.pods())

    def _on_staging_line(self, line: LogLine) -> None:
        self._staging = parse_staging_line(line.text) or self._staging

    def _last_lines(self, pods: tuple[Pod, ...]) -> dict[str, tuple[str, ...]]:
        with self._lock:
            followers = dict(self._followers)
        failed = [pod for pod in pods if pod.phase == "Failed" and pod.uid in followers]
        return {pod.name: followers[pod.uid].last_lines() for pod in failed}

    def _log_tail(self, pods: tuple[Pod, ...]) -> tuple[str, tuple[str, ...]] | None:
        """The log of the newest running pod that may be rank 0's; of the jobs before the training, the first pod's."""
        running = [pod for pod in pods if pod.phase == "Running" and (pod.index == 0 or may_hold_rank0(pod))]
        with self._lock:
            found = [(pod.name, self._followers[pod.uid]) for pod in running if pod.uid in self._followers]
        return (found[-1][0], found[-1][1].last_lines()[-NUM_LAST_LINES:]) if found else None

    def _finish_logs(self) -> None:
        """Complete logs of the pods that have ended; those that run on are left where they are."""
        deadline = time.monotonic() + LOG_GRACE_SECONDS
        with self._lock:
            followers = dict(self._followers)
        for uid, follower in followers.items():
            if self._has_ended(uid):
                follower.join(deadline - time.monotonic())
        for follower in followers.values():
            follower.stop()
            follower.join(1.0)

    def _nodes_busy(self) -> NodesBusy | None:
        """Utilization of the nodes of the training's last attempt; None if CloudWatch cannot be asked."""
        placement = placement_of(self._watcher.pods(), now=self._clock())
        if self._cluster_name is None or placement is None:
            return None
        with suppress(PlaceRefused):  # what the page asks for while the run goes on; a run does not need it
            return read_mean_utilization(
                self._cloudwatch,
                cluster=self._cluster_name,
                nodes=placement.nodes,
                start=placement.started_at,
                end=placement.ended_at,
            )
        return None

    def _published(self, settle_seconds: float) -> MetricsPublished | None:
        """The published metrics against rank 0's log; None if CloudWatch cannot be asked or nothing was trained."""
        lines = self._training.lines()
        if not lines:
            return None
        deadline = time.monotonic() + settle_seconds
        while True:
            published = self._compare_with_cloudwatch(lines)
            if published is None or not published.gaps or time.monotonic() >= deadline:
                return published
            time.sleep(SETTLE_PAUSE_SECONDS)

    def _compare_with_cloudwatch(self, lines: list[Step]) -> MetricsPublished | None:
        moments = [line.logged_at for line in lines]
        now = self._clock()
        try:
            statistics = read_statistics(
                self._cloudwatch,
                self._run_id,
                deployment=self._deployment,
                start=min(moments),
                end=max(now, *moments),
                now=now,
            )
        except PlaceRefused as refused:
            self._not_compared = f"The published metrics were not compared with the log. {refused}"
            return None
        return compare(lines, statistics)
