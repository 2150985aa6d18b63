"""A node on which a run's jobs have failed is not used by its next ones, and another one is requested in its place."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from botocore.exceptions import ClientError

from lambdas.backends.registry import KINDS
from lambdas.backends.slurm.forms import submission_form
from lambdas.handlers import ensure_capacity, tear_down
from lambdas.logic.jobs import job_of
from lambdas.logic.messages import message
from tests.fakes.kubernetes_api import FakeKubernetesApi
from tests.fakes.runs import job_ref, run_of, run_on, spec_with
from tests.unit.lambdas.conftest import CLUSTER, CONTEXT, Aws
from tests.unit.lambdas.test_slurm_forms import JOB
from trainflow.deployment.backends import KUBERNETES_KINDS, BackendName
from trainflow.deployment.kubernetes_names import CORDONED_ANNOTATION, MANAGED_BY, REPLACED_ANNOTATION, RUN_LABEL
from trainflow.errors import AvoidedNodesNotReplaced, CapacityTimeout
from trainflow.failures.judgement import Judgement, to_text
from trainflow.nodes.failed_nodes import MAX_NODES, FailedNodes
from trainflow.nodes.instances import INSTANCE_TYPE_LABEL, nodegroup_name
from trainflow.workflow.run import Run, Stage
from trainflow.workflow.run_record import RunStatus

TYPE = "trn1.32xlarge"


@pytest.mark.parametrize(
    ("failures", "avoided"),
    [
        ([("DeviceFailed", "a")], ("a",)),
        ([("NodeLost", "a"), ("NodeLost", "a"), ("DeviceFailed", "b")], ("a", "b")),
        ([("NetworkFailed", "a")], ()),
        ([("NetworkFailed", "a"), ("WorkerFailed", "b")], ()),
        ([("NetworkFailed", "a"), ("WorkerFailed", "b"), ("JobEvicted", "a")], ("a",)),
        ([("GraphCompilationFailed", "a"), ("CompileCacheGone", "a")], ()),
        ([("DeviceFailed", f"n{number}") for number in range(MAX_NODES + 2)], tuple(f"n{i}" for i in range(2, 18))),
    ],
)
def test_a_node_is_avoided_after_a_failure_of_hardware_or_two_of_any_class(
    failures: list[tuple[str, str]], avoided: tuple[str, ...]
) -> None:
    nodes = FailedNodes()
    for error, node in failures:
        nodes = nodes.after(error=error, node=node)
    assert nodes.avoided == avoided
    assert not set(nodes.avoided) & set(nodes.suspected)
    assert set(nodes.unproven) <= set(nodes.avoided)


@pytest.mark.parametrize(
    ("failures", "unproven"),
    [
        ([("WorkerFailed", "a"), ("WorkerFailed", "a")], ("a",)),
        ([("WorkerFailed", "a"), ("DeviceFailed", "a")], ()),
        ([("DeviceFailed", "a")], ()),
        ([("JobStalled", "a"), ("WorkerFailed", "a"), ("NodeLost", "b")], ("a",)),
        ([("WorkerFailed", "a")] * 2 + [("DeviceFailed", f"n{number}") for number in range(MAX_NODES)], ()),
    ],
)
def test_a_node_is_not_proven_bad_by_failures_that_may_have_another_reason(
    failures: list[tuple[str, str]], unproven: tuple[str, ...]
) -> None:
    nodes = FailedNodes()
    for error, node in failures:
        nodes = nodes.after(error=error, node=node)
    assert nodes.unproven == unproven


def test_a_node_that_is_used_again_is_avoided_after_one_more_failure() -> None:
    nodes = FailedNodes(avoided=("a", "b", "c"), unproven=("b", "c"), suspected=("d",))
    again = nodes.used_again(["b"])
    assert again == FailedNodes(avoided=("a", "c"), unproven=("c",), suspected=("d", "b"))
    assert again.after(error="WorkerFailed", node="b").avoided == ("a", "c", "b")
    assert nodes.used_again([]) == nodes


Failures = list[tuple[str, str | None]]


def after(failures: Failures) -> FailedNodes:
    nodes = FailedNodes()
    for error, node in failures:
        nodes = nodes.after(error=error, node=node)
    return nodes


def run_after(nodes: FailedNodes) -> Run:
    return run_of(spec_with(compute__check_nodes=True)).model_copy(update={"failed_nodes": nodes})


@pytest.mark.parametrize(
    ("failures", "avoided"),
    [
        ([("NodeUnhealthy", "a")], ("a",)),
        ([("NodeUnhealthy", "a"), ("NodeUnhealthy", "a")], ("a",)),
        ([("NodeUnhealthy", "a"), ("NodeUnhealthy", None)], ("a",)),
        ([("NodeUnhealthy", "a"), ("WorkerFailed", "c"), ("NodeUnhealthy", "b")], ("a", "b")),
    ],
)
def test_a_node_that_the_test_named_is_avoided_where_there_is_room_for_another(
    failures: Failures, avoided: tuple[str, ...]
) -> None:
    nodes = after(failures)
    assert (nodes.avoided, nodes.by_test, nodes.unproven, nodes.test_refuted_by) == (avoided, avoided, avoided, ())
    assert run_after(nodes).tests_nodes


@pytest.mark.parametrize(
    ("failures", "avoided"),
    [
        ([("NodeUnhealthy", "a"), ("NodeUnhealthy", "b")], ()),
        ([("DeviceFailed", "c"), ("NodeUnhealthy", "a"), ("NodeUnhealthy", "b")], ("c",)),
        ([("NodeUnhealthy", "d"), ("NodeLost", "c"), ("NodeUnhealthy", "a"), ("NodeUnhealthy", "b")], ("c",)),
        ([("NodeUnhealthy", "a"), ("NodeUnhealthy", "b"), ("DeviceFailed", "c")], ("c",)),
    ],
)
def test_a_test_that_names_another_node_in_the_next_attempt_is_refuted_and_its_nodes_are_used_again(
    failures: Failures, avoided: tuple[str, ...]
) -> None:
    nodes = after(failures)
    assert (nodes.avoided, nodes.by_test, nodes.test_refuted_by) == (avoided, (), ("a", "b"))
    assert not run_after(nodes).tests_nodes
    assert {*nodes.unproven} <= {*nodes.avoided}


@pytest.mark.parametrize(
    ("max_restarts", "in_vain", "tested"), [(0, 0, False), (1, 0, True), (1, 1, False), (2, 1, True), (2, 2, False)]
)
def test_nodes_are_tested_only_where_a_restart_is_left_so_that_the_test_never_ends_a_run(
    max_restarts: int, in_vain: int, tested: bool
) -> None:
    spec = spec_with(limits={"max_restarts": max_restarts}, compute__check_nodes=True)
    run = run_of(spec).model_copy(update={"restarts_in_vain": in_vain})
    assert run.tests_nodes is tested
    plan = job_of(run, Stage.TRAINING, in_vain + 1, artifacts_url="s3://a/").plan
    assert plan is not None and (plan.node_test is not None) is tested


def test_the_state_that_deletes_a_job_returns_the_run_that_remembers_its_node(
    aws: Aws, cluster: FakeKubernetesApi
) -> None:
    run = run_of()
    text = to_text("Pod 'a-0' ended.", Judgement(rule="Neuron runtime", pod="a-0", node="node-1"))
    cause = json.dumps({"errorType": "DeviceFailed", "errorMessage": text})
    event = {
        "run": run.model_dump(mode="json"),
        "job": job_ref(run).model_dump(mode="json"),
        "error": {"Error": "DeviceFailed", "Cause": cause},
    }
    answers = [tear_down.lambda_handler(event, CONTEXT) for _ in range(2)]
    assert answers[0] == answers[1], "a repeated call returns the same"
    assert Run.model_validate(answers[0]["run"]).failed_nodes == FailedNodes(avoided=("node-1",))


def avoiding(run: Run, *nodes: str) -> Run:
    return run.model_copy(update={"failed_nodes": FailedNodes(avoided=nodes)})


@pytest.mark.parametrize("backend", KUBERNETES_KINDS)
def test_the_pods_of_a_gang_keep_away_from_avoided_nodes(backend: BackendName) -> None:
    run = avoiding(run_on(backend), "node-1", "node-2")
    objects = KINDS[backend].render(job_of(run, Stage.TRAINING, 2, artifacts_url="s3://artifacts/"))
    # Each requirement on a field has one value, or the API server refuses the pod.
    fields = [{"key": "metadata.name", "operator": "NotIn", "values": [name]} for name in ("node-1", "node-2")]
    required = {"nodeSelectorTerms": [{"matchFields": fields}]}
    away = json.dumps({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}})
    expression = f'"affinity": {away}'
    assert json.dumps(objects).count(expression) == json.dumps(objects).count('"nodeSelector"') > 0
    small = KINDS["job"].render(job_of(run, Stage.PUBLISH, 1, artifacts_url="s3://artifacts/"))
    assert expression not in json.dumps(small)


@pytest.mark.parametrize(("version", "field"), [(38, {"exclude_nodes": "a,b"}), (44, {"excluded_nodes": ["a", "b"]})])
def test_slurm_is_told_to_exclude_avoided_nodes(version: int, field: dict[str, Any]) -> None:
    form = submission_form(replace(JOB, avoided_nodes=("a", "b")), version)["job"]
    assert field.items() <= form.items()


def add_nodes(cluster: FakeKubernetesApi, *names: str, ready: bool = True) -> None:
    for name in names:
        status = {
            "conditions": [{"type": "Ready", "status": str(ready)}],
            "allocatable": {"aws.amazon.com/neuron": "16", "vpc.amazonaws.com/efa": "8"},
        }
        metadata = {"name": name, "labels": {INSTANCE_TYPE_LABEL: TYPE}}
        cluster.add("nodes", {"metadata": metadata, "status": status})


def ensure(run: Run, *, waiting_since: datetime | None = None) -> dict[str, Any]:
    since = waiting_since or datetime.now(UTC)
    event = {"run": run.model_dump(mode="json"), "waiting_since": since.isoformat()}
    return ensure_capacity.lambda_handler(event, CONTEXT)


def test_one_node_more_is_requested_for_each_avoided_one(aws: Aws, cluster: FakeKubernetesApi) -> None:
    aws.add_nodegroup(TYPE, desired=2, maximum=4)
    add_nodes(cluster, "a", "b")
    run = run_of()
    assert ensure(run)["ready"]
    waiting = ensure(avoiding(run, "a"))
    assert (waiting["ready"], waiting["nodes_ready"], waiting["avoided_nodes"]) == (False, 1, ["a"])
    assert aws.desired(TYPE) == 3
    add_nodes(cluster, "c")
    assert ensure(avoiding(run, "a"))["ready"]


def test_an_avoided_node_that_is_gone_is_not_counted(aws: Aws, cluster: FakeKubernetesApi) -> None:
    aws.add_nodegroup(TYPE, desired=1, maximum=2)
    add_nodes(cluster, "b")
    assert not ensure(avoiding(run_of(), "a"))["ready"]
    assert aws.desired(TYPE) == 2


@pytest.mark.parametrize(("status", "desired"), [("Unknown", 3), ("False", 2)])
def test_a_lost_node_needs_another_one_and_a_node_that_starts_does_not(
    aws: Aws, cluster: FakeKubernetesApi, status: str, desired: int
) -> None:
    aws.add_nodegroup(TYPE, desired=2, maximum=4)
    add_nodes(cluster, "a", "b")
    cluster.objects["nodes", "a"]["status"]["conditions"] = [{"type": "Ready", "status": status}]
    assert not ensure(run_of())["ready"]
    assert aws.desired(TYPE) == desired


def test_a_node_that_one_run_avoids_is_granted_to_no_other(aws: Aws, cluster: FakeKubernetesApi) -> None:
    """The scheduler might leave the avoided node to the run that avoids it."""
    aws.add_nodegroup(TYPE, desired=4, maximum=8)
    add_nodes(cluster, "a", "b", "c", "d")
    assert ensure(avoiding(run_of(), "a"))["ready"]
    other = run_of(spec_with(compute__num_nodes=2), run_id="other-0123456789ab")
    assert not ensure(other)["ready"]
    assert aws.desired(TYPE) == 5


def test_a_run_that_cannot_avoid_a_node_fails_with_its_name(aws: Aws, cluster: FakeKubernetesApi) -> None:
    aws.add_nodegroup(TYPE, desired=2, maximum=2)
    add_nodes(cluster, "a", "b")
    with pytest.raises(AvoidedNodesNotReplaced, match=r"failed on a\b.*avoids.* at most 2 nodes"):
        ensure(avoiding(run_of(), "a"))
    assert aws.desired(TYPE) == 2


def doubting(run: Run, *nodes: str, proven: tuple[str, ...] = ()) -> Run:
    return run.model_copy(update={"failed_nodes": FailedNodes(avoided=(*proven, *nodes), unproven=nodes)})


def test_a_run_uses_an_avoided_node_again_rather_than_fail_for_want_of_room(
    aws: Aws, cluster: FakeKubernetesApi
) -> None:
    """A default node group has room for one gang. Two failures of a worker do not prove that its node is bad."""
    aws.add_nodegroup(TYPE, desired=2, maximum=2)
    add_nodes(cluster, "a", "b")
    run = doubting(run_of(), "a")
    answers = [ensure(run) for _ in range(2)]
    assert answers[0]["run"] == answers[1]["run"], "a repeated call returns the same"
    assert (answers[0]["ready"], answers[0]["avoided_nodes"]) == (False, [])
    next_run = Run.model_validate(answers[0]["run"])
    assert next_run.failed_nodes == FailedNodes(suspected=("a",))
    assert ensure(next_run)["ready"]
    assert aws.desired(TYPE) == 2


def test_no_more_avoided_nodes_are_used_again_than_there_is_no_room_for(aws: Aws, cluster: FakeKubernetesApi) -> None:
    aws.add_nodegroup(TYPE, desired=3, maximum=3)
    add_nodes(cluster, "a", "b", "c")
    assert ensure(doubting(run_of(), "a", "b"))["avoided_nodes"] == ["b"], "the one that failed longest ago is used"
    with pytest.raises(AvoidedNodesNotReplaced, match="have failed on a, b, c"):
        ensure(doubting(run_of(), "c", proven=("a", "b")))
    assert ensure(doubting(run_of(), "a", proven=("c",)))["avoided_nodes"] == ["c"]


def test_a_node_that_is_used_again_has_to_be_ready(aws: Aws, cluster: FakeKubernetesApi) -> None:
    aws.add_nodegroup(TYPE, desired=2, maximum=2)
    add_nodes(cluster, "b")
    add_nodes(cluster, "a", ready=False)
    assert ensure(doubting(run_of(), "a"))["avoided_nodes"] == ["a"], "it may be replaced"
    with pytest.raises(AvoidedNodesNotReplaced):
        ensure(doubting(run_of(), "a"), waiting_since=datetime.now(UTC) - timedelta(minutes=46))


def test_an_answer_that_comes_late_does_not_leave_a_claim_that_avoids_a_node(
    aws: Aws, cluster: FakeKubernetesApi
) -> None:
    """A function that was given up may write its claim after the next one."""
    aws.add_nodegroup(TYPE, desired=2, maximum=2)
    add_nodes(cluster, "a", "b")
    run = doubting(run_of(), "a")
    next_run = Run.model_validate(ensure(run)["run"])
    ensure(run)
    assert ensure(next_run)["ready"]


def test_a_run_waits_for_the_replacement_of_a_lost_node(aws: Aws, cluster: FakeKubernetesApi) -> None:
    aws.add_nodegroup(TYPE, desired=2, maximum=2)
    add_nodes(cluster, "b")
    add_nodes(cluster, "a", ready=False)
    assert not ensure(avoiding(run_of(), "a"))["ready"]
    with pytest.raises(AvoidedNodesNotReplaced, match="the run avoids it"):
        ensure(avoiding(run_of(), "a"), waiting_since=datetime.now(UTC) - timedelta(minutes=46))


def test_a_run_that_waited_in_vain_says_which_nodes_it_avoids(aws: Aws, cluster: FakeKubernetesApi) -> None:
    aws.add_nodegroup(TYPE, desired=2, maximum=4)
    run = avoiding(run_of(spec_with(limits={"capacity_timeout_minutes": 10})), "a")
    with pytest.raises(CapacityTimeout, match=r"minutes.*avoids a\b"):
        ensure(run, waiting_since=datetime.now(UTC) - timedelta(minutes=11))


def test_the_message_about_the_end_names_avoided_nodes() -> None:
    text = message(
        "bert-0123456789ab",
        RunStatus.SUCCEEDED,
        arn="arn:aws:states:us-west-2:123456789012:execution:training:bert",
        error=None,
        progress=None,
        artifacts=None,
        folder=None,
        avoided_nodes=["ip-10-0-1-7"],
    )
    assert "Avoided nodes: ip-10-0-1-7, on which jobs of the run had failed" in text


@pytest.fixture
def replacing(aws: Aws, cluster: FakeKubernetesApi, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A deployment that replaces bad nodes, with the nodes a and b; their instances."""
    monkeypatch.setenv("REPLACE_BAD_NODES", "true")
    aws.add_nodegroup(TYPE, desired=2, maximum=2)
    add_nodes(cluster, "a", "b")
    started = aws.start_instances(TYPE, 2)
    for node, instance in zip("ab", started, strict=True):
        cluster.objects["nodes", node]["spec"] = {"providerID": f"aws:///us-west-2a/{instance}"}
    return started


