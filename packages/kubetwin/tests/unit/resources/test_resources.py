"""Defaults, validation and the rules for changes of the built-in kinds."""

from __future__ import annotations

import copy
import time
from datetime import timedelta
from typing import Any

import pytest
from kubetwin.controllers.expiry import MOST_EVENTS, expired, is_over
from kubetwin.model import times
from kubetwin.model.decoding import DecodeError, decode
from kubetwin.model.errors import ApiError
from kubetwin.resources import load_registry
from kubetwin.resources.pods import displayed_status
from kubetwin.state.cluster import Cluster
from kubetwin.state.deletion import DeleteOptions
from kubetwin.store import FRESH_SECONDS, LEAST_KEPT, Store, TooOld


@pytest.fixture
def cluster() -> Cluster:
    """A cluster without controllers, with one namespace and its service account."""
    made = Cluster(Store(), load_registry())
    made.create(made.registry.by_key("namespaces"), "", {"metadata": {"name": "ns"}})
    made.create(made.registry.by_key("serviceaccounts"), "ns", {"metadata": {"name": "default"}})
    return made


def create(cluster: Cluster, key: str, obj: dict[str, Any]) -> dict[str, Any]:
    return cluster.create(cluster.registry.by_key(key), "ns", obj)


def pod(**spec: Any) -> dict[str, Any]:
    container = {"name": "c", "image": "busybox:1.36"}
    return {"metadata": {"name": "p"}, "spec": {"containers": [container], "restartPolicy": "Never", **spec}}


def job(**spec: Any) -> dict[str, Any]:
    template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i:1"}]}}
    return {"metadata": {"name": "j"}, "spec": {"template": template, **spec}}


def faults(cluster: Cluster, key: str, obj: dict[str, Any]) -> list[str]:
    with pytest.raises(ApiError) as refused:
        create(cluster, key, obj)
    assert refused.value.code == 422
    assert refused.value.details is not None
    return [cause["field"] for cause in refused.value.details["causes"]]


def test_a_new_pod_gets_the_servers_defaults(cluster: Cluster) -> None:
    made = create(cluster, "pods", pod())
    spec = made["spec"]
    assert spec["containers"][0]["terminationMessagePath"] == "/dev/termination-log"
    assert (spec["dnsPolicy"], spec["schedulerName"]) == ("ClusterFirst", "default-scheduler")
    assert (spec["serviceAccountName"], spec["priority"]) == ("default", 0)
    assert spec["volumes"][0]["name"].startswith("kube-api-access-")
    assert made["status"] == {"phase": "Pending", "qosClass": "BestEffort"}
    assert made["metadata"]["generation"] == 1


def test_limits_become_requests_in_pods_and_not_in_templates(cluster: Cluster) -> None:
    limits = {"limits": {"aws.amazon.com/neuron": "2", "cpu": "1", "memory": "1Gi"}}
    body = pod()
    body["spec"]["containers"][0]["resources"] = copy.deepcopy(limits)
    made = create(cluster, "pods", body)
    assert made["spec"]["containers"][0]["resources"]["requests"] == limits["limits"]
    assert made["status"]["qosClass"] == "Guaranteed"
    with_template = job()
    with_template["spec"]["template"]["spec"]["containers"][0]["resources"] = copy.deepcopy(limits)
    stored = create(cluster, "jobs.batch", with_template)
    assert "requests" not in stored["spec"]["template"]["spec"]["containers"][0]["resources"]


