"""Node groups of the twin grow to what is asked for, however often that changes."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import psutil
from kubetwin.client import ApiClient
from kubetwin.kubeconfig import load_connection
from kubetwin_testing.cluster import command, eventually

from local.nodegroups import POLL_SECONDS, Nodegroups, NodeSettings

TYPE = "trn1.2xlarge"
SECRET = "for-pods-alone"


def test_nodes_that_are_wanted_one_after_another_share_processes(tmp_path: Path) -> None:
    wanted = 1
    with command("--state", str(tmp_path), "--nodes", "0") as (_, ready):
        kubeconfig = Path(ready["kubeconfig"])
        settings = NodeSettings(
            kubeconfig=kubeconfig,
            python=Path(sys.executable),
            pods_dir=tmp_path / "pods",
            image_root=tmp_path,
            environment={"AWS_SECRET_ACCESS_KEY": SECRET},
            log_file=tmp_path / "nodes.log",
            no_op_seconds=600,
        )
        api = ApiClient(load_connection(kubeconfig))
        nodegroups = Nodegroups(lambda: {"trainflow-trn1-2xlarge": (TYPE, wanted)}, settings)
        nodegroups.start()
        try:
            eventually(lambda: len(api.get("/api/v1/nodes")["items"]) == 1, "the first node")
            while wanted < 8:
                wanted += 1
                time.sleep(1.5 * POLL_SECONDS)
            eventually(lambda: len(api.get("/api/v1/nodes")["items"]) == 8, "eight nodes")
            assert 2 <= len(nodegroups.processes()) <= 3
            assert all(SECRET not in " ".join(psutil.Process(pid).cmdline()) for pid in nodegroups.processes())
            files = [path for path in tmp_path.iterdir() if path.is_file()]
            [file] = [path for path in files if SECRET in path.read_text(errors="replace")]
            assert file.stat().st_mode & 0o077 == 0
        finally:
            nodegroups.stop()
            api.close()