def test_an_avoided_node_is_cordoned_and_its_instance_replaced_once(
    aws: Aws, cluster: FakeKubernetesApi, replacing: list[str], refusing: Callable[[str, str | None], None]
) -> None:
    run = avoiding(run_of(), "a")
    assert not ensure(run)["ready"], "the replacement is on its way, so the group is not too small for the run"
    for answer in (
        "ScalingActivityInProgress",
        "ValidationError",
    ):  # Auto Scaling's about instances that leave, or left
        refusing("TerminateInstanceInAutoScalingGroup", answer)
        assert not ensure(run)["ready"]
    node = cluster.objects["nodes", "a"]
    marks = {REPLACED_ANNOTATION: run.run_id, CORDONED_ANNOTATION: run.run_id}
    assert node["spec"]["unschedulable"] and node["metadata"]["annotations"] == marks
    assert "unschedulable" not in cluster.objects["nodes", "b"]["spec"]
    left = aws.instances(TYPE)
    assert replacing[0] not in left and replacing[1] in left and len(left) == 2
    assert aws.desired(TYPE) == 2, "Auto Scaling replaces the instance: the group does not grow"

    del cluster.objects["nodes", "a"]
    add_nodes(cluster, "c")
    assert ensure(run)["ready"]


def test_a_crash_between_cordon_and_termination_is_made_up_for(
    aws: Aws, cluster: FakeKubernetesApi, replacing: list[str], refusing: Callable[[str, str | None], None]
) -> None:
    run = avoiding(run_of(), "a")
    refusing("TerminateInstanceInAutoScalingGroup", "InternalFailure")
    with pytest.raises(ClientError):
        ensure(run)
    assert cluster.objects["nodes", "a"]["spec"]["unschedulable"] and aws.instances(TYPE) == replacing
    refusing("TerminateInstanceInAutoScalingGroup", None)
    ensure(run)
    assert replacing[0] not in aws.instances(TYPE)


