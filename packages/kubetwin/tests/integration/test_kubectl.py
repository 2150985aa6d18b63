"""The real kubectl against `python -m kubetwin`: the commands that people type to inspect and change a cluster."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from kubetwin_testing.cluster import command, eventually
from kubetwin_testing.kubernetes_cli import Cli, program, rows

SHAPE = str(Path(__file__).parents[1] / "recordings" / "node-shape.yaml")
JOB = """
apiVersion: batch/v1
kind: Job
metadata: {name: gang, labels: {app: gang}}
spec:
  completions: 2
  parallelism: 2
  completionMode: Indexed
  template:
    metadata: {labels: {app: gang}}
    spec:
      restartPolicy: Never
      terminationGracePeriodSeconds: 1
      containers:
      - {name: main, image: busybox, command: [sh, -c, "echo rank $JOB_COMPLETION_INDEX; SLEEP"]}
"""
SHORT, LONG = JOB.replace("SLEEP", "sleep 0.3; echo done"), JOB.replace("SLEEP", "exec sleep 600")
CONFIG = """
apiVersion: v1
kind: ConfigMap
metadata: {name: settings, labels: {app: settings}}
data: {kept: "1", dropped: "2"}
"""
CRASHING = """
apiVersion: v1
kind: Pod
metadata: {name: crashing}
spec:
  restartPolicy: OnFailure
  terminationGracePeriodSeconds: 1
  containers:
  - name: main
    image: busybox
    command:
    - sh
    - -c
    - if [ -e $HOME/once ]; then echo second life; exec sleep 600; fi; touch $HOME/once; echo first life; exit 3
