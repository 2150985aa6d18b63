"""Containers behind walls: their user, their root file system, their mounts. On a machine that lets users have them."""

from __future__ import annotations

import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kubetwin.node.confinement import restricts_signals
from kubetwin.node.image_view import program_paths
from kubetwin.node.isolation import machine_can_isolate
from kubetwin_testing.cluster import Cluster, command, eventually

pytestmark = pytest.mark.skipif(not machine_can_isolate(), reason="this machine gives its users no namespaces")

USER: dict[str, Any] = {"runAsUser": 1234, "runAsGroup": 1234, "runAsNonRoot": True}
STRICT: dict[str, Any] = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
IN_HOME = (".aws/credentials", ".netrc", ".git/config", "out/run/twin.json", "package/module.py", "train.py")
"""Files of the machine's user, whose home folder stands for every image."""
NAMESPACE_FILE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
READ_ONLY = {**STRICT, "readOnlyRootFilesystem": True}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Path]]:
    folder, secret = tmp_path_factory.mktemp("cluster"), tmp_path_factory.mktemp("secret")
    (secret / "key").write_text("the owner's")
    home = tmp_path_factory.mktemp("home")
    for name in IN_HOME:
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).touch()
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("HOME", str(home))
        hidden = ("--hide", str(secret), "--hide", str(home / "out"))
        with command("--state", str(folder), "--walls", "--image-root", str(home), *hidden) as (_, ready):
            yield Path(ready["kubeconfig"]), folder


@pytest.fixture
def cluster(served: tuple[Path, Path]) -> Cluster:
    return Cluster(*served, namespace=f"t-{uuid.uuid4().hex[:8]}")


def output(cluster: Cluster, script: str, *, container: dict[str, Any] | None = None, **spec: Any) -> list[str]:
    """What a shell script prints in a pod, standard error included."""
    cluster.run("p", f"exec 2>&1; {script}", container=container or {}, **spec)
    cluster.end_of("p")
    return cluster.log("p").splitlines()


