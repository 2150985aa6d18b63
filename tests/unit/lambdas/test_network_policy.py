"""Pods of a gang reach each other, and no pod of another run or job reaches them."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from lambdas.backends.registry import KINDS
from lambdas.gateways.kubernetes import KubernetesCluster
from lambdas.logic.jobs import Job, job_of
from stacks.cluster.network_policies import network_policy_manifests
from tests.fakes.kubernetes_api import FakeKubernetesApi
from tests.fakes.runs import run_on
from tests.unit.lambdas.conftest import NAMESPACE
from tests.unit.lambdas.network_policy_model import Labels, Policy, reaches
from tests.unit.lambdas.test_manifests import pod_templates
from trainflow.configuration.deployment import load_configuration
from trainflow.deployment.backends import KUBERNETES_KINDS, BackendName
from trainflow.deployment.kubernetes_names import NETWORK_LABEL
from trainflow.workflow.run import Stage

GANGS: list[tuple[BackendName, dict[str, Any]]] = [
    *((name, {"num_nodes": number}) for name, kind in KUBERNETES_KINDS.items() for number in (2, 3, 5)
      if not kind.single_node),
    *((name, {"num_nodes": 1}) for name in KUBERNETES_KINDS),
    ("pytorchjob", {"elastic": True}),
]  # fmt: skip
OF_NAMESPACE = network_policy_manifests(load_configuration(Path("config/example.yaml")))


def job(number: int, backend: BackendName, stage: Stage, attempt: int = 1, **fields: Any) -> Job:
    run = run_on(backend, **fields)
    run = run.model_copy(update={"run_id": f"other-{number:012x}"})
    return job_of(run, stage, attempt, artifacts_url="s3://artifacts/runs/x/")


def objects(*jobs: Job) -> tuple[list[Policy], dict[str, list[Labels]]]:
    """The policies that hold while these jobs are there, and the labels of their pods by job."""
    rendered = {each.ref.name: KINDS[each.ref.backend].render(each) for each in jobs}
    policies = [made for several in rendered.values() for made in several if made["kind"] == "NetworkPolicy"]
    pods = {
        name: [template["metadata"]["labels"] for made in several for template in pod_templates(made)]
        for name, several in rendered.items()
    }
    return [*OF_NAMESPACE, *policies], pods


DENY_ALL = {
    "kind": "NetworkPolicy",
    "metadata": {"name": "default-deny"},
    "spec": {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]},
}


@pytest.mark.parametrize("of_others", [[], [DENY_ALL]], ids=["ours-only", "default-deny"])
@pytest.mark.parametrize(("backend", "fields"), GANGS)
def test_pods_of_two_runs_do_not_reach_each_other_and_those_of_a_gang_do(
    backend: BackendName, fields: dict[str, Any], of_others: list[Policy]
) -> None:
    """Also where others deny all traffic in the namespace: policies add up."""
    one, other = (job(number, backend, Stage.TRAINING, **fields) for number in (1, 2))
    small = job(3, backend, Stage.PREFLIGHT, **fields)
    policies, pods = objects(one, other, small)
    for (name, sources), (target_name, targets) in product(pods.items(), repeat=2):
        for source, target in product(sources, targets):
            together = name == target_name and one.ref.num_nodes > 1 and name != small.ref.name
            assert reaches(source, target, [*policies, *of_others]) == together, (name, target_name)


@pytest.mark.parametrize(("backend", "fields"), GANGS)
def test_pods_of_an_earlier_attempt_and_of_other_stages_do_not_reach_a_gang(
    backend: BackendName, fields: dict[str, Any]
) -> None:
    stages = ((Stage.PREFLIGHT, 1), (Stage.PRECOMPILE, 1), (Stage.TRAINING, 1), (Stage.TRAINING, 2), (Stage.PUBLISH, 1))
    policies, pods = objects(*(job(1, backend, stage, attempt, **fields) for stage, attempt in stages))
    assert len(pods) == len(stages)
    for name, other in product(pods, repeat=2):
        if name != other:
            assert not any(reaches(*pair, policies) for pair in product(pods[name], pods[other]))


def test_pods_of_a_gang_that_an_earlier_version_submitted_still_reach_each_other() -> None:
    policies, pods = objects(*(job(number, "job", Stage.TRAINING, num_nodes=2) for number in (1, 2)))
    (new, *_), (labels, *_) = pods.values()
    old = {name: value for name, value in labels.items() if name != NETWORK_LABEL}
    assert reaches(old, old, OF_NAMESPACE)
    assert not reaches(old, new, policies)


@pytest.mark.parametrize("kind", KINDS.values(), ids=lambda kind: str(kind.name))
def test_the_policy_is_there_before_the_pods_and_goes_with_the_job(kind: Any) -> None:
    gang = job(1, kind.name, Stage.TRAINING, num_nodes=1 if kind.description.single_node else 2)
    made = kind.render(gang)
    assert [each["kind"] for each in made].count("NetworkPolicy") == (gang.ref.num_nodes > 1)
    assert gang.ref.num_nodes == 1 or made[0]["kind"] == "NetworkPolicy"
    api = FakeKubernetesApi()
    cluster = KubernetesCluster(api, namespace=NAMESPACE)
    for _ in range(2):
        cluster.create(made)
    before = len(api.objects)
    cluster.delete(gang.ref)
    assert before == len(made)
    assert not api.objects
    cluster.create(made)
    cluster.cancel(gang.run_id)
    assert not api.objects


def test_a_gang_of_one_node_needs_no_policy() -> None:
    gang = job(1, "job", Stage.TRAINING, num_nodes=2)
    alone = replace(gang, ref=gang.ref.model_copy(update={"num_nodes": 1}))
    assert "NetworkPolicy" not in {each["kind"] for each in KINDS["job"].render(alone)}