"""


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with command("--state", str(tmp_path_factory.mktemp("cluster")), "--nodes", "2", "--shape", SHAPE) as (_, ready):
        yield Path(ready["kubeconfig"])


@pytest.fixture
def kubectl(served: Path, tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config) -> Cli:
    path = program("kubectl", pytestconfig.cache.mkdir("kubernetes-cli"))
    cli = Cli(path, served, tmp_path_factory.getbasetemp(), f"t-{uuid.uuid4().hex[:8]}")
    cli("create", "namespace", cli.namespace)
    eventually(lambda: "default" in cli("get", "serviceaccounts"), "the default service account")
    return cli


def run_gang(kubectl: Cli, manifest: str = LONG) -> None:
    kubectl("apply", "-f", "-", stdin=manifest)
    if manifest == LONG:
        eventually(lambda: kubectl("get", "pods").count("Running") == 2, "both pods run")
    else:
        kubectl("wait", "--for=condition=complete", "job/gang", "--timeout=30s")


def test_the_server_shows_its_version_address_and_kinds(kubectl: Cli) -> None:
    assert re.search(r"Server Version: v1\.36\.\d+", kubectl("version"))
    assert "control plane is running at https://127.0.0.1:" in kubectl("cluster-info")
    kinds = rows(kubectl("api-resources"))
    assert ["jobs", "", "batch/v1", "true", "Job"] in kinds
    assert ["pods", "po", "v1", "true", "Pod"] in kinds


def test_a_job_is_applied_waited_for_and_shown(kubectl: Cli) -> None:
    run_gang(kubectl, SHORT)
    header, job = rows(kubectl("get", "jobs", "-o", "wide"))
    assert header == ["NAME", "STATUS", "COMPLETIONS", "DURATION", "AGE", "CONTAINERS", "IMAGES", "SELECTOR"]
    assert (job[:3], job[5:7]) == (["gang", "Complete", "2/2"], ["main", "busybox"])
    header, *pods = rows(kubectl("get", "pods", "-o", "wide", "--sort-by=.metadata.name"))
    assert header[:7] == ["NAME", "READY", "STATUS", "RESTARTS", "AGE", "IP", "NODE"]
    assert [pod[1:4] for pod in pods] == [["0/1", "Completed", "0"]] * 2
    assert {pod[6] for pod in pods} <= {"local-0", "local-1"}
    events = rows(kubectl("get", "events"))
    assert events[0] == ["LAST SEEN", "TYPE", "REASON", "OBJECT", "MESSAGE"]
    assert ["Normal", "Completed", "job/gang", "Job completed"] in [row[1:] for row in events]


def test_objects_are_returned_in_every_requested_format(kubectl: Cli) -> None:
    kubectl("apply", "-f", "-", stdin=CONFIG)
    assert json.loads(kubectl("get", "cm", "settings", "-o", "json"))["data"] == {"kept": "1", "dropped": "2"}
    assert 'kept: "1"' in kubectl("get", "cm", "settings", "-o", "yaml")
    assert kubectl("get", "cm", "settings", "-o", "jsonpath={.data.kept}") == "1"
    columns = kubectl("get", "cm", "settings", "-o", "custom-columns=NAME:.metadata.name,KEPT:.data.kept")
    assert rows(columns) == [["NAME", "KEPT"], ["settings", "1"]]
    assert kubectl("get", "cm", "-l", "app=settings", "-o", "name") == "configmap/settings\n"


def test_a_watch_shows_changes_as_they_come(kubectl: Cli) -> None:
    with kubectl.streaming("get", "pods", "-w") as lines:
        kubectl("apply", "-f", "-", stdin=SHORT)
        assert next(lines).split()[:3] == ["NAME", "READY", "STATUS"]
        seen: dict[str, list[str]] = {}
        for line in lines:
            name, _, status, *_ = line.split()
            seen.setdefault(name, []).append(status)
            if sum(words[-1] == "Completed" for words in seen.values()) == 2:
                break
    for words in seen.values():
        assert words[0] == "Pending"
        assert "Running" in words


def test_logs_follow_select_and_remember(kubectl: Cli) -> None:
    kubectl("apply", "-f", "-", stdin=CRASHING)
    with kubectl.streaming("get", "pods", "-w") as lines:
        next(line for line in lines if re.search(r"1/1 +Running +1", line))
    assert kubectl("logs", "crashing", "--previous") == "first life\n"
    assert kubectl("logs", "crashing") == "second life\n"
    assert kubectl("logs", "crashing", "--tail=0") == ""
    assert kubectl("logs", "crashing", "--since=1h", "--timestamps").endswith("Z second life\n")
    assert kubectl("logs", "crashing", "--limit-bytes=6") == "second"
    with kubectl.streaming("logs", "-f", "crashing") as lines:
        assert next(lines) == "second life"
    assert "container other is not valid for pod crashing" in kubectl.refused("logs", "crashing", "-c", "other")


def test_logs_of_a_job_are_followed_to_their_end(kubectl: Cli) -> None:
    run_gang(kubectl, SHORT)
    assert kubectl("logs", "-f", "job/gang").splitlines() in (["rank 0", "done"], ["rank 1", "done"])
    together = kubectl("logs", "-l", "app=gang", "--prefix")
    assert "rank 0" in together
    assert "rank 1" in together


def test_descriptions_show_states_and_events(kubectl: Cli) -> None:
    run_gang(kubectl)
    pod = kubectl("describe", "pod", "-l", "batch.kubernetes.io/job-completion-index=0")
    for text in ("Controlled By:  Job/gang", "State:          Running", "Started container main"):
        assert text in pod
    job = kubectl("describe", "job", "gang")
    assert "Pods Statuses:      2 Active (2 Ready) / 0 Succeeded / 0 Failed" in job
    assert "SuccessfulCreate" in job
    node = kubectl("describe", "node", "local-0")
    assert re.search(r"aws\.amazon\.com/neuron: +16", node)
    assert re.search(rf"{kubectl.namespace} +gang-\d-\w+", node + kubectl("describe", "node", "local-1"))


def test_apply_removes_the_fields_that_the_file_dropped_and_no_others(kubectl: Cli) -> None:
    kubectl("apply", "-f", "-", stdin=CONFIG)
    kubectl("patch", "configmap", "settings", "--type=merge", "-p", '{"data": {"others": "3"}}')
    assert kubectl("apply", "-f", "-", stdin=CONFIG) == "configmap/settings unchanged\n"
    assert kubectl("apply", "-f", "-", stdin=CONFIG.replace(', dropped: "2"', "")) == "configmap/settings configured\n"
    assert json.loads(kubectl("get", "cm", "settings", "-o", "jsonpath={.data}")) == {"kept": "1", "others": "3"}


def test_apply_merges_containers_by_name(kubectl: Cli) -> None:
    kubectl("apply", "-f", "-", stdin=LONG)
    assert kubectl("apply", "-f", "-", stdin=LONG) == "job.batch/gang unchanged\n"
    suspended = LONG.replace("  parallelism: 2", "  parallelism: 2\n  suspend: true")
    assert kubectl("apply", "-f", "-", stdin=suspended) == "job.batch/gang configured\n"
    assert rows(kubectl("get", "job", "gang"))[1][1] == "Suspended"
    assert "field is immutable" in kubectl.refused("apply", "-f", "-", stdin=LONG.replace("busybox", "other"))


def test_two_appliers_of_one_field_are_in_conflict(kubectl: Cli) -> None:
    def apply(manager: str, *options: str) -> tuple[str, ...]:
        return "apply", "--server-side", f"--field-manager={manager}", *options, "-f", "-"

    other = CONFIG.replace('kept: "1"', 'kept: "5"')
    assert "serverside-applied" in kubectl(*apply("one"), stdin=CONFIG)
    complaint = kubectl.refused(*apply("two"), stdin=other)
    assert 'Apply failed with 1 conflict: conflict with "one": .data.kept' in complaint
    kubectl(*apply("two", "--force-conflicts"), stdin=other)
    assert kubectl("get", "cm", "settings", "-o", "jsonpath={.data.kept}") == "5"
    managers = kubectl("get", "cm", "settings", "--show-managed-fields", "-o", "jsonpath={.metadata.managedFields}")
    owned = {entry["manager"]: set(entry["fieldsV1"]["f:data"]) for entry in json.loads(managers)}
    assert owned == {"one": {"f:dropped"}, "two": {"f:kept", "f:dropped"}}


def test_unknown_fields_and_kinds_are_named(kubectl: Cli) -> None:
    typo = CONFIG.replace("\ndata:", "\ndta:")
    assert 'strict decoding error: unknown field "dta"' in kubectl.refused("apply", "-f", "-", stdin=typo)
    unknown = CONFIG.replace("ConfigMap", "Widget").replace("v1", "example.com/v1")
    complaint = kubectl.refused("apply", "-f", "-", stdin=unknown)
    assert 'no matches for kind "Widget" in version "example.com/v1"' in complaint
    assert 'the server doesn\'t have a resource type "widgets"' in kubectl.refused("get", "widgets")
    assert "already exists" in kubectl("create", "-f", "-", stdin=CONFIG) + kubectl.refused(
        "create", "-f", "-", stdin=CONFIG
    )


def test_objects_that_kubectl_creates_as_protobuf_arrive_complete(kubectl: Cli) -> None:
    """kubectl sends these as protobuf."""
    kubectl("create", "configmap", "made", "--from-literal=a=b", "--from-literal=c=")
    assert json.loads(kubectl("get", "cm", "made", "-o", "jsonpath={.data}")) == {"a": "b", "c": ""}
    kubectl("create", "secret", "generic", "hidden", "--from-literal=a=b")
    assert kubectl("get", "secret", "hidden", "-o", "jsonpath={.data.a} {.type}") == "Yg== Opaque"
    kubectl("create", "job", "once", "--image=busybox", "--", "echo", "said -n", "")
    kubectl("wait", "--for=condition=complete", "job/once", "--timeout=30s")
    assert kubectl("logs", "job/once") == "said -n \n"
    kubectl("create", "service", "clusterip", "web", "--tcp=80:http")
    assert kubectl("get", "svc", "web", "-o", "jsonpath={.spec.ports[0].port} {.spec.ports[0].targetPort}") == "80 http"
    kubectl("create", "quota", "limits", "--hard=pods=30,requests.cpu=500m")
    assert rows(kubectl("get", "quota"))[1][1] == "pods: 0/30, requests.cpu: 0/500m"
    kubectl("create", "poddisruptionbudget", "budget", "--selector=app=x", "--min-available=50%")
    assert rows(kubectl("get", "pdb"))[1][:4] == ["budget", "50%", "N/A", "0"]
    assert kubectl("create", "token", "default", "--duration=20m").count(".") == 2
    bound = ("--bound-object-kind=Secret", "--bound-object-name=hidden")
    assert kubectl("create", "token", "default", *bound).count(".") == 2


def test_permissions_can_be_queried(kubectl: Cli) -> None:
    assert kubectl("auth", "can-i", "create", "jobs").strip() == "yes"
    kubectl("create", "serviceaccount", "reader")
    kubectl("create", "role", "read", "--verb=get,list", "--resource=pods,pods/log")
    kubectl("create", "rolebinding", "read", "--role=read", f"--serviceaccount={kubectl.namespace}:reader")
    as_reader = f"--as=system:serviceaccount:{kubectl.namespace}:reader"
    assert kubectl("auth", "can-i", "list", "pods", as_reader).strip() == "yes"
    assert kubectl.refused("auth", "can-i", "create", "pods", as_reader) == ""
    may = {row[0]: row[-1] for row in rows(kubectl("auth", "can-i", "--list", as_reader))}
    assert (may["pods"], may["pods/log"]) == ("[get list]", "[get]")
    assert "secrets" not in may
    assert 'cannot list resource "secrets"' in kubectl.refused("get", "secrets", as_reader)
    assert "kubernetes-admin" in kubectl("auth", "whoami")
    login = f"--token={kubectl('create', 'token', 'reader').strip()}"
    assert f"system:serviceaccount:{kubectl.namespace}:reader" in kubectl("auth", "whoami", login)
    assert 'cannot impersonate resource "users"' in kubectl.refused("get", "pods", login, "--as=kubernetes-admin")


def test_labels_annotations_and_patches_change_one_object(kubectl: Cli) -> None:
    kubectl("create", "-f", "-", stdin=CONFIG)
    kubectl("label", "configmap", "settings", "tier=one")
    assert "already has a value" in kubectl.refused("label", "configmap", "settings", "tier=two")
    kubectl("label", "configmap", "settings", "tier=two", "--overwrite")
    kubectl("annotate", "configmap", "settings", "note=text")
    kubectl("patch", "configmap", "settings", "--type=json", "-p", '[{"op": "remove", "path": "/data/dropped"}]')
    found = json.loads(kubectl("get", "cm", "settings", "-o", "json"))
    assert found["metadata"]["labels"] == {"app": "settings", "tier": "two"}
    assert found["metadata"]["annotations"] == {"note": "text"}
    assert found["data"] == {"kept": "1"}
    kubectl("label", "configmap", "settings", "tier-")
    assert kubectl("get", "cm", "-l", "tier", "-o", "name") == ""


def test_deletion_waits_and_selects(kubectl: Cli) -> None:
    run_gang(kubectl)
    assert f'job.batch "gang" deleted from {kubectl.namespace} namespace' in kubectl(
        "delete", "job", "gang", "--wait", "--cascade=foreground"
    )
    assert kubectl("get", "pods", "-o", "name") == ""
    kubectl("create", "-f", "-", stdin=CONFIG)
    kubectl("delete", "configmap", "-l", "app=settings")
    assert "NotFound" in kubectl.refused("get", "configmap", "settings")


def test_a_drained_node_loses_its_pods_and_gets_no_others(kubectl: Cli) -> None:
    try:
        kubectl("cordon", "local-0")
        run_gang(kubectl)
        assert {row[6] for row in rows(kubectl("get", "pods", "-o", "wide"))[1:]} == {"local-1"}
        assert rows(kubectl("get", "node", "local-0"))[1][1] == "Ready,SchedulingDisabled"
        kubectl("uncordon", "local-0")
        kubectl("create", "poddisruptionbudget", "all", "--selector=app=gang", "--min-available=2")
        eventually(lambda: "2" in rows(kubectl("get", "pdb", "all", "-o", "wide"))[1][1], "the budget is counted")
        refusal = kubectl.refused("drain", "local-1", "--timeout=2s")
        assert "violate the pod's disruption budget" in refusal
        kubectl("delete", "pdb", "all")
        assert "node/local-1 drained" in kubectl("drain", "local-1")
        eventually(
            lambda: (
                [row[6] for row in rows(kubectl("get", "pods", "-o", "wide"))[1:] if row[2] == "Running"]
                == ["local-0"] * 2
            ),
            "the job's pods are made again on the other node",
        )
    finally:
        kubectl("uncordon", "local-0", "local-1")


def test_nodes_are_listed_with_their_columns(kubectl: Cli) -> None:
    header, *nodes = rows(kubectl("get", "nodes", "-o", "wide"))
    assert header == [
        *("NAME", "STATUS", "ROLES", "AGE", "VERSION", "INTERNAL-IP"),
        *("EXTERNAL-IP", "OS-IMAGE", "KERNEL-VERSION", "CONTAINER-RUNTIME"),
    ]
    assert [node[:3] for node in nodes] == [["local-0", "Ready", "<none>"], ["local-1", "Ready", "<none>"]]


def test_events_are_sorted_by_their_time(kubectl: Cli) -> None:
    run_gang(kubectl, SHORT)
    header, *events = rows(kubectl("get", "events", "--sort-by=.lastTimestamp"))
    assert header == ["LAST SEEN", "TYPE", "REASON", "OBJECT", "MESSAGE"]
    assert {"SuccessfulCreate", "Completed"} <= {event[2] for event in events}
    assert "SuccessfulCreate" in kubectl("describe", "job", "gang")


def test_a_job_whose_pod_is_deleted_has_failed(kubectl: Cli) -> None:
    kubectl("apply", "-f", "-", stdin=LONG.replace("completions: 2", "backoffLimit: 0\n  completions: 2"))
    eventually(lambda: kubectl("get", "pods").count("Running") == 2, "both pods run")
    kubectl("delete", "pod", "-l", "batch.kubernetes.io/job-completion-index=0", "--wait=false")
    kubectl("wait", "--for=condition=failed", "job/gang", "--timeout=30s")
    assert "BackoffLimitExceeded" in kubectl("get", "job", "gang", "-o", "yaml")


def test_a_field_that_was_replaced_is_a_conflict_for_its_applier(kubectl: Cli) -> None:
    kubectl("apply", "--server-side", "-f", "-", stdin=CONFIG)
    kubectl("replace", "-f", "-", stdin=CONFIG.replace('"1"', '"9"'))
    refused = kubectl.refused("apply", "--server-side", "-f", "-", stdin=CONFIG)
    assert 'conflict with "kubectl-replace" using v1: .data.kept' in refused


def test_a_cordoned_node_has_the_taint_of_one(kubectl: Cli) -> None:
    taints = ("get", "node", "local-1", "-o", "jsonpath={.spec.taints[*].key}")
    kubectl("cordon", "local-1")
    eventually(lambda: kubectl(*taints) == "node.kubernetes.io/unschedulable", "the taint is set")
    kubectl("uncordon", "local-1")
    eventually(lambda: kubectl(*taints) == "", "the taint is gone")


PRIORITIES = """
apiVersion: scheduling.k8s.io/v1
kind: PriorityClass
metadata: {name: urgent}
value: 1000
"""
FILLING = """
apiVersion: v1
kind: Pod
metadata: {name: NAME}
spec:
  PRIORITY
  terminationGracePeriodSeconds: 1
  nodeSelector: {kubernetes.io/hostname: local-0}
  containers:
  - {name: main, image: busybox, command: [sleep, "600"], resources: {requests: {memory: 60%}}}
