"""Pods and Jobs that the server refuses, with its words (pkg/apis/core/validation, pkg/apis/batch/validation)."""

from __future__ import annotations

import re
from typing import Any

import pytest
from kubetwin.model.errors import ApiError
from kubetwin.resources import load_registry
from kubetwin.resources.job_policies import count_indexes
from kubetwin.resources.pod_validation import validate_pod_update
from kubetwin.state.cluster import Cluster
from kubetwin.store import Store

EXIT_1 = {"operator": "In", "values": [1]}


@pytest.fixture(scope="module")
def cluster() -> Cluster:
    made = Cluster(Store(), load_registry())
    made.create(made.registry.by_key("namespaces"), "", {"metadata": {"name": "ns"}})
    made.create(made.registry.by_key("serviceaccounts"), "ns", {"metadata": {"name": "default"}})
    return made


def refusals(cluster: Cluster, key: str, obj: dict[str, Any]) -> list[str]:
    try:
        cluster.create(cluster.registry.by_key(key), "ns", obj, dry_run=True)
    except ApiError as refused:
        causes = (refused.details or {}).get("causes")
        return [f"{c['field']}: {c['message']}" for c in causes] if causes else [refused.message]
    return []


def pod(spec: dict[str, Any], **container: Any) -> dict[str, Any]:
    return {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i:1", **container}], **spec}}


def job(**spec: Any) -> dict[str, Any]:
    template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i:1"}]}}
    return {"metadata": {"name": "j"}, "spec": {"template": template, **spec}}


def failing(*rules: dict[str, Any], **spec: Any) -> dict[str, Any]:
    return job(podFailurePolicy={"rules": list(rules)}, **spec)


def indexed(**spec: Any) -> dict[str, Any]:
    return job(completionMode="Indexed", completions=2, **spec)


@pytest.mark.parametrize(
    ("container", "refusal"),
    [
        ({"image": " i:1"}, 'image: Invalid value: " i:1": must not have leading or trailing whitespace'),
        ({"ports": [{"containerPort": 80, "name": "Bad"}]}, 'ports[0].name: Invalid value: "Bad": must contain only'),
        ({"ports": [{"containerPort": 80, "protocol": "X"}]}, "ports[0].protocol: Unsupported value"),
        ({"ports": [{"containerPort": 80, "hostPort": 70000}]}, "ports[0].hostPort: Invalid value: 70000: must be bet"),
        ({"env": [{"name": "A", "valueFrom": {}}]}, 'env[0].valueFrom: Invalid value: "": must specify one of: `field'),
        (
            {"env": [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "spec.odd"}}}]},
            'env[0].valueFrom.fieldRef.fieldPath: Invalid value: "spec.odd": error converting fieldPath: '
            "field label not supported: spec.odd",
        ),
        (
            {"env": [{"name": "A", "valueFrom": {"configMapKeyRef": {"name": "m"}}}]},
            "env[0].valueFrom.configMapKeyRef.key: Required value",
        ),
        ({"envFrom": [{}]}, 'envFrom: Invalid value: "": must specify one of: `configMapRef` or `secretRef`'),
        ({"livenessProbe": {"periodSeconds": 5}}, "livenessProbe: Required value: must specify a handler type"),
        (
            {"livenessProbe": {"exec": {"command": ["x"]}, "tcpSocket": {"port": 1}}},
            "livenessProbe.tcpSocket: Forbidden: may not specify more than 1 handler type",
        ),
        (
            {"startupProbe": {"exec": {"command": ["x"]}, "successThreshold": 2}},
            "startupProbe.successThreshold: Invalid value: 2: must be 1",
        ),
        (
            {"readinessProbe": {"httpGet": {"port": 0}}},
            "readinessProbe.httpGet.port: Invalid value: 0: must be between",
        ),
        ({"lifecycle": {"preStop": {"exec": {}}}}, "lifecycle.preStop.exec.command: Required value"),
        (
            {"resources": {"limits": {"gpu": "1"}}},
            'resources.limits[gpu]: Invalid value: "gpu": must be a standard resource type or fully qualified',
        ),
        ({"securityContext": {"runAsUser": -1}}, "securityContext.runAsUser: Invalid value: -1: must be between 0 and"),
    ],
)
def test_a_container_that_kubernetes_refuses(cluster: Cluster, container: dict[str, Any], refusal: str) -> None:
    found = refusals(cluster, "pods", pod({}, **container))
    assert found
    assert found[0].startswith(f"spec.containers[0].{refusal}")


