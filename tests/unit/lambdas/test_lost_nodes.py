"""A job whose node is lost, drained or taken away: what it is told by, and the error in which it ends."""

from __future__ import annotations

from typing import Any

import pytest

from lambdas.backends.registry import KINDS
from lambdas.gateways.kubernetes_objects import troubled_pods
from lambdas.handlers import poll_job
from tests.fakes.kubernetes_api import FakeKubernetesApi
from tests.fakes.runs import job_ref, run_on
from tests.unit.lambdas.conftest import CONTEXT
from tests.unit.lambdas.test_backends import stored, submit, training
from trainflow.deployment.backends import BackendName
from trainflow.deployment.kubernetes_names import JOB_LABEL
from trainflow.errors import named_errors
from trainflow.failures.judging import Evidence, judge
from trainflow.observed.node import read_node
from trainflow.workflow.run import JobPhase

JobEvicted, JobPreempted, NodeLost = map(named_errors().__getitem__, ("JobEvicted", "JobPreempted", "NodeLost"))


def pod_on(node: str, *, phase: str = "Running", condition: str | None = None, exit_code: int | None = None) -> Any:
    disrupted = [{"type": "DisruptionTarget", "status": "True", "reason": condition}] if condition else []
    ended = {"state": {"terminated": {"exitCode": exit_code, "reason": "Error"}}} if exit_code is not None else {}
    return {
        "metadata": {"name": f"pod-on-{node}"},
        "spec": {"nodeName": node},
        "status": {"phase": phase, "conditions": disrupted, "containerStatuses": [ended]},
    }


def node(name: str, *, ready: str = "True", taint: str | None = None) -> dict[str, Any]:
    taints = [{"key": taint, "effect": "NoExecute"}] if taint else []
    conditions = [{"type": "Ready", "status": ready}]
    return {"metadata": {"name": name}, "spec": {"taints": taints}, "status": {"conditions": conditions}}


NODES = {
    each["metadata"]["name"]: read_node(each)
    for each in (
        node("well"),
        node("silent", ready="Unknown"),
        node("unready", ready="False"),
        node("off", ready="Unknown", taint="node.kubernetes.io/out-of-service"),
        node("spot", taint="aws-node-termination-handler/spot-itn"),
        node("scaled", taint="ToBeDeletedByClusterAutoscaler"),
    )
}


@pytest.mark.parametrize(
    ("pod", "reason", "error"),
    [
        (pod_on("gone"), "NodeLost", "NodeLost"),
        (pod_on("silent"), "NodeUnreachable", "NodeLost"),
        (pod_on("unready"), "NodeNotReady", "NodeLost"),
        (pod_on("off"), "NodeShutdown", "NodeLost"),
        (pod_on("spot", phase="Failed", exit_code=143), "SpotInterruption", "NodeLost"),
        (pod_on("scaled", phase="Failed", exit_code=137), "NodeDrained", "JobEvicted"),
        (pod_on("well", condition="EvictionByEvictionAPI"), "EvictionByEvictionAPI", "JobEvicted"),
        (pod_on("well", condition="PreemptionByScheduler"), "PreemptionByScheduler", "JobPreempted"),
        (pod_on("silent", condition="DeletionByTaintManager"), "DeletionByTaintManager", "NodeLost"),
        (pod_on("gone", condition="DeletionByPodGC", phase="Failed"), "DeletionByPodGC", "NodeLost"),
        (pod_on("well", condition="TerminationByKubelet", phase="Failed"), "TerminationByKubelet", "NodeLost"),
        (pod_on("spot", phase="Failed", exit_code=1), "Error", "ScriptFailed"),
    ],
)
def test_a_pod_that_its_cluster_or_its_node_ended_has_their_reason(pod: Any, reason: str, error: str) -> None:
    [found] = troubled_pods([pod], NODES)
    assert found.reason == reason
    evidence = Evidence(message=found.message, exit_code=found.exit_code, pod_reason=found.reason)
    assert judge(evidence).error.name == error


def test_pods_that_run_on_a_healthy_node_or_have_succeeded_are_not_troubled() -> None:
    pods = [pod_on("well"), pod_on("silent", phase="Succeeded"), pod_on("spot", phase="Succeeded")]
    assert troubled_pods(pods, NODES) == []


def test_a_cordoned_node_is_not_in_trouble() -> None:
    cordoned = node("a")
    cordoned["spec"] = {"unschedulable": True, "taints": [{"key": "node.kubernetes.io/unschedulable"}]}
    assert (read_node(cordoned).trouble, read_node(cordoned).ready) == (None, False)


INCOMPLETE: dict[BackendName, dict[str, Any]] = {
    "job": {"active": 2, "ready": 1},
    "jobset": {"replicatedJobsStatus": [{"name": "gang", "active": 1}]},
    "volcano": {"state": {"phase": "Running"}, "running": 1, "terminating": 1},
    "pod": {"phase": "Running", "conditions": [{"type": "Ready", "status": "False"}]},
}
"""What each kind's status says while a pod of it is on a node that cannot be reached."""


def poll(cluster: FakeKubernetesApi, backend: BackendName, pod: dict[str, Any], nodes: list[Any]) -> Any:
    """The answer to a poll of a job that has trained, one pod of which is in trouble."""
    run = run_on(backend)
    job = training(run)
    submit(job)
    stored(cluster, job)["status"] = INCOMPLETE[backend]
    pod["metadata"]["labels"] = {JOB_LABEL: job.ref.name}
    cluster.add("pods", pod)
    for each in nodes:
        cluster.add("nodes", each)
    event = {"run": run.model_dump(mode="json"), "job": job.ref.model_dump(mode="json"), "progress": {"last_step": 40}}
    return poll_job.lambda_handler(event | {"phase": "running"}, CONTEXT)


