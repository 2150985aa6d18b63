"""Runs in a cluster that injects containers into their pods: they end, are judged and are told as runs without them."""

from __future__ import annotations

import functools
import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from local.place import TwinRuns
from local.twin import Twin
from tests.integration.running import follow_run
from tests.integration.test_runs import TIME_SCALE, steps_spec
from trainflow.spec.run_spec import parse_run_spec
from trainflow.workflow.run_record import RunRecord

RANK0 = re.compile(r"-0-\w{5}$")
"""End of the names of pods of index 0 in a Job."""

ENDS = {"succeeds": {"max_steps": 4}, "fails": {"max_steps": 40, "exits_at": 25, "exit_code": 5}}
"""The one that fails trains for some polls: a failure before the first step that was read is another class."""


@pytest.fixture(scope="module")
def twin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Twin]:
    folder = tmp_path_factory.mktemp("injected")
    with subprocess.Popen(
        [
            *(sys.executable, "-m", "tests.integration.injecting_cluster"),
            *("--state", str(folder / "cluster"), "--nodes", "0", "--until-stdin-closes"),
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as cluster:
        assert cluster.stdout is not None
        kubeconfig = Path(json.loads(cluster.stdout.readline())["kubeconfig"])
        with Twin(
            home=folder / "home", log_dir=folder / "logs", time_scale=TIME_SCALE, kubeconfig=kubeconfig
        ) as running:
            yield running
        cluster.communicate()


class Inbox:
    """Texts of the messages that the deployment sends."""

    def __init__(self, twin: Twin, name: str) -> None:
        assert twin.deployment is not None
        self._sqs = twin.client("sqs")
        self._url = self._sqs.create_queue(QueueName=name)["QueueUrl"]
        found = self._sqs.get_queue_attributes(QueueUrl=self._url, AttributeNames=["QueueArn"])
        arn = found["Attributes"]["QueueArn"]
        twin.client("sns").subscribe(TopicArn=twin.deployment.topic_arn, Protocol="sqs", Endpoint=arn)

    def texts(self, run_id: str) -> list[str]:
        found: list[Any] = []
        while page := self._sqs.receive_message(QueueUrl=self._url, MaxNumberOfMessages=10).get("Messages"):
            found += [json.loads(each["Body"]) for each in page]
        return [f"{each['Subject']}\n{each['Message']}" for each in found if run_id in each["Subject"]]


@dataclass(frozen=True)
class Seen:
    """What people and programs see of a run, without names, times and costs."""

    status: str
    error: tuple[str, str] | None
    pods: tuple[Any, ...]
    details: tuple[Any, ...]
    log: tuple[str, ...]
    published: int | None
    """Steps that the functions read in the log and published."""
    mail: tuple[str, ...]
    restarts: int


def seen(twin: Twin, name: str, end: str, folder: Path) -> Seen:
    run_id = f"{name}-{end}"
    inbox, place = Inbox(twin, run_id), TwinRuns(twin)
    spec = parse_run_spec(steps_spec(seconds_per_step=0.2, **ENDS[end]))
    record = follow_run(twin, spec, run_id, folder=folder)
    details = place.details(run_id)
    return Seen(
        status=record.status.value,
        error=(record.error.name, _plain(record.error.message, run_id)) if record.error else None,
        pods=tuple(_rank0_pods(record)),
        details=tuple(_pods_of(details)),
        log=tuple(_log(folder, record)),
        published=record.metrics_published and record.metrics_published.datapoints,
        mail=tuple(_plain(text, run_id).split("\n")[0] for text in inbox.texts(run_id)),
        restarts=len(record.restarts),
    )


def _rank0_pods(record: RunRecord) -> Iterator[Any]:
    """Ends of the pods of rank 0. The others of a gang that fails end when their job's controller deletes them."""
    for stage, job in sorted(record.jobs.items()):
        yield from ((stage, pod.exit_code) for pod in job.pods if RANK0.search(pod.name))


def _pods_of(details: Any) -> Iterator[Any]:
    yield from ((pod.stage, pod.phase, pod.exit_code) for pod in details.pods if RANK0.search(pod.name))


def _log(folder: Path, record: RunRecord) -> list[str]:
    rank0 = record.jobs["training"].rank0
    assert rank0 is not None
    lines = (folder / "logs" / f"{rank0}.log").read_text().splitlines()
    return [re.sub(r"LOG \w+ \w+ +\d+ [\d:]+ \d+ - ", "", line) for line in lines]


def _plain(text: str, run_id: str) -> str:
    """A text without the run's name, nodes, times and costs."""
    text = re.sub(r"(-\d-\d)-\w{5}\b", r"\1", text.replace(run_id, "RUN"))
    return re.sub(r"trn1-32xlarge-\d+|\d{4}-\d\d-\d\d\S*|\d+[.:]\d+", "…", text)


Plain = Callable[[str], Seen]


@pytest.fixture(scope="module")
def plain(twin: Twin, tmp_path_factory: pytest.TempPathFactory) -> Plain:
    """A run without injected containers that ends in this way, made once."""

    @functools.cache
    def run(end: str) -> Seen:
        found = seen(twin, "plain", end, tmp_path_factory.mktemp("plain"))
        assert found.status == ("SUCCEEDED" if end == "succeeds" else "FAILED")
        assert any("step_loss" in line for line in found.log)
        return found

    return run


@pytest.mark.parametrize(
    "name", ["keeps", *(pytest.param(name, marks=pytest.mark.slow) for name in ("ends", "beside"))]
)
@pytest.mark.parametrize("end", ["fails", pytest.param("succeeds", marks=pytest.mark.slow)])
def test_a_run_with_injected_containers_is_as_one_without(
    twin: Twin, plain: Plain, tmp_path: Path, end: str, name: str
) -> None:
    assert seen(twin, name, end, tmp_path / name) == plain(end)
