"""The functions of docs/runbooks.md, as a person pastes them: real kubectl, aws and Slurm on jobs of every backend."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from kubetwin.client import ApiClient
from kubetwin.kubeconfig import load_connection
from kubetwin.node.shape import write_shape
from kubetwin_testing.cluster import command, eventually
from kubetwin_testing.kubernetes_cli import program

from lambdas.backends.kubernetes.pods import NODEGROUP_LABEL
from lambdas.backends.registry import KINDS
from lambdas.logic.jobs import announcement_url, job_of
from local.aws.server import AwsServer
from local.node_shapes import instance_shape
from local.shared_storage import offer
from local.slurm.cluster import SlurmCluster
from local.slurm.configuration import SlurmSettings
from tests.documents import blocks
from tests.fakes.runs import run_on
from tests.integration.api_paths import collection
from trainflow.deployment.backends import KUBERNETES_KINDS, KubernetesKind
from trainflow.nodes.instances import INSTANCE_TYPES, nodegroup_name
from trainflow.workflow.run import Stage

(PASTED,) = [block.text for block in blocks() if "rank0()" in block.text and block.need == "account"]
(ELASTIC,) = [block.text for block in blocks() if "elastic0()" in block.text]
(SLURM,) = [block.text for block in blocks() if "rank0()" in block.text and block.need == "slurm"]
GROUP = f"{NODEGROUP_LABEL}={nodegroup_name('trn1.32xlarge')}"
FUNCTIONS = "".join(re.findall(r"^(?:KINDS|FIRST)=.*\n|^(?:rank0|objects|remove)\(\).*\n", PASTED, re.MULTILINE))


@pytest.fixture(scope="module")
def kubeconfig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("cluster")
    write_shape(folder / "shape.json", instance_shape(INSTANCE_TYPES["trn1.32xlarge"]))
    options = ("--nodes", "2", "--shape", str(folder / "shape.json"), "--label", GROUP)
    with command("--state", str(folder), *options) as (_, ready):
        yield Path(ready["kubeconfig"])


@pytest.fixture
def kubectl(tmp_path: Path, pytestconfig: pytest.Config) -> Path:
    """A folder with the real one."""
    (tmp_path / "kubectl").symlink_to(program("kubectl", pytestconfig.cache.mkdir("kubernetes-cli")))
    return tmp_path


def shell(text: str, environment: Mapping[str, str], *folders: Path) -> str:
    """What bash prints that runs the text; not what it complains about.

    Args:
        text: As pasted and typed.
        environment: Beside the search path.
        folders: Looked into before the machine's.
    """
    search = ":".join([*map(str, folders), os.environ["PATH"]])
    done = subprocess.run(
        ["bash", "-u"],
        input=text,
        env={"PATH": search, **environment},
        text=True,
        capture_output=True,
        check=False,
        timeout=60,
    )
    return done.stdout


def create(api: ApiClient, manifests: Sequence[Mapping[str, Any]], *, namespace: str) -> None:
    for manifest in manifests:
        api.create(collection(manifest, namespace), manifest)


@pytest.mark.parametrize("kind", KUBERNETES_KINDS.values(), ids=lambda kind: kind.name)
def test_the_objects_of_a_run_are_listed_rank_0_is_read_and_all_is_removed(
    kind: KubernetesKind, kubeconfig: Path, tmp_path: Path, kubectl: Path
) -> None:
    namespace = f"t-{uuid.uuid4().hex[:8]}"

    def typed(line: str) -> str:
        """What a shell prints into which the page's functions were pasted."""
        environment = {"HOME": str(tmp_path), "KUBECONFIG": str(kubeconfig)}
        return shell(f"NS={namespace}\n{FUNCTIONS}{line}\n", environment, kubectl)

    api = ApiClient(load_connection(kubeconfig))
    offer(api, tmp_path / "shared", namespace=namespace)
    run = run_on(kind.name)
    rank = kind.node_rank.replace("(", "{").replace(")", "}")  # of the container's variables, by its shell
    says = ("sh", "-c", f'echo "I am rank {rank}"; exec sleep 600')
    job = replace(job_of(run, Stage.TRAINING, 1, artifacts_url="s3://artifacts/runs/x/"), plan=None, command=says)
    create(api, KINDS[kind.name].render(job), namespace=namespace)

    eventually(lambda: "I am rank 0" in typed(f"rank0 {run.run_id}"), "rank 0 has written")
    assert "I am rank 1" not in typed(f"rank0 {run.run_id}")
    listed = typed(f"objects {run.run_id}").split()
    name = kind.kind.lower() + (f".{kind.group}" if kind.group else "")
    assert f"{name}/{job.ref.name}" in listed
    assert len([each for each in listed if each.startswith("pod/")]) == job.ref.num_nodes

    typed(f"remove {run.run_id}")
    eventually(lambda: typed(f"objects {run.run_id}") == "", "nothing of the run is left")


