"""`trainflow doctor` without a run: one thing of a deployment is broken at a time, and its line says so."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Any

import pytest
from moto.iam.aws_managed_policies import aws_managed_policies_data

from trainflow.cli.doctor.deployed.checks import aws_findings, cluster_findings
from trainflow.cli.doctor.deployed.facts import Absent, AwsFacts, ClusterFacts, EventSource, FunctionState, Unasked
from trainflow.cli.doctor.findings import Finding, Outcome
from trainflow.observed.node import Node, read_node
from trainflow.protocol.pods import CLAIM

WORKS = FunctionState(state="Active", reason="", update="Successful", concurrency=None)
LIVES = {"metadata": {"name": "training"}, "status": {"phase": "Active"}}
REFUSED = Unasked("These credentials may not call events:DescribeRule: not authorized.")

HEALTHY: dict[str, Any] = {"name": "mine", "status": "ACTIVE", "version": "1.34", "health": {"issues": []}}


def node(name: str = "ip-10-0-0-1", *, neuron: str = "16", status: str = "True", **spec: Any) -> Node:
    return read_node(
        {
            "metadata": {"name": name, "labels": {"node.kubernetes.io/instance-type": "trn1.32xlarge"}},
            "spec": spec,
            "status": {
                "allocatable": {"aws.amazon.com/neuron": neuron},
                "conditions": [{"type": "Ready", "status": status, "lastTransitionTime": "2026-11-01T00:00:00Z"}],
            },
        }
    )


def workload(name: str, spec: dict[str, Any], status: dict[str, Any]) -> dict[str, Any]:
    return {"metadata": {"namespace": "kube-system", "name": name}, "spec": spec, "status": status}


AWS = AwsFacts(
    state_machine="ACTIVE",
    functions={"ValidateRun": WORKS, "StartRun": WORKS},
    aliases={"StartRun": "7", "CleanUp": "7"},
    artifact_bucket="mine-artifacts",
    data_bucket="mine-data",
    sends_events=True,
    uploads=EventSource(state="Enabled", waiting=0, lost=0),
    upload_rules={"uploads": "ENABLED"},
    end_rules={"ended": "ENABLED"},
    schedules={"survey-fleet": "ENABLED", "weekly": "ENABLED"},
    survey_schedules=frozenset({"survey-fleet"}),
    subscriptions={"ada@example.org": True},
    alarms=(),
    cluster=HEALTHY,
    nodegroups=[{"nodegroupName": "trn1", "status": "ACTIVE", "health": {"issues": []}}],
    addons=[{"addonName": "vpc-cni", "status": "ACTIVE"}],
    file_systems=[{"FileSystemId": "fs-1", "Lifecycle": "AVAILABLE"}],
)
CLUSTER = ClusterFacts(
    version="v1.34.1",
    namespace=LIVES,
    service_account={"metadata": {"name": "training"}},
    claims=[{"metadata": {"name": CLAIM}, "status": {"phase": "Bound"}}],
    quotas=[{"metadata": {"name": "team"}, "status": {"hard": {"pods": "10"}, "used": {"pods": "9"}}}],
    deployments=[workload("coredns", {"replicas": 2}, {"readyReplicas": 2})],
    daemon_sets=[workload("neuron-device-plugin", {}, {"desiredNumberScheduled": 2, "numberReady": 2})],
    nodes=[node()],
    pressures={"ip-10-0-0-1": ()},
)


def issue(code: str, message: str) -> dict[str, Any]:
    return {"issues": [{"code": code, "message": message}]}


Broken = dict[str, tuple[dict[str, Any], str, str]]

BROKEN_AWS: Broken = {
    "a state machine that is deleted": ({"state_machine": "DELETING"}, "state machine", "DELETING"),
    "no state machine": ({"state_machine": Absent()}, "state machine", "does not exist"),
    "a function that is gone": ({"functions": {"ValidateRun": Absent()}}, "functions", "ValidateRun does not exist"),
    "a function that cannot start": (
        {"functions": {"Notify": replace(WORKS, state="Failed", reason="The subnet has no free address")}},
        "functions",
        "Notify is Failed (The subnet has no free address)",
    ),
    "a function that is prepared": ({"functions": {"Notify": replace(WORKS, state="Pending")}}, "functions", "Pending"),
    "an update of a function that failed": (
        {"functions": {"PollJob": replace(WORKS, update="Failed", reason="ImageDeleted")}},
        "functions",
        "the last update of PollJob has failed (ImageDeleted)",
    ),
    "a function without concurrency": (
        {"functions": {"Notify": WORKS, "StartRun": replace(WORKS, concurrency=0)}},
        "functions",
        "StartRun has a reserved concurrency of 0",
    ),
    "no alias": ({"aliases": {"StartRun": "7", "CleanUp": Absent()}}, "aliases", "CleanUp: no alias `live`"),
    "no artifact bucket": ({"artifact_bucket": Absent()}, "artifact bucket", "does not exist"),
    "no data bucket": ({"data_bucket": Absent()}, "data bucket", "does not exist"),
    "no events of uploads": ({"sends_events": False}, "events of uploads", "does not report"),
    "no rule for uploads": ({"upload_rules": {}}, "rule for uploads", "does not exist"),
    "a rule for uploads that is disabled": (
        {"upload_rules": {"uploads": "DISABLED"}},
        "rule for uploads",
        "uploads: disabled",
    ),
    "a queue without its function": (
        {"uploads": EventSource(state="Disabled", waiting=3, lost=0)},
        "queue of uploads",
        "Disabled",
    ),
    "no connection of the queue": ({"uploads": Absent()}, "queue of uploads", "does not exist"),
    "uploads that were lost": (
        {"uploads": EventSource(state="Enabled", waiting=0, lost=2)},
        "lost uploads",
        "2 in the dead-letter queue",
    ),
    "a rule for ended runs that is disabled": ({"end_rules": {"e": "DISABLED"}}, "rule for ended runs", "e: disabled"),
    "no search for forgotten nodes": ({"survey_schedules": frozenset()}, "schedules", "none searches"),
    "a schedule that is disabled": (
        {"schedules": {"survey-fleet": "ENABLED", "weekly": "DISABLED"}},
        "schedules",
        "weekly: disabled",
    ),
    "nobody to tell": ({"subscriptions": {}}, "recipients of messages", "there is none"),
    "an address that was not confirmed": (
        {"subscriptions": {"ada@example.org": False, "bob@example.org": True}},
        "recipients of messages",
        "ada@example.org: not confirmed",
    ),
    "an alarm": ({"alarms": ["mine-run-failed"]}, "alarms", "mine-run-failed"),
    "a cluster that is updated in vain": (
        {"cluster": {"name": "mine", "status": "FAILED", "version": "1.34"}},
        "cluster",
        "mine is FAILED",
    ),
    "a cluster without its key": (
        {"cluster": {**HEALTHY, "health": issue("KmsKeyDisabled", "The key is disabled.")}},
        "cluster",
        "KmsKeyDisabled: The key is disabled.",
    ),
    "no cluster": ({"cluster": Absent()}, "cluster", "does not exist"),
    "a node group without capacity": (
        {
            "nodegroups": [
                {
                    "nodegroupName": "trn1",
                    "status": "DEGRADED",
                    "health": issue("AsgInstanceLaunchFailures", "InsufficientInstanceCapacity"),
                }
            ]
        },
        "node groups",
        "trn1 (DEGRADED): AsgInstanceLaunchFailures: InsufficientInstanceCapacity",
    ),
    "a node group that is not made": (
        {"nodegroups": [{"nodegroupName": "trn1", "status": "CREATE_FAILED"}]},
        "node groups",
        "trn1 is CREATE_FAILED",
    ),
    "an add-on that is degraded": (
        {
            "addons": [
                {"addonName": "vpc-cni", "status": "DEGRADED", "health": issue("InsufficientNumberOfReplicas", "0")}
            ]
        },
        "add-ons",
        "vpc-cni (DEGRADED): InsufficientNumberOfReplicas: 0",
    ),
    "a file system that is misconfigured": (
        {"file_systems": [{"FileSystemId": "fs-1", "Lifecycle": "MISCONFIGURED"}]},
        "file system",
        "fs-1 is MISCONFIGURED",
    ),
    "a file system that was deleted": ({"file_systems": Absent()}, "file system", "does not exist"),
}

BROKEN_CLUSTER: Broken = {
    "an API that is not reached": ({"version": Unasked("No answer.")}, "Kubernetes API", "No answer"),
    "no namespace": ({"namespace": Absent()}, "namespace", "does not exist"),
    "a namespace that is deleted": (
        {"namespace": {**LIVES, "status": {"phase": "Terminating"}}},
        "namespace",
        "training is Terminating",
    ),
    "no service account": ({"service_account": Absent()}, "service account", "does not exist"),
    "no claim": ({"claims": []}, "claims", f"{CLAIM} does not exist"),
    "a claim without a volume": (
        {"claims": [{"metadata": {"name": CLAIM}, "status": {"phase": "Pending"}}]},
        "claims",
        f"{CLAIM} is Pending",
    ),
    "a quota that is used up": (
        {"quotas": [{"metadata": {"name": "team"}, "status": {"hard": {"pods": "10"}, "used": {"pods": "10"}}}]},
        "quotas",
        "team: pods is used up (10 of 10)",
    ),
    "a controller that does not run": (
        {"deployments": [workload("jobset-controller", {"replicas": 1}, {})]},
        "controllers",
        "kube-system/jobset-controller has 0 of 1 pods ready",
    ),
    "a device plugin that does not run": (
        {"daemon_sets": [workload("neuron", {}, {"desiredNumberScheduled": 3, "numberReady": 2})]},
        "daemon sets",
        "kube-system/neuron has 2 of 3 pods ready",
    ),
    "a node that is not ready": ({"nodes": [node(), node("ip-10-0-0-2", status="Unknown")]}, "nodes", "ip-10-0-0-2"),
    "a node that somebody cordoned": ({"nodes": [node(unschedulable=True)]}, "nodes", "cordoned by hand"),
    "a full disk": ({"pressures": {"a": ("DiskPressure",)}}, "room on nodes", "a reports DiskPressure"),
    "a node without its devices": ({"nodes": [node(neuron="0")]}, "devices", "offers 0 of 16 aws.amazon.com/neuron"),
}


def test_of_a_healthy_deployment_every_check_is_ok() -> None:
    found = [*aws_findings(AWS), *cluster_findings(CLUSTER)]
    assert {finding.outcome for finding in found} == {Outcome.OK}
    names = [finding.check for finding in found]
    assert len(names) == len(set(names)) == 27


def named(found: Iterable[Finding], check: str, seen: str) -> set[str]:
    """Require that a check has failed with these words and with advice; returns the other checks that have failed."""
    failed = {finding.check: finding for finding in found if finding.outcome is Outcome.FAILED}
    assert seen in failed[check].seen
    assert failed[check].advice
    return failed.keys() - {check}


@pytest.mark.parametrize("name", BROKEN_AWS)
def test_one_broken_part_in_aws_is_named(name: str) -> None:
    change, check, seen = BROKEN_AWS[name]
    others = named(aws_findings(replace(AWS, **change)), check, seen)
    assert others <= {"lost uploads"}, "the queue's dead letters are unknown without the queue"


@pytest.mark.parametrize("name", BROKEN_CLUSTER)
def test_one_broken_part_of_the_cluster_is_named(name: str) -> None:
    change, check, seen = BROKEN_CLUSTER[name]
    assert named(cluster_findings(replace(CLUSTER, **change)), check, seen) == set()


ASKED = (
    *("states:DescribeStateMachine", "lambda:GetFunctionConfiguration", "lambda:GetFunctionConcurrency"),
    *("lambda:GetAlias", "lambda:ListEventSourceMappings", "s3:ListBucket", "s3:GetBucketNotification"),
    *("sqs:GetQueueUrl", "sqs:GetQueueAttributes", "events:ListRuleNamesByTarget", "events:DescribeRule"),
    *("scheduler:ListSchedules", "sns:ListSubscriptionsByTopic", "cloudwatch:DescribeAlarms", "eks:DescribeCluster"),
    *("eks:ListNodegroups", "eks:DescribeNodegroup", "eks:ListAddons", "eks:DescribeAddon"),
    *("fsx:DescribeFileSystems", "ssm:GetParameter"),
)
"""Actions of the questions to AWS (Service Authorization Reference)."""


def test_the_documented_policy_lets_a_caller_ask_everything() -> None:
    policy = json.loads(aws_managed_policies_data)["ReadOnlyAccess"]["Document"]
    allowed = [action.lower() for statement in policy["Statement"] for action in statement["Action"]]
    refused = {action for action in ASKED if not any(fnmatchcase(action.lower(), each) for each in allowed)}
    assert refused == set()


@pytest.mark.parametrize(
    "field",
    [each for each in AWS.__dataclass_fields__ if each not in {"functions", "aliases", "survey_schedules"}],
)
def test_a_question_that_is_refused_is_skipped_with_the_permission(field: str) -> None:
    refused: dict[str, Any] = {field: REFUSED}
    found = list(aws_findings(replace(AWS, **refused)))
    assert REFUSED.reason in {finding.seen for finding in found if finding.outcome is Outcome.SKIPPED}
    assert not [finding for finding in found if finding.outcome is Outcome.FAILED]


def test_a_deployment_whose_cluster_makes_the_nodes_is_well() -> None:
    found = {finding.check: finding for finding in aws_findings(replace(AWS, nodegroups=[], addons=[]))}
    assert Outcome.FAILED not in {finding.outcome for finding in found.values()}
    assert found["node groups"].outcome is Outcome.SKIPPED


@pytest.mark.parametrize("nodes", [0, 1, 2, 3, 5, 7])
def test_any_number_of_ready_nodes_is_well(nodes: int) -> None:
    several = replace(CLUSTER, nodes=[node(f"ip-{number}") for number in range(nodes)])
    assert {finding.outcome for finding in cluster_findings(several)} == {Outcome.OK}
