"""EKS access entries, which moto 5.2.5 lacks: the roles that may log in to a cluster, and their Kubernetes groups.

They are served at the paths that the SDKs and the CLI use, so that deployments create them, and the twin's Kubernetes
API reads them, as any other resource.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import unquote

from moto.core.responses import ActionResult
from moto.eks import urls
from moto.eks.exceptions import ResourceInUseException, ResourceNotFoundException
from moto.eks.responses import EKSResponse

from local.aws.replacements import replace, replace_item

ROUTES = (
    "{0}/clusters/(?P<name>[^/]+)/access-entries$",
    "{0}/clusters/(?P<name>[^/]+)/access-entries/(?P<principal>.+)$",
)


def serve() -> None:
    """Start to answer the four calls."""
    for route in ROUTES:
        replace_item(urls.url_paths, route, EKSResponse.dispatch)
    for call in (create_access_entry, describe_access_entry, delete_access_entry, list_access_entries):
        replace(EKSResponse, call.__name__, call)


def create_access_entry(self: Any) -> ActionResult:
    """`eks:CreateAccessEntry`, for the type STANDARD."""
    entries, principal = _entries(self), self._get_param("principalArn")
    if principal in entries:
        raise ResourceInUseException(message=f"There is an access entry for {principal} already")
    name = self._get_param("name") or self._get_param("clusterName")
    entries[principal] = {
        "clusterName": name,
        "principalArn": principal,
        "kubernetesGroups": self._get_param("kubernetesGroups") or [],
        "accessEntryArn": f"arn:aws:eks:{self.region}:{self.current_account}:access-entry/{name}/{principal}",
        "username": self._get_param("username") or principal,
        "type": "STANDARD",
    }
    return ActionResult({"accessEntry": entries[principal]})


def describe_access_entry(self: Any) -> ActionResult:
    """`eks:DescribeAccessEntry`."""
    return ActionResult({"accessEntry": _entry(self)})


def delete_access_entry(self: Any) -> ActionResult:
    """`eks:DeleteAccessEntry`."""
    del _entries(self)[_entry(self)["principalArn"]]
    return ActionResult({})


def list_access_entries(self: Any) -> ActionResult:
    """`eks:ListAccessEntries`."""
    return ActionResult({"accessEntries": list(_entries(self))})


def _entries(self: Any) -> dict[str, dict[str, Any]]:
    cluster = self.eks_backend.describe_cluster(self._get_param("name") or self._get_param("clusterName"))
    if not hasattr(cluster, "access_entries"):
        cluster.access_entries = {}
    entries: dict[str, dict[str, Any]] = cluster.access_entries
    return entries


def _entry(self: Any) -> dict[str, Any]:
    principal = unquote(self._get_param("principalArn"))
    entry = _entries(self).get(principal)
    if entry is None:
        raise ResourceNotFoundException(message=f"There is no access entry for {principal}")
    return entry