@pytest.mark.parametrize(("image", "policy"), [("a", "Always"), ("a:latest", "Always"), ("r:5000/a:1", "IfNotPresent")])
def test_the_pull_policy_follows_the_tag(cluster: Cluster, image: str, policy: str) -> None:
    made = create(cluster, "pods", pod(containers=[{"name": "c", "image": image}]))
    assert made["spec"]["containers"][0]["imagePullPolicy"] == policy


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"containers": []}, "spec.containers"),
        ({"restartPolicy": "Sometimes"}, "spec.restartPolicy"),
        ({"containers": [{"name": "C_1", "image": "i"}]}, "spec.containers[0].name"),
        ({"containers": [{"name": "c"}]}, "spec.containers[0].image"),
        ({"activeDeadlineSeconds": 0}, "spec.activeDeadlineSeconds"),
        ({"hostname": "Not_A_Label"}, "spec.hostname"),
        ({"tolerations": [{"key": "a", "operator": "Maybe"}]}, "spec.tolerations[0].operator"),
        ({"volumes": [{"name": "v"}, {"name": "v"}]}, "spec.volumes[1].name"),
        (
            {
                "containers": [
                    {"name": "c", "image": "i", "volumeMounts": [{"name": "v", "mountPath": "/v", "subPath": "../x"}]}
                ],
                "volumes": [{"name": "v"}],
            },
            "spec.containers[0].volumeMounts[0].subPath",
        ),
    ],
)
def test_a_bad_pod_is_refused_with_the_field_named(cluster: Cluster, spec: dict[str, Any], field: str) -> None:
    assert faults(cluster, "pods", pod(**spec)) == [field]


def test_a_pod_without_its_service_account_is_forbidden(cluster: Cluster) -> None:
    with pytest.raises(ApiError, match='serviceaccount "nobody" not found') as refused:
        create(cluster, "pods", pod(serviceAccountName="nobody"))
    assert refused.value.code == 403


def test_a_job_gets_its_selector_and_labels(cluster: Cluster) -> None:
    made = create(cluster, "jobs.batch", job())
    uid = made["metadata"]["uid"]
    labels = made["spec"]["template"]["metadata"]["labels"]
    assert made["spec"]["selector"] == {"matchLabels": {"batch.kubernetes.io/controller-uid": uid}}
    assert labels["batch.kubernetes.io/job-name"] == "j"
    assert made["metadata"]["labels"] == labels
    assert (made["spec"]["completions"], made["spec"]["parallelism"], made["spec"]["backoffLimit"]) == (1, 1, 6)


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"parallelism": -1}, "spec.parallelism"),
        ({"completionMode": "Sometimes"}, "spec.completionMode"),
        ({"template": {"spec": {"containers": [{"name": "c", "image": "i"}]}}}, "spec.template.spec.restartPolicy"),
        ({"completionMode": "Indexed", "parallelism": 2}, "spec.completions"),
    ],
)
def test_a_bad_job_is_refused_with_the_field_named(cluster: Cluster, spec: dict[str, Any], field: str) -> None:
    assert faults(cluster, "jobs.batch", job(**spec)) == [field]


def test_labels_that_a_long_job_name_would_make_are_refused(cluster: Cluster) -> None:
    assert set(faults(cluster, "jobs.batch", {**job(), "metadata": {"name": "a" * 64}})) == {"spec.template.labels"}


def test_an_update_that_changes_nothing_writes_nothing(cluster: Cluster) -> None:
    made = create(cluster, "configmaps", {"metadata": {"name": "c"}, "data": {"a": "1"}})
    again = cluster.update(cluster.registry.by_key("configmaps"), "ns", copy.deepcopy(made))
    assert again["metadata"]["resourceVersion"] == made["metadata"]["resourceVersion"]


def test_a_stale_update_is_a_conflict(cluster: Cluster) -> None:
    resource = cluster.registry.by_key("configmaps")
    made = create(cluster, "configmaps", {"metadata": {"name": "c"}, "data": {"a": "1"}})
    cluster.update(resource, "ns", {**made, "data": {"a": "2"}})
    with pytest.raises(ApiError) as refused:
        cluster.update(resource, "ns", {**made, "data": {"a": "3"}})
    assert refused.value.code == 409


def test_status_changes_only_through_its_subresource(cluster: Cluster) -> None:
    resource = cluster.registry.by_key("pods")
    made = create(cluster, "pods", pod())
    through_main = cluster.update(resource, "ns", {**made, "status": {"phase": "Failed"}})
    assert through_main["status"]["phase"] == "Pending"
    changed = {**made, "spec": {}, "status": {"phase": "Failed"}}
    through_status = cluster.update(resource, "ns", changed, subresource="status")
    assert through_status["status"] == {"phase": "Failed"}
    assert through_status["spec"] == made["spec"]


