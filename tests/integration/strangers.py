"""What another user of this machine has from processes that listen."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest

only_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")

NOBODY = 65534

PROBE = """
import concurrent.futures.thread, encodings.idna, http.client, json, os, socket, ssl, sys
context = ssl._create_unverified_context()
os.setgroups([])
os.setgid(65534)
os.setuid(65534)  # nobody
addresses, paths, requests = json.loads(sys.argv[1])

def in_http(host, port, tls):
    answers = {}
    for method, path in requests:
        make = http.client.HTTPSConnection if tls else http.client.HTTPConnection
        connection = make(host, port, timeout=5, **({"context": context} if tls else {}))
        try:
            connection.request(method, path)
            answers[f"{host}:{port} {'https' if tls else 'http'} {method} {path}"] = connection.getresponse().status
        except (OSError, http.client.HTTPException):
            break  # another protocol
        finally:
            connection.close()
    return answers

def opened(path):
    with socket.socket(socket.AF_UNIX) as connection:
        try:
            connection.connect(path)
        except OSError as error:
            return type(error).__name__
    return "open"

with concurrent.futures.ThreadPoolExecutor(16) as pool:
    found = [pool.submit(in_http, host, port, tls) for host, port in addresses for tls in (False, True)]
    answers = {path: opened(path) for path in paths}
    for each in found:
        answers |= each.result()
print(json.dumps(answers))
"""

CONNECTION = """
import encodings.idna, os, socket, sys
os.setgroups([])
os.setgid(65534)
os.setuid(65534)  # nobody
try:
    socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=5)
    print("open")
except OSError as error:
    print(type(error).__name__)
"""

REQUESTS = (
    ("GET", "/"),
    ("POST", "/"),
    ("GET", "/api/v1/secrets"),
    ("GET", "/containerLogs/a/b/c"),
    ("GET", "/slurm/v0.0.38/jobs"),
    ("GET", "/openapi"),
    ("GET", "/clusters"),
    ("GET", "/api/runs"),
)
"""A request of each protocol that a twin speaks."""

LISTEN = "0A"
"""State of a socket that listens, in /proc/net/tcp."""

REFUSALS = (400, 401, 403, 404)


@dataclass(frozen=True)
class Listening:
    """Where processes listen."""

    addresses: frozenset[tuple[str, int]]
    """TCP."""
    paths: frozenset[str]
    """Sockets in the file system."""


def listening(processes: Iterable[psutil.Process]) -> Listening:
    """Where these processes listen."""
    addresses, paths = set(), set()
    for process in processes:
        for connection in _connections(process):
            if connection.family == socket.AF_UNIX and isinstance(connection.laddr, str) and connection.laddr:
                paths.add(connection.laddr)
            elif connection.status == psutil.CONN_LISTEN:
                addresses.add((connection.laddr.ip, connection.laddr.port))
    return Listening(frozenset(addresses), frozenset(paths))


def _connections(process: psutil.Process) -> list[Any]:
    try:
        return list(process.net_connections(kind="all"))
    except psutil.NoSuchProcess:
        return []  # it has ended


def shares_network(process: psutil.Process) -> bool:
    """Whether a process has the network of this one, and not one of its own."""
    try:
        return Path(f"/proc/{process.pid}/ns/net").readlink() == Path("/proc/self/ns/net").readlink()
    except OSError:
        return sys.platform != "linux"  # it has ended


def listening_in_network_of(process: psutil.Process) -> set[tuple[str, int]]:
    """Where anything listens in TCP in the network that a process has. psutil shows this process's network only."""
    found = set()
    for name, family in (("tcp", socket.AF_INET), ("tcp6", socket.AF_INET6)):
        try:
            lines = Path(f"/proc/{process.pid}/net/{name}").read_text().splitlines()[1:]
        except OSError:
            continue  # it has ended
        for words in map(str.split, lines):
            if words[3] == LISTEN:
                host, _, port = words[1].partition(":")
                found.add((_address(family, host), int(port, 16)))
    return found


def _address(family: int, words: str) -> str:
    """An address as text. The kernel prints it in words of four bytes, each in the machine's order."""
    numbers = (int(words[start : start + 8], 16) for start in range(0, len(words), 8))
    return socket.inet_ntop(family, b"".join(number.to_bytes(4, sys.byteorder) for number in numbers))


def opened_by_another_user(host: str, port: int) -> str:
    """The name of the error that another user's connection ends with, or `open`."""
    done = subprocess.run(
        [sys.executable, "-I", "-c", CONNECTION, host, str(port)], capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def answers_to_another_user(found: Listening) -> dict[str, int | str]:
    """Status by request, of those that were answered in HTTP; and by path whether a socket could be opened."""
    asked = json.dumps([sorted(found.addresses), sorted(found.paths), REQUESTS])
    done = subprocess.run(
        [sys.executable, "-I", "-c", PROBE, asked],
        cwd="/",
        env={},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    answers: dict[str, int | str] = json.loads(done.stdout)
    return answers


def granted(answers: dict[str, int | str]) -> dict[str, int | str]:
    """The answers that another user must not have."""
    return {
        asked: answer
        for asked, answer in answers.items()
        if answer not in (*REFUSALS, "PermissionError", "FileNotFoundError")
    }


def run_as_another_user(
    *command: str, environment: dict[str, str], stdin: str = ""
) -> subprocess.CompletedProcess[str]:
    """What another user's program prints."""
    return subprocess.run(
        command,
        env=environment,
        input=stdin,
        capture_output=True,
        text=True,
        cwd="/",
        check=False,
        timeout=60,
        user=NOBODY,
        group=NOBODY,
        extra_groups=[],
    )