"""


def test_a_pod_gives_way_to_one_of_higher_priority(kubectl: Cli) -> None:
    memory = int(kubectl("get", "node", "local-0", "-o", "jsonpath={.status.allocatable.memory}")[:-2])
    unit = kubectl("get", "node", "local-0", "-o", "jsonpath={.status.allocatable.memory}")[-2:]
    filling = FILLING.replace("60%", f"{memory * 6 // 10}{unit}")
    kubectl("apply", "-f", "-", stdin=filling.replace("NAME", "modest").replace("PRIORITY", "hostname: modest"))
    kubectl("wait", "--for=condition=Ready", "pod/modest", "--timeout=30s")
    kubectl("apply", "-f", "-", stdin=PRIORITIES)
    urgent = filling.replace("NAME", "urgent").replace("PRIORITY", "priorityClassName: urgent")
    kubectl("apply", "-f", "-", stdin=urgent)
    kubectl("wait", "--for=condition=Ready", "pod/urgent", "--timeout=30s")
    assert 'pods "modest" not found' in kubectl.refused("get", "pod", "modest")
    assert "Preempted" in kubectl("get", "events", "--field-selector", "involvedObject.name=modest")
    kubectl("delete", "pod", "urgent")


def test_fields_are_explained(kubectl: Cli) -> None:
    explanation = kubectl("explain", "job.spec.completionMode")
    assert "FIELD: completionMode <string>" in explanation
    assert "Indexed" in explanation


CUSTOM = """
apiVersion: jobset.x-k8s.io/v1alpha2
kind: JobSet
metadata: {name: set}
spec:
  replicatedJobs:
  - {name: node, template: {spec: {parallelism: 1, completions: 1, template: {spec: POD}}}}
