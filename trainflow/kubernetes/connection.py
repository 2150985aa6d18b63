"""Address of a cluster and login to it: from a kubeconfig, or from EKS."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit

from kubernetes import client, config

from trainflow.kubernetes.faults import KubeconfigInvalid

LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})

MAX_CONNECTIONS = 64
"""Streams that may be open at once: one a followed pod, the watch, and room for single requests."""


def from_kubeconfig(kubeconfig: Path | None) -> client.ApiClient:
    """The official client for a kubeconfig; without one, as kubectl chooses it. Makes no request yet.

    It keeps its credentials fresh, exec plugins as EKS uses them included. It takes a proxy from the environment for
    every address; a cluster of this machine is behind none.

    Raises:
        KubeconfigInvalid: If the file cannot be read or used.
    """
    settings = client.Configuration()
    try:
        config.load_kube_config(config_file=str(kubeconfig) if kubeconfig else None, client_configuration=settings)
    except (config.ConfigException, OSError) as unusable:
        which = f"'{kubeconfig}'" if kubeconfig else "of this shell (KUBECONFIG or ~/.kube/config)"
        raise KubeconfigInvalid(f"The kubeconfig {which} cannot be used: {unusable}") from None
    if urlsplit(settings.host).hostname in LOOPBACK:
        settings.proxy, settings.no_proxy = None, ",".join(sorted(LOOPBACK))  # the second is for commands in pods
    settings.connection_pool_maxsize = MAX_CONNECTIONS
    return _client(settings)


def from_endpoint(url: str, *, ca_file: str, token: str) -> client.ApiClient:
    """The official client for an endpoint (`eks:DescribeCluster`) and a token (`eks.bearer_token`).

    Args:
        url: Address of the API server.
        ca_file: Path of the certificate authority that vouches for it, in PEM, as the TLS library wants it.
        token: Bearer token.
    """
    settings = client.Configuration()
    settings.host, settings.ssl_ca_cert = url, ca_file
    settings.api_key = {"authorization": f"Bearer {token}"}
    return _client(settings)


def _client(settings: client.Configuration) -> client.ApiClient:
    settings.retries = False  # callers know better: a Lambda's state is retried, a watch begins anew
    return client.ApiClient(settings)
