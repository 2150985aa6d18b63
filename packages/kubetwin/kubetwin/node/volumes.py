"""The volumes of a pod as folders of the host."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from kubetwin.node.environment import ConfigSource, ContainerConfigError, field_value, read_content
from kubetwin.node.expansion import expand


class VolumeError(Exception):
    """A volume cannot be mounted now; the text names the reason."""


class VolumeSource(ConfigSource, Protocol):
    """Reader of the objects that volumes refer to."""

    def claim(self, namespace: str, name: str) -> dict[str, Any] | None:
        """The PersistentVolumeClaim, or None if it does not exist."""

    def persistent_volume(self, name: str) -> dict[str, Any] | None:
        """The PersistentVolume, or None if it does not exist."""


def prepare_volumes(pod: Mapping[str, Any], folder: Path, source: VolumeSource) -> dict[str, Path]:
    """Make the folders of a pod's volumes and fill those that hold objects of the API.

    Args:
        pod: The pod.
        folder: Folder of the volumes that are removed with the pod.
        source: Reader of claims, volumes, ConfigMaps and Secrets.

    Returns:
        Host path of each volume, by its name.

    Raises:
        VolumeError: If a volume cannot be mounted (yet).
    """
    return {
        volume["name"]: _prepare(volume, pod, folder / volume["name"], source)
        for volume in (pod.get("spec") or {}).get("volumes") or []
    }


def mount_paths(
    container: Mapping[str, Any], volumes: Mapping[str, Path], variables: Mapping[str, str], *, as_root: bool = True
) -> dict[str, str]:
    """Host path of each mount path of a container; folders named by `subPath` are made.

    The kubelet makes them as root, with the mode of the volume's root (`makeMounts` in kubelet_pods.go). So other users
    may not write there, unless the volume's root lets all users write.

    Args:
        container: The container's manifest.
        volumes: Host path of each volume.
        variables: The container's environment, for `subPathExpr`.
        as_root: Whether the container's user is root.

    Raises:
        VolumeError: If a sub-path leaves its volume.
    """
    paths: dict[str, str] = {}
    for mount in container.get("volumeMounts") or []:
        volume = volumes.get(mount["name"])
        if volume is None:
            raise VolumeError(f'volume "{mount["name"]}" of mount {mount["mountPath"]} is not in spec.volumes')
        sub_path = mount.get("subPath") or expand(mount.get("subPathExpr") or "", variables)
        paths[mount["mountPath"]] = str(_inside(volume, sub_path, as_root=as_root))
    return paths


def _inside(volume: Path, sub_path: str, *, as_root: bool) -> Path:
    if not sub_path:
        return volume
    target = volume / sub_path
    if not target.resolve().is_relative_to(volume.resolve()):
        raise VolumeError(f"subPath {sub_path!r} leaves its volume")
    missing = [path for path in (target, *target.parents) if path.is_relative_to(volume) and not path.exists()]
    if missing:
        mode = volume.stat().st_mode & 0o777
        target.mkdir(parents=True, exist_ok=True)
        for path in missing:
            path.chmod(mode if as_root or mode & 0o002 else mode & 0o555)
    return target


def _prepare(volume: Mapping[str, Any], pod: Mapping[str, Any], folder: Path, source: VolumeSource) -> Path:
    namespace = pod["metadata"]["namespace"]
    if "persistentVolumeClaim" in volume:
        return _claimed_folder(volume["persistentVolumeClaim"]["claimName"], namespace, source)
    if "hostPath" in volume:
        return _host_folder(volume["hostPath"])
    folder.mkdir(parents=True, exist_ok=True)
    if "emptyDir" not in volume:
        files = _volume_files(volume, pod, source)
        for path, content in files.items():
            target = folder / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content)
    return folder


def _claimed_folder(name: str, namespace: str, source: VolumeSource) -> Path:
    claim = source.claim(namespace, name)
    if claim is None:
        raise VolumeError(f'persistentvolumeclaim "{name}" not found')
    volume_name = (claim.get("spec") or {}).get("volumeName")
    volume = source.persistent_volume(volume_name) if volume_name else None
    if volume is None:
        raise VolumeError(f'persistentvolumeclaim "{name}" is not bound to a volume')
    spec = volume.get("spec") or {}
    if "hostPath" in spec:
        return _host_folder({"type": "DirectoryOrCreate", **spec["hostPath"]})
    if "local" in spec:
        return _host_folder({**spec["local"], "type": "Directory"})
    raise VolumeError(f'persistentvolume "{volume_name}" is neither hostPath nor local: a process node mounts no other')


def _host_folder(host_path: Mapping[str, Any]) -> Path:
    path, kind = Path(host_path["path"]), host_path.get("type") or ""
    try:
        if kind == "DirectoryOrCreate":
            path.mkdir(parents=True, exist_ok=True)
        elif kind == "FileOrCreate":
            path.touch(exist_ok=True)
    except OSError as error:
        raise VolumeError(f"hostPath {path} cannot be made: {error.strerror}") from error
    if (kind == "Directory" and not path.is_dir()) or (kind == "File" and not path.is_file()):
        raise VolumeError(f"hostPath type check failed: {path} is not a {kind.lower()}")
    return path


def _volume_files(volume: Mapping[str, Any], pod: Mapping[str, Any], source: VolumeSource) -> dict[str, bytes]:
    try:
        if "projected" in volume:
            files: dict[str, bytes] = {}
            for projection in volume["projected"].get("sources") or []:
                # A process of this node has no use for a service account: the token is left out.
                files.update({} if "serviceAccountToken" in projection else _files(projection, pod, source))
            return files
        return _files(volume, pod, source)
    except ContainerConfigError as error:
        raise VolumeError(f'volume "{volume["name"]}": {error}') from error


def _files(volume: Mapping[str, Any], pod: Mapping[str, Any], source: VolumeSource) -> dict[str, bytes]:
    namespace = pod["metadata"]["namespace"]
    if "configMap" in volume:
        return _chosen(volume["configMap"], read_content("configmap", volume["configMap"], namespace, source))
    if "secret" in volume:
        return _chosen(volume["secret"], read_content("secret", volume["secret"], namespace, source))
    if "downwardAPI" in volume:
        items = volume["downwardAPI"].get("items") or []
        return {
            item["path"]: field_value(item["fieldRef"]["fieldPath"], pod).encode()
            for item in items
            if "fieldRef" in item
        }
    kind = next((key for key in volume if key != "name"), "nothing")
    raise VolumeError(f'volume "{volume.get("name", "")}" is of kind {kind}, which a process node does not mount')


def _chosen(selector: Mapping[str, Any], content: dict[str, bytes] | None) -> dict[str, bytes]:
    """The files that `items` picks; all keys without items."""
    items = selector.get("items")
    if content is None or not items:
        return content or {}
    missing = [item["key"] for item in items if item["key"] not in content]
    if missing and not selector.get("optional"):
        raise ContainerConfigError(f"references non-existent config key: {missing[0]}")
    return {item["path"]: content[item["key"]] for item in items if item["key"] in content}


def remove_all_but_logs(folder: Path) -> None:
    """Remove the files of an ended pod, except for its logs."""
    for entry in folder.iterdir() if folder.is_dir() else ():
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry, ignore_errors=True)
        elif entry.suffix != ".log":
            entry.unlink(missing_ok=True)
