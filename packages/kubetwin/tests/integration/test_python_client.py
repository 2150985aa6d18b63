"""The official Python client against the cluster: the operations of its own end-to-end tests, in our words."""

from __future__ import annotations

import gzip
import json
import threading
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubernetes import client, config, dynamic, utils, watch
from kubernetes.client.exceptions import ApiException
from kubernetes.stream import stream
from kubernetes.stream.ws_client import ERROR_CHANNEL
from kubetwin_testing.cluster import command, eventually

pytestmark = pytest.mark.slow

NAMESPACE = "default"


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[client.ApiClient]:
    folder = tmp_path_factory.mktemp("python-client")
    with command("--state", str(folder / "state")) as (_, ready):
        made = config.new_client_from_config(ready["kubeconfig"])
        core = client.CoreV1Api(made)
        accounts = core.list_namespaced_service_account
        eventually(lambda: [a for a in accounts(NAMESPACE).items if a.metadata.name == "default"], "the account")
        yield made


@pytest.fixture
def core(api: client.ApiClient) -> client.CoreV1Api:
    return client.CoreV1Api(api)


def unique(prefix: str) -> str:
    return f"{prefix}-{uuid.uuid4().hex[:8]}"


def pod_manifest(name: str, script: str = "while true; do sleep 1; done") -> dict[str, Any]:
    container = {"name": "sleep", "image": "busybox:1.36", "command": ["/bin/sh", "-c", script]}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {"containers": [container], "terminationGracePeriodSeconds": 0},
    }


@pytest.fixture(scope="module")
def pod(api: client.ApiClient) -> str:
    """A pod that runs."""
    core, name = client.CoreV1Api(api), unique("busybox")
    made = core.create_namespaced_pod(NAMESPACE, pod_manifest(name))
    assert (made.metadata.name, made.status.phase) == (name, "Pending")
    eventually(lambda: core.read_namespaced_pod(name, NAMESPACE).status.phase == "Running", f"{name} runs")
    return name


def execute(core: client.CoreV1Api, pod: str, *words: str, **options: Any) -> Any:
    switches = {"stderr": True, "stdin": False, "stdout": True, "tty": False, **options}
    return stream(core.connect_get_namespaced_pod_exec, pod, NAMESPACE, command=[*words], **switches)


def test_a_command_in_a_pod_prints_text_or_bytes(core: client.CoreV1Api, pod: str) -> None:
    text = execute(core, pod, "/bin/sh", "-c", "for i in $(seq 1 3); do date; done")
    assert len(text.splitlines()) == 3
    packed = execute(core, pod, "/bin/sh", "-c", 'printf "a test" | gzip', binary=True)
    assert gzip.decompress(packed) == b"a test"


@pytest.mark.parametrize("binary", [False, True])
def test_a_command_in_a_pod_reads_what_it_is_sent(core: client.CoreV1Api, pod: str, binary: bool) -> None:
    def line(text: str) -> Any:
        return text.encode() if binary else text

    shell = execute(core, pod, "/bin/sh", stdin=True, binary=binary, _preload_content=False)
    shell.write_stdin(line("echo to stdout\n"))
    assert shell.readline_stdout(timeout=10) == line("to stdout")
    shell.write_stdin(line("echo to stderr >&2\n"))
    assert shell.readline_stderr(timeout=10) == line("to stderr")
    assert not shell.peek_stdout()
    shell.write_stdin(line("exit\n"))
    status = eventually(lambda: shell.read_channel(ERROR_CHANNEL, timeout=1), "the shell's status")
    assert json.loads(status)["status"] == "Success"
    shell.update(timeout=5)
    assert not shell.is_open()


@pytest.mark.parametrize(("words", "code"), [(["false"], 1), (["/bin/sh", "-c", "exit 3"], 3), (["true"], 0)])
def test_a_command_in_a_pod_has_its_exit_code(core: client.CoreV1Api, pod: str, words: list[str], code: int) -> None:
    running = execute(core, pod, *words, _preload_content=False)
    running.run_forever(timeout=10)
    assert running.returncode == code


def test_pods_are_listed_logged_and_deleted(core: client.CoreV1Api) -> None:
    name = unique("brief")
    core.create_namespaced_pod(NAMESPACE, pod_manifest(name, "echo hello; sleep 600"))
    assert name in [found.metadata.name for found in core.list_pod_for_all_namespaces().items]
    eventually(lambda: core.read_namespaced_pod(name, NAMESPACE).status.phase == "Running", f"{name} runs")
    eventually(lambda: core.read_namespaced_pod_log(name, NAMESPACE) == "hello\n", "the log")
    core.delete_namespaced_pod(name, NAMESPACE, body={})
    selector = f"metadata.name={name}"
    eventually(lambda: not core.list_namespaced_pod(NAMESPACE, field_selector=selector).items, f"{name} is gone")


