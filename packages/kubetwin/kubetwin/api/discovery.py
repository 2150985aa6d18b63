"""Discovery: the documents that kubectl and the client libraries request first."""

from __future__ import annotations

from collections.abc import Iterable

from kubetwin.api.reviews import REVIEWS
from kubetwin.model.errors import Object
from kubetwin.resources import Registry
from kubetwin.resources.resource import Resource, Subresource

VERSION = {
    "major": "1",
    "minor": "36",
    "emulationMajor": "1",
    "emulationMinor": "36",
    "minCompatibilityMajor": "1",
    "minCompatibilityMinor": "35",
    "gitVersion": "v1.36.2",
    "gitCommit": "98b35193b2ac7a23a673325f5e9b830ecd5ba406",
    "gitTreeState": "clean",
    "buildDate": "2026-08-21T00:00:00Z",
    "goVersion": "go1.26.6",
    "compiler": "gc",
    "platform": "linux/amd64",
}
"""The release whose behaviour is imitated."""

AGGREGATED = "APIGroupDiscoveryList"


class Discovery:
    """The discovery documents of one registry."""

    def __init__(self, registry: Registry, address: str) -> None:
        self._resources: dict[tuple[str, str], list[Resource]] = {}
        for resource in [*registry, *REVIEWS]:
            self._resources.setdefault((resource.group, resource.version), []).append(resource)
        self._address = address

    def has_group(self, group: str) -> bool:
        return any(known == group for known, _ in self._resources)

    def is_built_in(self, group: str) -> bool:
        """Whether the server itself serves the group, not a custom resource definition."""
        return any(known == group and not found[0].custom for (known, _), found in self._resources.items())

    def core_versions(self) -> Object:
        addresses = [{"clientCIDR": "0.0.0.0/0", "serverAddress": self._address}]
        return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": addresses}

    def groups(self) -> Object:
        names = sorted({group for group, _ in self._resources if group})
        found = [{k: v for k, v in self.group(name).items() if k not in ("kind", "apiVersion")} for name in names]
        return {"kind": "APIGroupList", "apiVersion": "v1", "groups": found}

    def group(self, group: str) -> Object:
        versions = [
            {"groupVersion": f"{name}/{version}", "version": version}
            for name, version in self._resources
            if name == group
        ]
        preferred = versions[0]
        return {
            "kind": "APIGroup",
            "apiVersion": "v1",
            "name": group,
            "versions": versions,
            "preferredVersion": preferred,
        }

    def resources(self, group: str, version: str) -> Object | None:
        """The resources of one group and version; None if it does not exist."""
        found = self._resources.get((group, version))
        if found is None:
            return None
        entries = [entry for resource in found for entry in _entries(resource)]
        document: Object = {"kind": "APIResourceList"}
        if group:
            document["apiVersion"] = "v1"
        name = f"{group}/{version}" if group else version
        return {**document, "groupVersion": name, "resources": entries}

    def aggregated(self, *, core: bool) -> Object:
        """All groups with all resources in one document (aggregated discovery, which kubectl requests)."""
        items = []
        for group in sorted({group for group, _ in self._resources if bool(group) != core}):
            versions = [
                {"version": version, "resources": [_aggregated(r) for r in found], "freshness": "Current"}
                for (name, version), found in self._resources.items()
                if name == group
            ]
            items.append({"metadata": {"name": group} if group else {}, "versions": versions})
        return {"kind": AGGREGATED, "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}, "items": items}


def _entries(resource: Resource) -> Iterable[Object]:
    yield {
        "name": resource.plural,
        "singularName": resource.singular,
        "namespaced": resource.namespaced,
        "kind": resource.kind,
        "verbs": list(resource.verbs),
        **resource.aliases,
        **({"storageVersionHash": resource.storage_hash} if resource.storage_hash else {}),
    }
    for subresource in resource.subresources:
        yield _subresource(resource, subresource)


def _subresource(resource: Resource, subresource: Subresource) -> Object:
    entry: Object = {
        "name": f"{resource.plural}/{subresource.name}",
        "singularName": "",
        "namespaced": resource.namespaced,
        "kind": subresource.kind or resource.kind,
        "verbs": list(subresource.verbs),
    }
    if subresource.group:
        entry |= {"group": subresource.group, "version": subresource.version}
    return entry


def _aggregated(resource: Resource) -> Object:
    entry: Object = {
        "resource": resource.plural,
        "responseKind": resource.group_version_kind,
        "scope": resource.scope,
        "singularResource": resource.singular,
        "verbs": list(resource.verbs),
        **resource.aliases,
    }
    if resource.subresources:
        entry["subresources"] = [
            {
                "subresource": sub.name,
                "responseKind": {
                    "group": sub.group or resource.group,
                    "version": sub.version or resource.version,
                    "kind": sub.kind or resource.kind,
                },
                "verbs": list(sub.verbs),
            }
            for sub in resource.subresources
        ]
    return entry