@pytest.mark.parametrize(
    ("spec", "refusal"),
    [
        ({"nodeSelector": {"a": "b c"}}, 'nodeSelector: Invalid value: "b c": a valid label must be'),
        (
            {"tolerations": [{"key": "a", "operator": "Exists", "tolerationSeconds": 5}]},
            "tolerations[0].effect: Invalid value: \"\": effect must be 'NoExecute' when `tolerationSeconds` is set",
        ),
        ({"tolerations": [{"operator": "Exists", "effect": "X"}]}, "tolerations[0].effect: Unsupported value"),
        (
            {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {}}}},
            "affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms: Required value: "
            "must have at least one node selector term",
        ),
        (
            {"topologySpreadConstraints": [{"maxSkew": 0, "topologyKey": "a", "whenUnsatisfiable": "DoNotSchedule"}]},
            "topologySpreadConstraints[0].maxSkew: Invalid value: 0: must be greater than zero",
        ),
        (
            {
                "hostNetwork": True,
                "containers": [{"name": "c", "image": "i", "ports": [{"containerPort": 80, "hostPort": 81}]}],
            },
            "containers[0].ports[0].hostPort: Invalid value: 81: must match `containerPort` when `hostNetwork` is true",
        ),
        ({"volumes": [{"name": "v", "secret": {}}]}, "volumes[0].secret.secretName: Required value"),
        (
            {"volumes": [{"name": "v", "configMap": {"name": "m", "defaultMode": 512}}]},
            "volumes[0].configMap.defaultMode: Invalid value: 512: must be a number between 0 and 0777 (octal), both",
        ),
        (
            {"initContainers": [{"name": "i", "image": "i", "readinessProbe": {"exec": {"command": ["x"]}}}]},
            "initContainers[0].readinessProbe: Forbidden: may not be set for init containers without restartPolicy=",
        ),
        (
            {"nodeName": "n", "schedulingGates": [{"name": "g"}]},
            "nodeName: Forbidden: cannot be set until all schedulingGates have been cleared",
        ),
    ],
)
def test_a_pod_that_kubernetes_refuses(cluster: Cluster, spec: dict[str, Any], refusal: str) -> None:
    found = refusals(cluster, "pods", pod(spec))
    assert found
    assert found[0].startswith(f"spec.{refusal}")


@pytest.mark.parametrize(
    ("spec", "refusal"),
    [
        (
            {"priority": 5},
            "the integer value of priority (5) must not be provided in pod spec; "
            "priority admission controller computed 0 from the given PriorityClass name",
        ),
        ({"runtimeClassName": "odd"}, 'pod rejected: RuntimeClass "odd" not found'),
    ],
)
def test_a_pod_that_admission_refuses(cluster: Cluster, spec: dict[str, Any], refusal: str) -> None:
    assert refusals(cluster, "pods", pod(spec)) == [f'pods "p" is forbidden: {refusal}']


@pytest.mark.parametrize(
    ("made", "refusal"),
    [
        (job(backoffLimitPerIndex=1), "backoffLimitPerIndex: Invalid value: 1: requires indexed completion mode"),
        (indexed(maxFailedIndexes=1), "backoffLimitPerIndex: Required value: when maxFailedIndexes is specified"),
        (
            indexed(backoffLimitPerIndex=1, maxFailedIndexes=5),
            "maxFailedIndexes: Invalid value: 5: must be less than or equal to completions",
        ),
        (
            failing({"action": "FailJob"}),
            "podFailurePolicy.rules[0]: Invalid value: specifying one of OnExitCodes and OnPodConditions is required",
        ),
        (
            failing({"onExitCodes": EXIT_1}),
            'podFailurePolicy.rules[0].action: Required value: valid values: ["Count" "FailIndex" "FailJob" "Ignore"]',
        ),
        (
            failing({"action": "FailIndex", "onExitCodes": EXIT_1}),
            'podFailurePolicy.rules[0].action: Invalid value: "FailIndex": requires the backoffLimitPerIndex to be set',
        ),
        (
            failing({"action": "FailJob", "onExitCodes": {**EXIT_1, "containerName": "odd"}}),
            'podFailurePolicy.rules[0].onExitCodes.containerName: Invalid value: "odd": must be one of the container',
        ),
        (
            failing({"action": "FailJob", "onExitCodes": {"operator": "In", "values": [2, 1]}}),
            "podFailurePolicy.rules[0].onExitCodes.values: Invalid value: [2,1]: must be ordered",
        ),
        (
            failing({"action": "FailJob", "onExitCodes": EXIT_1}, podReplacementPolicy="TerminatingOrFailed"),
            'podReplacementPolicy: Unsupported value: "TerminatingOrFailed": supported values: "Failed"',
        ),
        (
            job(successPolicy={"rules": [{"succeededCount": 1}]}),
            'successPolicy: Invalid value: {"Rules":[{"SucceededIndexes":null,"SucceededCount":1}]}: requires indexed',
        ),
        (
            indexed(successPolicy={"rules": [{}]}),
            "successPolicy.rules[0]: Required value: at least one of succeededCount or succeededIndexes must be",
        ),
        (
            indexed(successPolicy={"rules": [{"succeededIndexes": "0-9"}]}),
            'successPolicy.rules[0].succeededIndexes: Invalid value: "0-9": error parsing succeededIndexes: '
            'too large index: "9"',
        ),
        (job(managedBy="odd"), 'managedBy: Invalid value: "odd": must be a domain-prefixed path'),
    ],
)
def test_a_job_that_kubernetes_refuses(cluster: Cluster, made: dict[str, Any], refusal: str) -> None:
    found = refusals(cluster, "jobs.batch", made)
    assert found
    assert found[0].startswith(f"spec.{refusal}")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("0-1-2", "an index interval can have at most two parts separated by '-'"),
        ("a", 'cannot convert string to integer for index: "a"'),
        ("3,1", "non-increasing order, previous: 3, current: 1"),
        ("2-2", "non-increasing order, previous: 2, current: 2"),
    ],
)
def test_a_list_of_indexes_that_is_none(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=f"{re.escape(words)}$"):
        count_indexes(text, 9)


