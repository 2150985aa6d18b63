"""Runs that want the same data set at the same time, in the twin."""

from __future__ import annotations

import fcntl
import hashlib
import json
import shutil
import tarfile
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from kubetwin.client import ApiClient
from kubetwin.kubeconfig import load_connection

from local.aws import folder_buckets
from local.twin import Twin
from trainflow.deployment.kubernetes_names import RUN_LABEL
from trainflow.workflow.metric_names import NAMESPACE, RUN_DIMENSION

RUNS = ("same-00000000000a", "same-00000000000b")
BUCKET, KEY, PREFIX, MANIFEST = "tests", "corpora/shared.tar", "corpora/parts/", "corpora/parts.sha256"
BEGUN = {"Running", "Succeeded"}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The demo's shards in an archive, and once more below a prefix with a list of their checksums."""
    home = tmp_path_factory.mktemp("home")
    folder_buckets.ensure_demo_data(home / "s3")
    archive, parts = home / "s3" / BUCKET / KEY, home / "s3" / BUCKET / PREFIX
    archive.parent.mkdir(parents=True)
    shutil.copy(home / "s3" / folder_buckets.DEMO_BUCKET / folder_buckets.CORPUS_KEY, archive)
    with tarfile.open(archive) as shards:
        shards.extractall(parts, filter="data")
    (home / "s3" / BUCKET / MANIFEST).write_text(
        "".join(
            f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.relative_to(parts)}\n"
            for path in sorted(parts.rglob("*"))
            if path.is_file()
        )
    )
    return home


@pytest.fixture(scope="module")
def twin(home: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Twin]:
    with Twin(home=home, log_dir=tmp_path_factory.mktemp("logs"), time_scale=60) as running:
        yield running


def spec(**dataset: Any) -> dict[str, Any]:
    return {
        "version": 1,
        "name": "same",
        "workload": {
            "script": "tests/assets/programs/steps.py",
            "image": "trainer:test",
            "launcher": "mpi",
            "arguments": {"max_steps": 1},
        },
        "compute": {"instance_type": "trn1.2xlarge"},
        "precompile": {"enabled": False},
        "dataset": dataset,
    }


def start(twin: Twin, run_id: str, **dataset: Any) -> str:
    """Start a run; its execution's ARN."""
    assert twin.deployment is not None
    arn = twin.client("stepfunctions").start_execution(
        stateMachineArn=twin.deployment.address.state_machine_arn, name=run_id, input=json.dumps(spec(**dataset))
    )["executionArn"]
    return str(arn)


def ended(twin: Twin, *arns: str) -> list[str]:
    """How the executions end, those that fail in their own words."""
    states = twin.client("stepfunctions")

    def described() -> list[dict[str, Any]]:
        return [states.describe_execution(executionArn=arn) for arn in arns]

    eventually(lambda: all(each["status"] != "RUNNING" for each in described()))
    return [str(each.get("cause") or each["status"]) for each in described()]


def eventually(what: Callable[[], bool], *, seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < deadline, what
        time.sleep(0.1)


def staging_phases(api: ApiClient, namespace: str) -> dict[str, str]:
    """Phase of the staging pod of each run that has one."""
    pods = api.get(f"/api/v1/namespaces/{namespace}/pods")["items"]
    return {
        pod["metadata"]["labels"][RUN_LABEL]: pod["status"]["phase"]
        for pod in pods
        if pod["metadata"]["labels"].get("trainflow/stage") == "stage"
    }


def staged(twin: Twin, arn: str) -> dict[str, Any]:
    """What the run's staging program said at its end, from the execution's history."""
    pages = twin.client("stepfunctions").get_paginator("get_execution_history").paginate(executionArn=arn)
    outputs = (
        json.loads(event["taskSucceededEventDetails"]["output"]).get("Payload") or {}
        for page in pages
        for event in page["events"]
        if event["type"] == "TaskSucceeded"
    )
    (result,) = (output["dataset"] for output in outputs if output.get("finished") and "dataset" in output)
    return dict(result)


def published(twin: Twin, run_id: str, metric: str) -> float:
    """The highest value of one of the run's metrics in CloudWatch."""
    now = datetime.now(UTC)
    points = twin.client("cloudwatch").get_metric_statistics(
        Namespace=NAMESPACE,
        MetricName=metric,
        Dimensions=[{"Name": "Deployment", "Value": "twin"}, {"Name": RUN_DIMENSION, "Value": run_id}],
        StartTime=now - timedelta(hours=1),
        EndTime=now + timedelta(minutes=1),
        Period=3600,
        Statistics=["Maximum"],
    )["Datapoints"]
    return max(float(point["Maximum"]) for point in points)


@pytest.mark.slow
def test_two_runs_that_want_one_data_set_at_once_fetch_it_once(twin: Twin, home: Path) -> None:
    api = ApiClient(load_connection(twin.kubeconfig))
    # As long as another process stages the data set, neither of the two can begin, so they begin at the same time.
    with (home / "volumes" / "data" / ".shared.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        arns = [start(twin, run, url=f"s3://{BUCKET}/{KEY}") for run in RUNS]
        eventually(lambda: {*RUNS} <= {run for run, at in staging_phases(api, twin.namespace).items() if at in BEGUN})

    assert ended(twin, *arns) == ["SUCCEEDED", "SUCCEEDED"]
    one, other = (staged(twin, arn) for arn in arns)
    assert sorted([one["skipped"], other["skipped"]]) == [False, True]
    assert (one["etag"], one["files"]) == (other["etag"], other["files"])
    assert (home / "volumes" / "data" / "shared").is_dir()


def test_a_prefix_of_a_public_bucket_is_staged_as_its_manifest_says(twin: Twin, home: Path) -> None:
    url, manifest_url = f"s3://{BUCKET}/{PREFIX}", f"s3://{BUCKET}/{MANIFEST}"
    arn = start(twin, "prefix-00000000000a", url=url, public=True, manifest_url=manifest_url)
    assert ended(twin, arn) == ["SUCCEEDED"]
    there, source = home / "volumes" / "data" / "parts", home / "s3" / BUCKET / PREFIX
    names = {path.relative_to(source) for path in source.rglob("*") if path.is_file()}
    assert staged(twin, arn)["files"] == len(names)
    assert all((there / name).read_bytes() == (source / name).read_bytes() for name in names)
    num_bytes = sum((source / name).stat().st_size for name in names)
    assert published(twin, "prefix-00000000000a", "StagedBytes") == num_bytes
    assert published(twin, "prefix-00000000000a", "StagingProgress") == 100