---
apiVersion: batch.volcano.sh/v1alpha1
kind: Job
metadata: {name: volcano}
spec:
  minAvailable: 1
  tasks:
  - {name: node, replicas: 1, template: {spec: POD}}
---
apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata: {name: torch}
spec:
  pytorchReplicaSpecs:
    Worker: {replicas: 1, restartPolicy: Never, template: {spec: POD}}
""".replace(
    "POD",
    "{restartPolicy: Never, terminationGracePeriodSeconds: 1, "
    "containers: [{name: pytorch, image: busybox, command: [sleep, '600']}]}",
)


def test_custom_kinds_are_applied_shown_and_deleted(kubectl: Cli) -> None:
    kubectl("apply", "-f", "-", stdin=CUSTOM)
    eventually(lambda: kubectl("get", "pods").count("Running") == 3, "a pod of each runs")
    assert rows(kubectl("get", "jobsets"))[0] == ["NAME", "TERMINALSTATE", "RESTARTS", "COMPLETED", "SUSPENDED", "AGE"]
    assert rows(kubectl("get", "vcjob"))[1][:3] == ["volcano", "Running", "1"]
    assert rows(kubectl("get", "pytorchjobs"))[1][:2] == ["torch", "Running"]
    assert "Name:         torch" in kubectl("describe", "pytorchjob", "torch")
    assert "scales no PyTorchJobs" in kubectl.refused("scale", "pytorchjob", "torch", "--replicas=2")
    kubectl("delete", "jobset,vcjob,pytorchjob", "--all", "--cascade=foreground")
    eventually(lambda: kubectl("get", "pods", "-o", "name") == "", "the pods go with their owners")
