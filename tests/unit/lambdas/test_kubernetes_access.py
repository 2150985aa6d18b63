"""What a function may do in the cluster is what its calls do: not less, and not more.

Every function with access is run through what it can meet: objects that are there and that are not, jobs of every
backend that run, succeed and fail. The verbs that the API was asked for have to be the granted ones.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from lambdas.backends.registry import KINDS
from lambdas.gateways.kubernetes import KubernetesCluster
from lambdas.logic.jobs import job_of
from tests.fakes.kubernetes_api import FakeKubernetesApi, Use
from tests.fakes.runs import STARTED_AT, job_ref, run_of, run_on
from tests.unit.lambdas.conftest import ARTIFACT_BUCKET, CONTEXT, NAMESPACE, Aws
from trainflow.deployment.backends import KUBERNETES_KINDS
from trainflow.deployment.functions import FUNCTIONS, Function
from trainflow.deployment.kubernetes_access import IN_CLUSTER, IN_NAMESPACE, Access, Rule, access_manifests
from trainflow.deployment.kubernetes_names import JOB_LABEL, MANAGED_BY, RELEASED_ANNOTATION, RUN_LABEL
from trainflow.errors import TrainflowError
from trainflow.nodes.instances import INSTANCE_TYPE_LABEL
from trainflow.nodes.training_nodes import Grants
from trainflow.protocol.pods import CLAIM, SERVICE_ACCOUNT
from trainflow.workflow.run import MetricsCursor, Run, Stage
from trainflow.workflow.run_record import RunStatus
from trainflow.workflow.run_table import row_of

RUN = run_of()
TYPE = RUN.spec.compute.instance_type
CURSOR = MetricsCursor().model_dump(mode="json")
CHOOSY = {"compute__queue": "research", "compute__priority_class": "urgent"}
RUNS = [run_on(backend, **(CHOOSY if backend == "volcano" else {})) for backend in KUBERNETES_KINDS]
RUNS.append(run_on("pytorchjob", elastic=True))

State = Mapping[str, Any] | None


def events(run: Run) -> dict[str, dict[str, Any]]:
    """What each function is asked about a run."""
    document, job = run.model_dump(mode="json"), job_ref(run).model_dump(mode="json")
    of_job = {"run": document, "job": job, "progress": CURSOR}
    return {
        "Preflight": {"run": document},
        "EnsureCapacity": {"run": document, "waiting_since": datetime.now(UTC).isoformat()},
        "StageData": {"run": document},
        "SubmitJob": {
            "run": document,
            "stage": "training",
            "attempt": 1,
            "cache": None,
            "submitted_at": "2026-11-23T12:00:00Z",
        },
        "PollJob": of_job,
        "LocateRank0": of_job,
        "PublishMetrics": {"run": document, "rank0": "pod", "cursor": CURSOR},
        "CheckCompilation": {**of_job, "cache": {"key": "bert-0", "folder": "bert-0/bert", "hold": "lease"}},
        "PublishArtifacts": {"run": document, "training": job},
        "CollectDiagnostics": {"run": document, "error": {"Error": "WorkerFailed", "Cause": ""}},
        "TearDown": {"run": document},
        "CleanUp": {"detail": {"name": run.run_id, "executionArn": run.execution_arn, "status": "ABORTED"}},
        "SurveyFleet": {},
    }


def further_events(run: Run) -> dict[str, list[dict[str, Any]]]:
    """The same of functions that are asked different things: `DeleteJob` deletes a failed job before a restart."""
    failed = {"job": job_ref(run).model_dump(mode="json"), "error": {"Error": "WorkerFailed", "Cause": ""}}
    return {"TearDown": [{"run": run.model_dump(mode="json"), **failed}]}


EVENTS = events(RUN)

CONDITIONS: Iterable[State] = (
    None,
    {"ready": 1, "startTime": STARTED_AT.isoformat()},
    {"conditions": [{"type": "Complete", "status": "True"}]},
    {"conditions": [{"type": "Failed", "status": "True", "reason": "BackoffLimitExceeded"}]},
)
"""States of every job: submitted, running, succeeded, failed."""


def put_jobs_into(cluster: FakeKubernetesApi, run: Run, status: State) -> None:
    """Give every job of the run this status, and a pod that has ended."""
    for (_, name), manifest in cluster.objects.items():
        if name.startswith(run.run_id) and manifest.get("kind") not in ("Service", "ConfigMap"):
            manifest["status"] = dict(status or {})
            manifest["metadata"]["creationTimestamp"] = STARTED_AT.isoformat()  # long ago: the reason is asked for
    for stage in Stage:
        job = job_ref(run, stage)
        labels = {**MANAGED_BY, RUN_LABEL: run.run_id, JOB_LABEL: job.name, **KUBERNETES_KINDS[job.backend].rank0}
        metadata = {"name": f"{job.name}-0-abcde", "labels": labels}
        cluster.add("pods", {"metadata": metadata, "spec": {}, "status": {"phase": "Failed"}})


def meet_everything(function: Function, cluster: FakeKubernetesApi, run: Run) -> None:
    """Call the function in every condition that its run may be in."""
    handler: Callable[..., Any] = importlib.import_module(f"lambdas.handlers.{function.module}").lambda_handler
    others = KubernetesCluster(FakeKubernetesApi(cluster.objects), namespace=NAMESPACE)
    for status in CONDITIONS:
        if function.access is not Access.SUBMIT:
            others.create(
                KINDS[run.spec.compute.backend].render(job_of(run, Stage.TRAINING, 1, artifacts_url="s3://a/"))
            )
        if function.access is not Access.SCALE:
            others.claim_nodes(run.run_id, TYPE, 2)
        if function.access is Access.SURVEY:
            granted_before = others.grants(TYPE)
            others.store_grants(TYPE, Grants(by_run={run.run_id: 2}, version=granted_before.version))
        put_jobs_into(cluster, run, status)
        for event in (events(run)[function.name], *further_events(run).get(function.name, ())):
            with suppress(TrainflowError):  # a failed job, a pod without counts
                handler(event, CONTEXT)


def add_nodes(cluster: FakeKubernetesApi, num_nodes: int) -> None:
    """Ready nodes with every device, so that runs are granted some."""
    devices = {"aws.amazon.com/neuron": "16", "aws.amazon.com/neuroncore": "32", "vpc.amazonaws.com/efa": "8"}
    for number in range(num_nodes):
        metadata = {"name": f"node-{number}", "labels": {INSTANCE_TYPE_LABEL: TYPE}}
        status = {"conditions": [{"type": "Ready", "status": "True"}], "allocatable": devices}
        cluster.add("nodes", {"metadata": metadata, "status": status})


def used_by(access: Access, aws: Aws, cluster: FakeKubernetesApi) -> tuple[set[Use], set[Use]]:
    aws.add_nodegroup(TYPE, desired=2)
    if access is Access.SCALE:
        add_nodes(cluster, 2 * len(RUNS))
    if access is Access.SURVEY:
        add_nodes(cluster, 1)
        (instance,) = aws.start_instances(TYPE, 1)
        node = cluster.objects["nodes", "node-0"]  # an earlier survey has withdrawn it, and a run uses it
        node["metadata"]["annotations"] = {RELEASED_ANNOTATION: "true"}
        node["spec"] = {"providerID": f"aws:///us-west-2a/{instance}", "unschedulable": True}
        metadata = {"name": "other-0", "labels": {**MANAGED_BY, RUN_LABEL: "other-0123456789ab"}}
        cluster.add("pods", {"metadata": metadata, "spec": {"nodeName": "node-0"}, "status": {"phase": "Running"}})
    cluster.add("serviceaccounts", {"metadata": {"name": SERVICE_ACCOUNT}})
    claim = {"metadata": {"name": CLAIM}, "spec": {"volumeName": "shared"}, "status": {"phase": "Bound"}}
    cluster.add("persistentvolumeclaims", claim)
    for run in RUNS:
        aws.table.begin(row_of(run))
        aws.table.finish(run.run_id, status=RunStatus.FAILED, ended_at=STARTED_AT + timedelta(hours=1))
        announced = f"runs/{run.run_id}/rank0/{job_ref(run).name}"
        aws.client("s3").put_object(Bucket=ARTIFACT_BUCKET, Key=announced, Body=b"some-pod")
        for function in FUNCTIONS:
            if function.access is access:
                meet_everything(function, cluster, run)
    return cluster.used_in_namespace, cluster.used_in_cluster


def granted(rules: Iterable[Rule]) -> set[Use]:
    return {
        Use(group, resource, verb)
        for rule in rules
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


@pytest.mark.usefixtures("begun_history")
@pytest.mark.parametrize("access", Access)
@pytest.mark.lengthy
def test_a_group_may_do_exactly_what_its_functions_do(aws: Aws, cluster: FakeKubernetesApi, access: Access) -> None:
    in_namespace, in_cluster = used_by(access, aws, cluster)
    assert granted(IN_NAMESPACE[access]) == in_namespace
    assert granted(IN_CLUSTER.get(access, ())) == in_cluster


def test_a_deployment_that_replaces_bad_nodes_may_cordon_them_and_no_other_may() -> None:
    def rules(**asked: bool) -> set[Use]:
        roles = [each for each in access_manifests("training", **asked) if each["kind"] == "ClusterRole"]
        return granted(next(role["rules"] for role in roles if "scale" in role["metadata"]["name"]))

    assert rules(replaces_nodes=True) - rules() == {Use("", "nodes", "patch")}


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.name)
def test_a_function_has_access_if_it_talks_to_the_cluster(function: Function) -> None:
    handler = importlib.import_module(f"lambdas.handlers.{function.module}")
    assert (function.access is not None) == hasattr(handler, "backends")
    assert (function.access is not None) == (function.name in EVENTS)


def test_only_clean_up_and_the_survey_may_delete() -> None:
    deletes = {
        access: {use.resource for use in granted(rules) if use.verb == "delete"}
        for access, rules in IN_NAMESPACE.items()
    }
    jobs = {backend.plural for backend in KUBERNETES_KINDS.values()}
    of_runs = {"services", "networkpolicies", "configmaps", "trainingruntimes", *jobs}
    assert {access: resources for access, resources in deletes.items() if resources} == {
        Access.CLEAN_UP: of_runs,
        Access.SURVEY: of_runs,
    }


def test_no_rule_has_a_wildcard() -> None:
    for manifest in access_manifests("training"):
        for rule in manifest.get("rules", ()):
            assert "*" not in {*rule["apiGroups"], *rule["resources"], *rule["verbs"]}
