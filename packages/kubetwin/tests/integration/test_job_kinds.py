"""The operators' kinds of jobs on a twin cluster with process nodes: gangs that meet, end and go."""

from __future__ import annotations

import socket
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from kubetwin.client import RequestRefused
from kubetwin_testing.cluster import Cluster, command, eventually

DEVICE = "aws.amazon.com/neuron"
SHAPE = str(Path(__file__).parents[1] / "recordings" / "node-shape.yaml")
"""Nodes with 16 of these devices."""

GREET = """
import os, socket, sys, time
rank = int(os.environ.get("RANK") or os.environ["JOB_COMPLETION_INDEX"])
address = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
if rank == 0:
    peer, _ = socket.create_server(address).accept()
    print("met", peer.recv(99).decode(), flush=True)
else:
    for _ in range(200):
        try:
            socket.create_connection(address).sendall(f"rank {rank}".encode())
            sys.exit()
        except OSError:
            time.sleep(0.05)
    sys.exit("rank 0 does not listen")
"""
GROUPS = {
    "jobset": "jobset.x-k8s.io/v1alpha2",
    "volcano": "batch.volcano.sh/v1alpha1",
    "pytorchjob": "kubeflow.org/v1",
    "trainjob": "trainer.kubeflow.org/v1alpha1",
}
PLURALS = {
    "jobset": ("JobSet", "jobsets"),
    "volcano": ("Job", "jobs"),
    "pytorchjob": ("PyTorchJob", "pytorchjobs"),
    "trainjob": ("TrainJob", "trainjobs"),
}


