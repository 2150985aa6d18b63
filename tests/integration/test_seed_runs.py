"""Every tutorial that Trainflow replaces is one spec, and goes end to end in the twin with its override."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from kubetwin.client import ApiClient
from kubetwin.kubeconfig import load_connection

from local.aws import deployment
from local.twin import Twin
from tests.integration.running import follow_run
from tests.integration.test_runs import (
    assert_nothing_is_left,
    assert_training_took_its_graphs_from_the_cache,
    processes_of,
    steps_spec,
    tutorial_that_compiles,
)
from trainflow.client.spec_file import read_spec
from trainflow.record.steps import kept_steps_from_json
from trainflow.spec.run_spec import RunSpec, parse_run_spec
from trainflow.workflow.run_record import RunRecord

pytestmark = pytest.mark.slow

OVERRIDES = sorted(path for path in Path("runs/overrides").glob("*.yaml") if "slurm" not in path.stem)
"""Those for Slurm have a twin with one: test_slurm_runs.py."""
PRIORITY_CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"

GANG_BACKENDS = ("job", "jobset", "volcano", "pytorchjob", "trainjob")

Run = Callable[[RunSpec, str], RunRecord]


@pytest.fixture(scope="module")
def twin(demo_twin: Twin) -> Twin:
    return demo_twin


@pytest.fixture
def run(twin: Twin, tmp_path: Path) -> Run:
    def start(spec: RunSpec, run_id: str) -> RunRecord:
        return follow_run(twin, spec, run_id, folder=tmp_path / run_id)

    return start


def on_backend(backend: str, **arguments: Any) -> RunSpec:
    """Two nodes that log steps, launched in one of the ways; a worker that dies ends the run."""
    document = steps_spec(launcher="torchrun", **arguments) | {"limits": {"max_restarts": 0}}
    document["compute"]["backend"] = backend
    return parse_run_spec(document)


@pytest.mark.parametrize("override", OVERRIDES, ids=lambda path: path.stem)
def test_a_tutorial_goes_end_to_end(run: Run, twin: Twin, override: Path, tmp_path: Path) -> None:
    compiles = override.stem.startswith("bert")
    spec = (
        tutorial_that_compiles(override.stem, tmp_path)
        if compiles
        else read_spec(Path("runs") / override.name, [override])
    )
    run_id = f"{spec.name}-00000000seed"[:43]

    record = run(spec, run_id)

    assert (record.status, record.error) == ("SUCCEEDED", None)
    assert record.training is not None
    training = record.jobs["training"]
    assert len(training.pods) == spec.compute.num_nodes
    assert {pod.exit_code for pod in training.pods} == {0}
    published = record.metrics_published
    assert published is not None
    assert (published.gaps, published.duplicates) == (0, 0)
    assert (published.first_step, published.last_step) == (1, record.training.steps)
    logged = kept_steps_from_json((tmp_path / run_id / "steps.json").read_text())
    assert published.datapoints == len(logged.steps)
    if spec.workload.module == "trainer.pretrain":
        assert_training_took_its_graphs_from_the_cache(record, tmp_path / run_id)
    assert_nothing_is_left(twin, run_id)


def test_the_classifiers_model_is_in_s3(twin: Twin) -> None:
    """Left there by the PyTorchJob tutorial's run above."""
    objects = twin.client("s3").list_objects_v2(Bucket=deployment.ARTIFACT_BUCKET, Prefix="runs/digits/")
    assert [found["Key"] for found in objects.get("Contents", ())] == ["runs/digits/model.pt"]


@pytest.mark.parametrize("backend", GANG_BACKENDS)
def test_a_worker_that_dies_fails_the_run_on_every_backend_and_is_named(run: Run, twin: Twin, backend: str) -> None:
    run_id = f"dies-{backend}-1"

    def kill_worker() -> None:
        while not (found := [p for p in processes_of(run_id, RANK="1") if _is_program(p.cmdline())]):
            if stopping.wait(0.1):
                return
        found[0].kill()

    stopping = threading.Event()
    killer = threading.Thread(target=kill_worker)
    killer.start()
    try:
        record = run(on_backend(backend, max_steps=600), run_id)
    finally:
        stopping.set()
        killer.join()

    assert (record.status, record.error and record.error.name) == ("FAILED", "WorkerFailed")
    assert record.error is not None
    assert f"{run_id}-training-1" in record.error.message
    assert_nothing_is_left(twin, run_id)


def _is_program(words: list[str]) -> bool:
    """Whether a process is the program, and not its supervisor, which has the same words."""
    command = " ".join(words)
    return "steps.py" in command and "supervisor" not in command


@pytest.mark.parametrize("backend", GANG_BACKENDS)
def test_two_runs_of_one_spec_at_once_never_mix(run: Run, backend: str) -> None:
    names = (f"twice-{backend}-a", f"twice-{backend}-b")
    records: dict[str, RunRecord] = {}
    spec = on_backend(backend, max_steps=15)
    threads = [threading.Thread(target=lambda name=name: records.update({name: run(spec, name)})) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for name in names:
        record = records[name]
        assert (record.status, record.error) == ("SUCCEEDED", None)
        assert all(pod.name.startswith(name) for job in record.jobs.values() for pod in job.pods)
        assert record.metrics_published is not None
        assert (record.metrics_published.last_step, record.metrics_published.duplicates) == (15, 0)


def test_an_elastic_gang_trains_where_rank_0_says_it_is(run: Run) -> None:
    document = steps_spec(launcher="torchrun", max_steps=15)
    document["compute"] |= {"backend": "pytorchjob", "elastic": {"min_nodes": 1, "max_nodes": 2, "max_restarts": 1}}
    record = run(parse_run_spec(document), "elastic-1")
    assert (record.status, record.error) == ("SUCCEEDED", None)
    published = record.metrics_published
    assert published is not None
    assert (published.last_step, published.gaps, published.duplicates) == (15, 0, 0)


@pytest.mark.parametrize("backend", ["job", "volcano"])
def test_a_gang_whose_pods_the_cluster_forbids_is_given_up_by_name(run: Run, twin: Twin, backend: str) -> None:
    """A priority class that is taken away after the preflight keeps every pod out, and would the next time."""
    document = steps_spec(max_steps=5)
    document["compute"] |= {"backend": backend, "priority_class": "soon-gone"}
    document["limits"] = {"gang_timeout_minutes": 0.1, "poll_seconds": 20}
    run_id = f"lacks-{backend}"
    api = ApiClient(load_connection(twin.kubeconfig))
    api.create(PRIORITY_CLASSES, {"metadata": {"name": "soon-gone"}, "value": 1})

    def take_away() -> None:
        while deployment.gang_nodes() == 0 and not ended.wait(0.05):
            pass
        api.delete(f"{PRIORITY_CLASSES}/soon-gone")

    ended = threading.Event()
    taker = threading.Thread(target=take_away)
    taker.start()
    try:
        record = run(parse_run_spec(document), run_id)
    finally:
        ended.set()
        taker.join()

    assert (record.status, record.error and record.error.name) == ("FAILED", "JobRefused")
    assert record.error is not None
    assert "no PriorityClass with name soon-gone was found" in record.error.message
    attempts = [visit.name for visit in record.states if visit.name == "SubmitTraining"]
    assert len(attempts) == 1
    assert_nothing_is_left(twin, run_id)