def test_a_service_is_created_patched_and_deleted(core: client.CoreV1Api) -> None:
    name = unique("frontend")
    port = {"name": "port", "port": 80, "protocol": "TCP", "targetPort": 80}
    body = {"metadata": {"name": name}, "spec": {"ports": [port], "selector": {"name": name}}}
    assert core.create_namespaced_service(NAMESPACE, body).spec.cluster_ip
    body["spec"] = {"ports": [{**port, "name": "new", "port": 8080, "targetPort": 8080}]}
    patched = core.patch_namespaced_service(name, NAMESPACE, body)
    assert {each.name for each in patched.spec.ports} == {"port", "new"}
    core.delete_namespaced_service(name, NAMESPACE, body={})
    with pytest.raises(ApiException) as refused:
        core.read_namespaced_service(name, NAMESPACE)
    assert refused.value.status == 404


def test_a_config_map_is_patched_in_two_ways(core: client.CoreV1Api) -> None:
    name = unique("settings")
    metadata = {"name": name, "labels": {"e2e-tests": "true"}}
    core.create_namespaced_config_map(NAMESPACE, {"metadata": metadata, "data": {"a.json": "{}", "b": "1\n2\n"}})
    replaced = core.patch_namespaced_config_map(
        name, NAMESPACE, [{"op": "replace", "path": "/data", "value": {"k": "1"}}]
    )
    assert replaced.data == {"k": "1"}
    assert core.patch_namespaced_config_map(name, NAMESPACE, {"data": {"k": "2"}}).data == {"k": "2"}
    core.delete_namespaced_config_map(name, NAMESPACE, body={})
    assert not core.list_namespaced_config_map(NAMESPACE, label_selector="e2e-tests=true").items


def test_nodes_have_labels(core: client.CoreV1Api) -> None:
    names = [node.metadata.name for node in core.list_node().items]
    assert names
    assert all(core.read_node(name).metadata.labels["kubernetes.io/hostname"] for name in names)


def test_a_job_runs_and_is_deleted(api: client.ApiClient) -> None:
    batch, name = client.BatchV1Api(api), unique("job")
    container = {"name": name, "image": "busybox", "command": ["sh", "-c", "true"]}
    template = {"metadata": {"name": name}, "spec": {"restartPolicy": "Never", "containers": [container]}}
    batch.create_namespaced_job(NAMESPACE, {"metadata": {"name": name}, "spec": {"template": template}})
    eventually(lambda: batch.read_namespaced_job(name, NAMESPACE).status.succeeded == 1, f"{name} succeeds")
    batch.delete_namespaced_job(name, NAMESPACE, propagation_policy="Background")
    eventually(lambda: name not in [job.metadata.name for job in batch.list_namespaced_job(NAMESPACE).items], "gone")


DOCUMENTS = """
apiVersion: v1
kind: Namespace
metadata: {name: NAME}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: reader, namespace: NAME}
rules: [{apiGroups: [""], resources: [pods], verbs: [get]}]
---
apiVersion: v1
kind: List
items:
- apiVersion: v1
  kind: Service
  metadata: {name: web, namespace: NAME}
  spec: {selector: {app: web}, ports: [{port: 80}]}
- apiVersion: v1
  kind: ConfigMap
  metadata: {name: settings, namespace: NAME}
  data: {a: "1"}
"""


def test_objects_are_created_from_a_file_once(api: client.ApiClient, core: client.CoreV1Api, tmp_path: Path) -> None:
    name, path = unique("files"), tmp_path / "objects.yaml"
    path.write_text(DOCUMENTS.replace("NAME", name))
    utils.create_from_yaml(api, str(path))
    assert core.read_namespaced_service("web", name).spec.selector == {"app": "web"}
    assert client.RbacAuthorizationV1Api(api).read_namespaced_role("reader", name).rules[0].resources == ["pods"]
    with pytest.raises(utils.FailToCreateError) as failed:
        utils.create_from_yaml(api, str(path))
    assert {refused.status for refused in failed.value.api_exceptions} == {409}
    utils.create_from_yaml(api, str(path), apply=True, namespace=name)
    core.delete_namespace(name)
    eventually(lambda: name not in [each.metadata.name for each in core.list_namespace().items], f"{name} is gone")


