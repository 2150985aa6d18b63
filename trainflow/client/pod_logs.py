"""The log of one pod of a run, line by line, as long as the cluster has the pod."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime

from trainflow.client.observe.cluster import PodSource
from trainflow.client.observe.logs import PAUSES, Resumption
from trainflow.client.place import LogNotFound, LogRequest
from trainflow.deployment.kubernetes_names import RUN_LABEL
from trainflow.errors import TrainflowError
from trainflow.kubernetes.faults import NotFound
from trainflow.observed.pod import Pod, read_pod
from trainflow.workflow.run import Stage


class PodNotFound(LogNotFound):
    """The pod is not in the cluster (any more)."""


def chosen(pods: list[Pod], run_id: str, request: LogRequest) -> Pod:
    """The pod whose log is requested: one of the training's newest attempt, or else of the newest job before it.

    Raises:
        PodNotFound: If no pod matches; the message names the pods of the run.
        LogNotFound: If the log has not begun.
    """
    if request.pod is not None:
        found = [pod for pod in pods if pod.name == request.pod]
    else:
        stages = [Stage.TRAINING] if any(pod.stage == Stage.TRAINING for pod in pods) else {pod.stage for pod in pods}
        found = [pod for pod in pods if pod.stage in stages and pod.index == request.rank]
    found.sort(key=lambda pod: pod.created_at or datetime.min.replace(tzinfo=UTC))
    if not found:
        names = ", ".join(pod.name for pod in pods) or "none"
        wanted = f"no pod '{request.pod}'" if request.pod else f"no pod of rank {request.rank}"
        raise PodNotFound(f"The run {run_id} has {wanted} now; pods: {names}.")
    if not found[-1].has_log:
        raise LogNotFound(f"The pod {found[-1].name} has not begun ({found[-1].reason or found[-1].phase}).")
    return found[-1]


def chosen_pod(source: PodSource, run_id: str, request: LogRequest) -> Pod:
    """See `chosen`; the pods are listed now."""
    return chosen(_pods(source, run_id), run_id, request)


def followed_lines(
    source: PodSource,
    run_id: str,
    pod: Pod | None,
    request: LogRequest,
    *,
    has_run_ended: Callable[[], bool],
    poll_seconds: float,
) -> Iterator[str]:
    """The lines of a rank's pod, and of each pod that takes its place after a restart, until the run has ended.

    Args:
        source: The cluster.
        run_id: The run.
        pod: The first pod; None to wait for it.
        request: The rank, and from when on.
        has_run_ended: Whether the run has ended, so that no pod follows.
        poll_seconds: Time between two questions for the next pod.
    """
    current = pod or _next_pod(source, run_id, None, request, has_run_ended, poll_seconds)
    while current is not None:
        yield from log_lines(source, run_id, current, request)
        current = _next_pod(source, run_id, current, request, has_run_ended, poll_seconds)


def _next_pod(
    source: PodSource,
    run_id: str,
    pod: Pod | None,
    request: LogRequest,
    has_run_ended: Callable[[], bool],
    poll_seconds: float,
) -> Pod | None:
    """The first pod, or the one that takes the place of one that has ended, once it has begun; None if the run ends
    before."""
    while True:
        ended = has_run_ended()  # asked before the pods: one that has begun by then is found
        with suppress(TrainflowError):
            found = chosen_pod(source, run_id, request)
            if pod is None or found.uid != pod.uid:
                return found
        if ended:
            return None
        time.sleep(poll_seconds)


def log_lines(source: PodSource, run_id: str, pod: Pod, request: LogRequest) -> Iterator[str]:
    """The lines without their time stamps; a broken connection loses none and repeats none."""
    resumption, idle = Resumption(), 0
    since = request.since.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ") if request.since else None
    while True:
        ended = not request.follow or _has_ended(source, run_id, pod)  # asked before reading: then that is all
        resumption.reopen()
        came = False
        try:
            for line in source.pod_log(
                pod.name, pod.container, since=resumption.since or since, follow=request.follow and not ended
            ):
                text = resumption.accept(line.removesuffix("\n"))
                if text is not None:
                    came = True
                    yield text
        except NotFound:
            return
        if ended:
            return
        idle = 0 if came else min(idle + 1, len(PAUSES) - 1)
        time.sleep(PAUSES[idle])


def _has_ended(source: PodSource, run_id: str, pod: Pod) -> bool:
    try:
        return all(other.finished for other in _pods(source, run_id) if other.uid == pod.uid)
    except TrainflowError:
        return False


def _pods(source: PodSource, run_id: str) -> list[Pod]:
    return [read_pod(manifest) for manifest in source.list_pods(f"{RUN_LABEL}={run_id}").get("items") or []]
