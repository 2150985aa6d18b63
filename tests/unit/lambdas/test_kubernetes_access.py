"""What a function may do in the cluster is what its calls do: not less, and not more.

Every function with access is run through what it can meet: objects that are there and that are not, jobs that run,
succeed and fail. The verbs that the API was asked for have to be the granted ones.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from lambdas.errors import TrainflowError
from lambdas.gateways.kubernetes import KubernetesBackend
from lambdas.logic.jobs import job_of
from lambdas.logic.manifests.indexed_job import render
from lambdas.models.functions import FUNCTIONS, Function
from lambdas.models.kubernetes_access import IN_CLUSTER, IN_NAMESPACE, Access, Rule, access_manifests
from lambdas.models.kubernetes_names import MANAGED_BY, RUN_LABEL
from lambdas.models.run import MetricsCursor, Stage
from lambdas.models.run_record import RunStatus
from lambdas.models.run_table import row_of
from tests.fakes.kubernetes_api import FakeKubernetesApi, Use
from tests.fakes.runs import STARTED_AT, job_ref, run_of
from tests.unit.lambdas.conftest import CONTEXT, NAMESPACE, Aws

RUN = run_of()
TYPE = RUN.spec.compute.instance_type
DOCUMENT = RUN.model_dump(mode="json")
CURSOR = MetricsCursor().model_dump(mode="json")

State = Mapping[str, Any] | None


def job_event(**fields: Any) -> dict[str, Any]:
    return {"run": DOCUMENT, "job": job_ref(RUN).model_dump(mode="json"), "progress": CURSOR, **fields}


EVENTS: dict[str, dict[str, Any]] = {
    "EnsureCapacity": {"run": DOCUMENT, "waiting_since": datetime.now(UTC).isoformat()},
    "StageData": {"run": DOCUMENT},
    "SubmitJob": {"run": DOCUMENT, "stage": "training", "attempt": 1},
    "PollJob": job_event(),
    "LocateRank0": job_event(),
    "PublishMetrics": {"run": DOCUMENT, "rank0": "pod", "cursor": CURSOR},
    "CheckCompilation": job_event(),
    "PublishArtifacts": {
        "run": DOCUMENT,
        "training": job_ref(RUN).model_dump(mode="json"),
        "progress": CURSOR,
        "compilation": None,
    },
    "CollectDiagnostics": {"run": DOCUMENT, "error": {"Error": "WorkerFailed", "Cause": ""}},
    "TearDown": {"run": DOCUMENT},
    "CleanUp": {"detail": {"name": RUN.run_id, "executionArn": RUN.execution_arn, "status": "ABORTED"}},
    "SurveyFleet": {},
}

CONDITIONS: Iterable[State] = (
    None,
    {"ready": 1, "startTime": STARTED_AT.isoformat()},
    {"conditions": [{"type": "Complete", "status": "True"}]},
    {"conditions": [{"type": "Failed", "status": "True", "reason": "BackoffLimitExceeded"}]},
)
"""Of every job: as it was submitted, running, succeeded, failed."""


def put_jobs_into(cluster: FakeKubernetesApi, status: State) -> None:
    """Give every job of the run this status, and a pod that has ended."""
    for stage in Stage:
        name = job_ref(RUN, stage).name
        if ("jobs", name) in cluster.objects:
            cluster.objects["jobs", name]["status"] = status or {}
        labels = {
            **MANAGED_BY,
            RUN_LABEL: RUN.run_id,
            "batch.kubernetes.io/job-name": name,
            "batch.kubernetes.io/job-completion-index": "0",
        }
        metadata = {"name": f"{name}-0-abcde", "labels": labels}
        cluster.add("pods", {"metadata": metadata, "spec": {}, "status": {"phase": "Failed"}})


def meet_everything(function: Function, cluster: FakeKubernetesApi) -> None:
    """Call the function in every condition that its run may be in."""
    handler: Callable[..., Any] = importlib.import_module(f"lambdas.handlers.{function.module}").lambda_handler
    others = KubernetesBackend(FakeKubernetesApi(cluster.objects), namespace=NAMESPACE)
    for status in CONDITIONS:
        if function.access is not Access.SUBMIT:
            others.submit(render(job_of(RUN, Stage.TRAINING, 1, artifacts_url="s3://a/")))
        if function.access is not Access.SCALE:
            others.claim_nodes(RUN.run_id, TYPE, 2)
        put_jobs_into(cluster, status)
        try:
            handler(EVENTS[function.name], CONTEXT)
        except TrainflowError:
            continue  # a failed job, a pod without counts


def used_by(access: Access, aws: Aws, cluster: FakeKubernetesApi) -> tuple[set[Use], set[Use]]:
    aws.add_nodegroup(TYPE, desired=2)
    aws.table.begin(row_of(RUN))
    aws.table.finish(RUN.run_id, status=RunStatus.FAILED, ended_at=STARTED_AT + timedelta(hours=1))
    for function in FUNCTIONS:
        if function.access is access:
            meet_everything(function, cluster)
    return cluster.used_in_namespace, cluster.used_in_cluster


def granted(rules: Iterable[Rule]) -> set[Use]:
    return {
        Use(group, resource, verb)
        for rule in rules
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


@pytest.mark.parametrize("access", Access)
def test_a_group_may_do_exactly_what_its_functions_do(aws: Aws, cluster: FakeKubernetesApi, access: Access) -> None:
    in_namespace, in_cluster = used_by(access, aws, cluster)
    assert granted(IN_NAMESPACE[access]) == in_namespace
    assert granted(IN_CLUSTER.get(access, ())) == in_cluster


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.name)
def test_a_function_has_access_if_it_talks_to_the_cluster(function: Function) -> None:
    handler = importlib.import_module(f"lambdas.handlers.{function.module}")
    assert (function.access is not None) == hasattr(handler, "backends")
    assert (function.access is not None) == (function.name in EVENTS)


def test_only_clean_up_and_the_survey_may_delete_and_only_clean_up_jobs() -> None:
    deletes = {
        access: {use.resource for use in granted(rules) if use.verb == "delete"}
        for access, rules in IN_NAMESPACE.items()
    }
    assert {access: resources for access, resources in deletes.items() if resources} == {
        Access.CLEAN_UP: {"jobs", "services", "configmaps"},
        Access.SURVEY: {"configmaps"},
    }


def test_no_rule_says_everything() -> None:
    for manifest in access_manifests("training"):
        for rule in manifest.get("rules", ()):
            assert "*" not in {*rule["apiGroups"], *rule["resources"], *rule["verbs"]}