def test_an_unscheduled_pod_is_removed_at_once_and_a_bound_one_has_its_grace_period(cluster: Cluster) -> None:
    resource = cluster.registry.by_key("pods")
    create(cluster, "pods", pod())
    assert cluster.delete(resource, "ns", "p").gone
    create(cluster, "pods", pod(nodeName="n", terminationGracePeriodSeconds=5))
    marked = cluster.delete(resource, "ns", "p")
    assert not marked.gone
    assert marked.object["metadata"]["deletionGracePeriodSeconds"] == 5
    assert not cluster.delete(resource, "ns", "p", DeleteOptions(grace_seconds=30)).gone
    assert cluster.delete(resource, "ns", "p", DeleteOptions(grace_seconds=0)).gone


def test_the_last_finalizer_lets_a_deleted_object_go(cluster: Cluster) -> None:
    resource = cluster.registry.by_key("configmaps")
    made = create(cluster, "configmaps", {"metadata": {"name": "c", "finalizers": ["example.com/hold"]}})
    assert not cluster.delete(resource, "ns", "c").gone
    cluster.update(resource, "ns", {**made, "metadata": {"name": "c"}})
    assert cluster.store.get("configmaps", "ns", "c") is None


def test_pods_of_a_deleted_job_are_orphaned_by_default(cluster: Cluster) -> None:
    resource = cluster.registry.by_key("jobs.batch")
    create(cluster, "jobs.batch", job())
    assert cluster.delete(resource, "ns", "j").object["metadata"]["finalizers"] == ["orphan"]
    assert cluster.delete(resource, "ns", "j", DeleteOptions(propagation="Background")).gone


def test_no_object_is_created_in_a_namespace_that_is_being_deleted(cluster: Cluster) -> None:
    assert not cluster.delete(cluster.registry.by_key("namespaces"), "", "ns").gone
    with pytest.raises(ApiError, match="because it is being terminated"):
        create(cluster, "configmaps", {"metadata": {"name": "c"}})


def test_generated_names_differ_and_keep_their_prefix(cluster: Cluster) -> None:
    names = {create(cluster, "configmaps", {"metadata": {"generateName": "a-"}})["metadata"]["name"] for _ in range(9)}
    assert len(names) == 9
    assert all(name.startswith("a-") for name in names)


def test_a_dry_run_stores_nothing(cluster: Cluster) -> None:
    resource = cluster.registry.by_key("configmaps")
    assert cluster.create(resource, "ns", {"metadata": {"name": "dry"}}, dry_run=True)["metadata"]["uid"]
    assert cluster.store.get("configmaps", "ns", "dry") is None


def test_a_store_refuses_a_revision_that_it_no_longer_keeps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kubetwin.store.WINDOW", 3)
    store = Store()
    for number in range(5):
        store.put("configmaps", {"metadata": {"name": f"c{number}", "namespace": "ns"}})
    assert [change.name for change in store.changes_since("configmaps", 3)] == ["c2", "c3", "c4"]
    with pytest.raises(TooOld):
        store.changes_since("configmaps", 1)


def test_a_change_that_is_kept_shares_what_it_did_not_change() -> None:
    def state(**changed: Any) -> dict[str, Any]:
        listed = [{"a": [1, {"b": 2}]}, {"c": 3}]
        return {"metadata": {"name": "c", "labels": {"l": "1"}}, "spec": {"list": listed, "flag": True}, **changed}

    store = Store()
    first = store.put("configmaps", state())
    second = store.put("configmaps", state(status={"phase": "new"}))
    assert second == {**state(status={"phase": "new"}), "metadata": {**state()["metadata"], "resourceVersion": "3"}}
    assert second["spec"] is first["spec"]
    assert second["metadata"]["labels"] is first["metadata"]["labels"]
    third = store.put("configmaps", state(spec={"list": [{"a": [1, {"b": 2}]}], "flag": 1}))
    assert third["spec"] == {"list": [{"a": [1, {"b": 2}]}], "flag": 1}
    assert third["spec"]["flag"] is not True  # equal to what was there before, and another value
    assert third["spec"]["list"][0] is first["spec"]["list"][0]
    assert (first["spec"], "status" in third) == (state()["spec"], False)


