"""Reads from the API the objects that pods refer to: configuration, volumes, services."""

from __future__ import annotations

from typing import Any

from kubetwin.client import ApiClient

_REPLICA_INDEX = "training.kubeflow.org/replica-index"


class ClusterReader:
    """Reads the objects that variables, volumes and host names refer to; None for those that do not exist."""

    def __init__(self, api: ApiClient) -> None:
        self._api = api

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

    def is_headless_service(self, name: str, namespace: str) -> bool:
        """Whether a headless Service of this name exists."""
        service = self._api.find(f"/api/v1/namespaces/{namespace}/services/{name}")
        return service is not None and (service.get("spec") or {}).get("clusterIP") == "None"

    def names_one_pod(self, name: str, namespace: str) -> bool:
        """Whether it is a headless Service for one replica, as the training operator makes them."""
        service = self._api.find(f"/api/v1/namespaces/{namespace}/services/{name}")
        spec = (service or {}).get("spec") or {}
        return spec.get("clusterIP") == "None" and _REPLICA_INDEX in (spec.get("selector") or {})
