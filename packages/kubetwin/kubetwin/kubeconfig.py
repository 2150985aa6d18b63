"""Kubeconfig files: read to connect to an API server, written for kubectl and the client libraries."""

from __future__ import annotations

import base64
import binascii
import json
import os
import ssl
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml


class KubeconfigError(Exception):
    """A kubeconfig cannot be used; the text names the file and what is wrong with it."""


@dataclass(frozen=True)
class Connection:
    """Address and credentials of an API server."""

    server: str
    """Base URL, without a slash at its end."""
    tls: ssl.SSLContext | None
    """None for plain http."""
    authorization: Callable[[], str | None]
    """The Authorization header of the moment; None where a client certificate logs in."""
    authority_pem: str | None = None
    """The cluster's certificate authority; None if the kubeconfig names none."""


def load_connection(path: Path, context: str | None = None) -> Connection:
    """The connection that a kubeconfig describes.

    Args:
        path: The kubeconfig.
        context: Name of the context to use; the file's current one if not given.

    Raises:
        KubeconfigError: If the file cannot be read or lacks something.
    """
    config = _read(path)
    name = context or config.get("current-context")
    chosen = _named(config, "contexts", name, "context", path)
    cluster = _named(config, "clusters", chosen.get("cluster"), "cluster", path)
    user = _named(config, "users", chosen.get("user"), "user", path) if chosen.get("user") else {}
    server = str(cluster.get("server") or "").rstrip("/")
    if not server.startswith(("https://", "http://")):
        raise KubeconfigError(f"{path}: cluster {chosen.get('cluster')!r} has no server URL")
    try:
        tls = _tls_context(cluster, user, path.parent) if server.startswith("https://") else None
        authority = _content(cluster, "certificate-authority", path.parent)
        authority_pem = authority.decode() if authority else None
        return Connection(server, tls, _authorization(user, path.parent), authority_pem)
    except (OSError, ssl.SSLError, binascii.Error, ValueError) as error:
        raise KubeconfigError(f"{path}: certificate, key or token cannot be used: {error}") from error


def _read(path: Path) -> dict[str, Any]:
    try:
        config = yaml.safe_load(path.read_text())
    except OSError as error:
        raise KubeconfigError(f"{path}: cannot read the kubeconfig: {error.strerror}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise KubeconfigError(f"{path}: the kubeconfig is not valid YAML") from error
    if not isinstance(config, dict):
        raise KubeconfigError(f"{path}: the file is not a kubeconfig")
    return config


def _named(config: Mapping[str, Any], section: str, name: Any, kind: str, path: Path) -> dict[str, Any]:
    for entry in config.get(section) or []:
        if entry.get("name") == name:
            return entry.get(kind) or {}
    raise KubeconfigError(f"{path}: there is no {kind} named {name!r}; `{section}` has to list it")


def _tls_context(cluster: Mapping[str, Any], user: Mapping[str, Any], folder: Path) -> ssl.SSLContext:
    context = ssl.create_default_context()
    authority = _content(cluster, "certificate-authority", folder)
    if cluster.get("insecure-skip-tls-verify"):
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    elif authority:
        context.load_verify_locations(cadata=authority.decode())
    certificate, key = _content(user, "client-certificate", folder), _content(user, "client-key", folder)
    if certificate and key:
        with tempfile.NamedTemporaryFile() as chain:  # readable by its owner only; OpenSSL needs a file
            chain.write(certificate + b"\n" + key)
            chain.flush()
            context.load_cert_chain(chain.name)
    return context


def _content(section: Mapping[str, Any], key: str, folder: Path) -> bytes | None:
    """A certificate or key, which a kubeconfig holds itself (`-data`) or names as a file."""
    if section.get(f"{key}-data"):
        return base64.b64decode(section[f"{key}-data"])
    return (folder / section[key]).read_bytes() if section.get(key) else None


def _authorization(user: Mapping[str, Any], folder: Path) -> Callable[[], str | None]:
    if user.get("token"):
        return lambda: f"Bearer {user['token']}"
    if user.get("tokenFile"):
        token_file = folder / user["tokenFile"]
        return lambda: f"Bearer {token_file.read_text().strip()}"
    if user.get("exec"):
        return _ExecCredential(user["exec"])
    return lambda: None


class _ExecCredential:
    """A token from a command such as `aws eks get-token`, fetched anew before it ends."""

    _SECONDS_BETWEEN_FETCHES = 300.0
    """EKS tokens are good for 15 minutes."""

    def __init__(self, command: Mapping[str, Any]) -> None:
        self._argv = [command["command"], *(command.get("args") or [])]
        extra = {entry["name"]: entry["value"] for entry in command.get("env") or []}
        self._environment = {**os.environ, **extra}
        self._header: str | None = None
        self._fetched_at = 0.0
        self._lock = threading.Lock()

    def __call__(self) -> str | None:
        with self._lock:
            if self._header is None or time.monotonic() - self._fetched_at > self._SECONDS_BETWEEN_FETCHES:
                self._header = f"Bearer {self._fetch()}"
                self._fetched_at = time.monotonic()
            return self._header

    def _fetch(self) -> str:
        try:
            answer = subprocess.run(self._argv, env=self._environment, capture_output=True, check=True)
            return str(json.loads(answer.stdout)["status"]["token"])
        except (OSError, subprocess.CalledProcessError, ValueError, KeyError) as error:
            raise KubeconfigError(f"the kubeconfig's login command {self._argv[0]!r} failed: {error}") from error


def write_kubeconfig(
    path: Path,
    *,
    endpoint: str,
    ca_pem: str,
    token: str,
    context: str = "kubetwin",
    namespace: str = "default",
) -> None:
    """Write the file with mode 0600, whole or not at all: it holds an administrator's token.

    Args:
        path: The file; its folder is made.
        endpoint: URL of the API server.
        ca_pem: The certificate authority to trust, embedded.
        token: Bearer token, embedded.
        context: Name of the context, the cluster and the user.
        namespace: The context's namespace.
    """
    authority = base64.b64encode(ca_pem.encode()).decode()
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": context, "cluster": {"server": endpoint, "certificate-authority-data": authority}}],
        "users": [{"name": context, "user": {"token": token}}],
        "contexts": [{"name": context, "context": {"cluster": context, "user": context, "namespace": namespace}}],
        "current-context": context,
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w") as file:
        yaml.safe_dump(document, file, sort_keys=False)
    temporary.replace(path)
