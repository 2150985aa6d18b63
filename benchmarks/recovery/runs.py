"""A rank, a pod or a node of a run ends in the twin, at time scale 1: the real state machine, pods as real processes.

The instance of a dead node has ended, and its taint comes with that, so the cluster's own detection takes no time here.
"""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import psutil
from kubernetes.client import CoreV1Api, V1Node, V1NodeSpec, V1Pod, V1Taint
from kubernetes.config import new_client_from_config

from benchmarks.fault_injection import Plan
from benchmarks.fault_runs import arn_of_run, faulty_twin, histories
from benchmarks.many_runs import start_all
from benchmarks.recovery.parts import NotRecovered, Trials, last_step, read_events, recovery_parts, weight
from benchmarks.result import BenchmarkFailed
from local.aws.deployment import CLUSTER_NAME
from local.planned_faults import OUT_OF_SERVICE
from local.twin import Twin
from trainflow.deployment.kubernetes_names import ATTEMPT_LABEL, RUN_LABEL, STAGE_LABEL
from trainflow.nodes.instances import INSTANCE_TYPE_LABEL, nodegroup_name
from trainflow.protocol import variables
from trainflow.record.history import visits
from trainflow.workflow.run import Stage

INSTANCE_TYPE = "trn1.32xlarge"
NUM_NODES = 2
_OF_TYPE = f"{INSTANCE_TYPE_LABEL}={INSTANCE_TYPE}"
STEPS = 250
"""Steps of a run, which trains for about half a minute."""
TRIAL_SECONDS = 300.0

Lose = Callable[[Twin, CoreV1Api, str, int], None]
"""Ends something of a run, on the node of a number in the gang."""


def _kill_rank(_twin: Twin, _api: CoreV1Api, run_id: str, node: int) -> None:
    for process in _processes(run_id, RANK=str(node)):
        process.send_signal(signal.SIGKILL)


def _kill_pod(_twin: Twin, _api: CoreV1Api, run_id: str, node: int) -> None:
    """End the pod's own process, as the kernel does for lack of memory."""
    for process in _processes(run_id):
        words = process.cmdline()
        if "supervisor" in " ".join(words[:3]) and words[words.index("--node_rank") + 1] == str(node):
            process.send_signal(signal.SIGKILL)


def _lose_node(_twin: Twin, api: CoreV1Api, run_id: str, node: int) -> None:
    """End the node's instance."""
    pod = next(pod for pod in _pods(api, run_id, 1) if pod.metadata.name.startswith(f"{run_id}-training-1-{node}"))
    api.patch_node(pod.spec.node_name, V1Node(spec=V1NodeSpec(taints=[V1Taint(**OUT_OF_SERVICE)])))


DEAD_RANK, DEAD_POD = "dead rank", "dead pod"
DEAD_NODE_WITH_SPARE, DEAD_NODE = "dead node, a spare", "dead node, none"

LOSSES: Mapping[str, Lose] = {
    DEAD_RANK: _kill_rank,
    DEAD_POD: _kill_pod,
    DEAD_NODE_WITH_SPARE: _lose_node,
    DEAD_NODE: _lose_node,
}


