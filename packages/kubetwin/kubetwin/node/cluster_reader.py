"""Reads from the API the objects that pods refer to: configuration, volumes, services."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from kubetwin.client import ApiClient

_REPLICA_INDEX = "training.kubeflow.org/replica-index"

_ENDED = ("Succeeded", "Failed")

_POLL_SECONDS = 0.2


class ClusterReader:
    """Reads the objects that variables, volumes and host names refer to; None for those that do not exist."""

    def __init__(self, api: ApiClient, *, wait_seconds: float = 5.0) -> None:
        """
        Args:
            api: The cluster.
            wait_seconds: Time to wait for a pod of a gang whose name another pod of it uses.
        """
        self._api, self._wait_seconds = api, wait_seconds

    def config_map(self, namespace: str, name: str) -> dict[str, Any] | None:
        """A ConfigMap."""
        return self._api.find(f"/api/v1/namespaces/{namespace}/configmaps/{name}")

    def secret(self, namespace: str, name: str) -> dict[str, Any] | None:
        """A Secret."""
        return self._api.find(f"/api/v1/namespaces/{namespace}/secrets/{name}")

    def claim(self, namespace: str, name: str) -> dict[str, Any] | None:
        """A PersistentVolumeClaim."""
        return self._api.find(f"/api/v1/namespaces/{namespace}/persistentvolumeclaims/{name}")

    def persistent_volume(self, name: str) -> dict[str, Any] | None:
        """A PersistentVolume."""
        return self._api.find(f"/api/v1/persistentvolumes/{name}")

    def names_a_pod(self, host: str, service: str, namespace: str, *, asker: str = "") -> bool:
        """Whether cluster DNS has a record `<host>.<service>`: a headless Service selects a pod of these two names, and
        the pod is ready or the Service publishes addresses of pods that are not.

        Args:
            host: Hostname of the pod.
            service: Name of the Service, and the pod's subdomain.
            namespace: The namespace of both.
            asker: UID of the pod that asks: a kubelet gives every pod its own name.
        """
        spec = self._headless(service, namespace)
        return spec is not None and self._selects(
            spec, namespace, lambda pod: (pod.get("hostname"), pod.get("subdomain")) == (host, service), asker
        )

    def names_one_pod(self, name: str, namespace: str, *, asker: str = "") -> bool:
        """Whether it is a headless Service for one replica that exists, as the training operator makes them."""
        spec = self._headless(name, namespace)
        is_one = spec is not None and _REPLICA_INDEX in (spec.get("selector") or {})
        return is_one and self._selects(spec or {}, namespace, lambda _pod: True, asker)

    def _headless(self, name: str, namespace: str) -> dict[str, Any] | None:
        service = self._api.find(f"/api/v1/namespaces/{namespace}/services/{name}")
        spec = (service or {}).get("spec") or {}
        return spec if spec.get("clusterIP") == "None" else None

    def _selects(
        self, spec: Mapping[str, Any], namespace: str, fits: Callable[[Mapping[str, Any]], bool], asker: str
    ) -> bool:
        """Whether the Service has the address of a pod, or has it soon: names are looked up once only."""
        selector = ",".join(f"{key}={value}" for key, value in (spec.get("selector") or {}).items())
        if not selector:
            return False
        end = time.monotonic() + self._wait_seconds
        while True:
            pods = self._api.get(f"/api/v1/namespaces/{namespace}/pods", labelSelector=selector)["items"]
            if any(fits(pod["spec"]) and (pod["metadata"]["uid"] == asker or _is_published(pod, spec)) for pod in pods):
                return True
            if time.monotonic() >= end:
                return False
            time.sleep(_POLL_SECONDS)


def _is_published(pod: Mapping[str, Any], service: Mapping[str, Any]) -> bool:
    """Whether cluster DNS has the address of a pod that the Service selects, or will have it once the pod runs: without
    a readiness probe the pod is ready then."""
    status = pod.get("status") or {}
    if status.get("phase") in _ENDED:
        return False
    containers = [*pod["spec"].get("containers", ()), *(pod["spec"].get("initContainers") or ())]
    if service.get("publishNotReadyAddresses") or not any(each.get("readinessProbe") for each in containers):
        return True
    return any(each["type"] == "Ready" and each["status"] == "True" for each in status.get("conditions") or ())