def selecting(**fields: Any) -> dict[str, Any]:
    requirement = {"key": "metadata.name", "operator": "NotIn", "values": ["node-1"], **fields}
    terms = {"nodeSelectorTerms": [{"matchFields": [requirement]}]}
    return pod(affinity={"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}})


@pytest.mark.parametrize(
    ("fields", "named"),
    [({"values": ["node-1", "node-2"]}, "values"), ({"operator": "Exists"}, "operator"), ({"key": "spec.x"}, "key")],
)
def test_a_requirement_on_a_field_of_nodes_is_on_its_name_and_has_one_value(
    cluster: Cluster, fields: dict[str, Any], named: str
) -> None:
    create(cluster, "pods", selecting())
    term = "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0]"
    assert faults(cluster, "pods", selecting(**fields)) == [f"{term}.matchFields[0].{named}"]


def test_text_of_a_secret_becomes_data_and_is_not_kept(cluster: Cluster) -> None:
    body = {"metadata": {"name": "s"}, "data": {"a": "b2xk", "b": "a2VwdA=="}, "stringData": {"a": "new"}}
    made = create(cluster, "secrets", body)
    assert made["data"] == {"a": "bmV3", "b": "a2VwdA=="}
    assert "stringData" not in made


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("no base64!", 2),
        ("YQ=", 3),
        ("YQ", 0),
        ("YQ===", 4),
        ("YWJj=", 4),
        ("a===", 1),
        ("a", 0),
        ("YQ==\n", None),
        ("YW\nJj", None),
    ],
)
def test_data_of_a_secret_is_base64(text: str, place: int | None) -> None:
    body = {"metadata": {"name": "s"}, "data": {"a": text}}
    if place is None:
        assert decode(body, "io.k8s.api.core.v1.Secret").value["data"] == {"a": text}
        return
    with pytest.raises(DecodeError, match=f"illegal base64 data at input byte {place}"):
        decode(body, "io.k8s.api.core.v1.Secret")


def test_the_type_of_a_secret_stays(cluster: Cluster) -> None:
    made = create(cluster, "secrets", {"metadata": {"name": "s"}})
    with pytest.raises(ApiError, match="type: Invalid value"):
        cluster.update(cluster.registry.by_key("secrets"), "ns", {**made, "type": "example.com/other"})


def test_a_rule_of_a_role_grants_something(cluster: Cluster) -> None:
    key = "roles.rbac.authorization.k8s.io"
    assert faults(cluster, key, {"metadata": {"name": "r"}, "rules": [{"apiGroups": [""], "resources": ["pods"]}]}) == [
        "rules[0].verbs"
    ]
    assert faults(cluster, key, {"metadata": {"name": "r"}, "rules": [{"verbs": ["get"]}]}) == [
        "rules[0].apiGroups",
        "rules[0].resources",
    ]
    urls = {"verbs": ["get"], "nonResourceURLs": ["/healthz"]}
    assert faults(cluster, key, {"metadata": {"name": "r"}, "rules": [urls]}) == ["rules[0].nonResourceURLs"]


def test_a_jobset_has_no_negative_number_of_jobs(cluster: Cluster) -> None:
    replicated = {"name": "w", "replicas": -1, "template": {"spec": job()["spec"]}}
    body = {"metadata": {"name": "s"}, "spec": {"replicatedJobs": [replicated]}}
    assert faults(cluster, "jobsets.jobset.x-k8s.io", body) == ["spec.replicatedJobs[0].replicas"]


def a_pod(*states: dict[str, Any], ready: bool = True, init: list[dict[str, Any]] | None = None) -> dict[str, Any]:
    statuses = [{"state": state, "ready": "running" in state} for state in states]
    conditions = [{"type": "Ready", "status": "True" if ready else "False"}]
    status = {"phase": "Running", "containerStatuses": statuses, "conditions": conditions}
    if init is not None:
        status |= {"phase": "Pending", "initContainerStatuses": [{"state": state} for state in init]}
    return {"metadata": {}, "spec": {"initContainers": init or []}, "status": status}


DONE, RUNNING = {"terminated": {"exitCode": 0, "reason": "Completed"}}, {"running": {}}


