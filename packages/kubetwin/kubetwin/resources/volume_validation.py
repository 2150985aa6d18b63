"""Faults of a pod's volumes that the server refuses (pkg/apis/core/validation: validateVolumes)."""

from __future__ import annotations

from collections.abc import Iterator

from kubetwin.model.errors import FieldError, Object, bad_value, forbidden_field, not_supported, required
from kubetwin.model.names import validate_entry_name
from kubetwin.model.quantity import parse_quantity

_NEEDED = {
    "configMap": ("name",),
    "secret": ("secretName",),
    "hostPath": ("path",),
    "persistentVolumeClaim": ("claimName",),
    "nfs": ("server", "path"),
    "csi": ("driver",),
}
"""The fields that a volume's source needs to name anything."""

_HOST_PATHS = ("", "BlockDevice", "CharDevice", "Directory", "DirectoryOrCreate", "File", "FileOrCreate", "Socket")


def validate_volumes(volumes: list[Object], path: str) -> Iterator[FieldError]:
    """Faults of names and sources."""
    seen: set[str] = set()
    for place, volume in enumerate(volumes):
        where = f"{path}[{place}]"
        yield from validate_entry_name(volume.get("name", ""), seen, where)
        if len(volume) > 2:
            source = sorted(set(volume) - {"name"})[1]
            yield forbidden_field(f"{where}.{source}", "may not specify more than 1 volume type")
        yield from _source(volume, where)


def _source(volume: Object, path: str) -> Iterator[FieldError]:
    for source, fields in _NEEDED.items():
        for field in fields:
            if source in volume and not volume[source].get(field):
                yield required(f"{path}.{source}.{field}")
    for source in ("configMap", "secret"):
        if source in volume:
            yield from _projection(volume[source], f"{path}.{source}")
    yield from _paths(volume, path)
    limit = (volume.get("emptyDir") or {}).get("sizeLimit")
    if limit is not None and parse_quantity(limit) < 0:
        yield forbidden_field(f"{path}.emptyDir.sizeLimit", "SizeLimit field must be a valid resource quantity")


def _paths(volume: Object, path: str) -> Iterator[FieldError]:
    """Paths of the host and of a file server."""
    host, served = volume.get("hostPath") or {}, (volume.get("nfs") or {}).get("path", "")
    if ".." in host.get("path", "").split("/"):
        yield bad_value(f"{path}.hostPath.path", host["path"], "must not contain '..'")
    if host.get("type", "") not in _HOST_PATHS:
        yield not_supported(f"{path}.hostPath.type", host["type"], _HOST_PATHS)
    if served and not served.startswith("/"):
        yield bad_value(f"{path}.nfs.path", served, "must be an absolute path")


def _projection(source: Object, path: str) -> Iterator[FieldError]:
    """Modes of files, and keys with the files that they become."""
    items = source.get("items") or []
    modes = [(f"{path}.defaultMode", source.get("defaultMode"))]
    modes += [(f"{path}.items[{place}].mode", item.get("mode")) for place, item in enumerate(items)]
    for where, mode in modes:
        if mode is not None and not 0 <= mode <= 0o777:
            yield bad_value(where, mode, "must be a number between 0 and 0777 (octal), both inclusive")
    for place, item in enumerate(items):
        if not item.get("key"):
            yield required(f"{path}.items[{place}].key")
        where, file = f"{path}.items[{place}].path", item.get("path", "")
        if not file:
            yield required(where)
        elif file.startswith("/"):
            yield bad_value(where, file, "must be a relative path")
        elif ".." in file.split("/"):
            yield bad_value(where, file, "must not contain '..'")