def test_rank_0_of_an_elastic_gang_is_read_from_the_pod_that_announced_itself(
    kubeconfig: Path, tmp_path: Path, kubectl: Path, aws: AwsServer
) -> None:
    namespace, name = f"t-{uuid.uuid4().hex[:8]}", f"d-{uuid.uuid4().hex[:8]}"
    outputs = {"ArtifactBucket": {"Value": {"Ref": "Artifacts"}}}
    template = {"Resources": {"Artifacts": {"Type": "AWS::S3::Bucket"}}, "Outputs": outputs}
    aws.client("cloudformation").create_stack(StackName=f"{name}-storage", TemplateBody=json.dumps(template))
    (stack,) = aws.client("cloudformation").describe_stacks(StackName=f"{name}-storage")["Stacks"]
    bucket = stack["Outputs"][0]["OutputValue"]

    api = ApiClient(load_connection(kubeconfig))
    offer(api, tmp_path / "shared", namespace=namespace)
    run = run_on("pytorchjob", elastic=True)
    url = f"s3://{bucket}/runs/{run.run_id}/"
    job = job_of(run, Stage.TRAINING, 2, artifacts_url=url)
    says = replace(job, plan=None, command=("sh", "-c", "echo I am $TRAINFLOW_POD_NAME; exec sleep 600"))
    create(api, KINDS["pytorchjob"].render(says), namespace=namespace)
    pods = f"/api/v1/namespaces/{namespace}/pods"
    found = eventually(lambda: sorted(pod["metadata"]["name"] for pod in api.get(pods)["items"])[1:], "two pods")

    def announce(attempt: int, pod: str) -> None:
        """Announce a pod as `trainer.announce` does in the process of rank 0."""
        key = announcement_url(job.ref.name.removesuffix("2") + str(attempt), artifacts_url=url)
        environ = {**aws.client_environment, "TRAINFLOW_RANK0_URL": key, "TRAINFLOW_POD_NAME": pod, "RANK": "0"}
        command = [sys.executable, "-m", "trainer.announce", "-c", "pass"]
        subprocess.run(command, env={**os.environ, **environ, "WORLD_SIZE": "1", "LOCAL_RANK": "0"}, check=True)

    announce(1, "a-pod-of-the-first-attempt")
    announce(2, found[0])
    environment = {**aws.client_environment, "HOME": str(tmp_path), "KUBECONFIG": str(kubeconfig)}
    text = f"NAME={name} NS={namespace}\n{ELASTIC}\nelastic0 {run.run_id}\n"
    programs = Path(sys.executable).parent
    eventually(lambda: f"I am {found[0]}" in shell(text, environment, kubectl, programs), "rank 0 has written")


@pytest.mark.slurm
def test_the_jobs_of_a_run_are_listed_rank_0_is_read_and_all_are_cancelled_on_a_login_node(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    with SlurmCluster(SlurmSettings(num_nodes=2), log_dir=tmp_path / "logs") as cluster:

        def typed(line: str) -> str:
            return shell(f"{SLURM}SHARED={shared}\n{line}\n", cluster.environment)

        def submit(job: str) -> None:
            folder = shared / "jobs" / job
            prints = f"echo I am {job} on node $SLURM_NODEID; exec sleep 600"
            script = f"#!/bin/bash\nmkdir {folder}\nsrun --output {folder}/%n.log bash -c '{prints}'\n"
            cluster.command(
                "sbatch", "--nodes=2", "--exclusive", f"--job-name={job}", f"--chdir={tmp_path}", stdin=script
            )

        def listed() -> list[list[str]]:
            return sorted(line.split()[1:3] for line in typed("objects bert-ab").splitlines())

        (shared / "jobs").mkdir(parents=True)
        first, second, of_another = (f"bert-{rest}" for rest in ("ab-training-1", "ab-training-2", "abc-training-1"))
        for job in (first, second, of_another):
            submit(job)
        eventually(lambda: f"I am {first} on node 0\n" in typed("rank0 bert-ab"), "rank 0 has written")
        assert "on node 1" not in typed("rank0 bert-ab")
        assert listed() == [[first, "RUNNING"], [second, "PENDING"]]  # each takes both nodes
        assert "Resources" in typed("objects bert-ab") or "Priority" in typed("objects bert-ab")

        typed("remove bert-ab")
        eventually(lambda: not listed(), "nothing of the run is left")
        assert of_another in cluster.command("squeue", "--noheader", "--format=%j")