def volume(folder: Path, **mount: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """A container that mounts a folder at /data, and the pod's part of that."""
    container = {"volumeMounts": [{"name": "data", "mountPath": "/data", **mount}]}
    return container, {"volumes": [{"name": "data", "hostPath": {"path": str(folder)}}]}


def test_a_program_runs_as_the_pods_user_without_capabilities(cluster: Cluster) -> None:
    script = "id -u; id -g; grep -E 'CapEff|CapBnd|NoNewPrivs' /proc/self/status"
    lines = output(cluster, script, container={"securityContext": STRICT}, securityContext=USER)
    assert lines[:2] == ["1234", "1234"]
    assert [line.split()[1] for line in lines[2:]] == ["0000000000000000", "0000000000000000", "1"]


def test_root_has_the_capabilities_of_a_container_and_not_those_to_mount(cluster: Cluster, tmp_path: Path) -> None:
    container, pod = volume(tmp_path, readOnly=True)
    lines = output(
        cluster, "id -u; mount -o remount,rw,bind /data || echo refused; touch /data/f", container=container, **pod
    )
    assert lines[0] == "0"
    assert "refused" in lines
    assert not (tmp_path / "f").exists()


def test_a_read_only_root_file_system_takes_no_file_anywhere(cluster: Cluster) -> None:
    script = (
        "for f in /f /tmp/f /etc/f $HOME/f ./f; do touch $f && echo made $f; done; echo message > /dev/termination-log"
    )
    lines = output(cluster, script, container={"securityContext": READ_ONLY}, securityContext=USER)
    assert len(lines) == 5
    assert all("Read-only file system" in line for line in lines)
    assert cluster.end_of("p")["message"] == "message\n"


def test_a_writable_root_file_system_is_the_containers_own(cluster: Cluster) -> None:
    name = f"kubetwin-{uuid.uuid4().hex}"
    script = f"touch /{name} /tmp/{name} $HOME/f ./f && echo made; touch /etc/{name}"
    lines = output(cluster, script, securityContext=USER)
    assert lines[0] == "made"
    assert "Read-only file system" in lines[1]
    assert not Path("/", name).exists()
    assert not Path("/tmp", name).exists()


def test_mounts_are_at_their_paths_also_inside_of_a_programs_text(cluster: Cluster, tmp_path: Path) -> None:
    (tmp_path / "in").write_text("found")
    container, pod = volume(tmp_path)
    program = "open('/data/out', 'w').write(open('/data/in').read())"
    container["securityContext"] = READ_ONLY
    output(cluster, f'{sys.executable} -c "{program}"', container=container, **pod)
    assert (tmp_path / "out").read_text() == "found"


def test_a_read_only_mount_cannot_be_written_and_a_folder_of_it_can_be_mounted_beside_it(
    cluster: Cluster, tmp_path: Path
) -> None:
    (tmp_path / "sub").mkdir()
    container, pod = volume(tmp_path, readOnly=True)
    container["volumeMounts"].append({"name": "data", "mountPath": "/mine", "subPath": "sub"})
    lines = output(cluster, "touch /data/f; touch /data/sub/f; touch /mine/f", container=container, **pod)
    assert [line.endswith("Read-only file system") for line in lines] == [True, True]
    assert sorted(path.name for path in tmp_path.rglob("f")) == ["f"]


def test_a_pod_sees_no_other_pods_files_no_hidden_folder_and_no_disk(cluster: Cluster, tmp_path: Path) -> None:
    folders = [str(cluster.folder / "pods"), *(str(path) for path in tmp_path.parent.glob("secret*"))]
    cluster.run("other", "echo secret > $HOME/f")
    cluster.end_of("other")
    lines = output(cluster, f"find {' '.join(folders)} -type f; find /dev -type b")
    assert [line for line in lines if "No such file" not in line] == []


def test_of_a_home_that_stands_for_the_image_a_pod_sees_the_programs_and_no_secrets(cluster: Cluster) -> None:
    lines = output(cluster, "cd $PYTHONPATH && find . -type f; touch made; mkdir package/made")
    assert sorted(lines[:2]) == ["./package/module.py", "./train.py"]
    assert [line.endswith("Read-only file system") for line in lines[2:]] == [True, True]


def test_of_the_machine_a_pod_sees_folders_of_programs_and_what_every_user_may_read(cluster: Cluster) -> None:
    around = [
        NAMESPACE_FILE,
        *(path.resolve() for path in (*program_paths(), cluster.folder, Path("/etc/resolv.conf"), NAMESPACE_FILE)),
    ]
    places = "/var/run/* /var/* /run/* /home/* /root/* /root/.[!.]* /mnt/* /srv/* /media/*"
    lines = output(
        cluster, f"ls -d {places} 2> /dev/null; test -s {NAMESPACE_FILE} && head -1 /etc/passwd; cat /etc/shadow"
    )
    *seen, user, refused = lines
    assert {Path(path) for path in seen} <= {part for place in around for part in (place, *place.parents)}
    assert user.startswith("root:")
    assert "/etc/shadow: No such file or directory" in refused


def test_a_signal_reaches_processes_of_the_own_container_only(cluster: Cluster) -> None:
    script = "sleep 60 & kill -0 $! && echo own; kill -0 $PPID && echo outside"
    lines = output(cluster, script)
    assert lines[0] == "own"
    assert ("outside" not in lines) is restricts_signals()


def test_shared_memory_is_64_mib_unless_a_volume_is_mounted_there(cluster: Cluster) -> None:
    assert output(cluster, "df --output=size /dev/shm | tail -1")[0].strip() == "65536"


def test_a_command_in_a_container_sees_what_the_container_sees(cluster: Cluster, tmp_path: Path) -> None:
    container, pod = volume(tmp_path)
    container |= {
        "securityContext": READ_ONLY,
        "startupProbe": {"exec": {"command": ["sh", "-c", "id -u > /data/probe; test -e /data/begun"]}},
    }
    cluster.run("p", "touch /data/begun; sleep 5", container=container, securityContext=USER, **pod)
    assert cluster.end_of("p")["exitCode"] == 0
    assert (tmp_path / "probe").read_text() == "1234\n"


def test_a_pod_that_must_not_be_root_and_is_to_be_waits(cluster: Cluster) -> None:
    cluster.run("p", "true", securityContext={"runAsNonRoot": True, "runAsUser": 0})
    uid = cluster.pod("p")["metadata"]["uid"]  # type: ignore[index]
    about = f'(pod: "p_{cluster.namespace}({uid})", container: c)'

    def waits(status: dict[str, Any]) -> bool:
        [container] = status.get("containerStatuses") or [{}]
        waiting = container.get("state", {}).get("waiting", {})
        return (waiting.get("reason"), waiting.get("message")) == (
            "CreateContainerConfigError",
            f"container's runAsUser breaks non-root policy {about}",
        )

    cluster.wait_for("p", waits, "waits")


def test_files_of_an_ended_pod_can_be_removed(cluster: Cluster) -> None:
    container = {"volumeMounts": [{"name": "scratch", "mountPath": "/scratch"}]}
    output(cluster, "mkdir -m 500 /scratch/d", container=container, volumes=[{"name": "scratch", "emptyDir": {}}])
    uid = cluster.pod("p")["metadata"]["uid"]  # type: ignore[index]
    volumes = cluster.folder / "pods/volumes" / uid.replace("-", "")[:12]
    assert volumes.is_dir()
    cluster.delete("p")
    eventually(lambda: not volumes.exists(), "the files are gone")
