from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest
from kubetwin.node.volumes import VolumeError, mount_paths, prepare_volumes, remove_all_but_logs


class FakeSource:
    """A claim `fsx-claim` bound to a hostPath volume, one that is not bound, a ConfigMap and a Secret."""

    def __init__(self, host: Path) -> None:
        self.host = host

    def claim(self, namespace: str, name: str) -> dict[str, Any] | None:
        claims: dict[str, dict[str, Any]] = {"fsx-claim": {"spec": {"volumeName": "fsx"}}, "unbound": {"spec": {}}}
        return claims.get(name)

    def persistent_volume(self, name: str) -> dict[str, Any] | None:
        return {"spec": {"hostPath": {"path": str(self.host)}}}

    def config_map(self, namespace: str, name: str) -> dict[str, Any] | None:
        return {"data": {"a.yaml": "A", "b.yaml": "B"}} if name == "cfg" else None

    def secret(self, namespace: str, name: str) -> dict[str, Any] | None:
        return {"data": {"key": base64.b64encode(b"\x00\x01").decode()}} if name == "keys" else None


def prepare(tmp_path: Path, **volume: Any) -> Path:
    pod = {
        "metadata": {"name": "p", "namespace": "ns", "uid": "u", "labels": {"a": "1"}},
        "spec": {"volumes": [{"name": "v", **volume}]},
    }
    return prepare_volumes(pod, tmp_path / "pod", FakeSource(tmp_path / "fsx"))["v"]


def test_a_claim_is_the_host_path_of_its_volume(tmp_path: Path) -> None:
    assert prepare(tmp_path, persistentVolumeClaim={"claimName": "fsx-claim"}) == tmp_path / "fsx"
    assert (tmp_path / "fsx").is_dir()


def test_an_empty_dir_is_a_folder_of_the_pod(tmp_path: Path) -> None:
    folder = prepare(tmp_path, emptyDir={})
    assert folder.is_dir() and folder.is_relative_to(tmp_path / "pod")


@pytest.mark.parametrize(
    ("volume", "files"),
    [
        ({"configMap": {"name": "cfg"}}, {"a.yaml": b"A", "b.yaml": b"B"}),
        ({"configMap": {"name": "cfg", "items": [{"key": "b.yaml", "path": "x/c.yaml"}]}}, {"x/c.yaml": b"B"}),
        ({"configMap": {"name": "nope", "optional": True}}, {}),
        ({"secret": {"secretName": "keys"}}, {"key": b"\x00\x01"}),
        ({"downwardAPI": {"items": [{"path": "ns", "fieldRef": {"fieldPath": "metadata.namespace"}}]}}, {"ns": b"ns"}),
        (
            {"projected": {"sources": [{"serviceAccountToken": {"path": "token"}}, {"secret": {"name": "keys"}}]}},
            {"key": b"\x00\x01"},
        ),
    ],
)
def test_volumes_of_files_hold_the_objects_of_the_api(
    tmp_path: Path, volume: dict[str, Any], files: dict[str, bytes]
) -> None:
    folder = prepare(tmp_path, **volume)
    found = {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    assert found == files


@pytest.mark.parametrize(
    ("volume", "message"),
    [
        ({"persistentVolumeClaim": {"claimName": "nope"}}, '"nope" not found'),
        ({"persistentVolumeClaim": {"claimName": "unbound"}}, '"unbound" is not bound'),
        ({"configMap": {"name": "nope"}}, 'configmap "nope" not found'),
        ({"hostPath": {"path": "/no/such/folder", "type": "Directory"}}, "is not a directory"),
        ({"nfs": {"server": "s"}}, "kind nfs"),
    ],
)
def test_a_volume_that_cannot_be_mounted_is_named(tmp_path: Path, volume: dict[str, Any], message: str) -> None:
    with pytest.raises(VolumeError, match=message):
        prepare(tmp_path, **volume)


def test_sub_paths_are_made_below_the_volume(tmp_path: Path) -> None:
    container = {
        "volumeMounts": [
            {"name": "v", "mountPath": "/data", "subPath": "data"},
            {"name": "v", "mountPath": "/mine", "subPathExpr": "runs/$(POD)"},
            {"name": "v", "mountPath": "/all"},
        ]
    }
    assert mount_paths(container, {"v": tmp_path}, {"POD": "p-0"}) == {
        "/data": str(tmp_path / "data"),
        "/mine": str(tmp_path / "runs/p-0"),
        "/all": str(tmp_path),
    }
    assert (tmp_path / "data").is_dir() and (tmp_path / "runs/p-0").is_dir()


@pytest.mark.parametrize(
    ("mode", "as_root", "made"), [(0o755, False, 0o555), (0o777, False, 0o777), (0o755, True, 0o755)]
)
def test_a_missing_sub_path_belongs_to_root_and_has_the_mode_of_the_volume(
    tmp_path: Path, mode: int, as_root: bool, made: int
) -> None:
    (tmp_path / "runs").mkdir()
    tmp_path.chmod(mode)
    mounts = [
        {"name": "v", "mountPath": "/a", "subPath": "runs/a/b"},
        {"name": "v", "mountPath": "/r", "subPath": "runs"},
    ]
    mount_paths({"volumeMounts": mounts}, {"v": tmp_path}, {}, as_root=as_root)
    modes = [(tmp_path / path).stat().st_mode & 0o777 for path in ("runs/a", "runs/a/b")]
    assert modes == [made, made]
    assert (tmp_path / "runs").stat().st_mode & 0o200, "it was there"


@pytest.mark.parametrize(
    "mount", [{"name": "v", "mountPath": "/x", "subPath": "../out"}, {"name": "w", "mountPath": "/x"}]
)
def test_mounts_outside_of_the_pods_volumes_are_refused(tmp_path: Path, mount: dict[str, str]) -> None:
    with pytest.raises(VolumeError):
        mount_paths({"volumeMounts": [mount]}, {"v": tmp_path}, {})


def test_only_logs_outlive_a_pod_and_links_are_not_followed(tmp_path: Path) -> None:
    folder, outside = tmp_path / "pod", tmp_path / "outside"
    outside.mkdir()
    (outside / "kept").touch()
    (folder / "work").mkdir(parents=True)
    (folder / "work" / "link").symlink_to(outside)
    (folder / "c.log").touch()
    (folder / "c.pid").touch()
    remove_all_but_logs(folder)
    assert [path.name for path in folder.iterdir()] == ["c.log"]
    assert (outside / "kept").exists()