def kill_runs(number: int) -> dict[str, Trials]:
    """Lose each of `LOSSES` in a number of runs, in turns.

    Raises:
        BenchmarkFailed: If a run does not begin to train.
    """
    choose = random.Random(99)  # noqa: S311  (moments of kills)
    found = {name: Trials() for name in LOSSES}
    with faulty_twin(Plan(), time_scale=1) as twin, new_client_from_config(str(twin.kubeconfig)) as client:
        for trial in range(number):
            step, node = choose.randrange(20, STEPS // 2), choose.randrange(NUM_NODES)
            for name, trials in found.items():
                run = _Run(twin, CoreV1Api(client), f"recovery-{'-'.join(name.replace(',', '').split())}-{trial:02}")
                run.disturb(LOSSES[name], trials, step=step, node=node, spares=int(name == DEAD_NODE_WITH_SPARE))
    return found


class _Run:
    """A run of the program in the twin."""

    def __init__(self, twin: Twin, api: CoreV1Api, run_id: str) -> None:
        self._twin, self._api, self._id = twin, api, run_id
        self._folder = twin.home / "volumes" / "runs" / run_id
        self._running_at: float | None = None

    def disturb(self, lose: Lose, trials: Trials, *, step: int, node: int, spares: int) -> None:
        """Start the run, lose something at a step, and add what came of it to the trials."""
        start_all(self._twin, {self._id: _spec()})
        self._await(lambda: last_step(read_events(self._folder), until=time.time()) > 0, "began to train")
        self._add_nodes(spares)
        self._await(lambda: last_step(read_events(self._folder), until=time.time()) >= step, f"came to step {step}")
        killed_at = time.time()
        lose(self._twin, self._api, self._id, node)
        status = self._watch_to_end()
        try:
            if status != "SUCCEEDED":
                raise NotRecovered
            parts = recovery_parts(read_events(self._folder), killed_at, self._moments())
        except NotRecovered:
            trials.not_recovered += 1
            return
        trials.recovered.append(parts)
        trials.weights.add(weight(self._folder))

    def _add_nodes(self, number: int) -> None:
        """Have further nodes, which are ready."""
        if not number:
            return
        self._twin.client("eks").update_nodegroup_config(
            clusterName=CLUSTER_NAME,
            nodegroupName=nodegroup_name(INSTANCE_TYPE),
            scalingConfig={"desiredSize": NUM_NODES + number},
        )
        self._await(lambda: len(self._api.list_node(label_selector=_OF_TYPE).items) >= NUM_NODES + number, "had nodes")

    def _await(self, condition: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + TRIAL_SECONDS
        while not condition():
            if time.monotonic() > deadline:
                raise BenchmarkFailed(f"The run {self._id} never {what}.")
            time.sleep(0.02)

    def _watch_to_end(self) -> str:
        """Note when the pods of the second attempt run; the status in the end."""
        deadline, states = time.monotonic() + TRIAL_SECONDS, self._twin.client("stepfunctions")
        status = "RUNNING"
        while status == "RUNNING" and time.monotonic() < deadline:
            pods = [] if self._running_at else _pods(self._api, self._id, attempt=2)
            if len(pods) == NUM_NODES and all(pod.status.phase == "Running" for pod in pods):
                self._running_at = time.time()
            status = states.describe_execution(executionArn=arn_of_run(self._twin, self._id))["status"]
            time.sleep(0.2)
        return str(status)

    def _moments(self) -> dict[str, float]:
        """Times of the failure's detection, of the next job's submission, and of its pods' start; empty without a new
        job."""
        history = histories(self._twin.client("stepfunctions"), arn_of_run(self._twin, self._id))[0]
        found = [(visit.name, visit.entered_at.timestamp()) for visit in visits(history)]
        noticed = next((at for name, at in found if name == "DeleteJob"), None)
        if noticed is None:
            return {}
        submitted = next(at for name, at in found if name == "IsRestartAnnounced" and at > noticed)
        return {"detection": noticed, "decision": submitted, "placement": self._running_at or submitted}


def _spec() -> dict[str, Any]:
    return {
        "version": 1,
        "name": "recovery",
        "workload": {
            "script": "benchmarks/recovery/program.py",
            "image": "trainer:test",
            "launcher": "torchrun",
            "arguments": {"steps": STEPS},
        },
        "compute": {"instance_type": INSTANCE_TYPE, "num_nodes": NUM_NODES, "processes_per_node": 1},
        "precompile": {"enabled": False},
    }


def _processes(run_id: str, **environment: str) -> list[psutil.Process]:
    """Processes of the run's training."""
    wanted = {variables.RUN_ID: run_id, variables.STAGE: Stage.TRAINING.value, **environment}
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if wanted.items() <= process.environ().items():
                found.append(process)
    return found


def _pods(api: CoreV1Api, run_id: str, attempt: int) -> list[V1Pod]:
    labels = {RUN_LABEL: run_id, STAGE_LABEL: Stage.TRAINING.value, ATTEMPT_LABEL: str(attempt)}
    selector = ",".join(f"{name}={value}" for name, value in labels.items())
    pods: list[V1Pod] = api.list_pod_for_all_namespaces(label_selector=selector).items
    return pods
