"""The printed shell pod, applied with the real kubectl to a cluster of kubetwin."""

from __future__ import annotations

import json
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from kubetwin.client import ApiClient
from kubetwin.kubeconfig import load_connection
from kubetwin_testing.cluster import command, eventually
from kubetwin_testing.kubernetes_cli import Cli, program

from local.shared_storage import offer


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with command("--state", str(tmp_path_factory.mktemp("cluster"))) as (_, ready):
        yield Path(ready["kubeconfig"])


@pytest.fixture
def kubectl(served: Path, tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config) -> Cli:
    path = program("kubectl", pytestconfig.cache.mkdir("kubernetes-cli"))
    cli = Cli(path, served, tmp_path_factory.getbasetemp(), f"t-{uuid.uuid4().hex[:8]}")
    cli("create", "namespace", cli.namespace)
    eventually(lambda: "default" in cli("get", "serviceaccounts"), "the default service account")
    return cli


def test_a_shell_pod_runs_on_the_shared_file_system_under_the_bounds_of_the_namespace(
    served: Path, kubectl: Cli, tmp_path: Path
) -> None:
    """The manifests that `python -m stacks.tools.manifests` prints, and one for the volume, which EKS has from FSx."""
    document = yaml.safe_load(Path("config/example.yaml").read_text())
    configuration = tmp_path / "mine.yaml"
    configuration.write_text(yaml.safe_dump({**document, "namespace": kubectl.namespace}))
    offer(ApiClient(load_connection(served)), tmp_path / "shared", namespace=kubectl.namespace)
    for arguments in ([], ["--shell"]):
        printed = subprocess.run(
            [sys.executable, "-m", "stacks.tools.manifests", *arguments, str(configuration)],
            capture_output=True,
            text=True,
            check=True,
        )
        kubectl("apply", "-f", "-", stdin=printed.stdout)
    kubectl("wait", "--for=condition=ready", "pod/shell", "--timeout=30s")
    mounted = eventually(lambda: kubectl("logs", "shell"), "the shell has said what is mounted")
    assert mounted.startswith("Filesystem")
    assert len(mounted.splitlines()) == 4
    assert {folder.name for folder in (tmp_path / "shared").iterdir()} == {"data", "runs", "cache"}
    used = json.loads(kubectl("get", "resourcequota", "runs", "-o", "json"))["status"]["used"]
    assert used["pods"] == "1"
    kubectl("delete", "pod", "shell")
