"""How the command reaches a Kubernetes API: as a kubeconfig says."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit

from kubernetes import client, config

LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})


def kubernetes_settings(kubeconfig: Path | None) -> client.Configuration:
    """The client's configuration from a kubeconfig; without one, as kubectl chooses it.

    The client takes a proxy from the environment for every address. A cluster of this machine is behind none.

    Raises:
        config.ConfigException: If the file cannot be used.
        OSError: If it cannot be read.
    """
    settings = client.Configuration()
    config.load_kube_config(config_file=str(kubeconfig) if kubeconfig else None, client_configuration=settings)
    if urlsplit(settings.host).hostname in LOOPBACK:
        settings.proxy, settings.no_proxy = None, ",".join(sorted(LOOPBACK))  # the second is for commands in pods
    return settings
