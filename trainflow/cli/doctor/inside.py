"""Runs inside a pod, sent there as text: checks what only a pod can check, and prints it as one line of JSON.

Needs nothing but Python's standard library. It judges nothing: `findings.py` does.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import socket
import struct
import tempfile
import time
from pathlib import Path
from typing import Any

TOKEN_FILES = ("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", "AWS_WEB_IDENTITY_TOKEN_FILE")
"""Set by EKS Pod Identity and by IAM roles for service accounts."""

PING_SECONDS = 2.0


def resolve(host: str, seconds: float) -> dict[str, Any]:
    """The addresses of a host; a name that is new may take a while to be known."""
    end = time.monotonic() + seconds
    while True:
        try:
            found = socket.getaddrinfo(host, None, proto=socket.IPPROTO_TCP)
            return {"addresses": sorted({str(entry[4][0]) for entry in found})}
        except OSError as error:
            if time.monotonic() >= end:
                return {"error": str(error)}
        time.sleep(0.5)


def connect(host: str, port: int, seconds: float) -> dict[str, Any]:
    """Whether the port accepts a connection."""
    end = time.monotonic() + seconds
    while True:
        try:
            with socket.create_connection((host, port), timeout=max(1.0, end - time.monotonic())):
                return {"open": True}
        except OSError as error:
            if time.monotonic() >= end or isinstance(error, socket.gaierror):
                return {"open": False, "error": error.strerror or str(error)}
        time.sleep(0.5)


def ping(host: str, seconds: float) -> dict[str, Any]:
    """Whether the host answers an echo request.

    By an unprivileged ICMP socket, which needs no capability where the kernel's `net.ipv4.ping_group_range` lets this
    group have one (containerd 2 opens it for every pod). The kernel fills in identifier and checksum.
    """
    echo_request = struct.pack("!BBHHH", 8, 0, 0, 0, 1) + b"trainflow"
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM, socket.IPPROTO_ICMP) as probe:
            probe.settimeout(seconds)
            probe.connect((host, 0))
            probe.send(echo_request)
            probe.recv(1024)
        return {"answered": True}
    except PermissionError:
        return {"answered": None, "error": "this pod may not send echo requests"}
    except OSError as error:
        return {"answered": False, "error": error.strerror or str(error)}


def folder(path: str) -> dict[str, Any]:
    """Whether a folder can be written to, and the bytes that are free there."""
    try:
        with tempfile.NamedTemporaryFile(dir=path, prefix=".trainflow-doctor-") as file:
            file.write(b"written")
            file.flush()
        return {"writable": True, "free_bytes": shutil.disk_usage(path).free}
    except OSError as error:
        return {"writable": False, "error": error.strerror or str(error)}


def read_only(path: str) -> dict[str, Any]:
    """Whether a folder that may not be written can be read."""
    try:
        next(Path(path).iterdir(), None)
        return {"readable": True}
    except OSError as error:
        return {"readable": False, "error": error.strerror or str(error)}


def credentials() -> dict[str, Any]:
    """Source of the AWS credentials, without their values."""
    for variable in TOKEN_FILES:
        path = os.environ.get(variable)
        if path:
            return {"source": variable, "readable": os.access(path, os.R_OK)}
    given = "AWS_ACCESS_KEY_ID" if os.environ.get("AWS_ACCESS_KEY_ID") else None
    return {"source": given, "readable": given is not None}


def devices() -> dict[str, int]:
    """Number of device files of each kind in this container."""
    return {
        "neuron": len(list(Path("/dev").glob("neuron[0-9]*"))),
        "nvidia": len(list(Path("/dev").glob("nvidia[0-9]*"))),
        "efa": len(list(Path("/dev/infiniband").glob("uverbs*"))),
    }


def main() -> None:
    """Look at everything that the arguments name."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--host")
    parser.add_argument("--full_host")
    parser.add_argument("--port", type=int)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--folder", action="append", default=[])
    parser.add_argument("--read_only", action="append", default=[])
    parser.add_argument("--result")
    wanted = parser.parse_args()
    seen: dict[str, Any] = {
        "node": os.environ.get("HOSTNAME", ""),
        "credentials": credentials(),
        "devices": devices(),
        "folders": [folder(path) for path in wanted.folder],
        "read_only": [read_only(path) for path in wanted.read_only],
    }
    if wanted.host:
        seen["name"] = resolve(wanted.host, wanted.seconds)
        seen["ping"] = ping(wanted.host, min(wanted.seconds, PING_SECONDS))
    if wanted.full_host:
        seen["full_name"] = resolve(wanted.full_host, wanted.seconds)
    if wanted.host and wanted.port:
        seen["port"] = connect(wanted.host, wanted.port, wanted.seconds)
    line = json.dumps(seen)
    if wanted.result:
        with contextlib.suppress(OSError):  # standard output has it, too
            Path(wanted.result).write_text(line)
    print(line)


if __name__ == "__main__":
    main()