class Kinds(Cluster):
    """A cluster with the operators' kinds."""

    def submit(self, backend: str, name: str, spec: dict[str, Any]) -> None:
        kind, plural = PLURALS[backend]
        path = f"/apis/{GROUPS[backend]}/namespaces/{self.namespace}/{plural}"
        self.api.create(path, {"apiVersion": GROUPS[backend], "kind": kind, "metadata": {"name": name}, "spec": spec})

    def job(self, backend: str, name: str) -> dict[str, Any] | None:
        path = f"/apis/{GROUPS[backend]}/namespaces/{self.namespace}/{PLURALS[backend][1]}/{name}"
        return self.api.find(path)

    def until(self, backend: str, name: str, holds: Callable[[dict[str, Any]], Any], what: str) -> dict[str, Any]:
        def poll() -> dict[str, Any] | None:
            status = (self.job(backend, name) or {}).get("status") or {}
            return status if holds(status) else None

        return eventually(poll, f"{backend} {name} {what}")

    def pods(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.api.find(self.path("pods"))["items"]  # type: ignore[index]
        return found

    def logs(self) -> dict[str, str]:
        return {pod["metadata"]["name"]: self.log(pod["metadata"]["name"]) for pod in self.pods()}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("kinds")
    with command("--state", str(folder), "--nodes", "2", "--shape", SHAPE) as (_, ready):
        yield Path(ready["kubeconfig"])


@pytest.fixture
def cluster(served: Path, tmp_path: Path) -> Kinds:
    return Kinds(served, tmp_path, namespace=f"k-{uuid.uuid4().hex[:8]}")


@pytest.fixture
def port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def template(*command: str, name: str = "c", devices: int = 0, **container: Any) -> dict[str, Any]:
    resources = {"limits": {DEVICE: str(devices)}} if devices else {}
    only = {"name": name, "image": "i", "command": list(command), "resources": resources, **container}
    return {"spec": {"restartPolicy": "Never", "terminationGracePeriodSeconds": 1, "containers": [only]}}


def jobset(pod: dict[str, Any], **spec: Any) -> dict[str, Any]:
    job = {"completionMode": "Indexed", "completions": 2, "parallelism": 2, "backoffLimit": 0, "template": pod}
    return {"replicatedJobs": [{"name": "workers", "template": {"spec": job}}], **spec}


def volcano(master: dict[str, Any], worker: dict[str, Any], **spec: Any) -> dict[str, Any]:
    tasks = [
        {"name": "master", "replicas": 1, "template": master},
        {"name": "worker", "replicas": 1, "template": worker},
    ]
    return {"schedulerName": "volcano", "queue": "default", "minAvailable": 2, "tasks": tasks, **spec}


def pytorchjob(master: dict[str, Any], worker: dict[str, Any], restarts: str = "Never", **run: Any) -> dict[str, Any]:
    specs = {
        "Master": {"replicas": 1, "restartPolicy": restarts, "template": master},
        "Worker": {"replicas": 1, "restartPolicy": restarts, "template": worker},
    }
    return {"pytorchReplicaSpecs": specs, "runPolicy": run}


def is_true(kind: str) -> Callable[[dict[str, Any]], bool]:
    return lambda status: any(c["type"] == kind and c["status"] == "True" for c in status.get("conditions") or [])


def is_in(phase: str) -> Callable[[dict[str, Any]], bool]:
    return lambda status: (status.get("state") or {}).get("phase") == phase


def one_met(logs: dict[str, str]) -> bool:
    return sorted(logs.values()) == ["", "met rank 1\n"]


SLEEP, FAIL = ("sleep", "1000"), ("sh", "-c", "sleep 1; exit 3")


def test_the_pods_of_a_jobset_meet_by_its_names_and_succeed(cluster: Kinds, port: int) -> None:
    env = [{"name": "MASTER_ADDR", "value": "js-workers-0-0.js"}, {"name": "MASTER_PORT", "value": str(port)}]
    cluster.submit("jobset", "js", jobset(template("python", "-c", GREET, env=env)))
    status = cluster.until("jobset", "js", is_true("Completed"), "completes")
    assert status["replicatedJobsStatus"][0]["succeeded"] == 1
    assert one_met(cluster.logs())


def test_a_failed_pod_of_a_jobset_ends_the_others(cluster: Kinds) -> None:
    command = ("sh", "-c", "test $JOB_COMPLETION_INDEX = 0 && sleep 1000; exit 3")
    cluster.submit("jobset", "js", jobset(template(*command), failurePolicy={"maxRestarts": 0}))
    status = cluster.until("jobset", "js", is_true("Failed"), "fails")
    assert status["conditions"][-1]["reason"] == "ReachedMaxRestarts"
    eventually(lambda: all(p["status"]["phase"] == "Failed" for p in cluster.pods()), "no pod runs on")


def test_the_pods_of_a_volcano_job_meet_by_the_pytorch_plugin_and_succeed(cluster: Kinds, port: int) -> None:
    plugins = {"env": [], "svc": [], "pytorch": [f"--port={port}"]}
    pod = template("python", "-c", GREET)
    cluster.submit("volcano", "vj", volcano(pod, pod, plugins=plugins))
    cluster.until("volcano", "vj", is_in("Completed"), "completes")
    assert cluster.logs() == {"vj-master-0": "met rank 1\n", "vj-worker-0": ""}


def queue_path(name: str = "") -> str:
    return f"/apis/scheduling.volcano.sh/v1beta1/queues/{name}".rstrip("/")


def test_a_new_queue_is_opened_and_takes_jobs(cluster: Kinds) -> None:
    name = f"queue-{cluster.namespace}"
    queue = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue", "metadata": {"name": name}}
    cluster.api.create(queue_path(), {**queue, "spec": {"weight": 1, "reclaimable": True}})
    eventually(lambda: (cluster.api.get(queue_path(name)).get("status") or {}).get("state") == "Open", "it is open")
    pod = template("true")
    cluster.submit("volcano", "vj", volcano(pod, pod, queue=name))
    cluster.until("volcano", "vj", is_in("Completed"), "completes")


@pytest.mark.parametrize(
    ("queue", "why"),
    [
        ("nobodys", 'unable to find job queue: queue.scheduling.volcano.sh "nobodys" not found;'),
        ("root", "can not submit job to root queue;"),
    ],
)
def test_a_job_for_a_queue_that_takes_none_is_refused_as_volcanos_webhook_does(
    cluster: Kinds, queue: str, why: str
) -> None:
    with pytest.raises(RequestRefused) as refused:
        cluster.submit("volcano", "vj", volcano(template("true"), template("true"), queue=queue))
    assert refused.value.status == 400
    assert f'admission webhook "validatejob.volcano.sh" denied the request: {why}' in str(refused.value)
    assert cluster.job("volcano", "vj") is None


def test_hosts_of_a_volcano_job_are_in_a_file_too(cluster: Kinds) -> None:
    pod = template("sh", "-c", "cat $HOSTS", env=[{"name": "HOSTS", "value": "/etc/volcano/worker.host"}])
    cluster.submit("volcano", "vj", volcano(pod, pod, plugins={"svc": []}))
    cluster.until("volcano", "vj", is_in("Completed"), "completes")
    assert set(cluster.logs().values()) == {"vj-worker-0.vj"}


def test_a_failed_pod_of_a_volcano_job_aborts_it_under_its_policy(cluster: Kinds) -> None:
    policies = [{"event": "PodFailed", "action": "AbortJob"}]
    cluster.submit("volcano", "vj", volcano(template(*SLEEP), template(*FAIL), policies=policies))
    cluster.until("volcano", "vj", is_in("Aborted"), "is aborted")
    assert [pod["metadata"]["name"] for pod in cluster.pods()] == ["vj-worker-0"], "only what has ended is left"
    groups = cluster.api.find(f"/apis/scheduling.volcano.sh/v1beta1/namespaces/{cluster.namespace}/podgroups")
    assert groups is not None
    assert groups["items"] == []


def test_the_pods_of_a_pytorchjob_meet_by_the_operators_variables_and_succeed(cluster: Kinds, port: int) -> None:
    ports = [{"name": "pytorchjob-port", "containerPort": port}]
    pod = template("python", "-c", GREET, name="pytorch", ports=ports)
    cluster.submit("pytorchjob", "pt", pytorchjob(pod, pod))
    cluster.until("pytorchjob", "pt", is_true("Succeeded"), "succeeds")
    assert cluster.log("pt-master-0") == "met rank 1\n"


def test_a_failed_worker_fails_the_pytorchjob_which_cleans_up_what_runs(cluster: Kinds) -> None:
    spec = pytorchjob(template(*SLEEP, name="pytorch"), template(*FAIL, name="pytorch"), cleanPodPolicy="Running")
    cluster.submit("pytorchjob", "pt", spec)
    cluster.until("pytorchjob", "pt", is_true("Failed"), "fails")
    eventually(lambda: [p["metadata"]["name"] for p in cluster.pods()] == ["pt-worker-0"], "the master is gone")
    assert cluster.api.find(cluster.path("services/pt-master-0")) is None


def test_a_worker_killed_by_a_signal_is_made_again_under_exit_code(cluster: Kinds) -> None:
    once = template(
        "sh", "-c", "test -e $0 && exit 0; touch $0; kill -9 $$$$", str(cluster.folder / "ran"), name="pytorch"
    )
    cluster.submit("pytorchjob", "pt", pytorchjob(template("sleep", "3", name="pytorch"), once, "ExitCode"))
    status = cluster.until("pytorchjob", "pt", is_true("Succeeded"), "succeeds")
    assert status["replicaStatuses"]["Worker"].get("failed", 0) == 0
    assert cluster.phase("pt-worker-0", "Succeeded")


def test_a_gang_waits_without_pods_for_its_nodes_and_ends_with_one_of_them(cluster: Kinds, tmp_path: Path) -> None:
    """Three nodes' worth of devices on two nodes; the third appears, and leaves again."""
    tasks = [{"name": "node", "replicas": 3, "template": template(*SLEEP, devices=16)}]
    policies = [{"event": "PodEvicted", "action": "TerminateJob"}]
    spec = {"schedulerName": "volcano", "minAvailable": 3, "tasks": tasks, "policies": policies, "plugins": {"svc": []}}
    cluster.submit("volcano", "vj", spec)

    def group() -> dict[str, Any]:
        path = f"/apis/scheduling.volcano.sh/v1beta1/namespaces/{cluster.namespace}/podgroups"
        [found] = cluster.api.find(path)["items"]  # type: ignore[index]
        return dict(found)

    eventually(lambda: (group()["status"] or {}).get("phase") == "Pending", "the gang is not let in")
    assert cluster.pods() == []
    arguments = ("--kubeconfig", str(cluster.kubeconfig), "--name", "third", "--shape", SHAPE)
    with command("node", *arguments, "--pods-dir", str(tmp_path / "pods")):
        cluster.until("volcano", "vj", is_in("Running"), "runs")
        assert {pod["spec"]["nodeName"] for pod in cluster.pods()} == {"local-0", "local-1", "third"}
        assert group()["status"]["phase"] == "Running"
    cluster.until("volcano", "vj", is_in("Terminated"), "is terminated, for a pod of it was evicted")
    eventually(lambda: not [p for p in cluster.pods() if p["status"]["phase"] == "Running"], "no pod runs on")


@pytest.mark.parametrize("backend", ["jobset", "volcano", "pytorchjob"])
def test_the_objects_of_a_job_are_deleted_with_it(cluster: Kinds, backend: str) -> None:
    pod = template(*SLEEP, name="pytorch")
    specs = {
        "jobset": jobset(pod),
        "volcano": volcano(pod, pod, plugins={"svc": []}),
        "pytorchjob": pytorchjob(pod, pod),
    }
    cluster.submit(backend, "gone", specs[backend])
    eventually(lambda: len(cluster.pods()) == 2, "two pods")
    cluster.api.delete(f"/apis/{GROUPS[backend]}/namespaces/{cluster.namespace}/{PLURALS[backend][1]}/gone")
    eventually(lambda: not cluster.pods(), "no pods")
    eventually(lambda: not cluster.api.find(cluster.path("services"))["items"], "no services")  # type: ignore[index]


@pytest.mark.parametrize("backend", ["jobset", "volcano", "pytorchjob"])
def test_a_job_that_has_ended_is_deleted_after_its_time_to_live(cluster: Kinds, backend: str) -> None:
    pod = template("true", name="pytorch")
    specs = {
        "jobset": jobset(pod, ttlSecondsAfterFinished=1),
        "volcano": volcano(pod, pod, ttlSecondsAfterFinished=1),
        "pytorchjob": pytorchjob(pod, pod, ttlSecondsAfterFinished=1),
    }
    cluster.submit(backend, "brief", specs[backend])
    eventually(lambda: cluster.job(backend, "brief") is None, "the job is gone")
    eventually(lambda: not cluster.pods(), "no pods")


@pytest.mark.parametrize("backend", ["jobset", "volcano", "pytorchjob"])
def test_objects_that_the_server_refuses_are_created_when_it_takes_them(cluster: Kinds, backend: str) -> None:
    none = {"count/jobs.batch": "0", "pods": "0"}
    cluster.api.create(cluster.path("resourcequotas"), {"metadata": {"name": "none"}, "spec": {"hard": none}})
    pod = template(*SLEEP, name="pytorch")
    specs = {"jobset": jobset(pod), "volcano": volcano(pod, pod), "pytorchjob": pytorchjob(pod, pod)}
    cluster.submit(backend, "late", specs[backend])
    reason = {"jobset": "JobCreationFailed", "volcano": "FailedCreate", "pytorchjob": "FailedCreatePod"}[backend]

    def reasons() -> set[str]:
        return {event["reason"] for event in cluster.api.get(cluster.path("events"))["items"]}

    eventually(lambda: reason in reasons(), "the refusal is told")
    assert cluster.pods() == []
    cluster.api.delete(cluster.path("resourcequotas/none"))
    eventually(lambda: len(cluster.pods()) == 2, "two pods")


def runtime(cluster: Kinds, *command: str, name: str = "torch", **spec: Any) -> None:
    """Create a TrainingRuntime of one program."""
    pod = template(*command, name="node")
    job = {"metadata": {"labels": {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}}}
    job["spec"] = {"backoffLimit": 0, "template": pod}
    jobset = {"replicatedJobs": [{"name": "node", "template": job}], "failurePolicy": {"maxRestarts": 0}}
    cluster.api.create(
        f"/apis/{GROUPS['trainjob']}/namespaces/{cluster.namespace}/trainingruntimes",
        {
            "apiVersion": GROUPS["trainjob"],
            "kind": "TrainingRuntime",
            "metadata": {"name": name},
            "spec": {"mlPolicy": {"torch": {}}, "template": {"spec": jobset}, **spec},
        },
    )


def trainjob(num_nodes: int = 2, **spec: Any) -> dict[str, Any]:
    return {"runtimeRef": {"kind": "TrainingRuntime", "name": "torch"}, "trainer": {"numNodes": num_nodes}, **spec}


MERGE_PATCH = "application/merge-patch+json"
MEET = """
import os
os.environ.update(RANK=os.environ["PET_NODE_RANK"], MASTER_ADDR=os.environ["PET_MASTER_ADDR"])
"""


def test_the_pods_of_a_trainjob_meet_by_torchruns_variables_and_succeed(cluster: Kinds, port: int) -> None:
    runtime(cluster, "python", "-c", f"{MEET}os.environ['MASTER_PORT'] = '{port}'\n{GREET}")
    cluster.submit("trainjob", "tj", trainjob())
    status = cluster.until("trainjob", "tj", is_true("Complete"), "completes")
    [condition] = status["conditions"]
    assert (condition["reason"], condition["message"]) == ("AllJobsCompleted", "jobset completed successfully")
    [counts] = status["jobsStatus"]
    assert counts == {"name": "node", "ready": 0, "succeeded": 1, "failed": 0, "active": 0, "suspended": 0}
    assert one_met(cluster.logs())


def test_a_failed_pod_of_a_trainjob_fails_it_and_its_deletion_takes_everything(cluster: Kinds) -> None:
    runtime(cluster, *FAIL)
    cluster.submit("trainjob", "tj", trainjob())
    status = cluster.until("trainjob", "tj", is_true("Failed"), "fails")
    assert status["conditions"][-1]["reason"] == "ReachedMaxRestarts"
    assert cluster.api.find(cluster.path("configmaps/tj-runtime-snapshot"))
    cluster.api.delete(f"/apis/{GROUPS['trainjob']}/namespaces/{cluster.namespace}/trainjobs/tj")
    eventually(lambda: not cluster.pods() and not cluster.job("jobset", "tj"), "its JobSet and pods are gone")
    eventually(lambda: not cluster.api.find(cluster.path("configmaps/tj-runtime-snapshot")), "so is the snapshot")


def test_a_suspended_trainjob_has_no_pods_until_it_is_resumed_and_none_when_it_is_suspended_again(
    cluster: Kinds,
) -> None:
    runtime(cluster, *SLEEP)
    cluster.submit("trainjob", "tj", trainjob(suspend=True))
    cluster.until("trainjob", "tj", is_true("Suspended"), "is suspended")
    assert not cluster.pods()
    path = f"/apis/{GROUPS['trainjob']}/namespaces/{cluster.namespace}/trainjobs/tj"
    cluster.api.patch(path, {"spec": {"suspend": False}}, MERGE_PATCH)
    status = cluster.until("trainjob", "tj", lambda s: any(c["ready"] for c in s["jobsStatus"]), "runs")
    assert [(c["type"], c["status"], c["reason"]) for c in status["conditions"]] == [("Suspended", "False", "Resumed")]
    cluster.api.patch(path, {"spec": {"suspend": True}}, MERGE_PATCH)
    cluster.until("trainjob", "tj", is_true("Suspended"), "is suspended again")
    eventually(lambda: not cluster.pods(), "no pod is left")


def test_a_trainjob_waits_for_its_runtime_and_keeps_it(cluster: Kinds) -> None:
    cluster.submit("trainjob", "tj", trainjob())
    assert not cluster.pods()
    runtime(cluster, *SLEEP)
    eventually(lambda: bool(cluster.pods()), "the pods are made")
    cluster.api.delete(f"/apis/{GROUPS['trainjob']}/namespaces/{cluster.namespace}/trainingruntimes/torch")
    assert cluster.job("jobset", "tj")


def test_a_trainjob_that_takes_too_long_fails_and_loses_its_pods(cluster: Kinds) -> None:
    runtime(cluster, *SLEEP)
    cluster.submit("trainjob", "tj", trainjob(activeDeadlineSeconds=2))
    status = cluster.until("trainjob", "tj", is_true("Failed"), "fails")
    assert status["conditions"][-1]["reason"] == "DeadlineExceeded"
    eventually(lambda: not cluster.job("jobset", "tj"), "its JobSet is deleted")


def test_the_runtime_of_a_trainjob_cannot_be_replaced(cluster: Kinds) -> None:
    runtime(cluster, *SLEEP)
    cluster.submit("trainjob", "tj", trainjob())
    path = f"/apis/{GROUPS['trainjob']}/namespaces/{cluster.namespace}/trainjobs/tj"
    with pytest.raises(RequestRefused, match=r"spec.runtimeRef: Invalid value: field is immutable"):
        cluster.api.patch(path, {"spec": {"runtimeRef": {"name": "other"}}}, MERGE_PATCH)
