"""The network of containers behind walls: pods reach each other and the machine, and nobody else reaches them."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kubetwin.node import pod_network
from kubetwin.node.isolation import machine_can_isolate, missing_network
from kubetwin_testing.cluster import Cluster, command, eventually

pytestmark = pytest.mark.skipif(
    not machine_can_isolate() or missing_network() is not None, reason="this machine gives its users no networks"
)

AS_NOBODY = "import os, socket; os.setgroups([]); os.setgid(65534); os.setuid(65534)"

SERVER = """
import socket, sys
server = socket.create_server(("", 0), dualstack_ipv6=False)
print(server.getsockname()[1], flush=True)
while True:
    connection, _ = server.accept()
    connection.recv(4096)
    connection.sendall(b"HTTP/1.0 200 OK\\r\\n\\r\\nfrom the pod")
    connection.close()
"""
CLIENT = """
import socket, sys
for host, port in zip(sys.argv[1::2], sys.argv[2::2]):
    try:
        with socket.create_connection((host, int(port)), timeout=10) as connection:
            connection.sendall(b"GET / HTTP/1.0\\r\\n\\r\\n")
            print(connection.recv(4096).decode().splitlines()[-1])
    except OSError as error:
        print(type(error).__name__)
"""
ADDRESSES = ("127.0.0.1", "0.0.0.0", socket.gethostname())


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    with command("--state", str(tmp_path_factory.mktemp("cluster")), "--walls") as (_, ready):
        yield ready


@pytest.fixture
def cluster(served: dict[str, str]) -> Cluster:
    kubeconfig = Path(served["kubeconfig"])
    return Cluster(kubeconfig, kubeconfig.parent, namespace=f"t-{uuid.uuid4().hex[:8]}")


def python(cluster: Cluster, name: str, script: str, *words: str, **container: Any) -> str:
    return cluster.run(name, "", container={"command": ["python", "-u", "-c", script, *words], **container})


def port_of(cluster: Cluster, pod: str) -> int:
    """The port that a program in a pod prints first."""
    line = eventually(lambda: cluster.log(pod) if cluster.phase(pod, "Running", "Failed") else None, "its port")
    return int(eventually(lambda: (cluster.log(pod) or line).strip() or None, "its port"))


def said(cluster: Cluster, name: str, script: str, *words: str) -> list[str]:
    python(cluster, name, script, *words)
    cluster.end_of(name)
    return cluster.log(name).splitlines()


def machine_reaches(host: str, port: int) -> list[str]:
    """What a program in the machine's network has from a port."""
    done = subprocess.run(
        [sys.executable, "-I", "-c", CLIENT, host, str(port)], capture_output=True, text=True, check=True
    )
    return done.stdout.splitlines()


def test_what_a_pod_opens_on_every_interface_is_reached_by_pods_and_not_by_the_machine(cluster: Cluster) -> None:
    python(cluster, "server", SERVER)
    port = port_of(cluster, "server")
    words = [word for host in ADDRESSES for word in (host, str(port))]
    assert said(cluster, "client", CLIENT, *words) == ["from the pod"] * len(ADDRESSES)
    for host in ADDRESSES:
        assert machine_reaches(host, port) == ["ConnectionRefusedError"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_another_user_cannot_enter_the_network(cluster: Cluster, served: dict[str, str]) -> None:
    python(cluster, "server", SERVER)
    port = port_of(cluster, "server")
    with pod_network.connect(int(served["network"]), "127.0.0.1", port, timeout_seconds=10) as connection:
        connection.sendall(b"GET / HTTP/1.0\r\n\r\n")
        assert connection.recv(4096).endswith(b"from the pod")
    entering = f"{AS_NOBODY}\nos.open('/proc/{served['network']}/ns/net', os.O_RDONLY)"
    done = subprocess.run([sys.executable, "-I", "-c", entering], check=False, capture_output=True, text=True)
    assert "PermissionError" in done.stderr


def test_a_pod_reaches_servers_of_the_machine_that_are_its_users(cluster: Cluster) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        python(cluster, "client", CLIENT, "127.0.0.1", str(port))
        server.settimeout(60)
        connection, _address = server.accept()
        with connection:
            assert connection.recv(4096).startswith(b"GET /")
            connection.sendall(b"from the machine")
        cluster.end_of("client")
        assert cluster.log("client") == "from the machine\n"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_a_server_of_another_user_takes_no_connection_that_is_meant_for_a_pod(cluster: Cluster) -> None:
    program = f"{AS_NOBODY}\nwith socket.create_server(('127.0.0.1', 0)) as s: print(s.getsockname()[1]); s.accept()"
    command_line = [sys.executable, "-I", "-u", "-c", program]
    with subprocess.Popen(command_line, text=True, stdout=subprocess.PIPE) as stranger:
        assert stranger.stdout is not None
        port = stranger.stdout.readline().strip()
        assert said(cluster, "client", CLIENT, "127.0.0.1", port) == ["ConnectionRefusedError"]
        stranger.kill()


def test_a_connection_that_is_to_wait_for_nothing_keeps_that_and_is_closed_on_exec(cluster: Cluster) -> None:
    script = """
import fcntl, select, socket, sys
connection = socket.socket()
connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
connection.setblocking(False)
print(connection.connect_ex(("127.0.0.1", int(sys.argv[1]))) in (0, 115))
print(select.select([], [connection], [], 30)[1] == [connection])
print(fcntl.fcntl(connection, fcntl.F_GETFD) & fcntl.FD_CLOEXEC, connection.getblocking())
print(connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
"""
    with socket.create_server(("127.0.0.1", 0)) as server:
        lines = said(cluster, "client", script, str(server.getsockname()[1]))
    assert lines == ["True", "True", "1 False", "1"]


def test_threads_and_children_of_a_program_connect_at_once(cluster: Cluster) -> None:
    script = """
import concurrent.futures, os, socket, sys
def connected(_):
    with socket.create_connection(("127.0.0.1", int(sys.argv[1]))):
        return True
with concurrent.futures.ThreadPoolExecutor(16) as pool:
    print(sum(pool.map(connected, range(64))))
if os.fork() == 0:
    os.setsid()
    print(connected(0), flush=True)
    os._exit(0)
os.wait()
"""
    with socket.create_server(("127.0.0.1", 0), backlog=128) as server:
        assert sorted(said(cluster, "client", script, str(server.getsockname()[1]))) == ["64", "True"]


def test_probes_and_commands_reach_a_pod_in_its_network(cluster: Cluster) -> None:
    fixed = 18000 + os.getpid() % 2000
    program = SERVER.replace('("", 0)', f'("", {fixed})')
    by_http = {"httpGet": {"port": fixed}, "periodSeconds": 1, "timeoutSeconds": 10}
    by_command = {"exec": {"command": ["python", "-c", CLIENT, "127.0.0.1", str(fixed)]}, "timeoutSeconds": 30}
    by_port = {"tcpSocket": {"port": fixed}, "periodSeconds": 1, "timeoutSeconds": 10}
    python(cluster, "server", program, readinessProbe=by_http, livenessProbe=by_command, startupProbe=by_port)
    cluster.wait_for(
        "server",
        lambda status: any(each["ready"] for each in status.get("containerStatuses", [])),
        "ready",
    )
