"""Measures the time from the end of a job until the run knows its named error, and until the job is submitted again."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from kubernetes.client import (
    ApiException,
    CoreV1Api,
    V1Container,
    V1Eviction,
    V1Node,
    V1NodeSpec,
    V1ObjectMeta,
    V1Pod,
    V1PodSpec,
    V1Taint,
    V1Toleration,
)
from kubernetes.config import new_client_from_config

from benchmarks.fault_cells import GANG
from benchmarks.fault_injection import Plan
from benchmarks.fault_runs import RUN_SECONDS, Part, Row, faulty_twin, histories, left, steps
from benchmarks.many_runs import start_all
from benchmarks.result import BenchmarkFailed
from local.place import TwinRuns
from local.planned_faults import OUT_OF_SERVICE
from local.twin import Twin
from trainflow.deployment.kubernetes_names import RUN_LABEL, STAGE_LABEL
from trainflow.failures.error_table import error_list
from trainflow.record.failure import run_error
from trainflow.record.history import ExecutionHistory, visits
from trainflow.record.restarts import restarts
from trainflow.spec.run_spec import Limits
from trainflow.workflow.run_record import RunError, RunStatus

POLL_SECONDS = Limits().poll_seconds
"""The default of `limits.poll_seconds`."""
TIME_SCALE = 10
GOAL_SECONDS = POLL_SECONDS / TIME_SCALE + 5
"""One poll, and five seconds."""
STALL_SECONDS = 12.0
HANG_SECONDS = 120.0
"""Seconds without output after a line about a hang until the job counts as hanging (decision 64)."""
HANGING = 2
"""Step of the hang of programs."""
NUM_PODS = GANG["training"]


def _lose_node(api: CoreV1Api, pod: V1Pod) -> None:
    """Have the pod's node shut down."""
    api.patch_node(pod.spec.node_name, V1Node(spec=V1NodeSpec(taints=[V1Taint(**OUT_OF_SERVICE)])))


def _evict(api: CoreV1Api, pod: V1Pod) -> None:
    """Evict the pod, as a drain of its node does."""
    name, namespace = pod.metadata.name, pod.metadata.namespace
    api.create_namespaced_pod_eviction(name, namespace, V1Eviction(metadata=V1ObjectMeta(name=name)))


def _preempt(api: CoreV1Api, pod: V1Pod) -> None:
    """Have a pod that is more important want the node's devices. It ends at once."""
    [container] = pod.spec.containers
    guest = V1Container(name="guest", image=container.image, command=["true"], resources=container.resources)
    spec = V1PodSpec(
        containers=[guest],
        node_selector={"kubernetes.io/hostname": pod.spec.node_name},
        priority_class_name="system-node-critical",
        restart_policy="Never",
        tolerations=[V1Toleration(operator="Exists")],
    )
    api.create_namespaced_pod("kube-system", V1Pod(metadata=V1ObjectMeta(generate_name="guest-"), spec=spec))


@dataclass(frozen=True, kw_only=True)
class Failure:
    """Cause of a job's end; it acts once."""

    arguments: Mapping[str, Any]
    """Of the program that logs steps."""
    limits: Mapping[str, Any] = field(default_factory=dict)
    inflict: Callable[[CoreV1Api, V1Pod], None] | None = None
    """Acts on the pod of rank 0 once it has logged a step."""
    line: str = ""
    """Rank 0's line that begins the failure; a pod's end if not given."""
    own_seconds: float = 0.0
    """Seconds that the failure takes by itself, from there on."""


QUICK = {"max_steps": 600, "seconds_per_step": 0.2}
FAILURES: Mapping[str, Failure] = {
    "WorkerFailed": Failure(arguments=QUICK | {"dies_by_signal_at": 4}),
    "DeviceFailed": Failure(
        arguments=QUICK | {"exits_at": 4, "last_words": "nrt_execute failed: NRT_EXEC_HW_ERR_HBM_UE (status 1204)"}
    ),
    "StorageUnavailable": Failure(
        arguments=QUICK
        | {"exits_at": 4, "last_words": "OSError: [Errno 108] Cannot send after transport endpoint shutdown"}
    ),
    "NodeLost": Failure(arguments=QUICK, inflict=_lose_node),
    "JobEvicted": Failure(arguments=QUICK, inflict=_evict),
    "JobPreempted": Failure(arguments=QUICK, inflict=_preempt),
    "CollectiveTimeout": Failure(
        arguments=QUICK
        | {
            "hangs_at": HANGING,
            "last_words": "[Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=41, "
            "OpType=ALLREDUCE, Timeout(ms)=600000) ran for 600026 milliseconds before timing out.",
        },
        line="Watchdog caught collective operation timeout",
        own_seconds=HANG_SECONDS,
    ),
    "JobStalled": Failure(
        arguments=QUICK | {"hangs_at": HANGING},
        limits={"stall_minutes": STALL_SECONDS / 60},
        line=f"(0, {HANGING})",
        own_seconds=STALL_SECONDS,
    ),
    "LossNotFinite": Failure(arguments=QUICK | {"diverges_at": 4}, line="step_loss : nan"),
    "ScriptFailed": Failure(
        arguments=QUICK | {"exits_at": 4, "last_words": "AssertionError: the flux capacitor is missing"}
    ),
}
"""Failures by the name of the job's expected error."""


