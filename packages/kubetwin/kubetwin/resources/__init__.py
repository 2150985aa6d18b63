"""The registry of resources: every module of this package adds the list `RESOURCES` if it has one."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterable, Iterator

from kubetwin.resources.resource import Resource


class Registry:
    """Resources by group, version and plural name."""

    def __init__(self, resources: Iterable[Resource]) -> None:
        self._by_path = {(r.group, r.version, r.plural): r for r in resources}
        self._by_kind = {(r.group_version, r.kind): r for r in self._by_path.values()}
        self._by_key = {r.key: r for r in self._by_path.values()}

    def __iter__(self) -> Iterator[Resource]:
        return iter(self._by_path.values())

    def find(self, group: str, version: str, plural: str) -> Resource | None:
        return self._by_path.get((group, version, plural))

    def by_kind(self, group_version: str, kind: str) -> Resource | None:
        return self._by_kind.get((group_version, kind))

    def by_key(self, key: str) -> Resource:
        return self._by_key[key]

    def groups(self) -> dict[str, list[str]]:
        """Versions of each group ("" is the core group)."""
        found: dict[str, list[str]] = {}
        for group, version, _ in self._by_path:
            versions = found.setdefault(group, [])
            if version not in versions:
                versions.append(version)
        return found


def load_registry() -> Registry:
    """All resources that the modules of this package declare."""
    found: list[Resource] = []
    for module in pkgutil.iter_modules(__path__):
        loaded = importlib.import_module(f"{__name__}.{module.name}")
        found.extend(getattr(loaded, "RESOURCES", ()))
    return Registry(sorted(found, key=lambda r: (r.group, r.plural)))
