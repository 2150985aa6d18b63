"""Write a kubeconfig that kubectl and the client libraries understand."""

from __future__ import annotations

import base64
import os
from pathlib import Path

import yaml


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
