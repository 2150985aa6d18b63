"""TorchX's own command with `-s kubernetes`: it submits Volcano's jobs, follows, lists and cancels them.

It needs versions of packages that kubetwin's tests do not have: an environment of its own, at the end of PATH.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubetwin.client import ApiClient
from kubetwin.kubeconfig import load_connection
from kubetwin_testing.cluster import command, eventually

TORCHX = shutil.which("torchx")
IMAGE = "registry.example/train:1"
NODE = """
capacity: {cpu: 128, memory: 512Gi, pods: 110, aws.amazon.com/neurondevice: 16, vpc.amazonaws.com/efa: 8}
labels: {node.kubernetes.io/instance-type: trn1.32xlarge}
"""
QUEUE = """
apiVersion: scheduling.volcano.sh/v1beta1
kind: Queue
metadata: {name: test}
spec: {weight: 1, reclaimable: false}
"""
TRAIN = """
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
ranks = torch.tensor([float(dist.get_rank())])
dist.all_reduce(ranks)
print(f"rank {dist.get_rank()} of {dist.get_world_size()}: the ranks' sum is {ranks.item():g}")
dist.destroy_process_group()
"""
PROGRAMS = {"train.py": TRAIN, "fail.py": "raise SystemExit(3)", "wait.py": "import time; time.sleep(600)"}
PODS = "/api/v1/namespaces/default/pods"
QUEUES = "/apis/scheduling.volcano.sh/v1beta1/queues"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(TORCHX is None, reason="no torchx is on PATH"),
    pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="its jobs need PyTorch"),
]


@dataclass(frozen=True)
class TorchX:
    """The command `torchx`, and a client of the cluster of its kubeconfig."""

    api: ApiClient
    kubeconfig: Path
    home: Path

    def result(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Exit code and output of the command, whatever they are."""
        environment = {"PATH": os.environ["PATH"], "HOME": str(self.home), "KUBECONFIG": str(self.kubeconfig)}
        return subprocess.run(
            [str(TORCHX), *words],
            env=environment,
            cwd=self.home,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    def __call__(self, *words: str) -> str:
        """The output of the command, which has to succeed."""
        done = self.result(*words)
        assert done.returncode == 0, f"torchx {' '.join(words)}:\n{done.stdout}{done.stderr}"
        return done.stdout

    def ddp(
        self, *words: str, options: tuple[str, ...] = (), queue: str = "test", namespace: str = "default"
    ) -> list[str]:
        """The words that submit a distributed training as the tutorial does, without an image to build."""
        settings = ("-s", "kubernetes", "--workspace", "", "-cfg", f"queue={queue},namespace={namespace}")
        return ["run", *settings, *options, "dist.ddp", "-h", "aws_trn1.32xlarge", "--image", IMAGE, *words]

    def submit(self, *words: str) -> str:
        """Handle of a new job."""
        return self(*self.ddp(*words)).strip()

    def until(self, handle: str, holds: Callable[[str], bool], what: str) -> str:
        """The text of `torchx status` once it is as expected."""

        def poll() -> str | None:
            text = self("status", handle)
            return text if holds(text) else None

        return eventually(poll, f"{handle} {what}")

    def states(self) -> dict[str, str]:
        """The state of each job by its handle, as `torchx list` prints them."""
        rows = [line.split() for line in self("list", "-s", "kubernetes").splitlines()]
        return {row[0]: row[1] for row in rows if row[0].startswith("kubernetes://")}


@pytest.fixture(scope="module")
def torchx(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TorchX]:
    """The command, and a cluster of two trn1.32xlarge with the tutorial's queue."""
    folder = tmp_path_factory.mktemp("torchx")
    (image := folder / "image").mkdir()
    for name, text in PROGRAMS.items():
        (image / name).write_text(text)
    (shape := folder / "node.yaml").write_text(NODE)
    options = ("--nodes", "2", "--shape", str(shape), "--image", f"{IMAGE}={image}", "--known-image", IMAGE)
    with command("--state", str(folder / "state"), *options) as (_, ready):
        kubeconfig = Path(ready["kubeconfig"])
        api = ApiClient(load_connection(kubeconfig))
        api.create(QUEUES, yaml.safe_load(QUEUE))
        eventually(lambda: api.find("/api/v1/namespaces/default/serviceaccounts/default"), "the account")
        yield TorchX(api, kubeconfig, folder)


def job_name(handle: str) -> str:
    """The name of a job in its handle, `kubernetes://SESSION/NAMESPACE:NAME`."""
    return handle.rpartition(":")[2]


def pods(torchx: TorchX, handle: str) -> dict[str, str | None]:
    """The node of each pod of a job."""
    found = torchx.api.get(f"{PODS}?labelSelector=volcano.sh/job-name={job_name(handle)}")["items"]
    return {pod["metadata"]["name"]: pod["spec"].get("nodeName") for pod in found}


def test_a_distributed_training_succeeds_on_two_nodes_and_its_log_is_read(torchx: TorchX) -> None:
    handle = torchx.submit("-j", "2x1", "--script", "train.py")
    torchx.until(handle, lambda text: "State: SUCCEEDED" in text, "succeeds")
    assert torchx.states()[handle] == "SUCCEEDED"
    assert pods(torchx, handle).keys() == {f"{job_name(handle)}-train-{rank}-0" for rank in range(2)}
    assert set(pods(torchx, handle).values()) == {"local-0", "local-1"}
    log = torchx("log", f"{handle}/train")
    assert [f"rank {rank} of 2: the ranks' sum is 1" in log for rank in range(2)] == [True, True]


def test_a_training_that_fails_is_waited_for_and_told(torchx: TorchX) -> None:
    done = torchx.result(*torchx.ddp("-j", "2x1", "--script", "fail.py", options=("--wait", "--log")))
    assert done.returncode == 1
    assert "exitcode  : 3" in done.stdout + done.stderr
    assert "Job finished: FAILED" in done.stderr
    assert torchx.states()[done.stdout.splitlines()[0]] == "FAILED"


def test_a_training_that_runs_is_listed_and_cancelled(torchx: TorchX) -> None:
    handle = torchx.submit("-j", "2x1", "--script", "wait.py")
    torchx.until(handle, lambda text: text.count("RUNNING") == 3, "runs with both of its replicas")
    assert torchx.states()[handle] == "RUNNING"
    torchx("cancel", handle)
    assert handle not in torchx.states()
    eventually(lambda: not pods(torchx, handle), "the pods of the cancelled job are gone")
    assert f'jobs.batch.volcano.sh \\"{job_name(handle)}\\" not found' in torchx.result("status", handle).stderr


def test_an_elastic_training_begins_on_the_nodes_that_there_are(torchx: TorchX) -> None:
    handle = torchx.submit("-j", "1:3x1", "--script", "wait.py")
    torchx.until(handle, lambda text: (text.count("RUNNING"), text.count("PENDING")) == (3, 1), "runs on two nodes")
    torchx("cancel", handle)


@pytest.mark.parametrize(
    ("place", "sentence"),
    [
        ({"queue": "other"}, 'unable to find job queue: queue.scheduling.volcano.sh \\"other\\" not found'),
        ({"namespace": "other"}, 'namespaces \\"other\\" not found'),
    ],
)
def test_a_training_that_has_no_place_is_refused(torchx: TorchX, place: dict[str, Any], sentence: str) -> None:
    done = torchx.result(*torchx.ddp("-j", "2x1", "--script", "train.py", **place))
    assert done.returncode == 1
    assert sentence in done.stderr
