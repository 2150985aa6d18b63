"""Runs on a real Slurm, end to end in the twin: the tutorials' specs, and that they train what Kubernetes would."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from local.aws import folder_buckets
from local.aws.deployment import ARTIFACT_BUCKET
from local.slurm.cluster import SlurmCluster
from local.slurm.configuration import SlurmSettings
from local.twin import Twin
from tests.integration.running import follow_run
from tests.integration.test_runs import (
    STEPS,
    assert_training_took_its_graphs_from_the_cache,
    demo_spec,
    processes_of,
    steps_spec,
    tutorial_that_compiles,
)
from trainflow.client.code import pack
from trainflow.observed.step import parse_metrics_line
from trainflow.report import render_report
from trainflow.spec.run_spec import RunSpec, parse_run_spec
from trainflow.workflow.run_record import RunRecord

pytestmark = pytest.mark.slurm

LIMIT_MINUTES = 3
"""slurmctld's warning is due 45 seconds before, and up to half a minute early."""

SPECS = ("bert-lamb-slurm", "bert-lamb-slurm-weak", "bert-large-slurm")

Run = Callable[[RunSpec, str], RunRecord]


@pytest.fixture(scope="module")
def twin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Twin]:
    home = tmp_path_factory.mktemp("home")
    folder_buckets.ensure_demo_data(home / "s3")
    settings = SlurmSettings(num_nodes=4, node_timeout_seconds=5)
    with Twin(home=home, log_dir=tmp_path_factory.mktemp("logs"), time_scale=60, slurm=settings) as running:
        yield running


@pytest.fixture
def slurm(twin: Twin) -> SlurmCluster:
    assert twin.slurm is not None
    return twin.slurm


@pytest.fixture
def run(twin: Twin, tmp_path: Path) -> Run:
    def start(spec: RunSpec, run_id: str) -> RunRecord:
        return follow_run(twin, spec, run_id, folder=tmp_path / run_id)

    return start


def on_slurm(spec: dict[str, Any], **limits: Any) -> RunSpec:
    """The same spec with Slurm for Kubernetes and torchrun: nothing else of it changes."""
    del spec["workload"]["image"]
    spec["workload"]["launcher"] = "torchrun"
    spec["compute"] |= {"backend": "slurm", "queue": "trn1"}
    spec["limits"] = {**spec.get("limits", {}), **limits}
    return parse_run_spec(spec)


def assert_nothing_is_left(slurm: SlurmCluster, run_id: str) -> None:
    deadline = time.monotonic() + 60  # Slurm gives a job's last processes half a minute
    while slurm.command("squeue", "--noheader") and time.monotonic() < deadline:
        time.sleep(0.2)
    assert slurm.command("squeue", "--noheader") == ""
    assert processes_of(run_id) == []


def assert_every_step_is_published_once(record: RunRecord) -> None:
    """Require that every step is published once, from the first to the last one that the training reports."""
    published, training = record.metrics_published, record.training
    assert published is not None
    assert training is not None
    assert (published.gaps, published.duplicates) == (0, 0)
    assert (published.first_step, published.last_step, published.datapoints) == (1, training.steps, training.steps)


def during(run: Run, spec: RunSpec, run_id: str, *, when: Callable[[], bool], do: Callable[[], Any]) -> RunRecord:
    """Run a spec, and do something to it in the middle."""
    stopping = threading.Event()

    def wait_and_do() -> None:
        while not when():
            if stopping.wait(0.1):
                return
        do()

    thread = threading.Thread(target=wait_and_do)
    thread.start()
    try:
        return run(spec, run_id)
    finally:
        stopping.set()
        thread.join()


def workers(run_id: str, rank: int) -> Callable[[], bool]:
    return lambda: any("steps.py" in " ".join(each.cmdline()) for each in processes_of(run_id, RANK=str(rank)))


@pytest.mark.slow
def test_slurmrestd_and_slurmctld_may_go_away_for_a_while(tmp_path: Path) -> None:
    """Waits between tries are shortened as all others are: so in a twin in which a minute takes ten seconds.

    Before the others, because two twins in one process disturb each other.
    """
    settings = SlurmSettings(num_nodes=2)
    with Twin(home=tmp_path / "home", log_dir=tmp_path / "logs", time_scale=6, slurm=settings) as twin:
        slurm, run_id = twin.slurm, "restarts-0000000"
        assert slurm is not None

        def run(spec: RunSpec, run_id: str) -> RunRecord:
            return follow_run(twin, spec, run_id, folder=tmp_path / run_id)

        def restart() -> None:
            slurm.stop_rest()
            slurm.restart_controller()
            slurm.start_rest()

        record = during(run, on_slurm(steps_spec(max_steps=150)), run_id, when=workers(run_id, 1), do=restart)
        assert (record.error, record.status) == (None, "SUCCEEDED")
        assert record.jobs["training"].attempts == 1
        assert_every_step_is_published_once(record)
        assert_nothing_is_left(slurm, run_id)


