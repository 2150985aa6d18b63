"""Commands in pods and files: kubectl and the official Python client against `python -m kubetwin`."""

from __future__ import annotations

import json
import ssl
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
import urllib3
from kubernetes import client, config, stream
from kubetwin.client import RequestRefused
from kubetwin_testing.cluster import Cluster, command, eventually
from kubetwin_testing.kubernetes_cli import Cli, program


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with command("--state", str(tmp_path_factory.mktemp("cluster"))) as (_, ready):
        yield Path(ready["kubeconfig"])


@pytest.fixture(scope="module")
def cluster(served: Path, tmp_path_factory: pytest.TempPathFactory) -> Cluster:
    made = Cluster(served, tmp_path_factory.mktemp("files"), f"t-{uuid.uuid4().hex[:8]}")
    mounts = [{"name": "data", "mountPath": "/data"}]
    script = "echo ready; while true; do sleep 0.2; echo tick; done"
    environment = [{"name": "COLOUR", "value": "green"}]
    made.run(
        "target",
        script,
        container={"volumeMounts": mounts, "env": environment},
        volumes=[{"name": "data", "emptyDir": {}}],
        terminationGracePeriodSeconds=1,
    )
    made.phase("target", "Running")
    return made


@pytest.fixture(scope="module")
def kubectl(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config) -> Cli:
    path = program("kubectl", pytestconfig.cache.mkdir("kubernetes-cli"))
    return Cli(path, cluster.kubeconfig, tmp_path_factory.getbasetemp(), cluster.namespace)


@pytest.fixture(scope="module")
def core(cluster: Cluster) -> client.CoreV1Api:
    return client.CoreV1Api(config.new_client_from_config(str(cluster.kubeconfig)))


def test_a_command_has_the_environment_and_the_volumes_of_its_container(kubectl: Cli) -> None:
    assert kubectl("exec", "target", "--", "sh", "-c", "echo $COLOUR; echo oops >&2") == "green\n"
    kubectl("exec", "target", "--", "touch", "/data/made")
    assert kubectl("exec", "target", "--", "ls", "/data").split() == ["made"]


def test_the_exit_code_of_a_command_is_the_client_s(kubectl: Cli) -> None:
    assert "command terminated with exit code 3" in kubectl.refused("exec", "target", "--", "sh", "-c", "exit 3")
    assert "executable file not found in $PATH" in kubectl.refused("exec", "target", "--", "no-such-program")


def test_input_reaches_a_command_whole_and_ends(kubectl: Cli) -> None:
    text = "".join(f"{number}\n" for number in range(100_000))
    assert kubectl("exec", "-i", "target", "--", "cat", stdin=text) == text


def test_what_a_command_leaves_behind_ends_with_it(kubectl: Cli) -> None:
    started = kubectl("exec", "target", "--", "sh", "-c", "sleep 600 >/dev/null 2>&1 & echo $!")
    pid = int(started)
    eventually(lambda: not Path(f"/proc/{pid}").exists(), "the process that the command started has ended")


def test_files_are_copied_into_and_out_of_a_volume(kubectl: Cli, tmp_path: Path) -> None:
    (tmp_path / "there.txt").write_text("over there")
    kubectl("cp", str(tmp_path / "there.txt"), "target:/data/there.txt")
    kubectl("cp", "target:/data/there.txt", str(tmp_path / "back.txt"))
    assert (tmp_path / "back.txt").read_text() == "over there"


def test_attaching_shows_what_the_container_prints_from_now_on(kubectl: Cli) -> None:
    with kubectl.streaming("attach", "target") as lines:
        assert next(line for line in lines if line) == "tick"


def test_the_python_client_runs_commands(core: client.CoreV1Api, cluster: Cluster) -> None:
    argv = ["sh", "-c", "read line; echo got $line; exit 7"]
    opened = stream.stream(
        core.connect_get_namespaced_pod_exec,
        "target",
        cluster.namespace,
        command=argv,
        stdin=True,
        stdout=True,
        stderr=True,
        _preload_content=False,
    )
    opened.write_stdin("it\n")
    opened.run_forever(timeout=30)
    assert (opened.read_stdout(), opened.returncode) == ("got it\n", 7)


def test_a_terminal_has_the_size_of_the_client_s(core: client.CoreV1Api, cluster: Cluster) -> None:
    opened = stream.stream(
        core.connect_get_namespaced_pod_exec,
        "target",
        cluster.namespace,
        command=["sh", "-c", "read go; stty size; test -t 1 && echo terminal"],
        stdin=True,
        stdout=True,
        tty=True,
        _preload_content=False,
    )
    opened.write_channel(4, json.dumps({"Width": 91, "Height": 17}))
    opened.write_stdin("\n")
    opened.run_forever(timeout=30)
    shown = opened.read_stdout()
    assert "17 91" in shown
    assert "terminal" in shown


def test_a_request_to_forward_a_port_is_refused(kubectl: Cli, core: client.CoreV1Api, cluster: Cluster) -> None:
    sentence = "this cluster forwards no ports"
    assert sentence in kubectl.refused("port-forward", "target", "18437:80")
    with pytest.raises(client.ApiException, match=sentence):
        stream.portforward(core.connect_get_namespaced_pod_portforward, "target", cluster.namespace, ports="80")


def test_a_command_needs_the_verb_create_beside_get(kubectl: Cli, cluster: Cluster) -> None:
    kubectl("create", "role", "reader", "--verb=get", "--resource=pods,pods/exec,pods/attach")
    kubectl("create", "serviceaccount", "reader")
    account = f"{kubectl.namespace}:reader"
    kubectl("create", "rolebinding", "reader", "--role=reader", f"--serviceaccount={account}")
    reader = ["--as", f"system:serviceaccount:{account}"]
    for what, words in (("exec", ["--", "true"]), ("attach", [])):
        refused = kubectl.refused(what, "target", *reader, *words)
        assert f'cannot create resource "pods/{what}" in API group ""' in refused
    kubectl("create", "role", "runner", "--verb=create", "--resource=pods/exec")
    kubectl("create", "rolebinding", "runner", "--role=runner", f"--serviceaccount={account}")
    kubectl("exec", "target", *reader, "--", "true")


def test_a_container_that_does_not_run_takes_no_command(kubectl: Cli, cluster: Cluster) -> None:
    cluster.run("over", "true")
    cluster.phase("over", "Succeeded")
    refused = kubectl.refused("exec", "over", "--", "true")
    assert "cannot exec into a container in a completed pod" in refused
    assert "container other is not valid for pod target" in kubectl.refused("exec", "target", "-c", "other", "--", "ls")


def test_only_the_api_server_may_run_commands_at_a_kubelet(cluster: Cluster) -> None:
    [node] = cluster.api.get("/api/v1/nodes")["items"]
    port = node["status"]["daemonEndpoints"]["kubeletEndpoint"]["Port"]
    urllib3.disable_warnings(urllib3.exceptions.InsecureRequestWarning)
    with urllib3.PoolManager(cert_reqs=ssl.CERT_NONE, assert_hostname=False) as pool:
        answer = pool.request(
            "GET", f"https://127.0.0.1:{port}/exec/{cluster.namespace}/target/c?output=1&command=id", retries=False
        )
    assert (answer.status, answer.data) == (401, b"Unauthorized")


def test_a_request_that_is_no_websocket_is_told_so(cluster: Cluster) -> None:
    with pytest.raises(RequestRefused, match="Upgrade request required"):
        cluster.api.create(cluster.path("pods/target/exec?command=id&stdout=1"), {})
