"""A run at one moment, read once; `RunObserver` follows a run instead."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from itertools import islice

from trainflow.client.observe.cluster import PodSource
from trainflow.client.observe.executions import ExecutionTree
from trainflow.client.observe.logs import log_line
from trainflow.client.observe.pods import PodWatcher
from trainflow.client.observe.training_log import MAX_FOLLOWED_GANG, TrainingLog, may_hold_rank0
from trainflow.errors import TrainflowError
from trainflow.kubernetes.faults import NotFound
from trainflow.observed.pod import Pod
from trainflow.observed.run_state import RunState, length_of_training
from trainflow.record.published import latest_of_each_step
from trainflow.record.restarts import all_restarts
from trainflow.record.run_states import state_of_history
from trainflow.record.steps import KeptSteps, newest_checkpoints
from trainflow.workflow.run import Stage
from trainflow.workflow.run_record import RunStatus


def glance(run_id: str, executions: ExecutionTree, pods: PodSource, kept: KeptSteps) -> RunState:
    """Return the present knowledge about a run.

    The steps are those that the workflow has stored and, where the pods can be seen, those that the program has printed
    since: the workflow polls every 20 seconds or less often.

    Args:
        run_id: The run.
        executions: Its executions, read.
        pods: Where its pods are listed.
        kept: The steps that the workflow has stored.
    """
    history = executions.history
    state = state_of_history(run_id, history, executions.children, now=datetime.now(UTC))
    running = history.status is RunStatus.RUNNING
    seen = PodWatcher(pods, run_id, lambda _pod: None)
    seen.read()
    training = TrainingLog(lambda: state.spec, behind=kept.progress, run_id=run_id)
    unread = _read_on(training, pods, seen.pods(), kept) if running else None
    steps = tuple(latest_of_each_step([*kept.steps, *training.lines()]))
    return replace(
        state,
        restarts=tuple(all_restarts(state.restarts, training.restarts(), training.steps_again())),
        pods=seen.pods(),
        steps=steps,
        total_steps=length_of_training(state.spec, steps),
        checkpoints=newest_checkpoints([*kept.checkpoints, *training.checkpoints()]),
        warnings=(*state.warnings, *training.warnings(datetime.now(UTC))) if running else (),
        trouble=(executions.trouble or seen.trouble or unread) if running else None,
    )


def _read_on(training: TrainingLog, source: PodSource, pods: Sequence[Pod], kept: KeptSteps) -> str | None:
    """Read what rank 0 has printed since the steps were stored; why it cannot be read, or None."""
    attempt = max((pod.attempt for pod in pods if pod.stage == Stage.TRAINING), default=0)
    gang = [pod for pod in pods if may_hold_rank0(pod) and pod.attempt == attempt and pod.has_log and not pod.deleted]
    stored = kept.progress.log
    for pod in gang[:MAX_FOLLOWED_GANG]:
        position = stored if stored is not None and stored.pod == pod.name else None
        since = position.since.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ") if position else None
        try:
            printed = source.pod_log(pod.name, pod.container, since=since, follow=False)
            lines = (line for line in map(log_line, printed) if line is not None)
            for line in islice(lines, position.num_lines if position else 0, None):
                training.read(line, pod.name)
        except NotFound:
            continue
        except TrainflowError as refused:
            return str(refused)
    return None