@pytest.mark.parametrize(
    ("shown", "word"),
    [
        (a_pod(DONE, RUNNING), "Running"),
        (a_pod(RUNNING, DONE, ready=False), "NotReady"),
        (a_pod(DONE, DONE), "Completed"),
        (a_pod({"waiting": {"reason": "CrashLoopBackOff"}}, RUNNING), "CrashLoopBackOff"),
        (a_pod(init=[DONE, RUNNING]), "Init:1/2"),
        (a_pod(init=[{"terminated": {"exitCode": 1, "reason": "Error"}}]), "Init:Error"),
        (a_pod(init=[{"waiting": {"reason": "CrashLoopBackOff"}}]), "Init:CrashLoopBackOff"),
    ],
)
def test_the_status_of_a_pod_is_the_one_that_kubectl_shows(shown: dict[str, Any], word: str) -> None:
    assert displayed_status(shown) == word


def test_old_changes_are_released_but_for_the_last_hundred() -> None:
    store = Store()
    for number in range(300):
        store.put("configmaps", {"metadata": {"name": f"c{number}", "namespace": "ns"}})
    now = time.monotonic()
    store.forget_old_changes(now + FRESH_SECONDS - 10)
    assert len(store.changes_since("configmaps", 1)) == 300
    store.forget_old_changes(now + FRESH_SECONDS + 10)
    with pytest.raises(TooOld):
        store.changes_since("configmaps", 1)
    assert len(store.changes_since("configmaps", store.revision - LEAST_KEPT)) == LEAST_KEPT


@pytest.mark.parametrize(("minutes", "over"), [(59, False), (61, True)])
def test_an_event_ends_an_hour_after_it_was_last_repeated(minutes: int, over: bool) -> None:
    last = times.seconds(times.now() - timedelta(minutes=minutes))
    assert is_over({"metadata": {}, "lastTimestamp": last}) is over


def test_the_oldest_events_beyond_the_most_that_are_kept_go_first() -> None:
    def event(seconds: int) -> dict[str, Any]:
        return {"metadata": {}, "lastTimestamp": times.seconds(times.now() - timedelta(seconds=seconds))}

    kept = [event(second % 60) for second in range(MOST_EVENTS - 1)]
    old, older, gone = event(120), event(180), event(7200)
    assert expired([old, *kept]) == []
    assert expired([old, gone, *kept, older]) == [gone, older]


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        (
            {"generateName": "A_"},
            "metadata.generateName",
        ),
        ({"annotations": {"a": "x" * 262_144}}, "metadata.annotations: Too long: may not be more than 262144 bytes"),
        (
            {"ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "p"}]},
            'metadata.ownerReferences.uid: Invalid value: "": must not be empty',
        ),
        (
            {
                "ownerReferences": [
                    {"apiVersion": "v1", "kind": "Pod", "name": name, "uid": name, "controller": True} for name in "ab"
                ]
            },
            'Only one reference can have Controller set to true. Found "true" in references for Pod/a and Pod/b',
        ),
        ({"finalizers": ["orphan", "foregroundDeletion"]}, "cannot be both set"),
    ],
)
def test_metadata_that_kubernetes_refuses(cluster: Cluster, metadata: dict[str, Any], message: str) -> None:
    name = {} if "generateName" in metadata else {"name": "c"}
    with pytest.raises(ApiError) as refused:
        create(cluster, "configmaps", {"metadata": {**name, **metadata}})
    assert message in refused.value.message


def test_a_key_may_be_in_one_part_of_a_config_map_only(cluster: Cluster) -> None:
    twice = {"metadata": {"name": "c"}, "data": {"a": "x"}, "binaryData": {"a": "eA=="}}
    assert faults(cluster, "configmaps", twice) == ["data[a]"]


def test_config_maps_and_secrets_hold_a_mebibyte(cluster: Cluster) -> None:
    with pytest.raises(ApiError, match=r"\[\]: Too long: may not be more than 1048576 bytes"):
        create(cluster, "configmaps", {"metadata": {"name": "c"}, "data": {"a": "x" * (1024 * 1024 + 1)}})
    with pytest.raises(ApiError, match="data: Too long"):
        create(cluster, "secrets", {"metadata": {"name": "c"}, "stringData": {"a": "x" * (1024 * 1024 + 1)}})