def test_indexes_are_counted() -> None:
    assert count_indexes("0,2-4", 9) == 4


def test_an_indexed_job_is_resized_with_its_parallelism(cluster: Cluster) -> None:
    jobs = cluster.registry.by_key("jobs.batch")
    cluster.create(jobs, "ns", {**indexed(parallelism=2), "metadata": {"name": "elastic"}})
    made = cluster.get(jobs, "ns", "elastic")
    with pytest.raises(ApiError, match=r"spec.completions: Invalid value: 4: can only be modified in tandem"):
        cluster.update(jobs, "ns", {**made, "spec": {**made["spec"], "completions": 4}})
    both = cluster.update(jobs, "ns", {**made, "spec": {**made["spec"], "completions": 4, "parallelism": 4}})
    assert both["spec"]["completions"] == 4


def test_a_pod_with_scheduling_gates_says_so(cluster: Cluster) -> None:
    made = cluster.create(
        cluster.registry.by_key("pods"), "ns", pod({"schedulingGates": [{"name": "a/b"}]}), dry_run=True
    )
    [gated] = made["status"]["conditions"]
    assert (gated["type"], gated["status"], gated["reason"]) == ("PodScheduled", "False", "SchedulingGated")
    assert gated["message"] == "Scheduling is blocked due to non-empty scheduling gates"


@pytest.mark.parametrize(
    ("key", "obj", "refusal"),
    [
        (
            "services",
            {"spec": {"ports": [{"port": 80, "name": "a"}, {"port": 81, "name": "a"}]}},
            'spec.ports[1].name: Duplicate value: "a"',
        ),
        ("services", {"spec": {"ports": [{"port": 80, "protocol": "X"}]}}, "spec.ports[0].protocol: Unsupported value"),
        (
            "services",
            {"spec": {"ports": [{"port": 80}], "selector": {"a": "b c"}}},
            'spec.selector: Invalid value: "b c"',
        ),
        (
            "persistentvolumeclaims",
            {"spec": {"accessModes": ["X"], "resources": {"requests": {"storage": "1Gi"}}}},
            'spec.accessModes: Unsupported value: "X"',
        ),
        ("secrets", {"type": "kubernetes.io/tls"}, "data[tls.crt]: Required value"),
        (
            "priorityclasses.scheduling.k8s.io",
            {"value": 2_000_000_000},
            "value: Forbidden: maximum allowed value of a user defined priority is 1000000000",
        ),
        ("priorityclasses.scheduling.k8s.io", {"value": 1, "preemptionPolicy": "X"}, "preemptionPolicy: Unsupported"),
        (
            "leases.coordination.k8s.io",
            {"spec": {"leaseDurationSeconds": 0}},
            "spec.leaseDurationSeconds: Invalid value: 0: must be greater than 0",
        ),
        (
            "leases.coordination.k8s.io",
            {"spec": {"leaseDurationSeconds": -1}},
            "spec.leaseDurationSeconds: Invalid value: -1: must be greater than 0",
        ),
        (
            "leases.coordination.k8s.io",
            {"spec": {"leaseTransitions": -1}},
            "spec.leaseTransitions: Invalid value: -1: must be greater than or equal to 0",
        ),
        (
            "poddisruptionbudgets.policy",
            {"spec": {"minAvailable": 1, "maxUnavailable": "50%", "selector": {"matchLabels": {"a": "b"}}}},
            'spec: Invalid value: {"MinAvailable":1,"Selector":{"matchLabels":{"a":"b"}},"MaxUnavailable":"50%",'
            '"UnhealthyPodEvictionPolicy":null}: minAvailable and maxUnavailable cannot be both set',
        ),
    ],
)
def test_an_object_that_kubernetes_refuses(cluster: Cluster, key: str, obj: dict[str, Any], refusal: str) -> None:
    found = refusals(cluster, key, {"metadata": {"name": "o"}, **obj})
    assert found
    assert found[0].startswith(refusal)


