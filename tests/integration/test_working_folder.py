"""Files that a program writes to its working folder are published, and found again after a restart: the real workflow
in the twin."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from local.aws.deployment import ARTIFACT_BUCKET
from local.twin import Twin
from tests.integration.running import follow_run, replayed
from trainflow.cli.follow.summary import summarize
from trainflow.client.code import pack
from trainflow.spec.run_spec import parse_run_spec
from trainflow.workflow.run_record import RunRecord, RunStatus

TRAINS = """
import os, pathlib, signal, sys
rank = int(os.environ["TRAINFLOW_NODE_RANK"])
snapshot = pathlib.Path("snapshot.pt")
first = int(snapshot.read_text()) + 1 if snapshot.exists() else 1
print("first step", first, flush=True)
for step in range(first, 7):
    print("step", step, "loss", 1 / step, flush=True)
    if rank == 0:
        snapshot.write_text(str(step))
    pathlib.Path(f"checkpoints/rank_{rank}.pt").write_text(str(step))
    if step == 3 and first == 1 and rank == 0 and "--die" in sys.argv:
        os.kill(os.getpid(), signal.SIGKILL)
pathlib.Path("größe 1.txt").write_text("x")
pathlib.Path(os.fsdecode(b"latin\\xe9.txt")).write_text("x")
if "BIG" in os.environ:
    with open("big.bin", "wb") as file:
        file.truncate(int(os.environ["BIG"]))
"""

Run = Callable[..., tuple[RunRecord, str]]


def spec(*, num_nodes: int, arguments: list[str], **workload: Any) -> dict[str, Any]:
    return {
        "version": 1,
        "name": "works",
        "workload": {
            "script": "train.py",
            "code": ".",
            "image": "trainer:test",
            "launcher": "none",
            "positional": arguments,
            **workload,
        },
        "compute": {"instance_type": "c7i.xlarge", "num_nodes": num_nodes, "check_nodes": False},
        "progress": {"pattern": r"step (?P<step>\d+) loss (?P<loss>\S+)"},
        "limits": {"max_restarts": 1, "restart_in_place": False},
    }


@pytest.fixture
def run(twin: Twin, tmp_path: Path) -> Run:
    project = tmp_path / "project"
    (project / "checkpoints").mkdir(parents=True)
    (project / "checkpoints" / "README").write_text("here")
    (project / "train.py").write_text(TRAINS)

    def start(run_id: str, *arguments: str, num_nodes: int = 1, **workload: Any) -> tuple[RunRecord, str]:
        document = spec(num_nodes=num_nodes, arguments=list(arguments), **workload)
        code = pack(parse_run_spec(document).workload, beside=project)
        assert code is not None
        key = f"code/{code.sha256}.tar.gz"
        twin.client("s3").put_object(Bucket=ARTIFACT_BUCKET, Key=key, Body=code.content)
        document["workload"]["code"] = f"s3://{ARTIFACT_BUCKET}/{key}"
        console = Console(file=io.StringIO(), width=1000)
        record = follow_run(twin, parse_run_spec(document), run_id, folder=tmp_path / run_id, console=console)
        summarize(record, console)
        assert replayed(twin, run_id)
        assert isinstance(console.file, io.StringIO)
        return record, console.file.getvalue()

    return start


def published(twin: Twin, run_id: str) -> dict[str, bytes]:
    s3, prefix = twin.client("s3"), f"runs/{run_id}/workspace"
    pages = s3.get_paginator("list_objects_v2").paginate(Bucket=ARTIFACT_BUCKET, Prefix=prefix)
    keys = [found["Key"] for page in pages for found in page.get("Contents", ())]
    bodies = {key: s3.get_object(Bucket=ARTIFACT_BUCKET, Key=key)["Body"].read() for key in keys}
    return {key.removeprefix(prefix): body for key, body in bodies.items()}


def test_a_gang_that_is_killed_goes_on_from_the_files_of_its_working_folder(run: Run, twin: Twin) -> None:
    run_id = "works-000000000001"
    record, followed = run(run_id, "--die", num_nodes=2)
    assert record.status is RunStatus.SUCCEEDED, record.error
    assert len(record.restarts) == 1
    assert published(twin, run_id) == {
        "/snapshot.pt": b"6",
        "/checkpoints/rank_0.pt": b"6",
        "/checkpoints/rank_1.pt": b"6",
        "/größe 1.txt": b"x",
    }
    assert record.lost_files is None
    assert [each for each in record.warnings if "not published" in each] == [
        r"1 file was not published: workspace/latin\xe9.txt (its name is not UTF-8). They stay in "
        f"/runs/{run_id} on the file system."
    ]
    assert f"Run succeeded with warnings: {run_id}" in followed


def test_a_file_beyond_the_limit_is_named_with_its_size(run: Run, twin: Twin) -> None:
    run_id = "works-000000000002"
    record, followed = run(run_id, kept_gib=1, env={"BIG": str(3 << 30)})
    assert record.status is RunStatus.SUCCEEDED
    assert sorted(published(twin, run_id)) == ["/checkpoints/rank_0.pt", "/größe 1.txt", "/snapshot.pt"]
    assert any("workspace/big.bin (3.0 GiB)" in warning for warning in record.warnings)
    assert "workspace/big.bin (3.0 GiB)" in followed
