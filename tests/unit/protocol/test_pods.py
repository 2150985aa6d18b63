"""The mounts of a pod and the folders behind them."""

from __future__ import annotations

from trainflow.protocol import pods


def test_every_folder_is_mounted_under_its_name() -> None:
    assert pods.MOUNTS == (pods.DATA_MOUNT, pods.RUNS_MOUNT, pods.CACHE_MOUNT)
    assert [mount.removeprefix("/") for mount in pods.MOUNTS] == list(pods.FOLDERS)
    assert pods.JOBS not in pods.FOLDERS