def test_the_value_of_a_priority_class_stays(cluster: Cluster) -> None:
    classes = cluster.registry.by_key("priorityclasses.scheduling.k8s.io")
    made = cluster.create(classes, "", {"metadata": {"name": "high"}, "value": 5})
    with pytest.raises(ApiError, match=r"value: Forbidden: may not be changed in an update\."):
        cluster.update(classes, "", {**made, "value": 6})


def test_a_budget_with_one_measure_is_taken_and_cannot_get_the_other(cluster: Cluster) -> None:
    budgets = cluster.registry.by_key("poddisruptionbudgets.policy")
    made = cluster.create(budgets, "ns", {"metadata": {"name": "b"}, "spec": {"minAvailable": 0}})
    with pytest.raises(ApiError, match="minAvailable and maxUnavailable cannot be both set"):
        cluster.update(budgets, "ns", {**made, "spec": {"minAvailable": 0, "maxUnavailable": 0}})


def test_a_port_on_the_hosts_network_is_the_containers(cluster: Cluster) -> None:
    """A pod gets the port; a template may leave it out and may not name another one."""
    ports = [{"containerPort": 80}]
    made = cluster.create(cluster.registry.by_key("pods"), "ns", pod({"hostNetwork": True}, ports=ports), dry_run=True)
    assert made["spec"]["containers"][0]["ports"] == [{"containerPort": 80, "hostPort": 80, "protocol": "TCP"}]
    on_host = job()
    on_host["spec"]["template"]["spec"] |= {"hostNetwork": True}
    container = on_host["spec"]["template"]["spec"]["containers"][0]
    container["ports"] = ports
    assert refusals(cluster, "jobs.batch", on_host) == []
    container["ports"] = [{"containerPort": 80, "hostPort": 81}]
    assert refusals(cluster, "jobs.batch", on_host) == [
        "spec.template.spec.containers[0].ports[0].hostPort: Invalid value: 81: "
        "must match `containerPort` when `hostNetwork` is true"
    ]


@pytest.mark.parametrize(
    ("key", "obj", "fields"),
    [
        ("jobs.batch", job(), ("active", "succeeded", "failed", "ready", "terminating")),
        (
            "poddisruptionbudgets.policy",
            {"metadata": {"name": "counted"}, "spec": {"minAvailable": 1}},
            ("disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods"),
        ),
    ],
)
def test_no_client_writes_negative_counts_into_a_status(
    cluster: Cluster, key: str, obj: dict[str, Any], fields: tuple[str, ...]
) -> None:
    resource = cluster.registry.by_key(key)
    made = cluster.create(resource, "ns", obj)
    for field in fields:
        with pytest.raises(ApiError) as refused:
            cluster.update(resource, "ns", {**made, "status": {**made["status"], field: -1}}, subresource="status")
        [cause] = (refused.value.details or {})["causes"]
        assert (cause["field"], cause["reason"]) == (f"status.{field}", "FieldValueInvalid")
        assert cause["message"] == "Invalid value: -1: must be greater than or equal to 0"
    counted = cluster.update(resource, "ns", {**made, "status": {**made["status"], fields[0]: 0}}, subresource="status")
    assert counted["status"][fields[0]] == 0