def add_instance(aws: Aws, cluster: FakeKubernetesApi, node: str) -> None:
    """One more node, in a node group that may have three."""
    aws.client("eks").update_nodegroup_config(
        clusterName=CLUSTER, nodegroupName=nodegroup_name(TYPE), scalingConfig={"maxSize": 3, "desiredSize": 3}
    )
    add_nodes(cluster, node)


def test_a_gang_waits_while_the_termination_of_its_bad_node_is_refused(
    aws: Aws, cluster: FakeKubernetesApi, replacing: list[str], refusing: Callable[[str, str | None], None]
) -> None:
    """If it went on, no poll would request the termination again."""
    add_instance(aws, cluster, "c")
    run = avoiding(run_of(), "a")
    refusing("TerminateInstanceInAutoScalingGroup", "ScalingActivityInProgress")
    waiting = ensure(run)
    assert (waiting["ready"], waiting["nodes_ready"]) == (False, 2)
    with pytest.raises(CapacityTimeout, match=r"Auto Scaling refused .*terminate"):
        ensure(run, waiting_since=datetime.now(UTC) - timedelta(days=2))
    refusing("TerminateInstanceInAutoScalingGroup", None)
    assert ensure(run)["ready"]
    assert replacing[0] not in aws.instances(TYPE)


