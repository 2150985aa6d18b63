"""The functions of docs/runbooks.md, as a person pastes them, with the real kubectl on jobs of every backend."""

from __future__ import annotations

import os
import re
import subprocess
import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from lambdas.handlers.backends import MANIFESTS
from lambdas.logic.jobs import job_of
from lambdas.logic.manifests.pods import NODEGROUP_LABEL
from lambdas.models.backends import KUBERNETES_KINDS, KubernetesKind
from lambdas.models.instances import nodegroup_name
from lambdas.models.run import Stage
from local.cluster.node.api import KubernetesApi
from local.cluster.node.kubeconfig import load_connection
from local.shared_storage import offer
from tests.documents import blocks
from tests.fakes.runs import run_on
from tests.integration.kubernetes_cli import program
from tests.integration.test_process_node import command, eventually

(PASTED,) = [block.text for block in blocks() if "rank0()" in block.text]
GROUP = f"{NODEGROUP_LABEL}={nodegroup_name('trn1.32xlarge')}"
FUNCTIONS = "".join(re.findall(r"^(?:KINDS|FIRST)=.*\n|^(?:rank0|objects|remove)\(\).*\n", PASTED, re.MULTILINE))


@pytest.fixture(scope="module")
def kubeconfig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with command("--state", str(tmp_path_factory.mktemp("cluster")), "--nodes", "2", "--label", GROUP) as (_, ready):
        yield Path(ready["kubeconfig"])


@pytest.mark.parametrize("kind", KUBERNETES_KINDS.values(), ids=lambda kind: kind.name)
def test_the_objects_of_a_run_are_listed_rank_0_is_read_and_all_is_removed(
    kind: KubernetesKind, kubeconfig: Path, tmp_path: Path, pytestconfig: pytest.Config
) -> None:
    kubectl = program("kubectl", pytestconfig.cache.mkdir("kubernetes-cli"))
    (tmp_path / "kubectl").symlink_to(kubectl)
    namespace = f"t-{uuid.uuid4().hex[:8]}"

    def typed(line: str) -> str:
        """What a shell prints into which the page's functions were pasted; not what it complains about."""
        done = subprocess.run(
            ["bash", "-u"],
            input=f"NS={namespace}\n{FUNCTIONS}{line}\n",
            env={"PATH": f"{tmp_path}:{os.environ['PATH']}", "HOME": str(tmp_path), "KUBECONFIG": str(kubeconfig)},
            text=True,
            capture_output=True,
            check=False,
            timeout=60,
        )
        return done.stdout

    api = KubernetesApi(load_connection(kubeconfig))
    offer(api, tmp_path / "shared", namespace=namespace)
    run = run_on(kind.name)
    says = ["sh", "-c", f"echo I am rank {kind.node_rank}; exec sleep 600"]
    job = replace(job_of(run, Stage.TRAINING, 1, artifacts_url="s3://artifacts/runs/x/"), command=tuple(says))
    for manifest in MANIFESTS[kind.name](job):
        group = manifest["apiVersion"]
        path = f"/apis/{group}" if "/" in group else f"/api/{group}"
        api.create(f"{path}/namespaces/{namespace}/{manifest['kind'].lower()}s", manifest)

    eventually(lambda: "I am rank 0" in typed(f"rank0 {run.run_id}"), "rank 0 has written")
    assert "I am rank 1" not in typed(f"rank0 {run.run_id}")
    listed = typed(f"objects {run.run_id}").split()
    name = kind.kind.lower() + (f".{kind.group}" if kind.group else "")
    assert f"{name}/{job.ref.name}" in listed
    assert len([each for each in listed if each.startswith("pod/")]) == job.ref.num_nodes

    typed(f"remove {run.run_id}")
    eventually(lambda: typed(f"objects {run.run_id}") == "", "nothing of the run is left")