def test_a_watch_shows_changes_and_goes_on_where_it_ended(core: client.CoreV1Api) -> None:
    label = unique("watched")
    start = core.list_namespaced_config_map(NAMESPACE).metadata.resource_version

    def write() -> None:
        for number in range(3):
            body = {"metadata": {"name": f"{label}-{number}", "labels": {"watch": label}}}
            core.create_namespaced_config_map(NAMESPACE, body)
        core.delete_namespaced_config_map(f"{label}-0", NAMESPACE)

    writer = threading.Thread(target=write)
    writer.start()
    watcher, seen = watch.Watch(), list[tuple[str, str]]()
    options = {"label_selector": f"watch={label}", "timeout_seconds": 20}
    for event in watcher.stream(core.list_namespaced_config_map, NAMESPACE, resource_version=start, **options):
        seen.append((event["type"], event["object"].metadata.name))
        if len(seen) == 2:
            watcher.stop()
    writer.join()
    reached = watcher.resource_version
    for event in watch.Watch().stream(core.list_namespaced_config_map, NAMESPACE, resource_version=reached, **options):
        seen.append((event["type"], event["object"].metadata.name))
        if len(seen) == 4:
            break
    made = [("ADDED", f"{label}-{number}") for number in range(3)]
    assert seen == [*made, ("DELETED", f"{label}-0")]


def test_the_dynamic_client_finds_built_in_and_custom_kinds(api: client.ApiClient) -> None:
    found = dynamic.DynamicClient(api)
    configs, name = found.resources.get(api_version="v1", kind="ConfigMap"), unique("dynamic")
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"a": "1"}}
    configs.create(body=body, namespace=NAMESPACE)
    merge = "application/merge-patch+json"
    patched = configs.patch(name=name, namespace=NAMESPACE, body={"data": {"b": "2"}}, content_type=merge)
    assert patched.data.to_dict() == {"a": "1", "b": "2"}
    body["data"] = {"a": "3"}
    with pytest.raises(ApiException) as refused:
        configs.server_side_apply(namespace=NAMESPACE, body=body, field_manager="another")
    assert refused.value.status == 409
    applied = configs.server_side_apply(namespace=NAMESPACE, body=body, field_manager="another", force_conflicts=True)
    assert applied.data.to_dict() == {"a": "3", "b": "2"}
    configs.delete(name=name, namespace=NAMESPACE, body={})

    sets = found.resources.get(api_version="jobset.x-k8s.io/v1alpha2", kind="JobSet")
    template = yaml.safe_load(
        "{spec: {template: {spec: {restartPolicy: Never, containers: [{name: c, image: busybox, command: ['true']}]}}}}"
    )
    replicated = [{"name": "w", "replicas": 1, "template": template}]
    job_set = {"apiVersion": sets.group_version, "kind": "JobSet", "metadata": {"name": name}}
    sets.create(body={**job_set, "spec": {"replicatedJobs": replicated}}, namespace=NAMESPACE)
    eventually(
        lambda: (
            (sets.get(name=name, namespace=NAMESPACE).to_dict().get("status") or {}).get("terminalState") == "Completed"
        ),
        "the job set completes",
    )
    sets.delete(name=name, namespace=NAMESPACE, body={})


def test_custom_kinds_are_recorded_and_further_ones_refused(api: client.ApiClient) -> None:
    definitions = client.ApiextensionsV1Api(api)
    names = [each.metadata.name for each in definitions.list_custom_resource_definition().items]
    assert {"jobsets.jobset.x-k8s.io", "pytorchjobs.kubeflow.org", "jobs.batch.volcano.sh"} <= set(names)
    with pytest.raises(ApiException) as refused:
        definitions.create_custom_resource_definition({"metadata": {"name": "widgets.example.com"}})
    assert (refused.value.status, json.loads(refused.value.body)["message"]) == (
        405,
        "this cluster takes no further CustomResourceDefinitions: those of JobSet, Volcano, the training "
        "operator and Kubeflow Trainer are built in; other kinds need a cluster that runs their operators",
    )


@pytest.mark.parametrize(
    ("version", "kind", "sentence"),
    [
        ("apps/v1", "Deployment", "this cluster runs no Deployments: create a Pod, a Job or a JobSet"),
        ("apps/v1", "StatefulSet", "this cluster runs no StatefulSets: create a Pod, a Job or a JobSet"),
        ("v1", "ReplicationController", "this cluster runs no ReplicationControllers: create a Pod, a Job or a JobSet"),
        ("batch/v1", "CronJob", "this cluster runs no CronJobs: create the job itself when it is due"),
    ],
)
def test_a_kind_that_is_not_offered_says_so(api: client.ApiClient, version: str, kind: str, sentence: str) -> None:
    body = {"apiVersion": version, "kind": kind, "metadata": {"name": "x"}, "spec": {}}
    with pytest.raises(utils.FailToCreateError) as failed:
        utils.create_from_dict(api, body)
    [refused] = failed.value.api_exceptions
    assert (refused.status, json.loads(refused.body)["message"]) == (405, sentence)