def test_a_node_that_a_stopped_run_cordoned_is_replaced_by_the_next_run(
    aws: Aws, cluster: FakeKubernetesApi, replacing: list[str], refusing: Callable[[str, str | None], None]
) -> None:
    add_instance(aws, cluster, "c")
    run = avoiding(run_of(), "a")
    refusing("TerminateInstanceInAutoScalingGroup", "InternalFailure")
    with pytest.raises(ClientError):
        ensure(run)
    del cluster.objects["configmaps", f"{run.run_id}-nodes"]
    refusing("TerminateInstanceInAutoScalingGroup", None)
    assert ensure(run_of(run_id="other-0123456789ab"))["ready"]
    assert replacing[0] not in aws.instances(TYPE) and replacing[1] in aws.instances(TYPE)


def test_a_node_that_another_run_uses_is_not_taken_from_it(
    aws: Aws, cluster: FakeKubernetesApi, replacing: list[str]
) -> None:
    other = {"name": "other-0", "labels": {**MANAGED_BY, RUN_LABEL: "other-0123456789ab"}}
    cluster.add("pods", {"metadata": other, "spec": {"nodeName": "a"}, "status": {"phase": "Running"}})
    with pytest.raises(AvoidedNodesNotReplaced):
        ensure(avoiding(run_of(), "a"))
    assert aws.instances(TYPE) == replacing