def test_two_nodes_train_to_the_end(run: Run, slurm: SlurmCluster) -> None:
    run_id = "short-0000000000"
    record = run(on_slurm(steps_spec(max_steps=20)), run_id)
    assert (record.error, record.status) == (None, "SUCCEEDED")
    assert_every_step_is_published_once(record)
    assert_nothing_is_left(slurm, run_id)

    pods = record.jobs["training"].pods
    assert len({pod.node for pod in pods}) == len(pods) == 2
    assert all(pod.started_at and pod.finished_at and pod.started_at < pod.finished_at for pod in pods)
    report = render_report(record, ())
    _, _, table = report.partition('id="pods-title"')
    rows = [row for row in table.partition("</table>")[0].split("<tr>") if "<td>training</td>" in row]
    assert [pod.node for row in rows for pod in pods if f">{pod.node}<" in row] == [pod.node for pod in pods]


@pytest.mark.slow
def test_packed_code_is_fetched_by_every_node(run: Run, slurm: SlurmCluster, twin: Twin, tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    (project / "mine.py").write_text("import helped\n")
    (project / "helped.py").write_text(Path(STEPS).read_text())
    document = steps_spec(max_steps=5)
    spec = on_slurm({**document, "workload": {**document["workload"], "script": "mine.py", "code": "."}})
    code = pack(spec.workload, beside=project)
    assert code is not None
    code.upload(twin.client("s3"), bucket=ARTIFACT_BUCKET)
    run_id = "packed-000000000"

    record = run(code.named_in(spec, bucket=ARTIFACT_BUCKET), run_id)

    assert (record.error, record.status) == (None, "SUCCEEDED")
    assert_every_step_is_published_once(record)
    assert_nothing_is_left(slurm, run_id)


@pytest.mark.slow
@pytest.mark.parametrize("name", SPECS)
def test_a_tutorial_goes_end_to_end(run: Run, slurm: SlurmCluster, name: str, tmp_path: Path) -> None:
    spec = tutorial_that_compiles(name, tmp_path)
    run_id = f"{name}-00000000seed"

    record = run(spec, run_id)

    assert (record.error, record.status) == (None, "SUCCEEDED")
    assert record.jobs["training"].rank0 == f"{run_id}-training-1-0"
    assert_every_step_is_published_once(record)
    assert_training_took_its_graphs_from_the_cache(record, tmp_path / run_id)
    assert_nothing_is_left(slurm, run_id)


@pytest.mark.slow
def test_the_same_spec_has_the_same_loss_curve_on_kubernetes_and_on_slurm(run: Run, tmp_path: Path) -> None:
    plain = {"precompile": {"enabled": False}}
    for spec, run_id in (
        (parse_run_spec(demo_spec() | plain), "demo-00000000job"),
        (on_slurm(demo_spec() | plain), "demo-000000slurm"),
    ):
        assert run(spec, run_id).error is None
    on_kubernetes, on_a_slurm = (losses(tmp_path / run_id) for run_id in ("demo-00000000job", "demo-000000slurm"))
    assert len(on_kubernetes) == 12
    assert on_a_slurm == on_kubernetes


def losses(folder: Path) -> list[float]:
    """Losses of every step that rank 0 logged."""
    logs = [file for file in (folder / "logs").glob("*-training-1-0*.log") if file.is_file()]
    lines = [line for file in logs for line in file.read_text().splitlines()]
    return [step.loss for line in lines if (step := parse_metrics_line(line)) is not None]


@pytest.mark.slow
@pytest.mark.parametrize(("scaling", "growth"), [("strong", 1), ("weak", 2)])
def test_strong_scaling_keeps_the_global_batch_and_weak_scaling_multiplies_it(
    run: Run, twin: Twin, scaling: str, growth: int
) -> None:
    """The number of sequences is that of the trainer's own record beside its checkpoint."""
    sequences = {}
    for num_nodes in (2, 4):
        spec = demo_spec() | {"precompile": {"enabled": False}}
        arguments = {"scaling": scaling, "max_steps": 2, "checkpoint_steps": 2, "gradient_accumulation_steps": 4}
        spec["workload"]["arguments"] |= arguments
        spec["compute"] |= {"num_nodes": num_nodes, "processes_per_node": 1}
        run_id = f"{scaling}-{num_nodes}-00000000"
        assert run(on_slurm(spec), run_id).error is None
        record = twin.home / "volumes" / "runs" / run_id / "checkpoints" / "step-00000002.json"
        sequences[num_nodes] = json.loads(record.read_text())["samples_seen"] // 2
    assert sequences[4] == growth * sequences[2]


@pytest.mark.slow
def test_a_job_at_its_time_limit_leaves_a_checkpoint_and_says_so(run: Run, twin: Twin, tmp_path: Path) -> None:
    """Nothing but the warning makes this program save: it would reach its first checkpoint in days."""
    spec, run_id = demo_spec() | {"precompile": {"enabled": False}}, "limit-0000000000"
    spec["workload"]["arguments"] |= {"max_steps": 1_000_000, "checkpoint_steps": 1_000_000}

    record = run(on_slurm(spec, max_duration_hours=LIMIT_MINUTES / 60, max_restarts=0), run_id)

    assert record.error is not None
    assert (record.status, record.error.name) == ("FAILED", "JobDeadlineExceeded")
    expected = f"The job '{run_id}-training-1' ran longer than limits.max_duration_hours allows."
    assert record.error.message == expected
    (saved,) = (twin.home / "volumes" / "runs" / run_id / "checkpoints").glob("step-*.json")
    step = int(saved.stem.removeprefix("step-"))
    (log,) = [file for file in (tmp_path / run_id / "logs").glob("*-training-1-0*.log") if file.is_file()]
    assert f"Stopped by SIGTERM after step {step}, which is saved" in log.read_text()
    assert len(losses(tmp_path / run_id)) == step


def test_a_job_that_is_cancelled_by_hand_ends_the_run_in_a_sentence(run: Run, slurm: SlurmCluster) -> None:
    run_id = "cancelled-00000000"
    cancel = lambda: slurm.command("scancel", f"--name={run_id}-training-1")  # noqa: E731
    record = during(run, on_slurm(steps_spec(max_steps=600)), run_id, when=workers(run_id, 1), do=cancel)
    assert record.error is not None
    assert (record.status, record.error.name) == ("FAILED", "JobCancelled")
    assert record.error.message == (
        f"The job '{run_id}-training-1' was cancelled by an unknown user (Slurm does not name one)."
    )
    assert_nothing_is_left(slurm, run_id)


@pytest.mark.slow
def test_a_worker_that_dies_is_named(run: Run, slurm: SlurmCluster) -> None:
    run_id = "killed-000000000"
    spec = on_slurm(steps_spec(max_steps=600), max_restarts=0)
    kill = lambda: [each.kill() for each in processes_of(run_id, RANK="1")]  # noqa: E731
    record = during(run, spec, run_id, when=workers(run_id, 1), do=kill)
    assert record.error is not None
    assert (record.status, record.error.name) == ("FAILED", "WorkerFailed")
    assert f"Pod '{run_id}-training-1-1' on node 'n" in record.error.message
    assert_nothing_is_left(slurm, run_id)


@pytest.mark.slow
def test_a_node_that_is_lost_is_replaced(run: Run, slurm: SlurmCluster) -> None:
    run_id = "lost-00000000000"
    record = during(
        run,
        on_slurm(steps_spec(max_steps=100)),
        run_id,
        when=workers(run_id, 1),
        do=lambda: slurm.kill_node(slurm.command("squeue", "--noheader", "--format=%B").strip()),
    )
    slurm.restart_controller()
    assert (record.error, record.status) == (None, "SUCCEEDED")
    assert record.jobs["training"].attempts == 2
    assert_every_step_is_published_once(record)
    assert_nothing_is_left(slurm, run_id)


@pytest.mark.slow
def test_what_slurm_can_never_run_is_refused_before_anything_starts(run: Run, slurm: SlurmCluster) -> None:
    spec = steps_spec(max_steps=1)
    spec["compute"] |= {"num_nodes": 3}
    small = on_slurm(spec, max_duration_hours=1)
    small = small.model_copy(update={"compute": small.compute.model_copy(update={"queue": "short"})})
    record = run(small, "refused-00000000")
    assert record.error is not None
    assert (record.status, record.error.name) == ("FAILED", "PreflightFailed")
    for sentence in (
        "compute.num_nodes is 3, but a job in the partition 'short' may have at most 2 nodes",
        "limits.max_duration_hours is 1, but the partition 'short' ends jobs after 0.08333 hours",
    ):
        assert sentence in record.error.message
    assert slurm.command("squeue", "--noheader", "--states=all", "--name=refused-00000000-training-1") == ""
