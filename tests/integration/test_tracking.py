"""`trainflow export` against the trackers themselves: MLflow's own server, and W&B's own files of its offline mode.

They have an environment of their own, which `make test-slow` installs: MLflow's server brings a hundred packages.
"""

from __future__ import annotations

import json
import math
import os
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from local.twin import REPOSITORY
from tests.integration.commands import Answer, Commands
from tests.waiting import PATIENCE
from trainflow.client.files import write_record, write_report, write_steps
from trainflow.observed.step import Step
from trainflow.workflow.run_record import Inputs, RunError, RunRecord, RunStatus

PYTHON = REPOSITORY / ".venv-tracking" / "bin" / "python"

BEGIN = datetime(2026, 11, 21, 9, tzinfo=UTC)
NUM_STEPS = 600
"""With three figures each, they need more than one call of MLflow's `log_batch`."""

RUN_ID, FAILED = "bert-0123456789ab", "bert-ba9876543210"
CHECKPOINT = b"weights"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not PYTHON.exists(), reason="the trackers are not installed; `make test-slow` installs them"),
]


def steps() -> list[Step]:
    return [
        Step(
            BEGIN + timedelta(seconds=number),
            0,
            number,
            math.nan if number == 3 else 9.0 - number / NUM_STEPS,
            None,
            64.0,
            metrics={"acc@1": number / NUM_STEPS},
        )
        for number in range(1, NUM_STEPS + 1)
    ]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs that have ended on this machine, as they leave it."""
    folder = tmp_path_factory.mktemp("runs")
    spec = {"name": "bert", "workload": {"arguments": {"lr": 0.1}}, "compute": {"num_nodes": 2}}
    for run_id, status in ((RUN_ID, RunStatus.SUCCEEDED), (FAILED, RunStatus.FAILED)):
        record = RunRecord(
            run_id=run_id,
            status=status,
            spec=spec,
            started_at=BEGIN,
            ended_at=BEGIN + timedelta(hours=1),
            error=RunError(name="WorkerFailed", message="gone", what_to_do="") if status is RunStatus.FAILED else None,
            inputs=Inputs(git_commit="c" * 40, packages={"torch": "2.9.0"}),
        )
        out, published = folder / "out" / run_id, folder / ".trainflow" / "s3" / "artifacts" / "runs" / run_id
        (published / "checkpoints").mkdir(parents=True)
        out.mkdir(parents=True)
        write_record(record, out / "run.json")
        write_report(record, steps(), out / "report.html")
        for kept in (out, published):  # by the command that followed the run, and by the workflow
            write_steps(steps(), kept / "steps.json")
        (published / "checkpoints" / "last.pt").write_bytes(CHECKPOINT)
    return folder


def export(folder: Path, *words: str, status: int = 0, **environment: str) -> Answer:
    """`trainflow export` in the trackers' environment."""
    settings = {"PYTHONPATH": str(REPOSITORY), **environment}
    answer = Commands(folder, settings, alone=True, python=PYTHON).answer("export", *words, "--local")
    assert answer.status == status, answer.stderr
    return answer


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """MLflow's own server, with its data base and its files in a folder."""
    folder = tmp_path_factory.mktemp("mlflow")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    address = f"http://127.0.0.1:{port}"
    storage = ("--backend-store-uri", f"sqlite:///{folder}/runs.db", "--artifacts-destination", str(folder / "files"))
    with (folder / "server.log").open("wb") as log:
        process = subprocess.Popen(
            [
                str(PYTHON),
                "-m",
                "mlflow",
                "server",
                "--host",
                "127.0.0.1",
                "--port",
                str(port),
                "--workers",
                "1",
                *storage,
            ],
            cwd=folder,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env={**os.environ, "MLFLOW_DISABLE_TELEMETRY": "true", "PATH": f"{PYTHON.parent}:{os.environ['PATH']}"},
        )
        try:
            deadline = time.monotonic() + PATIENCE
            while not _answers(f"{address}/health"):
                assert process.poll() is None, (folder / "server.log").read_text()
                assert time.monotonic() < deadline, (folder / "server.log").read_text()
                time.sleep(0.2)
            yield address
        finally:
            os.killpg(process.pid, 15)
            process.wait(30)


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def asked(server: str, path: str, document: dict[str, Any] | None = None) -> Any:
    """An answer of MLflow's REST API, which is asked without MLflow's client."""
    request = urllib.request.Request(
        f"{server}/api/2.0/mlflow/{path}",
        data=json.dumps(document).encode() if document is not None else None,
        headers={"content-type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.loads(answer.read())


def run_in_mlflow(server: str, run_id: str) -> Any:
    experiment = asked(server, "experiments/get-by-name?experiment_name=research")["experiment"]
    wanted = {"experiment_ids": [experiment["experiment_id"]], "filter": f"tags.`trainflow.run_id` = '{run_id}'"}
    (found,) = asked(server, "runs/search", wanted)["runs"]
    return found


def history(server: str, number: str, metric: str) -> list[dict[str, Any]]:
    found = asked(server, f"metrics/get-history?run_id={number}&metric_key={metric}&max_results=10000")["metrics"]
    return sorted(found, key=lambda value: int(value["step"]))


def test_mlflows_server_has_the_run_with_all_of_its_steps(folder: Path, server: str) -> None:
    words = (RUN_ID, "--mlflow", server, "--experiment", "research", "--artifacts")
    for _ in range(2):  # the second time completes what is there
        assert "experiment research: run " in export(folder, *words).stdout
    found = run_in_mlflow(server, RUN_ID)
    info, number = found["info"], found["info"]["run_id"]
    assert (info["status"], info["run_name"]) == ("FINISHED", RUN_ID)
    assert (int(info["start_time"]), int(info["end_time"])) == tuple(
        round(moment.timestamp() * 1000) for moment in (BEGIN, BEGIN + timedelta(hours=1))
    )
    assert {one["key"]: one["value"] for one in found["data"]["params"]} == {
        "name": "bert",
        "workload.arguments.lr": "0.1",
        "compute.num_nodes": "2",
    }
    tags = {one["key"]: one["value"] for one in found["data"]["tags"]}
    assert tags["trainflow.package.torch"] == "2.9.0"
    assert tags["mlflow.source.git.commit"] == "c" * 40
    losses = history(server, number, "loss")
    assert [int(value["step"]) for value in losses] == list(range(1, NUM_STEPS + 1))
    assert float(losses[-1]["value"]) == 8.0
    assert int(losses[-1]["timestamp"]) == round((BEGIN + timedelta(seconds=NUM_STEPS)).timestamp() * 1000)
    assert math.isnan(float(losses[2]["value"]))
    assert len(history(server, number, "acc_1")) == NUM_STEPS
    files = {file["path"] for file in asked(server, f"artifacts/list?run_id={number}")["files"]}
    assert files == {"run.json", "report.html", "steps.json", "checkpoints"}
    (checkpoint,) = asked(server, f"artifacts/list?run_id={number}&path=checkpoints")["files"]
    assert (checkpoint["path"], int(checkpoint["file_size"])) == ("checkpoints/last.pt", len(CHECKPOINT))


def test_a_failed_run_has_failed_in_mlflow_too(folder: Path, server: str) -> None:
    export(folder, FAILED, "--mlflow", server, "--experiment", "research")
    found = run_in_mlflow(server, FAILED)
    assert found["info"]["status"] == "FAILED"
    assert {"key": "trainflow.error", "value": "WorkerFailed: gone"} in found["data"]["tags"]


def test_a_server_that_does_not_answer_is_one_sentence(folder: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and never listens
        address = f"http://127.0.0.1:{taken.getsockname()[1]}"
        done = export(folder, RUN_ID, "--mlflow", address, status=2)
    assert done.stderr.startswith(f"trainflow: MLflow at {address} did not take the run: ")
    assert len(done.stderr.splitlines()) == 1


READ_OFFLINE_RUN = """
import json, struct, sys
from pathlib import Path
from wandb.proto.wandb_internal_pb2 import Record

BLOCK, HEADER = 32768, 7

def documents(content):
    # LevelDB's log format: blocks of records with checksum, length and type (1 is whole, 4 the last part of one).
    at, parts = HEADER, b""  # W&B's own header is as long as a record's
    while at + HEADER <= len(content):
        if BLOCK - at % BLOCK < HEADER:
            at += BLOCK - at % BLOCK
            continue
        length, kind = struct.unpack("<HB", content[at + 4 : at + HEADER])
        parts += content[at + HEADER : at + HEADER + length]
        at += HEADER + length
        if kind in (1, 4):
            yield parts
            parts = b""

found = {"rows": [], "config": {}, "summary": {}, "files": [], "exit": None, "run": None}
for data in documents(Path(sys.argv[1]).read_bytes()):
    record = Record()
    record.ParseFromString(data)
    kind = record.WhichOneof("record_type")
    if kind == "history":
        row = {item.key or ".".join(item.nested_key): json.loads(item.value_json) for item in record.history.item}
        found["rows"].append({**row, "_step": record.history.step.num})
    elif kind == "run":
        run = record.run
        found["run"] = [run.project, run.run_id, run.display_name, run.run_group]
        found["config"].update({item.key: json.loads(item.value_json) for item in run.config.update})
    elif kind == "config":
        found["config"].update({item.key: json.loads(item.value_json) for item in record.config.update})
    elif kind == "summary":
        found["summary"].update(
            {item.key or ".".join(item.nested_key): json.loads(item.value_json) for item in record.summary.update}
        )
    elif kind == "artifact":
        found["files"] += [entry.path for entry in record.artifact.manifest.contents]
    elif kind == "request" and record.request.WhichOneof("request_type") == "log_artifact":
        found["files"] += [entry.path for entry in record.request.log_artifact.artifact.manifest.contents]
    elif kind == "exit":
        found["exit"] = record.exit.exit_code
print(json.dumps(found))
"""


def offline_run(folder: Path) -> Any:
    """The content of the one file that `wandb sync` would upload, read with W&B's own messages."""
    (file,) = folder.glob("wandb/offline-run-*/run-*.wandb")
    done = subprocess.run([str(PYTHON), "-c", READ_OFFLINE_RUN, str(file)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize(("run_id", "exit_code"), [(RUN_ID, 0), (FAILED, 1)])
def test_wandb_has_the_run_offline(folder: Path, tmp_path: Path, run_id: str, exit_code: int) -> None:
    done = export(folder, run_id, "--wandb", "research", WANDB_MODE="offline", WANDB_DIR=str(tmp_path))
    assert "offline-run-" in done.stdout
    assert done.stderr == ""
    found = offline_run(tmp_path)
    assert found["run"] == ["research", run_id, run_id, "bert"]
    assert found["exit"] == exit_code
    assert found["config"]["workload"] == {"arguments": {"lr": 0.1}}
    rows = found["rows"]
    assert [row["_step"] for row in rows] == list(range(1, NUM_STEPS + 1))
    assert (rows[-1]["loss"], rows[-1]["acc_1"]) == (8.0, 1.0)
    assert rows[-1]["_timestamp"] == (BEGIN + timedelta(seconds=NUM_STEPS)).timestamp()
    assert found["summary"]["trainflow.package.torch"] == "2.9.0"
    assert set(found["files"]) == {"run.json", "report.html"}