def test_a_node_on_which_a_pod_appears_before_the_cordon_is_left_to_its_run(
    aws: Aws, cluster: FakeKubernetesApi, replacing: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    other = {"name": "other-0", "labels": {**MANAGED_BY, RUN_LABEL: "other-0123456789ab"}}
    patch = cluster._patch

    def place_pod_and_patch(*arguments: Any) -> Any:
        monkeypatch.setattr(cluster, "_patch", patch)
        cluster.add("pods", {"metadata": other, "spec": {"nodeName": "a"}, "status": {"phase": "Pending"}})
        return patch(*arguments)

    monkeypatch.setattr(cluster, "_patch", place_pod_and_patch)
    run = avoiding(run_of(), "a")
    for _ in range(2):
        with pytest.raises(AvoidedNodesNotReplaced):
            ensure(run)
        node = cluster.objects["nodes", "a"]
        assert not node["metadata"]["annotations"] and "unschedulable" not in node["spec"]
        assert aws.instances(TYPE) == replacing
    del cluster.objects["pods", "other-0"]
    assert not ensure(run)["ready"]
    assert replacing[0] not in aws.instances(TYPE)


def test_a_cordon_of_a_person_stays_on_a_node_that_is_not_replaced_after_all(
    aws: Aws, cluster: FakeKubernetesApi, replacing: list[str], refusing: Callable[[str, str | None], None]
) -> None:
    cluster.objects["nodes", "a"]["spec"]["unschedulable"] = True
    run = avoiding(run_of(), "a")
    refusing("TerminateInstanceInAutoScalingGroup", "ScalingActivityInProgress")
    ensure(run)
    node = cluster.objects["nodes", "a"]
    assert node["metadata"]["annotations"] == {REPLACED_ANNOTATION: run.run_id}
    other = {"name": "other-0", "labels": {**MANAGED_BY, RUN_LABEL: "other-0123456789ab"}}
    cluster.add("pods", {"metadata": other, "spec": {"nodeName": "a"}, "status": {"phase": "Running"}})
    ensure(run)
    assert node["spec"]["unschedulable"] and not node["metadata"]["annotations"]
    assert aws.instances(TYPE) == replacing


def test_a_node_that_is_not_replaced_any_more_has_another_one_beside_it(
    aws: Aws, cluster: FakeKubernetesApi, replacing: list[str], refusing: Callable[[str, str | None], None]
) -> None:
    """The deployment's setting is switched off between the cordon and the termination."""
    add_instance(aws, cluster, "c")
    del cluster.objects["nodes", "c"]
    run = avoiding(run_of(), "a")
    refusing("TerminateInstanceInAutoScalingGroup", "InternalFailure")
    with pytest.raises(ClientError):
        ensure(run)
    refusing("TerminateInstanceInAutoScalingGroup", None)
    aws.client("eks").update_nodegroup_config(
        clusterName=CLUSTER, nodegroupName=nodegroup_name(TYPE), scalingConfig={"desiredSize": 2}
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("REPLACE_BAD_NODES", "false")
        for each in (run, run_of(run_id="other-0123456789ab")):
            ensure(each)
            assert aws.desired(TYPE) == 3, "two nodes and the one that stays cordoned"
            del cluster.objects["configmaps", f"{each.run_id}-nodes"]
    assert aws.instances(TYPE) == replacing


def test_nothing_is_done_to_a_node_unless_the_deployment_asks_for_it(
    aws: Aws, cluster: FakeKubernetesApi, replacing: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REPLACE_BAD_NODES", "false")
    with pytest.raises(AvoidedNodesNotReplaced):
        ensure(avoiding(run_of(), "a"))
    assert aws.instances(TYPE) == replacing and "unschedulable" not in cluster.objects["nodes", "a"]["spec"]
