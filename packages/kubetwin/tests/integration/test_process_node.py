"""The process node and the API server, as `python -m kubetwin` runs them."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import threading
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from kubetwin import __main__
from kubetwin.node import pod_worker
from kubetwin.node.agent import ProcessNode
from kubetwin.node.launching import RuntimeSettings
from kubetwin.node.registration import NodeSpec
from kubetwin.node.shape import this_machine
from kubetwin_testing.cluster import LEAKED, WAIT_SECONDS, Cluster, command, eventually


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Path]]:
    folder = tmp_path_factory.mktemp("cluster")
    variables = folder / "variables"
    variables.write_text("INJECTED=by-the-node\nSECRET=with = and spaces\n")
    options = ("--env-file", str(variables), "--env", "INJECTED=by-its-option")
    with command("--state", str(folder), *options) as (_, ready):
        yield Path(ready["kubeconfig"]), folder


@pytest.fixture
def cluster(served: tuple[Path, Path]) -> Cluster:
    return Cluster(*served, namespace=f"t-{uuid.uuid4().hex[:8]}")


def is_alive(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def pids_in(path: Path, count: int) -> list[int]:
    def poll() -> list[int] | None:
        pids = [int(word) for word in path.read_text().split()] if path.exists() else []
        return pids if len(pids) == count else None

    return eventually(poll, f"{count} process ids in {path.name}")


def host_path_volume(folder: Path) -> dict[str, Any]:
    return {
        "volumes": [{"name": "host", "hostPath": {"path": str(folder), "type": "DirectoryOrCreate"}}],
    }


HOST_MOUNT = {"volumeMounts": [{"name": "host", "mountPath": "/host"}], "env": [{"name": "HOST", "value": "/host"}]}


def test_a_pod_that_succeeds_leaves_its_log_and_its_message(cluster: Cluster) -> None:
    env = [{"name": "RESULT", "value": "/dev/termination-log"}]
    cluster.run("ok", "echo hello; echo oops >&2; printf '{}' > $RESULT", container={"env": env})
    end = cluster.end_of("ok")
    assert (end["exitCode"], end["reason"], end["message"]) == (0, "Completed", "{}")
    assert cluster.log("ok") == "hello\noops\n"


def test_a_pod_that_fails_reports_its_exit_code_and_the_end_of_its_log(cluster: Cluster) -> None:
    cluster.run("bad", "echo boom; exit 3", container={"terminationMessagePolicy": "FallbackToLogsOnError"})
    end = cluster.end_of("bad")
    assert (end["exitCode"], end["reason"], end["message"]) == (3, "Error", "boom\n")
    assert cluster.phase("bad", "Failed")["phase"] == "Failed"


def test_a_command_that_does_not_exist_cannot_run(cluster: Cluster) -> None:
    cluster.run("none", "", container={"command": ["no-such-command"]})
    end = cluster.end_of("none")
    assert (end["exitCode"], end["reason"]) == (127, "ContainerCannotRun")
    assert "no-such-command" in end["message"]


def test_a_container_over_its_memory_limit_is_killed(cluster: Cluster) -> None:
    program = f"{sys.executable} -c 'import time; block = bytearray(256 * 1024**2); time.sleep(600)'"
    cluster.run("hungry", program, container={"resources": {"limits": {"memory": "64Mi"}}})
    end = cluster.end_of("hungry")
    assert (end["exitCode"], end["reason"]) == (137, "OOMKilled")


def test_a_pod_over_its_deadline_fails_with_that_reason(cluster: Cluster) -> None:
    cluster.run("late", "exec sleep 600", activeDeadlineSeconds=1, terminationGracePeriodSeconds=1)
    status = cluster.phase("late", "Failed")
    assert status["reason"] == "DeadlineExceeded"
    assert status["message"] == "Pod was active on the node longer than the specified deadline"


def test_deletion_kills_the_whole_group(cluster: Cluster, tmp_path: Path) -> None:
    script = "trap '' TERM; sleep 600 & echo $! > $HOST/pids; setsid sleep 600 & echo $! >> $HOST/pids; wait; sleep 600"
    cluster.run("long", script, container=HOST_MOUNT, terminationGracePeriodSeconds=1, **host_path_volume(tmp_path))
    pids = pids_in(tmp_path / "pids", 2)
    cluster.phase("long", "Running")
    cluster.delete("long")
    eventually(lambda: not any(is_alive(pid) for pid in pids), "every process is dead")


def test_a_deleted_pod_may_end_in_its_own_way(cluster: Cluster) -> None:
    cluster.run("polite", "trap 'echo bye; exit 7' TERM; echo up; while :; do sleep 0.05; done")
    eventually(lambda: cluster.phase("polite", "Running") and "up" in cluster.log("polite"), "up")
    version = cluster.pod("polite")["metadata"]["resourceVersion"]  # type: ignore[index]
    cluster.delete("polite")
    watch = cluster.api.watch(
        cluster.path("pods"), resourceVersion=version, fieldSelector="metadata.name=polite", timeoutSeconds="2"
    )
    seen = [event["object"]["status"] for event in watch]
    ended = next(status for status in seen if status["phase"] == "Failed")
    assert ended["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 7


def test_two_pods_share_a_claim_and_find_it_under_its_mount_path(cluster: Cluster, tmp_path: Path) -> None:
    name = f"fsx-{cluster.namespace}"
    capacity = {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteMany"]}
    claim = {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Gi"}}, "storageClassName": ""}
    cluster.api.create(
        "/api/v1/persistentvolumes",
        {"metadata": {"name": name}, "spec": {**capacity, "hostPath": {"path": str(tmp_path)}}},
    )
    cluster.create("persistentvolumeclaims", "fsx-claim", spec={**claim, "volumeName": name})
    volumes = [{"name": "fsx", "persistentVolumeClaim": {"claimName": "fsx-claim"}}]
    mount = {"volumeMounts": [{"name": "fsx", "mountPath": "/data", "subPath": "shards"}]}
    writer = {"command": [sys.executable, "-c", "import sys; open(sys.argv[1], 'w').write('shared')", "/data/a"]}
    cluster.run("writer", "", container={**mount, **writer}, volumes=volumes)
    assert cluster.end_of("writer")["exitCode"] == 0
    cluster.run("reader", "", container={**mount, "command": ["cat", "/data/a"]}, volumes=volumes)
    cluster.end_of("reader")
    assert cluster.log("reader") == "shared"
    assert (tmp_path / "shards" / "a").read_text() == "shared"


def test_names_of_pods_behind_a_headless_service_are_the_loopback_address(cluster: Cluster) -> None:
    cluster.create("services", "gang", spec={"clusterIP": "None", "selector": {"app": "x"}})
    container = {
        "command": [
            "sh",
            "-c",
            'echo "$MASTER $0 $1 $2 $3"',
            "--master_addr=gang-0.gang",
            f"gang-0.gang.{cluster.namespace}.svc:29500",
            "gang-7.gang",
            "gang-1.gang",
        ],
        "env": [{"name": "MASTER", "value": "gang-0.gang"}],
    }
    named = {"hostname": "gang-0", "subdomain": "gang", "terminationGracePeriodSeconds": 0}
    spec = {"containers": [{"name": "c", "image": "i", "command": ["sleep", "600"]}], **named}
    cluster.api.create(cluster.path("pods"), {"metadata": {"name": "peer", "labels": {"app": "x"}}, "spec": spec})
    probed = {**spec["containers"][0], "readinessProbe": {"exec": {"command": ["false"]}}}
    unready = {**spec, "hostname": "gang-1", "containers": [probed]}
    cluster.api.create(cluster.path("pods"), {"metadata": {"name": "unready", "labels": {"app": "x"}}, "spec": unready})
    cluster.run("dns", "", container=container)
    cluster.end_of("dns")
    assert cluster.log("dns") == "127.0.0.1 --master_addr=127.0.0.1 127.0.0.1:29500 gang-7.gang gang-1.gang\n"
    for name in ("peer", "unready"):
        cluster.delete(name)


def test_a_container_sees_its_own_variables_and_no_others(cluster: Cluster) -> None:
    cluster.run("env", "env | sort", container={"env": [{"name": "MINE", "value": "1"}]})
    cluster.end_of("env")
    seen = dict(line.partition("=")[::2] for line in cluster.log("env").splitlines())
    assert seen["MINE"] == "1"
    assert (seen["INJECTED"], seen["SECRET"]) == ("by-its-option", "with = and spaces")
    assert seen["HOSTNAME"] == "env"
    assert LEAKED not in seen
    own = {"MINE", "INJECTED", "SECRET", "HOSTNAME", "HOME", "TMPDIR", "PATH"}
    assert seen.keys() - {"PWD", "OLDPWD", "SHLVL", "_"} == own


def test_init_containers_run_one_after_the_other_before_the_rest(cluster: Cluster) -> None:
    mount = {
        "image": "i",
        "volumeMounts": [{"name": "work", "mountPath": "/work"}],
        "env": [{"name": "W", "value": "/work"}],
    }
    spec = {
        "restartPolicy": "Never",
        "volumes": [{"name": "work", "emptyDir": {}}],
        "initContainers": [
            {"name": "first", "command": ["sh", "-c", "echo 1 >> $W/f"], **mount},
            {"name": "second", "command": ["sh", "-c", "echo 2 >> $W/f"], **mount},
        ],
        "containers": [{"name": "c", "command": ["sh", "-c", "cat $W/f"], **mount}],
    }
    cluster.create("pods", "ordered", spec=spec)
    assert cluster.phase("ordered", "Succeeded", "Failed")["phase"] == "Succeeded"
    assert cluster.log("ordered", container="c") == "1\n2\n"


def test_a_sidecar_runs_from_before_the_other_containers_to_after_them(cluster: Cluster, tmp_path: Path) -> None:
    told = tmp_path / "told"
    sidecar = {
        "name": "side",
        "image": "busybox",
        "restartPolicy": "Always",
        "command": [
            "sh",
            "-c",
            f"trap 'echo side ends >> {told}; exit 0' TERM; echo side >> {told}; while true; do sleep 0.05; done",
        ],
        "startupProbe": {"exec": {"command": ["test", "-e", str(told)]}, "periodSeconds": 1},
    }
    once = {"name": "once", "image": "busybox", "command": ["sh", "-c", f"echo once >> {told}"]}
    cluster.run("p", f"echo main >> {told}", initContainers=[sidecar, once], terminationGracePeriodSeconds=5)
    status = cluster.phase("p", "Succeeded", "Failed")
    assert (status["phase"], told.read_text().splitlines()) == ("Succeeded", ["side", "once", "main", "side ends"])
    [beside, _] = status["initContainerStatuses"]
    assert beside["state"]["terminated"]["exitCode"] == 0


def test_a_deleted_pod_ends_its_sidecar_last(cluster: Cluster, tmp_path: Path) -> None:
    told = tmp_path / "told"

    def until_stopped(name: str) -> list[str]:
        return ["sh", "-c", f"trap 'echo {name} >> {told}; exit 0' TERM; while true; do sleep 0.05; done"]

    sidecar = {"name": "side", "image": "busybox", "restartPolicy": "Always", "command": until_stopped("side")}
    main = {"command": until_stopped("main")}
    cluster.run("p", "", container=main, initContainers=[sidecar], terminationGracePeriodSeconds=20)
    cluster.wait_for("p", lambda status: status["phase"] == "Running", "runs")
    eventually(lambda: "running" in cluster.pod("p")["status"]["containerStatuses"][0]["state"], "the container runs")
    threading.Event().wait(0.5)  # until the shells have set their traps
    cluster.delete("p")
    assert told.read_text().splitlines() == ["main", "side"]


def test_files_in_a_pods_scratch_folder_are_removed_with_the_pod(cluster: Cluster) -> None:
    container = {
        "volumeMounts": [{"name": "scratch", "mountPath": "/scratch"}],
        "env": [{"name": "SCRATCH_DIR", "value": "/scratch"}],
    }
    script = "cd $SCRATCH_DIR && echo spilled > batch && pwd -P"
    cluster.run("scratching", script, container=container, volumes=[{"name": "scratch", "emptyDir": {}}])
    cluster.end_of("scratching")
    folder = Path(cluster.log("scratching").strip())
    assert (folder / "batch").read_text() == "spilled\n"
    cluster.api.delete(f"{cluster.path('pods')}/scratching")
    eventually(lambda: not folder.exists(), "the folder is gone")


def test_a_crashing_container_is_restarted_and_its_last_log_kept(cluster: Cluster, tmp_path: Path) -> None:
    script = "echo run >> $HOST/runs; n=$(wc -l < $HOST/runs); echo this is $n; [ $n -ge 2 ]"
    cluster.run("again", script, container=HOST_MOUNT, **{**host_path_volume(tmp_path), "restartPolicy": "OnFailure"})
    [status] = cluster.phase("again", "Succeeded")["containerStatuses"]
    assert status["restartCount"] == 1
    assert status["lastState"]["terminated"]["exitCode"] == 1
    assert cluster.log("again") == "this is 2\n"
    assert cluster.log("again", previous="true") == "this is 1\n"


def test_a_container_waits_for_the_config_map_that_it_names(cluster: Cluster) -> None:
    env = [{"name": "C", "valueFrom": {"configMapKeyRef": {"name": "cfg", "key": "k"}}}]
    cluster.run("patient", "echo $C", container={"env": env})
    reason = "CreateContainerConfigError"
    cluster.wait_for(
        "patient",
        lambda status: (
            (status.get("containerStatuses") or [{}])[0].get("state", {}).get("waiting", {}).get("reason") == reason
        ),
        reason,
    )
    cluster.create("configmaps", "cfg", data={"k": "found"})
    cluster.end_of("patient")
    assert cluster.log("patient") == "found\n"


def test_a_log_can_be_followed_and_cut(cluster: Cluster, tmp_path: Path) -> None:
    script = "echo one; while [ ! -e $HOST/go ]; do sleep 0.05; done; echo two; printf three"
    cluster.run("talker", script, container=HOST_MOUNT, **host_path_volume(tmp_path))
    cluster.phase("talker", "Running")
    blocks = cluster.follow("talker", follow="true")
    assert next(blocks) == b"one\n"
    (tmp_path / "go").touch()
    assert b"".join(blocks) == b"two\nthree"
    cluster.end_of("talker")
    assert cluster.log("talker", tailLines="2") == "two\nthree"
    assert cluster.log("talker", limitBytes="5") == "one\nt"
    moment = cluster.log("talker", timestamps="true").splitlines()[1].split()[0]
    assert cluster.log("talker", sinceTime=moment) == "two\nthree"


def test_the_kubelets_events_are_recorded(cluster: Cluster) -> None:
    cluster.run("short", "true")
    cluster.end_of("short")

    def reasons() -> set[str]:
        events = cluster.api.get(cluster.path("events"), fieldSelector="involvedObject.name=short")["items"]
        return {event["reason"] for event in events}

    eventually(lambda: {"Pulled", "Created", "Started"} <= reasons(), "the kubelet's events")


def test_pods_die_with_their_node_even_if_it_is_killed(cluster: Cluster, tmp_path: Path) -> None:
    node_name = f"doomed-{cluster.namespace}"
    arguments = (
        "node",
        "--kubeconfig",
        str(cluster.kubeconfig),
        "--name",
        node_name,
        "--pods-dir",
        str(tmp_path / "p"),
    )
    with command(*arguments) as (node, ready):
        assert ready == {"node": node_name}
        # Kubernetes makes one dollar of two.
        script = (
            "sleep 600 & echo $! > $HOST/pids; setsid sleep 600 & echo $! >> $HOST/pids; echo $$$$ >> $HOST/pids; wait"
        )
        cluster.run("orphan", script, container=HOST_MOUNT, nodeName=node_name, **host_path_volume(tmp_path))
        pids = pids_in(tmp_path / "pids", 3)
        cluster.phase("orphan", "Running")
        node.send_signal(signal.SIGKILL)
        eventually(lambda: not any(is_alive(pid) for pid in pids), "every process is dead")
    with command(*arguments):
        end = cluster.end_of("orphan")
        assert (end["exitCode"], end["reason"]) == (137, "ContainerStatusUnknown")


def test_a_node_that_stops_ends_its_pods_and_leaves_the_cluster(cluster: Cluster) -> None:
    node_name = f"leaving-{cluster.namespace}"
    shape = cluster.folder / "small.yaml"
    shape.write_text("{capacity: {cpu: 2, memory: 8Gi, pods: 29}, labels: {size: small}}")
    options = ("--label", "zone=a", "--shape", str(shape), "--until-stdin-closes")
    with command("node", "--kubeconfig", str(cluster.kubeconfig), "--name", node_name, *options) as (node, _):
        found = cluster.api.get(f"/api/v1/nodes/{node_name}")
        assert (found["metadata"]["labels"]["zone"], found["metadata"]["labels"]["size"]) == ("a", "small")
        assert found["status"]["capacity"]["memory"] == "8Gi"
        cluster.run("cut", "exec sleep 600", nodeName=node_name)
        cluster.phase("cut", "Running")
        assert node.stdin is not None
        node.stdin.close()
        assert node.wait(WAIT_SECONDS) == 0
    assert cluster.api.find(f"/api/v1/nodes/{node_name}") is None
    pod = cluster.pod("cut")
    assert pod is None or pod["status"]["phase"] == "Failed"


def test_one_process_may_be_several_nodes(cluster: Cluster) -> None:
    names = [f"{letter}-{cluster.namespace}" for letter in "ab"]
    arguments = ("node", "--kubeconfig", str(cluster.kubeconfig), "--name", names[0], "--name", names[1])
    with command(*arguments) as (process, first):
        assert process.stdout is not None
        assert [first, json.loads(process.stdout.readline())] == [{"node": name} for name in names]
        for name in names:
            cluster.run(f"on-{name}", "echo here", nodeName=name)
            assert cluster.end_of(f"on-{name}")["exitCode"] == 0


def test_an_image_root_is_the_working_directory_and_the_python_path(cluster: Cluster, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text("print('from the image')")
    node_name = f"imaged-{cluster.namespace}"
    with command("node", "--kubeconfig", str(cluster.kubeconfig), "--name", node_name, "--image-root", str(tmp_path)):
        script = "ls; python program.py; cd /; python -m program; touch $HOME/x"
        cluster.run("image", script, nodeName=node_name)
        assert cluster.end_of("image")["exitCode"] == 0
        assert cluster.log("image") == "program.py\nfrom the image\nfrom the image\n"
    assert [path.name for path in tmp_path.iterdir() if path.suffix == ".py"] == ["program.py"]


def test_an_image_may_have_a_root_of_its_own(cluster: Cluster, tmp_path: Path) -> None:
    for name in ("any", "one"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "program.py").write_text(f"print('{name}')")
    node_name = f"imaged-{cluster.namespace}"
    roots = ("--image-root", str(tmp_path / "any"), "--image", f"registry:5000/one:1={tmp_path / 'one'}")
    with command("node", "--kubeconfig", str(cluster.kubeconfig), "--name", node_name, *roots):
        for name, image in (("a", "registry:5000/one:1"), ("b", "registry:5000/other:1")):
            cluster.run(name, "ls; python -m program", container={"image": image}, nodeName=node_name)
        assert [cluster.end_of(name)["exitCode"] for name in ("a", "b")] == [0, 0]
        assert [cluster.log(name) for name in ("a", "b")] == ["program.py\none\n", "program.py\nany\n"]


def test_an_image_that_a_node_was_not_told_cannot_be_pulled(cluster: Cluster) -> None:
    node_name = f"told-{cluster.namespace}"
    with command("node", "--kubeconfig", str(cluster.kubeconfig), "--name", node_name, "--known-image", "train:1"):
        for name, image in (("known", "train:1"), ("unknown", "trian:1")):
            cluster.run(name, "echo ran", container={"image": image}, nodeName=node_name)
        assert cluster.end_of("known")["exitCode"] == 0

        def waits(status: dict[str, Any]) -> bool:
            [container] = status.get("containerStatuses") or [{}]
            return (container.get("state") or {}).get("waiting", {}).get("reason") == "ImagePullBackOff"

        assert cluster.wait_for("unknown", waits, "waits for its image")["status"]["phase"] == "Pending"
        events = cluster.api.get(cluster.path("events"), fieldSelector="involvedObject.name=unknown")["items"]
        assert "Error: ErrImagePull" in [event["message"] for event in events]
        cluster.delete("unknown")


@pytest.fixture
def fails(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Callable[..., str]]:
    """A function that runs the command in this process and returns its message. The command has to fail."""
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def run(*arguments: str) -> str:
        monkeypatch.setattr(sys, "argv", ["kubetwin", *arguments])
        with pytest.raises(SystemExit) as ended:
            __main__.main()
        printed = capsys.readouterr()
        assert (ended.value.code, printed.out) == (2, "")
        assert "Traceback" not in printed.err
        return printed.err

    yield run
    signal.set_wakeup_fd(-1)
    for number, handler in handlers.items():
        signal.signal(number, handler)


def test_a_port_in_use_is_one_sentence() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        command = [sys.executable, "-m", "kubetwin", "--port", str(port)]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_SECONDS)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert f"--port: port {port} on 127.0.0.1 is in use by another program" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_a_missing_kubeconfig_is_one_sentence(fails: Callable[..., str], tmp_path: Path) -> None:
    assert "cannot read the kubeconfig" in fails("node", "--kubeconfig", str(tmp_path / "none"))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--no-op-log", "json:dumps"), "--no-op-log needs --no-op"),
        (("--no-op", "1", "--no-op-log", "json"), "--no-op-log json: has to be MODULE:FUNCTION"),
        (("--no-op", "1", "--no-op-log", "no_such_module:f"), "No module named 'no_such_module'"),
        (("--no-op", "1", "--no-op-log", "json:__name__"), "--no-op-log json:__name__: is not a function"),
    ],
)
def test_a_log_function_that_cannot_be_used_is_one_sentence(
    fails: Callable[..., str], options: tuple[str, ...], message: str
) -> None:
    assert message in fails("node", "--kubeconfig", "unread", *options)


def test_an_unreachable_api_server_is_one_sentence(fails: Callable[..., str], tmp_path: Path) -> None:
    kubeconfig = tmp_path / "config"
    kubeconfig.write_text(
        "{current-context: x, contexts: [{name: x, context: {cluster: c}}],"
        " clusters: [{name: c, cluster: {server: 'http://127.0.0.1:9'}}]}"
    )
    message = fails("node", "--kubeconfig", str(kubeconfig))
    assert message.startswith("error: http://127.0.0.1:9 does not answer:")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--shape", "no-such-file"], "--shape no-such-file: cannot be read"),
        (["--label", "x"], "--label x: has to be KEY=VALUE"),
        (["--env-file", "no-such-file"], "--env-file no-such-file: cannot be read: No such file or directory"),
        (["--node-grace-seconds", "5"], "--node-grace-seconds 5: a heartbeat comes every 10 s; give more, or fewer"),
        (["--sts-endpoint", "http://localhost:1"], "--sts-endpoint and --cluster-name belong together"),
    ],
)
def test_malformed_options_are_one_sentence(fails: Callable[..., str], arguments: list[str], message: str) -> None:
    assert message in fails(*arguments)


def test_a_malformed_line_of_variables_is_named_and_not_shown(fails: Callable[..., str], tmp_path: Path) -> None:
    (tmp_path / "variables").write_text("KEY=value\na-secret\n")
    message = fails("--env-file", str(tmp_path / "variables"))
    assert ("line 2 has to be KEY=VALUE" in message, "a-secret" in message) == (True, False)


def test_a_pod_whose_worker_breaks_fails_with_the_error_and_the_others_run(
    served: tuple[Path, Path], cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepare = pod_worker.prepare_volumes

    def break_one(pod: dict[str, Any], *arguments: Any) -> dict[str, Path]:
        if pod["metadata"]["name"] == "broken":
            raise KeyError("volumes")
        return prepare(pod, *arguments)

    monkeypatch.setattr(pod_worker, "prepare_volumes", break_one)
    spec = NodeSpec(name="fragile", shape=this_machine())
    node = ProcessNode(cluster.api, spec, RuntimeSettings(pods_dir=tmp_path, allocatable=spec.shape.allocatable))
    node.start()
    try:
        cluster.run("broken", "echo never", nodeName="fragile")
        cluster.run("whole", "echo hello", nodeName="fragile")
        status = cluster.phase("broken", "Failed")
        assert (status["reason"], status["message"]) == (
            "UnexpectedError",
            "The node met an unexpected error: KeyError: 'volumes'",
        )
        assert cluster.end_of("whole")["exitCode"] == 0
    finally:
        node.stop()