@pytest.mark.usefixtures("aws")
@pytest.mark.parametrize("backend", INCOMPLETE)
def test_a_gang_whose_node_is_lost_fails_before_its_job_does(cluster: FakeKubernetesApi, backend: BackendName) -> None:
    """A pod on a lost node never ends: its kubelet would have to say so."""
    lost = pod_on("silent", condition="DeletionByTaintManager")
    with pytest.raises(NodeLost, match=r"pod-on-silent'.*'silent'.*lost.* step 40"):
        poll(cluster, backend, lost, [node("silent", ready="Unknown")])


@pytest.mark.usefixtures("aws")
def test_a_gang_goes_on_while_kubernetes_has_not_given_up_its_node(cluster: FakeKubernetesApi) -> None:
    assert poll(cluster, "job", pod_on("silent"), [node("silent", ready="Unknown")])["phase"] == JobPhase.RUNNING


@pytest.mark.usefixtures("aws")
@pytest.mark.parametrize(
    ("condition", "error"), [("EvictionByEvictionAPI", JobEvicted), ("PreemptionByScheduler", JobPreempted)]
)
def test_eviction_and_preemption_are_named(cluster: FakeKubernetesApi, condition: str, error: type[Exception]) -> None:
    with pytest.raises(error, match="on node 'well'"):
        poll(cluster, "job", pod_on("well", condition=condition), [node("well")])


@pytest.mark.usefixtures("aws")
def test_the_lost_node_is_the_reason_and_not_the_peers_that_noticed_first(cluster: FakeKubernetesApi) -> None:
    run = run_on("job")
    job = training(run)
    submit(job)
    condition = {"type": "Failed", "status": "True", "reason": "BackoffLimitExceeded", "message": "has failed"}
    stored(cluster, job)["status"] = {"failed": 1, "conditions": [condition]}
    peer = pod_on("well", phase="Failed", exit_code=1)
    cluster.logs["pod-on-well"] = "2026-11-23T12:00:00Z RuntimeError: Connection reset by peer\n"
    for pod in (peer, pod_on("silent")):
        pod["metadata"]["labels"] = {JOB_LABEL: job.ref.name}
        cluster.add("pods", pod)
    for each in (node("well"), node("silent", ready="Unknown")):
        cluster.add("nodes", each)
    event = {"run": run.model_dump(mode="json"), "job": job.ref.model_dump(mode="json"), "progress": {}}
    with pytest.raises(NodeLost, match=r"'pod-on-silent'.*'silent'.*lost"):
        poll_job.lambda_handler(event, CONTEXT)


POLICY = {"type": "Failed", "status": "True", "reason": "PodFailurePolicy", "message": "Pod x has a condition"}


def add_event(cluster: FakeKubernetesApi, pod: str, reason: str, **source: str) -> None:
    about = {"kind": "Pod", "name": pod}
    name = {"name": f"{pod}.{reason}"}
    cluster.add("events", {"metadata": name, "involvedObject": about, "reason": reason, "source": source})


@pytest.mark.usefixtures("aws")
@pytest.mark.parametrize(
    ("reason", "error"), [("Preempted", JobPreempted), ("TaintManagerEviction", NodeLost), ("Killing", JobEvicted)]
)
def test_a_pod_that_is_gone_when_its_job_is_polled_is_known_by_its_events(
    cluster: FakeKubernetesApi, reason: str, error: type[Exception]
) -> None:
    """A pod that has been evicted is deleted before the next poll, and its peers have failed because of it."""
    run = run_on("job")
    job = training(run)
    submit(job)
    stored(cluster, job)["status"] = {"failed": 2, "conditions": [POLICY]}
    peer = pod_on("well", phase="Failed", exit_code=1)
    peer["metadata"]["labels"] = {JOB_LABEL: job.ref.name}
    cluster.add("pods", peer)
    cluster.add("nodes", node("well"))
    gone, older = f"{job.ref.name}-0-abcde", f"{job.ref.name}0-0-other"
    add_event(cluster, older, "Preempted", component="default-scheduler")
    add_event(cluster, gone, "Scheduled", component="default-scheduler")
    add_event(cluster, gone, "Started", component="kubelet", host="taken")
    add_event(cluster, gone, reason, component="the-one-that-ended-it")
    event = {"run": run.model_dump(mode="json"), "job": job.ref.model_dump(mode="json"), "progress": {}}
    named = f"'{gone}' on node 'taken' was lost .{reason}" if error is not JobEvicted else "Pod x has a condition"
    with pytest.raises(error, match=named):
        poll_job.lambda_handler(event, CONTEXT)


def test_a_job_that_waits_for_a_pod_on_a_lost_node_has_failed() -> None:
    """`FailureTarget` becomes `Failed` when the last pod has ended, which a lost node does not report."""
    condition = {"type": "FailureTarget", "status": "True", "reason": "PodFailurePolicy", "message": "a pod is evicted"}
    status = KINDS["job"].status(job_ref(run_on("job")), {"status": {"conditions": [condition]}})
    assert (status.phase, status.failure_reason) == (None, "PodFailurePolicy")
    assert judge(Evidence(job_reason=status.failure_reason)).error.name == "JobEvicted"


def test_a_volcano_job_that_its_policy_ended_was_evicted() -> None:
    status = KINDS["volcano"].status(job_ref(run_on("volcano")), {"status": {"state": {"phase": "Terminated"}}})
    assert judge(Evidence(job_reason=status.failure_reason)).error.name == "JobEvicted"