@pytest.mark.parametrize(
    ("spec", "refusal"),
    [
        ({"dnsPolicy": "None"}, "spec.dnsConfig: Required value: must provide `dnsConfig` when `dnsPolicy` is None"),
        (
            {"dnsPolicy": "None", "dnsConfig": {}},
            "spec.dnsConfig.nameservers: Required value: must provide at least one",
        ),
        (
            {"dnsConfig": {"nameservers": ["x"]}},
            'spec.dnsConfig.nameservers[0]: Invalid value: "x": must be a valid IP',
        ),
        ({"hostAliases": [{"ip": "x"}]}, 'spec.hostAliases[0].ip: Invalid value: "x": must be a valid IP address'),
        ({"schedulingGates": [{"name": "a"}, {"name": "a"}]}, 'spec.schedulingGates[1]: Duplicate value: "a"'),
        ({"readinessGates": [{"conditionType": "a b"}]}, 'spec.readinessGates[0].conditionType: Invalid value: "a b"'),
        ({"overhead": {"cpu": "1"}}, "Pod Overhead set without corresponding RuntimeClass defined Overhead"),
        (
            {"volumes": [{"name": "v", "emptyDir": {"sizeLimit": "-1"}}]},
            "sizeLimit: Forbidden: SizeLimit field must be",
        ),
        (
            {"volumes": [{"name": "v", "hostPath": {"path": "../a"}}]},
            "path: Invalid value: \"../a\": must not contain '..'",
        ),
        (
            {"volumes": [{"name": "v", "hostPath": {"path": "/", "type": "X"}}]},
            'type: Unsupported value: "X": supported',
        ),
        ({"volumes": [{"name": "v", "nfs": {"path": "a"}}]}, "spec.volumes[0].nfs.server: Required value"),
        (
            {"tolerations": [{"operator": "Exists", "value": "b"}]},
            '{"Key":"","Operator":"Exists","Value":"b","Effect":""',
        ),
    ],
)
def test_a_pod_whose_surroundings_kubernetes_refuses(cluster: Cluster, spec: dict[str, Any], refusal: str) -> None:
    assert refusal in refusals(cluster, "pods", pod(spec))[0]


@pytest.mark.parametrize(
    ("before", "after", "refusal"),
    [
        ({"activeDeadlineSeconds": 5}, {"activeDeadlineSeconds": 9}, "9: must be less than or equal to previous value"),
        (
            {"activeDeadlineSeconds": 5},
            {"activeDeadlineSeconds": None},
            "must not update from a positive integer to nil",
        ),
        ({}, {"containers": []}, "spec.containers: Forbidden: pod updates may not add or remove containers"),
        ({}, {"tolerations": []}, "existing toleration can not be modified except its tolerationSeconds"),
        ({}, {"schedulingGates": [{"name": "g"}]}, "only deletion is allowed, but found new scheduling gate 'g'"),
        (
            {"schedulingGates": [{"name": "g"}], "nodeSelector": {"a": "b"}},
            {"nodeSelector": {"a": "c"}},
            "only additions to spec.nodeSelector are allowed (no mutations or deletions)",
        ),
        ({}, {"hostname": "h"}, '- "Hostname": "",\n+ "Hostname": "h",\n'),
    ],
)
def test_an_update_of_a_pod_that_kubernetes_refuses(
    cluster: Cluster, before: dict[str, Any], after: dict[str, Any], refusal: str
) -> None:
    made = cluster.create(
        cluster.registry.by_key("pods"), "ns", pod({"tolerations": [{"operator": "Exists"}], **before}), dry_run=True
    )
    changed = {key: value for key, value in {**made["spec"], **after}.items() if value is not None}
    assert refusal in "; ".join(map(str, validate_pod_update({**made, "spec": changed}, made)))


def test_an_update_of_a_pod_may_change_images_shorten_the_deadline_and_add_tolerations(cluster: Cluster) -> None:
    deadline, toleration = {"activeDeadlineSeconds": 9}, {"key": "a", "operator": "Exists"}
    made = cluster.create(cluster.registry.by_key("pods"), "ns", pod(deadline), dry_run=True)
    changed = {**made["spec"], "activeDeadlineSeconds": 5}
    changed["containers"] = [{**each, "image": "other"} for each in changed["containers"]]
    changed["tolerations"] = [*changed.get("tolerations", []), toleration]
    assert not validate_pod_update({**made, "spec": changed}, made)


def test_a_gated_pod_may_get_a_narrower_selector_and_lose_its_gates(cluster: Cluster) -> None:
    made = cluster.create(
        cluster.registry.by_key("pods"), "ns", pod({"schedulingGates": [{"name": "g"}]}), dry_run=True
    )
    assert not validate_pod_update({**made, "spec": {**made["spec"], "nodeSelector": {"a": "b"}}}, made)
    free = {key: value for key, value in made["spec"].items() if key != "schedulingGates"}
    assert not validate_pod_update({**made, "spec": free}, made)
