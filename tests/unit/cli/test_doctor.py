"""The doctor: what it concludes from what it sees, and what it asks for."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lambdas.logic.jobs import job_of
from tests.fakes.runs import run_on
from tests.unit.lambdas.test_manifests import pods
from tests.wording import wording
from trainflow.cli.doctor import gang, inside
from trainflow.cli.doctor.cluster import DoctorError, ProbeFailed
from trainflow.cli.doctor.examination import examine
from trainflow.cli.doctor.findings import Evidence, Finding, Outcome, findings
from trainflow.cli.doctor.probe import probe_pod
from trainflow.deployment.backends import DESCRIPTIONS, BackendName
from trainflow.observed.node import Node, read_node
from trainflow.workflow.run import Stage

EFA, NEURON = "vpc.amazonaws.com/efa", "aws.amazon.com/neuron"
INSIDE = {
    "credentials": {"source": "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", "readable": True},
    "devices": {"neuron": 16, "efa": 8},
    "folders": [{"writable": True, "free_bytes": 900 * 1024**3}, {"writable": True, "free_bytes": 900 * 1024**3}],
    "read_only": [{"readable": True}],
    "name": {"addresses": ["10.0.0.7"]},
    "full_name": {"addresses": ["10.0.0.7"]},
    "ping": {"answered": True},
    "port": {"open": True},
}


def pod(index: int = 0, *, phase: str = "Running", attempt: int = 1, stage: str = "training", **spec: Any) -> Any:
    return {
        "metadata": {
            "name": f"bert-training-{attempt}-{index}",
            "namespace": "training",
            "labels": {"trainflow/run": "bert", "trainflow/stage": stage, "trainflow/attempt": str(attempt)},
        },
        "spec": {
            "nodeName": f"node-{index}",
            "serviceAccountName": "training",
            "containers": [
                {
                    "name": "training",
                    "image": "trainer:1",
                    "command": ["torchrun", "--master_addr", "bert-0.bert", "--master_port", "23456", "train.py"],
                    "env": [{"name": "TRAINFLOW_CACHE_DIR", "value": "/cache/bert"}],
                    "resources": {"limits": {NEURON: "16", EFA: "8"}},
                    "volumeMounts": [
                        {"name": "shared", "mountPath": "/runs"},
                        {"name": "shared", "mountPath": "/cache"},
                        {"name": "shared", "mountPath": "/data", "readOnly": True},
                        {"name": "shm", "mountPath": "/dev/shm"},
                    ],
                }
            ],
            "volumes": [
                {"name": "shared", "persistentVolumeClaim": {"claimName": "fsx-claim"}},
                {"name": "shm", "emptyDir": {}},
            ],
            **spec,
        },
        "status": {"phase": phase},
    }


def node(**allocatable: str) -> Node:
    ready = {"type": "Ready", "status": "True"}
    status = {"conditions": [ready], "allocatable": {NEURON: "16", EFA: "8", **allocatable}}
    return read_node({"metadata": {"name": "node"}, "status": status})


HEALTHY = Evidence(
    pods=[pod(0), pod(1)],
    nodes={"node-0": node(), "node-1": node()},
    claims={"fsx-claim": {"spec": {"volumeName": "fsx"}, "status": {"phase": "Bound"}}},
    service_account={"metadata": {"name": "training"}},
    inside=INSIDE,
    in_own_pod=True,
)


def failed(evidence: Evidence) -> list[Finding]:
    return [finding for finding in findings(evidence) if finding.outcome is Outcome.FAILED]


def only_failure(evidence: Evidence) -> Finding:
    [finding] = failed(evidence)
    assert finding.advice.endswith((".", "?"))
    return finding


def seen_inside(**changes: Any) -> Evidence:
    return replace(HEALTHY, inside={**INSIDE, **changes})


def test_a_healthy_run_passes_every_check() -> None:
    assert {finding.check: finding.outcome for finding in findings(HEALTHY)} == dict.fromkeys(
        [
            *("pods", "images", "nodes", NEURON, EFA, "service account", "claim fsx-claim", "AWS credentials"),
            *(
                "folder /runs",
                "cache folder /cache",
                "folder /data",
                "rendezvous name",
                "rendezvous full name",
                "rendezvous ping",
            ),
            "rendezvous port",
        ],
        Outcome.OK,
    )


def test_a_pending_pod_is_explained_by_its_newest_warning() -> None:
    waiting = pod(1, phase="Pending", nodeName=None)
    about = {"name": "bert-training-1-1"}
    events = [
        {"type": "Warning", "reason": "Old", "message": "old", "involvedObject": about, "lastTimestamp": "1"},
        {
            "type": "Warning",
            "reason": "FailedScheduling",
            "message": "0/2 nodes are available: 2 Insufficient aws.amazon.com/neuron.",
            "involvedObject": about,
            "lastTimestamp": "2",
        },
        {"type": "Normal", "reason": "Noise", "message": "-", "involvedObject": about, "lastTimestamp": "3"},
    ]
    finding = only_failure(replace(HEALTHY, pods=[pod(0), waiting], events=events))
    assert finding.check == "pods"
    assert finding.seen == (
        wording("doctor.a_pending_pod_is_explained_by_its_newest_warning", "FailedScheduling", "aws.amazon.com")
    )
    assert "node group" in finding.advice


def test_an_image_that_cannot_be_pulled_is_named() -> None:
    waiting = {"waiting": {"reason": "ImagePullBackOff", "message": 'Back-off pulling image "trainer:1"'}}
    stuck = pod(0) | {"status": {"phase": "Pending", "containerStatuses": [{"state": waiting}]}}
    found = {finding.check: finding for finding in failed(replace(HEALTHY, pods=[stuck]))}
    assert found["images"].seen == 'bert-training-1-0: ImagePullBackOff: Back-off pulling image "trainer:1"'
    assert "workload.image" in found["images"].advice


@pytest.mark.parametrize(("resource", "plugin"), [(NEURON, "Neuron device plugin"), (EFA, "aws-efa-k8s-device-plugin")])
def test_a_node_without_the_devices_names_the_plugin(resource: str, plugin: str) -> None:
    finding = only_failure(replace(HEALTHY, nodes={"node-0": node(), "node-1": node(**{resource: "0"})}))
    assert finding.check == resource
    assert finding.seen.startswith("node-1 offers 0, each pod asks for ")
    assert plugin in finding.advice


def test_devices_that_the_pod_itself_does_not_see_are_missed() -> None:
    fewer = seen_inside(devices={"neuron": 16, "efa": 0})
    assert only_failure(fewer).seen == "bert-training-1-1 sees 0 devices of the 8 that it was given"
    assert failed(replace(fewer, in_own_pod=False)) == [], "a pod beside the run's has no devices and need not"


def test_devices_that_a_twins_node_has_on_paper_are_not_missed() -> None:
    paper = replace(seen_inside(devices={"neuron": 0, "efa": 0}), devices_on_paper=True)
    assert failed(paper) == []
    assert {f.check for f in findings(paper) if f.outcome is Outcome.SKIPPED} == {NEURON, EFA}
    nodes = {"node-0": node(), "node-1": node(**{NEURON: "0"})}
    assert only_failure(replace(paper, nodes=nodes)).check == NEURON, "those that a node does not even offer are"


def test_a_closed_port_of_a_program_that_torchrun_does_not_start_is_no_failure() -> None:
    """It may train without torch.distributed. A host that cannot be reached is one in any case."""
    own = pod(1)
    own["spec"]["containers"][0]["command"][0] = "mine"
    refused, lost = ({"open": False, "error": error} for error in ("Connection refused", "No route to host"))
    assert failed(replace(seen_inside(port=refused), pods=[pod(0), own])) == []
    assert only_failure(replace(seen_inside(port=lost), pods=[pod(0), own])).check == "rendezvous port"


@pytest.mark.parametrize(
    ("changes", "check", "seen"),
    [
        ({"name": {"error": "Name or service not known"}}, "rendezvous name", "bert-0.bert is not known: Name or"),
        ({"port": {"open": False, "error": "Connection refused"}}, "rendezvous port", "bert-0.bert:23456: Connection"),
        (
            {"full_name": {"error": "Name or service not known"}},
            "rendezvous full name",
            "bert-0.bert.training.svc.cluster.local is not known: Name or",
        ),
        ({"credentials": {"source": None, "readable": False}}, "AWS credentials", "the pod is given none"),
        (
            {"folders": [{"writable": False, "error": "Permission denied"}, INSIDE["folders"][1]]},  # type: ignore[index]
            "folder /runs",
            "cannot be written to: Permission denied",
        ),
        (
            {"folders": [INSIDE["folders"][0], {"writable": True, "free_bytes": 2 * 1024**3}]},  # type: ignore[index]
            "cache folder /cache",
            "2 GiB are free, less than one checkpoint may need",
        ),
        (
            {"read_only": [{"readable": False, "error": "Permission denied"}]},
            "folder /data",
            "cannot be read: Permission denied",
        ),
    ],
)
def test_what_is_wrong_inside_is_one_finding(changes: dict[str, Any], check: str, seen: str) -> None:
    finding = only_failure(seen_inside(**changes))
    assert finding.check == check
    assert finding.seen.startswith(seen)


def test_a_claim_that_is_not_bound_and_an_account_that_is_missing_are_named() -> None:
    found = failed(replace(HEALTHY, claims={"fsx-claim": {"status": {"phase": "Pending"}}}, service_account=None))
    assert [(f.check, f.seen) for f in found] == [
        ("service account", "training does not exist"),
        ("claim fsx-claim", "is Pending"),
    ]


def outcomes(evidence: Evidence) -> dict[str, Outcome]:
    return {finding.check: finding.outcome for finding in findings(evidence)}


@pytest.mark.parametrize(
    ("answered", "port_is_open", "outcome"),
    [
        (True, False, Outcome.OK),
        (None, False, Outcome.SKIPPED),  # the pod may not send echo requests
        (False, True, Outcome.SKIPPED),  # the network drops them, and the port is open all the same
        (False, False, Outcome.FAILED),
    ],
)
def test_silence_is_a_fault_only_beside_a_closed_port(
    answered: bool | None, port_is_open: bool, outcome: Outcome
) -> None:
    ping, port = {"answered": answered, "error": "timed out"}, {"open": port_is_open, "error": "timed out"}
    assert outcomes(seen_inside(ping=ping, port=port))["rendezvous ping"] is outcome


@pytest.mark.parametrize(
    ("host", "full"),
    [
        ("bert-0.bert", "bert-0.bert.training.svc.cluster.local"),
        ("bert-master-0", "bert-master-0.training.svc.cluster.local"),
        ("10.0.0.7", None),
        ("localhost", None),
    ],
)
def test_a_host_has_a_full_name_unless_it_is_an_address(host: str, full: str | None) -> None:
    assert gang.full_name(host, {"metadata": {"namespace": "training"}}) == full


def test_when_nothing_could_be_seen_inside_that_is_said_and_nothing_else_is_guessed() -> None:
    finding = only_failure(replace(HEALTHY, inside=None, why_not_inside="no node has room"))
    assert (finding.check, finding.seen) == ("inside a pod", "no node has room")


def test_the_last_attempt_of_the_training_is_examined_from_its_last_running_pod() -> None:
    doctors_own = pod(5)
    doctors_own["metadata"]["labels"]["trainflow/doctor"] = "true"
    pods = [pod(0, attempt=2), pod(1, attempt=2, phase="Pending"), pod(3), pod(0, stage="stage"), doctors_own]
    chosen = gang.newest_gang(pods)
    assert [p["metadata"]["name"] for p in chosen] == ["bert-training-2-0", "bert-training-2-1"]
    assert gang.pod_to_probe(chosen)["metadata"]["name"] == "bert-training-2-0"


def test_the_rendezvous_is_read_from_the_pods_own_command() -> None:
    assert gang.rendezvous(pod()) == gang.Rendezvous(host="bert-0.bert", port=23456)
    elastic = pod()
    elastic["spec"]["containers"][0]["command"] = ["torchrun", "--rdzv_endpoint", "bert-worker-0:20001", "train.py"]
    assert gang.rendezvous(elastic) == gang.Rendezvous(host="bert-worker-0", port=20001)
    elastic["spec"]["containers"][0]["command"] = ["python", "-m", "trainer.stage"]
    assert gang.rendezvous(elastic) is None


@pytest.mark.parametrize("backend", ["job", "pytorchjob"])
def test_the_rendezvous_is_read_from_the_plan_that_the_workflow_writes(backend: BackendName) -> None:
    own, job = pod(), job_of(run_on(backend), Stage.TRAINING, 1, artifacts_url="s3://a/")
    own["spec"]["containers"][0]["command"] = pods(job)[0]["containers"][0]["command"]
    host = DESCRIPTIONS[backend].rank0_address(job.ref.name)
    assert gang.rendezvous(own) == gang.Rendezvous(host=host, port=job.port)
    assert gang.meets_under_torchrun(own)


def test_the_rendezvous_of_an_elastic_gang_is_the_store_of_its_plan() -> None:
    own, job = pod(), job_of(run_on("pytorchjob", elastic=True), Stage.TRAINING, 1, artifacts_url="s3://a/")
    own["spec"]["containers"][0]["command"] = pods(job)[0]["containers"][0]["command"]
    assert gang.rendezvous(own) == gang.Rendezvous(host=f"{job.ref.name}-worker-0", port=job.port)


def test_a_plan_of_another_launcher_meets_where_its_program_likes() -> None:
    own = pod()
    workload = {"script": "train.py", "image": "i", "launcher": "mpi", "arguments": {"cost": "$$5"}}
    job = job_of(run_on("job", workload=workload), Stage.TRAINING, 1, artifacts_url="s3://a/")
    own["spec"]["containers"][0]["command"] = pods(job)[0]["containers"][0]["command"]
    assert (gang.rendezvous(own) is None, gang.meets_under_torchrun(own)) == (False, False)


def test_the_probe_pod_is_on_the_node_of_the_runs_pod_and_is_not_counted_as_one() -> None:
    manifest = probe_pod(pod(1), "bert", "abcde")
    spec = manifest["spec"]
    assert spec["nodeName"] == "node-1"
    assert spec["serviceAccountName"] == "training"
    assert spec["volumes"] == pod(1)["spec"]["volumes"]
    [container] = spec["containers"]
    assert container["image"] == "trainer:1"
    assert container["volumeMounts"] == pod(1)["spec"]["containers"][0]["volumeMounts"]
    assert NEURON not in container["resources"]["limits"]
    assert set(manifest["metadata"]["labels"]) == {"app.kubernetes.io/managed-by", "trainflow/run", "trainflow/doctor"}
    assert container["command"][-7:] == [
        "--folder=/runs",
        "--folder=/cache",
        "--read_only=/data",
        "--host=bert-0.bert",
        "--port=23456",
        "--full_host=bert-0.bert.training.svc.cluster.local",
        "--result=/dev/termination-log",
    ]


def run_inside(*arguments: str, **environment: str) -> dict[str, Any]:
    """Output of the script when it runs as in a pod: as text, in a bare Python."""
    done = subprocess.run(
        [sys.executable, "-I", "-c", Path(inside.__file__).read_text(), "--seconds=0", *arguments],
        env={"PATH": os.environ["PATH"], **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_the_script_sees_names_ports_folders_and_credentials(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("secret")
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        found = run_inside(
            *("--host=127.0.0.1", f"--port={port}", f"--folder={tmp_path}", f"--folder={tmp_path}/missing"),
            *(f"--read_only={tmp_path}", f"--read_only={tmp_path}/missing", f"--result={tmp_path}/result"),
            AWS_WEB_IDENTITY_TOKEN_FILE=str(token),
        )
    assert found["name"] == {"addresses": ["127.0.0.1"]}
    assert found["port"] == {"open": True}
    assert found["folders"][0]["writable"] is True
    assert found["folders"][1] == {"writable": False, "error": "No such file or directory"}
    assert found["read_only"] == [{"readable": True}, {"readable": False, "error": "No such file or directory"}]
    assert found["credentials"] == {"source": "AWS_WEB_IDENTITY_TOKEN_FILE", "readable": True}
    assert json.loads((tmp_path / "result").read_text()) == found
    assert "secret" not in json.dumps(found)
    assert run_inside("--host=127.0.0.1", f"--port={port}")["port"] == {"open": False, "error": "Connection refused"}


class FakeCluster:
    """Answers from a dictionary; commands in pods are refused, and pods that are made end with `message`."""

    def __init__(self, objects: Mapping[str, Any], *, message: str = "", commands: str | None = None) -> None:
        self.objects, self.message, self.commands = dict(objects), message, commands
        self.deleted: list[str] = []

    def get(self, path: str, **_query: str) -> Any:
        return self.objects.get(path)

    def create(self, path: str, body: Any) -> Any:
        ended = {"exitCode": 0, "message": self.message}
        status = {"containerStatuses": [{"state": {"terminated": ended}}]} if self.message else {"phase": "Pending"}
        self.objects[f"{path}/{body['metadata']['name']}"] = {**body, "status": status}
        return body

    def delete(self, path: str) -> None:
        self.deleted.append(path)

    def execute(self, pod: str, container: str, command: Sequence[str]) -> str:
        if self.commands is None:
            raise ProbeFailed("commands are refused")
        return self.commands


PODS = {"namespaces/training/pods": {"items": [pod(0)]}}


def test_a_pod_that_refuses_commands_is_examined_by_a_probe_pod_which_is_deleted() -> None:
    cluster = FakeCluster(PODS, message=json.dumps(INSIDE))
    evidence = examine(cluster, "bert", "training")
    assert (evidence.inside, evidence.in_own_pod) == (INSIDE, False)
    [path] = cluster.deleted
    assert path.startswith("namespaces/training/pods/bert-doctor-")


@pytest.mark.parametrize("printed", [json.dumps(INSIDE), str(INSIDE), f"a warning\n{json.dumps(INSIDE)}\n"])
def test_a_running_pod_runs_the_checks_itself(printed: str) -> None:
    cluster = FakeCluster(PODS, commands=printed)
    evidence = examine(cluster, "bert", "training")
    assert (evidence.inside, evidence.in_own_pod, cluster.deleted) == (INSIDE, True, [])


def test_a_probe_pod_that_never_runs_is_deleted() -> None:
    cluster = FakeCluster(PODS)
    evidence = examine(cluster, "bert", "training", probe_seconds=0)
    assert evidence.why_not_inside == "the probe pod does not run: Pending"
    assert len(cluster.deleted) == 1


@pytest.mark.parametrize(
    ("run", "sentence"),
    [
        ("Bert!", "--run: 'Bert!' is not a run id: lower-case letters, digits and dashes, at most 63."),
        ("other", "--run: no pods of 'other' are in namespace 'training': one that has ended has none,"),
    ],
)
def test_a_run_that_is_not_there_is_one_sentence(run: str, sentence: str) -> None:
    with pytest.raises(DoctorError) as refused:
        examine(FakeCluster({}), run, "training")
    assert str(refused.value).startswith(sentence)