def recovery() -> Part:
    """Seconds from a failure until the run knows it, and from then until the job is submitted again.

    The goal is one poll and five seconds beyond what the failure takes by itself: the kubelet's and torchrun's own time
    ends with the pod's phase. A run whose job was submitted again is stopped.
    """
    table, seconds = dict[str, Row](), dict[str, Any]()
    with faulty_twin(Plan(), time_scale=TIME_SCALE) as twin:
        for name, failure in FAILURES.items():
            began, history = _suffer(twin, f"recovery-{name.lower()}-aa", failure)
            row = table[name] = Row(injected=1)
            seconds[name] = recovery_times(history, began, row, wanted=name)
            row.add(left(twin))
    late = {name: times for name, times in seconds.items() if max(times.values(), default=0.0) > GOAL_SECONDS}
    return table, seconds, {"goal_seconds": GOAL_SECONDS, "late": late, "poll_seconds": POLL_SECONDS / TIME_SCALE}


def recovery_times(history: ExecutionHistory, began: float | None, row: Row, *, wanted: str) -> dict[str, float]:
    """The two times in seconds, from the history of a run whose job failed.

    What is missing, and a failure by another name, is counted in the row as lost.

    Args:
        history: Of the run.
        began: When the failure began and had taken its own time, in seconds of the epoch; None if it was not seen.
        row: Counts what is not as it should be.
        wanted: Name of the failure.
    """
    noticed, again = _noticed(history), _submitted_again(history)
    if began is None or noticed is None:
        row.add(Row(lost=1, notes=["the failure was not seen"]))
        return {}
    name = next((restart.error for restart in restarts(history)), None) or getattr(run_error(history), "name", None)
    if name != wanted:
        row.add(Row(lost=1, notes=[f"the failure was named {name}"]))
    times = {"detect": round(noticed - began, 1)}
    if again is not None:
        times["recover"] = round(again - noticed, 1)
    elif wanted in error_list("restarted"):
        row.add(Row(lost=1, notes=["the job was not submitted again"]))
    return times


def _suffer(twin: Twin, run_id: str, failure: Failure) -> tuple[float | None, ExecutionHistory]:
    """Have a run's job fail, and wait for its end or its next job: when it failed, and the run's history.

    Raises:
        BenchmarkFailed: If neither comes.
    """
    sfn, spec = twin.client("stepfunctions"), steps(**failure.arguments)
    limits = {"max_restarts": 1, "restart_in_place": False, **failure.limits}
    arn = start_all(twin, {run_id: spec | {"limits": limits}})[run_id]
    deadline = time.monotonic() + RUN_SECONDS
    with _api(twin) as api:
        onset = _Onset(api, run_id, failure)
        while time.monotonic() < deadline:
            onset.poll()
            history = histories(sfn, arn)[0]
            if history.status is not RunStatus.RUNNING:
                return onset.began, history
            if _submitted_again(history) is not None:
                TwinRuns(twin).stop(run_id, reason=RunError(name="Stopped", message="It goes on.", what_to_do=""))
                return onset.began, history
            time.sleep(0.2)
    raise BenchmarkFailed(f"The run {run_id} has not ended after {RUN_SECONDS:g} s.")


@contextmanager
def _api(twin: Twin) -> Iterator[CoreV1Api]:
    with new_client_from_config(str(twin.kubeconfig)) as client:
        yield CoreV1Api(client)


class _Onset:
    """Sees a failure begin, and causes it where the program does not.

    Attributes:
        began: When it had begun and taken its own time, in seconds of the epoch; None before.
    """

    def __init__(self, api: CoreV1Api, run_id: str, failure: Failure) -> None:
        self._api, self._failure = api, failure
        self._selector = f"{RUN_LABEL}={run_id},{STAGE_LABEL}=training"
        self._was_complete = self._is_inflicted = False
        self.began: float | None = None

    def poll(self) -> None:
        """Look at the gang's pods, and at their logs if the failure is seen there."""
        if self.began is not None:
            return
        pods = self._api.list_pod_for_all_namespaces(label_selector=self._selector).items
        if self._has_begun(pods):
            self.began = time.time() + self._failure.own_seconds
        self._was_complete = self._was_complete or len(pods) == NUM_PODS
        if self._failure.inflict is not None and not self._is_inflicted:
            for pod in [pod for pod in pods if "step_loss" in self._log(pod)][:1]:
                self._failure.inflict(self._api, pod)
                self._is_inflicted = True

    def _has_begun(self, pods: list[V1Pod]) -> bool:
        if self._failure.line:
            return any(self._failure.line in self._log(pod) for pod in pods)
        has_lost_one = self._was_complete and len(pods) < NUM_PODS
        return has_lost_one or any(pod.status.phase == "Failed" for pod in pods)

    def _log(self, pod: V1Pod) -> str:
        try:
            return str(self._api.read_namespaced_pod_log(pod.metadata.name, pod.metadata.namespace))
        except ApiException:  # the container has not begun, or the pod has gone
            return ""


def _entered(history: ExecutionHistory, state: str) -> list[float]:
    return [visit.entered_at.timestamp() for visit in visits(history) if visit.name == state]


def _noticed(history: ExecutionHistory) -> float | None:
    return next(iter(_entered(history, "IsTrainingFinished")), None)


def _submitted_again(history: ExecutionHistory) -> float | None:
    noticed = _noticed(history)
    return next((at for at in _entered(history, "WatchTraining") if noticed is not None and at > noticed), None)
