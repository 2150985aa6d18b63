"""A program that takes what it can reach from inside of a pod: files, processes, sockets and AWS.

Runs as the program of a run. What it got is `got.json` in the run's folder; each list should be empty.
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import boto3
from botocore.exceptions import BotoCoreError, ClientError

MARK = "canary"
"""Part of the names of the secrets that a test has placed."""

NAMES = {
    *("twin.json", "owner.json", "kubeconfig", "pods.env", "zygote", "start.json", "run.json", "caches.json"),
    *("shadow", "gshadow", "credentials", "id_rsa", "id_ed25519", ".netrc", ".git-credentials", "docker.sock"),
}
"""Names of files with credentials, and of those that only the owner of runs has."""

OWN = {"proc", "sys"}
OF_TESTS = "site-packages"
"""Part of paths with files of the Python environment, some of which have such names."""


def files() -> Iterator[str]:
    """Files whose names are those of secrets."""
    for folder, folders, names in os.walk("/"):
        if folder == "/":
            folders[:] = [name for name in folders if name not in OWN]
        for name in (*folders, *names):
            if (MARK in name or name in NAMES) and OF_TESTS not in folder and not folder.startswith("/usr/"):
                yield f"{folder}/{name}"


def others() -> list[int]:
    """Processes of other containers, and those outside of any."""
    mine = str(Path("/proc/self/ns/mnt").readlink())
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit() and namespace(entry) != mine]


def namespace(process: Path) -> str:
    """The mount namespace of a process; nothing if it may not be known."""
    try:
        return str((process / "ns" / "mnt").readlink())
    except OSError:
        return ""


def views() -> Iterator[str]:
    """Environments, memory, files and folders of other processes."""
    for pid in others():
        reads: dict[str, Callable[[Path], object]] = {
            "environ": Path.read_bytes,
            "mem": lambda path: path.open("rb").close(),
            "root": lambda path: [*path.iterdir()],
            "cwd": lambda path: [*path.iterdir()],
            "fd": lambda path: (path / "0").readlink(),
        }
        for name, read in reads.items():
            if succeeds(lambda path=Path(f"/proc/{pid}/{name}"), read=read: read(path)):  # type: ignore[misc]
                yield f"{name} of {pid}"


def signals() -> Iterator[str]:
    """Other processes that a signal reaches. The signal 0 is checked as others are, and does nothing."""
    yield from (f"{pid}" for pid in others() if succeeds(lambda pid=pid: os.kill(pid, 0)))  # type: ignore[misc]


def sockets() -> Iterator[str]:
    """Unix sockets of others that answer."""
    for line in Path("/proc/net/unix").read_text().splitlines()[1:]:
        name = "".join(line.split(maxsplit=7)[7:])
        with socket.socket(socket.AF_UNIX) as client:
            if name and succeeds(lambda name=name: client.connect(name.replace("@", "\0", 1))):  # type: ignore[misc]
                yield name


def descriptors() -> Iterator[str]:
    """Open files that the program has inherited beside its standard streams.

    Python has opened one for the stacks of this process (docs/decisions/0095-evidence-of-a-hang.md).
    """
    for entry in sorted(Path("/proc/self/fd").iterdir(), key=lambda path: int(path.name))[3:]:
        try:
            file = entry.readlink()
        except OSError:
            continue  # the one that has listed them
        if not (file.parent.name.startswith("stacks-") and file.name == f"{os.getpid()}.txt"):
            yield str(file)


def aws() -> Iterator[str]:
    """Calls that the run's role should not be able to make."""
    states, tables = boto3.client("stepfunctions"), boto3.client("dynamodb")
    calls: dict[str, Callable[[], object]] = {
        "list state machines": states.list_state_machines,
        "list tables": tables.list_tables,
        "list functions": boto3.client("lambda").list_functions,
        "list roles": boto3.client("iam").list_roles,
    }
    s3 = boto3.client("s3")
    for bucket, key in (
        *(("trainflow-artifacts", key) for key in ("code/x.tar.gz", "export/x", "top", "runs-x")),
        *(("trainflow-data", key) for key in ("data/x", "runs/x.yaml")),
        ("inputs", "x"),
    ):
        calls[f"put {bucket}/{key}"] = lambda bucket=bucket, key=key: s3.put_object(Bucket=bucket, Key=key, Body=b"x")  # type: ignore[misc]
    calls["delete inputs/set"] = lambda: s3.delete_object(Bucket="inputs", Key="set")
    yield from (name for name, call in calls.items() if succeeds(call))


def succeeds(attempt: Callable[[], object]) -> bool:
    """Whether an attempt is not refused."""
    try:
        attempt()
    except (OSError, ClientError, BotoCoreError):
        return False
    return True


def main() -> None:
    """Try everything, and that what the program needs is there."""
    run = os.environ["TRAINFLOW_RUN_ID"]
    got: dict[str, list[str]] = {
        attempt.__name__: list(attempt()) for attempt in (descriptors, files, views, signals, sockets, aws)
    }
    s3: Any = boto3.client("s3")
    s3.put_object(Bucket="trainflow-artifacts", Key=f"runs/{run}/own", Body=b"x")
    assert s3.get_object(Bucket="inputs", Key="set")["Body"].read() == b"a data set"
    assert others(), "there are other processes, so that the attempts above mean something"
    Path(f"/runs/{run}/got.json").write_text(json.dumps(got))


if __name__ == "__main__":
    main()
