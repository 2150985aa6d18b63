"""Nodes that the cluster makes by itself: placeholders, the reports of autoscalers, and the order of runs."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from lambdas.backends.kubernetes.cluster_nodes import ensure_nodes
from lambdas.backends.kubernetes.placeholders import placeholder
from lambdas.backends.kubernetes.pods import NODEGROUP_LABEL, pod_spec
from lambdas.backends.registry import BACKENDS
from lambdas.gateways.kubernetes import KubernetesCluster
from lambdas.logic.autoscaling import blockage, newest_report
from lambdas.logic.jobs import Job, job_of
from lambdas.logic.preflight.account import spares_findings
from lambdas.logic.preflight.admission import placeholder_refused
from lambdas.logic.preflight.findings import Note, Problem
from stacks.capacity.node_config import node_config
from tests.fakes.claims import claim
from tests.fakes.deployment import FakeDeployment
from tests.fakes.kubernetes_api import FakeKubernetesApi
from tests.fakes.runs import run_of, spec_with
from tests.unit.lambdas.conftest import NAMESPACE
from trainflow.deployment.kubernetes_access import HOLDS_NODES, access_manifests
from trainflow.deployment.kubernetes_names import PLACEHOLDER_LABEL, PLACEHOLDER_PRIORITY, UNDISTURBED
from trainflow.nodes.instances import INSTANCE_TYPE_LABEL, INSTANCE_TYPES
from trainflow.workflow.preflight import Refused
from trainflow.workflow.run import Run, Stage

NOW = datetime(2026, 11, 28, 12, 0, tzinfo=UTC)
SINCE = NOW - timedelta(minutes=5)
TYPE = "trn1.32xlarge"
DOCUMENT = Path("docs/nodes-by-the-cluster.md")


def event(component: str, reason: str, message: str, *, minutes_ago: float = 1, series: bool = False) -> dict[str, Any]:
    """An event of the old API, or a repeated one of the new API."""
    at = (NOW - timedelta(minutes=minutes_ago)).strftime("%Y-%m-%dT%H:%M:%SZ")
    if series:
        repeated = {"series": {"count": 2, "lastObservedTime": at}, "eventTime": "2026-11-01T00:00:00.000000Z"}
        return {"reportingComponent": component, "reason": reason, "message": message, **repeated}
    return {"source": {"component": component}, "reason": reason, "message": message, "lastTimestamp": at}


@pytest.mark.parametrize(
    ("component", "reason", "message", "is_refusal"),
    [
        ("karpenter", "Nominated", "Pod should schedule on: nodeclaim/trn1-abcde", False),
        ("karpenter", "FailedScheduling", "Failed to schedule pod, all available instance types exceed limits", True),
        ("eks-auto-mode/compute", "Nominated", "Pod should schedule on: nodeclaim/trn1-abcde", False),
        ("eks-auto-mode/compute", "FailedScheduling", "Failed to schedule pod, incompatible with nodepool", True),
        ("cluster-autoscaler", "TriggeredScaleUp", "pod triggered scale-up: [{trn1 0->2 (max: 2)}]", False),
        ("cluster-autoscaler", "NotTriggerScaleUp", "pod didn't trigger scale-up: 1 max node group size reached", True),
    ],
)
@pytest.mark.parametrize("series", [False, True])
def test_each_autoscaler_is_quoted(component: str, reason: str, message: str, is_refusal: bool, series: bool) -> None:
    report = newest_report([event(component, reason, message, series=series)], since=SINCE)
    assert report is not None
    assert (report.text, report.is_refusal) == (f"{component}: {reason}: {message}", is_refusal)


def test_the_newest_report_counts_and_no_event_of_an_earlier_pod_or_of_the_scheduler() -> None:
    events = [
        event("cluster-autoscaler", "NotTriggerScaleUp", "in backoff", minutes_ago=2),
        event("cluster-autoscaler", "TriggeredScaleUp", "0->2", minutes_ago=1),
        event("default-scheduler", "FailedScheduling", "0/3 nodes are available", minutes_ago=0),
    ]
    report = newest_report(events, since=SINCE)
    assert report is not None and not report.is_refusal
    assert newest_report(events, since=NOW - timedelta(seconds=30)) is None


def test_one_gang_asks_for_nodes_at_a_time() -> None:
    claims = [claim("first", 2, 1), claim("second", 3, 2), claim("third", 1, 3)]
    assert blockage("first", claims, granted=()) is None
    waiting = blockage("third", claims, granted=())
    assert waiting is not None
    assert (waiting.ahead, waiting.num_held, waiting.maximum) == (("first", "second"), 0, None)
    assert blockage("second", claims, granted={"first"}) is None
    assert blockage("first", claims, granted={"first"}) is None
    behind = blockage("third", claims, granted={"first"})
    assert behind is not None
    assert (behind.ahead, behind.held) == (("second",), {"first": 2})


def gang(*, num_nodes: int = 2) -> tuple[Run, Job]:
    run = run_of(spec_with(compute={"instance_type": TYPE, "num_nodes": num_nodes}))
    job = job_of(run, Stage.TRAINING, 1, artifacts_url="s3://artifacts/runs/x/")
    return run, replace(job, cluster_makes_nodes=True)


def test_a_placeholder_asks_for_the_node_of_the_gangs_pod() -> None:
    _, job = gang()
    pod, held = (
        pod_spec(replace(job, avoided_nodes=("bad",))),
        placeholder(replace(job, avoided_nodes=("bad",)), 0, wait_seconds=600),
    )
    assert held["spec"]["containers"][0]["resources"] == pod["containers"][0]["resources"]
    assert held["spec"]["containers"][0]["resources"]["requests"]["vpc.amazonaws.com/efa"] == "8"
    for field in ("nodeSelector", "tolerations", "affinity", "securityContext"):
        assert held["spec"][field] == pod[field]
    assert NODEGROUP_LABEL not in pod["nodeSelector"], "there is no node group"
    assert NODEGROUP_LABEL in pod_spec(replace(job, cluster_makes_nodes=False))["nodeSelector"]
    assert held["spec"]["priorityClassName"] == PLACEHOLDER_PRIORITY
    assert held["spec"]["activeDeadlineSeconds"] == 600 + 1800
    assert held["metadata"]["annotations"] == UNDISTURBED
    assert [volume["name"] for volume in held["spec"]["volumes"]] == ["shared"]


def test_the_origin_of_nodes_does_not_make_another_job() -> None:
    _, job = gang()
    assert job.spec_hash == replace(job, cluster_makes_nodes=False).spec_hash


def poll(cluster: FakeKubernetesApi, run: Run, job: Job) -> Any:
    backend = KubernetesCluster(cluster, namespace=NAMESPACE)
    return ensure_nodes(backend, run, job, waiting_since=SINCE, now=datetime.now(UTC))


def placeholders(cluster: FakeKubernetesApi) -> dict[str, Any]:
    return {
        name: manifest
        for (resource, name), manifest in cluster.objects.items()
        if resource == "pods" and PLACEHOLDER_LABEL in manifest["metadata"]["labels"]
    }


def set_phase(cluster: FakeKubernetesApi, phase: str, *names: str) -> None:
    for name in names:
        cluster.objects["pods", name]["status"] = {"phase": phase}


def test_a_gang_is_ready_when_all_placeholders_run(cluster: FakeKubernetesApi) -> None:
    run, job = gang(num_nodes=3)
    assert not poll(cluster, run, job).ready
    names = sorted(placeholders(cluster))
    assert names == [f"{run.run_id}-node-{number}" for number in range(3)]
    set_phase(cluster, "Pending", *names)
    set_phase(cluster, "Running", *names[:2])
    part = poll(cluster, run, job)
    assert (part.ready, part.nodes_ready) == (False, 2)
    set_phase(cluster, "Running", *names)
    assert poll(cluster, run, job).ready
    assert KubernetesCluster(cluster, namespace=NAMESPACE).grants(TYPE).by_run == {run.run_id: 3}


def test_a_placeholder_that_has_ended_is_replaced(cluster: FakeKubernetesApi) -> None:
    run, job = gang(num_nodes=1)
    poll(cluster, run, job)
    set_phase(cluster, "Failed", *placeholders(cluster))
    assert not poll(cluster, run, job).ready
    assert placeholders(cluster) == {}
    poll(cluster, run, job)
    assert len(placeholders(cluster)) == 1


def test_nothing_is_asked_for_while_pods_of_the_previous_job_end(cluster: FakeKubernetesApi) -> None:
    run, job = gang(num_nodes=1)
    labels = {"trainflow/run": run.run_id, "trainflow/stage": "training"}
    ending: dict[str, Any] = {"metadata": {"name": "old-0", "labels": labels}, "spec": {"nodeName": "a"}}
    cluster.add("pods", {**ending, "status": {"phase": "Running"}})
    capacity = poll(cluster, run, job)
    assert capacity.pending_reason is not None and "previous job" in capacity.pending_reason
    assert placeholders(cluster) == {}
    lost = (datetime.now(UTC) - timedelta(minutes=5)).strftime("%Y-%m-%dT%H:%M:%SZ")
    cluster.objects["pods", "old-0"]["metadata"]["deletionTimestamp"] = lost  # its node is lost
    poll(cluster, run, job)
    assert len(placeholders(cluster)) == 1


def test_a_run_behind_another_one_asks_for_nothing(cluster: FakeKubernetesApi) -> None:
    run, job = gang()
    KubernetesCluster(cluster, namespace=NAMESPACE).claim_nodes("alpha-0123456789ab", TYPE, 4)
    capacity = poll(cluster, run, job)
    assert capacity.waits_for is not None
    assert capacity.waits_for.ahead == ("alpha-0123456789ab",)
    assert placeholders(cluster) == {}
    cluster.objects.pop(("configmaps", "alpha-0123456789ab-nodes"))
    poll(cluster, run, job)
    assert len(placeholders(cluster)) == 2


def test_releasing_scales_nothing_and_the_job_takes_the_places(cluster: FakeKubernetesApi, monkeypatch: Any) -> None:
    run, job = gang(num_nodes=1)
    monkeypatch.setattr("lambdas.gateways.kubernetes.api_client", lambda _cluster: cluster)
    backend = BACKENDS["job"](FakeDeployment(cluster_makes_nodes=True, namespace=NAMESPACE))
    assert backend.release_nodes(TYPE) == 0
    poll(cluster, run, job)
    assert placeholders(cluster)
    backend.submit(replace(job, cluster_makes_nodes=False))
    assert placeholders(cluster) == {}


def test_a_refused_placeholder_is_a_problem_unless_others_use_the_quota() -> None:
    missing = placeholder_refused(Refused(f"no PriorityClass with name {PLACEHOLDER_PRIORITY} was found"))
    assert isinstance(missing, Problem)
    assert "stacks.tools.manifests" in str(missing) and PLACEHOLDER_PRIORITY in str(missing)
    assert isinstance(placeholder_refused(Refused("pods is forbidden: exceeded quota: runs")), Note)


@pytest.mark.parametrize("spares", [0, 1, 2, 3, 5, 7])
def test_spare_nodes_that_nothing_would_hold_are_refused(spares: int) -> None:
    run = run_of(spec_with(compute={"instance_type": TYPE, "num_nodes": 2, "spares": spares}))
    found = list(spares_findings(run.spec.compute))
    assert [type(finding) for finding in found] == [Problem] * (spares > 0)
    assert all(f"compute.spares is {spares}," in finding.sentence for finding in found)


def test_only_such_a_cluster_lets_functions_hold_nodes() -> None:
    ours, theirs = access_manifests("training"), access_manifests("training", holds_nodes=True)
    assert theirs[0]["kind"] == "PriorityClass" and -10 <= theirs[0]["value"] < 0
    assert theirs[0]["preemptionPolicy"] == "Never"
    added = {
        each["metadata"]["name"]: [rule for rule in each["rules"] if rule not in known["rules"]]
        for each, known in zip(theirs[1:], ours, strict=True)
        if "rules" in each and each != known
    }
    assert added == {
        access.value.replace(":", "-"): [dict(rule) for rule in rules] for access, rules in HOLDS_NODES.items()
    }


def documented() -> dict[str, Any]:
    """The objects of the page by their kinds."""
    text = DOCUMENT.read_text().split("kind: NodePool")
    block = "apiVersion: karpenter.sh/v1\nkind: NodePool" + text[1].partition("```")[0]
    return {each["kind"]: each for each in yaml.safe_load_all(block)}


def test_the_documented_node_pool_makes_the_nodes_that_a_gang_asks_for() -> None:
    pool, node_class = documented()["NodePool"]["spec"], documented()["EC2NodeClass"]
    _, job = gang()
    spec = pod_spec(job)
    requirements = {each["key"]: each["values"] for each in pool["template"]["spec"]["requirements"]}
    assert requirements[INSTANCE_TYPE_LABEL] == [spec["nodeSelector"][INSTANCE_TYPE_LABEL]]
    assert set(spec["nodeSelector"]) <= set(requirements), "a label unknown to Karpenter makes no node"
    tolerated = {(each["key"], each["effect"]) for each in spec["tolerations"]}
    assert {(each["key"], each["effect"]) for each in pool["template"]["spec"]["taints"]} <= tolerated
    reference = pool["template"]["spec"]["nodeClassRef"]
    assert (reference["kind"], reference["name"]) == (node_class["kind"], node_class["metadata"]["name"])
    assert node_class["apiVersion"].partition("/")[0] == reference["group"]
    assert pool["template"]["spec"]["expireAfter"] == "Never", "nodes do not expire during a run"
    assert pool["disruption"] == {"consolidationPolicy": "WhenEmpty", "consolidateAfter": "10m"}


def test_the_documented_user_data_is_that_of_the_deployed_nodes() -> None:
    node_class = documented()["EC2NodeClass"]["spec"]
    assert yaml.safe_load(node_class["userData"]) == node_config(INSTANCE_TYPES[TYPE], local_disks=False)
    assert node_class["instanceStorePolicy"] == "RAID0", "in place of nodeadm's setting for local disks"
