"""Whole runs in the twin: the deployed state machines, the real handlers, real pods."""

from __future__ import annotations

import io
import json
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml
from rich.console import Console

from local.aws import deployment, folder_buckets
from local.twin import Twin
from tests.integration.mails import Mails
from tests.integration.running import follow_run, replayed
from trainflow.cli.run import exit_status
from trainflow.client.code import PackedCode, pack
from trainflow.client.spec_file import read_spec
from trainflow.spec.run_spec import RunSpec, parse_run_spec
from trainflow.workflow.run_record import RunRecord

STEPS = "tests/assets/programs/steps.py"
TIME_SCALE = 60


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("home")
    folder_buckets.ensure_demo_data(home / "s3")
    archive = home / "s3" / folder_buckets.DEMO_BUCKET / folder_buckets.CORPUS_KEY
    broken = home / "s3" / "tests" / "truncated.tar"
    broken.parent.mkdir()
    broken.write_bytes(archive.read_bytes()[: archive.stat().st_size // 2])
    return home


@pytest.fixture(scope="module")
def twin(home: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Twin]:
    with Twin(home=home, log_dir=tmp_path_factory.mktemp("logs"), time_scale=TIME_SCALE) as running:
        yield running


Run = Callable[..., RunRecord]


@pytest.fixture
def run(twin: Twin, tmp_path: Path) -> Run:
    def start(spec: dict[str, Any], run_id: str) -> RunRecord:
        console = Console(file=io.StringIO())
        return follow_run(twin, parse_run_spec(spec), run_id, folder=tmp_path / run_id, console=console)

    return start


def steps_spec(*, launcher: str = "mpi", **arguments: Any) -> dict[str, Any]:
    """A gang of two that logs steps.

    Args:
        launcher: How its workers are started. torchrun imports torch on every node, which costs more than all the rest
            of a pod: it is for tests of what it does with its workers.
        arguments: Flags of the program.
    """
    return {
        "version": 1,
        "name": "steps",
        "workload": {"script": STEPS, "image": "trainer:test", "launcher": launcher, "arguments": arguments},
        "compute": {"instance_type": "trn1.32xlarge", "num_nodes": 2, "processes_per_node": 1, "check_nodes": False},
        "precompile": {"enabled": False},
        "limits": {"restart_in_place": False},  # a death is the workflow's; tests of the other kind say so
    }


def demo_spec(*, variant: int = 0) -> dict[str, Any]:
    """The demo, for as many steps as it takes to see the loss fall.

    Args:
        variant: Another number stands for other graphs: a run finds no compile cache of a run before it.
    """
    spec: dict[str, Any] = yaml.safe_load(Path("runs/demo.yaml").read_text())
    arguments = spec["workload"]["arguments"]
    arguments |= {"max_steps": 12, "warmup_steps": 2, "checkpoint_steps": 6, "compile": False}
    arguments["max_position_embeddings"] += variant
    spec.setdefault("limits", {})["restart_in_place"] = False  # a death is the workflow's
    return spec


def tutorial_that_compiles(name: str, folder: Path) -> RunSpec:
    """A tutorial of BERT, scaled down, which compiles its graphs although a processor can train without them.

    Args:
        name: Of its spec and of its override.
        folder: Where the further override is written.
    """
    compiles = folder / "compile.yaml"
    compiles.write_text(yaml.safe_dump({"workload": {"arguments": {"compile": True}}}))
    return read_spec(Path(f"runs/{name}.yaml"), [Path(f"runs/overrides/{name}.yaml"), compiles])


def state_names(record: RunRecord) -> list[str]:
    """Names of the run's own states, loops once, in the order of entering."""
    return list(dict.fromkeys(visit.name for visit in record.states if visit.execution == record.run_id))


def assert_training_took_its_graphs_from_the_cache(record: RunRecord, folder: Path) -> None:
    """The precompile job compiled what the training needs, and nothing was left for the training to compile."""
    assert record.compile is not None
    assert record.compile.graphs > 0
    assert (record.compile.succeeded, record.compile.failed) == (record.compile.graphs, 0)
    said = result_of_rank_0(record, folder)
    assert said["compiled"]
    assert said["cached_graphs"] == said["graphs"] == record.compile.graphs


def result_of_rank_0(record: RunRecord, folder: Path) -> dict[str, Any]:
    """The last line of the training's own log."""
    logs = [file for file in (folder / "logs").glob(f"{record.jobs['training'].rank0}*.log") if file.is_file()]
    results = [line for file in logs for line in file.read_text().splitlines() if line.startswith('{"steps": ')]
    assert len(results) == 1, (results, sorted((folder / "logs").iterdir()))
    result: dict[str, Any] = json.loads(results[0])
    return result


def assert_nothing_is_left(twin: Twin, run_id: str) -> None:
    assert deployment.gang_nodes() == 0
    deadline = time.monotonic() + 20
    while processes_of(run_id) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert processes_of(run_id) == []


def processes_of(run_id: str, **environment: str) -> list[psutil.Process]:
    """Processes of the run's pods."""
    wanted = {"TRAINFLOW_RUN_ID": run_id, **environment}
    found = []
    for process in psutil.process_iter():
        try:
            if process.status() != psutil.STATUS_ZOMBIE and wanted.items() <= process.environ().items():
                found.append(process)
        except psutil.Error:
            continue
    return found


def test_the_demo_goes_end_to_end(run: Run, twin: Twin, tmp_path: Path) -> None:
    mails = Mails(twin)
    record = run(demo_spec(), "demo-0000000000aa")

    assert (record.status, record.error) == ("SUCCEEDED", None)
    expected = ["ValidateRun", "Preflight", "StageData", "AcquireCache", "EnsureCapacity", "SubmitPrecompile"]
    expected += [
        "WatchPrecompile",
        "CheckCompilation",
        "SubmitTraining",
        "WatchTraining",
        "TearDown",
        "PublishArtifacts",
        "Notify",
        "RunSucceeded",
    ]
    assert [name for name in state_names(record) if name in expected] == expected

    assert {stage: job.phase for stage, job in record.jobs.items()} == dict.fromkeys(
        ["preflight", "stage", "precompile", "training", "publish"], "Succeeded"
    )
    training = record.jobs["training"]
    assert [pod.exit_code for pod in training.pods] == [0, 0]
    assert len({pod.node for pod in training.pods}) == 2
    assert training.rank0 is not None
    assert training.rank0.startswith("demo-0000000000aa-training-1-0-")

    assert record.training is not None
    assert record.training.steps == 12
    assert record.training.first_loss is not None
    assert record.training.last_loss is not None
    assert record.training.last_loss < record.training.first_loss
    assert str(record.training.checkpoint).startswith("s3://trainflow-artifacts/runs/demo-0000000000aa/")
    assert record.compile is not None
    assert record.compile.failed == 0

    published = record.metrics_published
    assert published is not None
    assert (published.datapoints, published.first_step, published.last_step) == (12, 1, 12)
    assert (published.gaps, published.duplicates) == (0, 0)

    assert all(execution.events < 25_000 for execution in record.executions)
    assert record.overhead_seconds is not None
    folder = tmp_path / "demo-0000000000aa"
    assert json.loads((folder / "run.json").read_text())["run_id"] == "demo-0000000000aa"
    assert "<svg" in (folder / "report.html").read_text()
    assert {f"{pod.name}.log" for pod in training.pods} <= {path.name for path in (folder / "logs").iterdir()}
    assert mails.end_of(record)
    windows = [f"demo-0000000000aa-{stage}-1-1" for stage in ("precompile", "training")]
    assert replayed(twin, record.run_id) == [record.run_id, *windows]
    assert_nothing_is_left(twin, record.run_id)


@pytest.mark.slow
def test_a_staged_data_set_is_found_again(run: Run, twin: Twin, tmp_path: Path) -> None:
    spec = demo_spec()
    spec["workload"] |= {"arguments": {"max_steps": 1}, "script": STEPS, "launcher": "mpi"}
    del spec["workload"]["module"]
    spec["precompile"] = {"enabled": False}
    for run_id in ("again-0000000000aa", "again-0000000000ab"):
        assert run(spec, run_id).status == "SUCCEEDED"
    log = next((tmp_path / "again-0000000000ab" / "logs").glob("*-stage-1-0-*.log"))
    assert "skipped" in log.read_text() or "already" in log.read_text()


def test_a_killed_worker_fails_the_run_and_is_named_after_diagnostics_and_tear_down(run: Run, twin: Twin) -> None:
    run_id = "steps-00000000dead"
    spec = steps_spec(launcher="torchrun", max_steps=600, seconds_per_step=0.1) | {"limits": {"max_restarts": 0}}

    def kill_worker_1() -> None:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            workers = processes_of(run_id, JOB_COMPLETION_INDEX="1", RANK="1")
            if workers:
                time.sleep(3)  # let it train for a moment
                for process in processes_of(run_id, JOB_COMPLETION_INDEX="1"):
                    process.kill()
                return
            time.sleep(0.05)

    killer = threading.Thread(target=kill_worker_1)
    killer.start()
    record = run(spec, run_id)
    killer.join()

    assert record.status == "FAILED"
    assert record.error is not None
    assert record.error.name == "WorkerFailed"
    assert f"Pod '{run_id}-training-1-1-" in record.error.message
    assert record.error.what_to_do
    assert record.error.rule == "process ended by a signal"
    assert str(record.error.pod).startswith(f"{run_id}-training-1-1-")
    assert f"on node '{record.error.node}'" in record.error.message
    assert (
        state_names(record)[-5:]
        == [
            "CollectDiagnostics",
            "ShouldTearDownAfterFailure",
            "TearDownAfterFailure",
            "NotifyFailure",
            "DescribeFailure",
        ]
        or state_names(record)[-1] == "RunFailed"
    )
    assert {"CollectDiagnostics", "TearDownAfterFailure", "NotifyFailure"} <= set(state_names(record))
    assert any(diagnosis["pod"].startswith(f"{run_id}-training-1-1-") for diagnosis in record.diagnostics)
    assert_nothing_is_left(twin, run_id)


def test_a_script_that_exits_at_once_is_its_authors_to_mend(run: Run, twin: Twin) -> None:
    record = run(steps_spec(exit_code=1), "steps-0000000exit1")
    assert record.status == "FAILED"
    assert record.error is not None
    assert record.error.name == "ScriptFailed"
    assert record.error.message.endswith("ended with exit code 1 (Error): the flux capacitor is missing")
    assert_nothing_is_left(twin, record.run_id)


def test_a_program_that_ends_with_a_loss_that_is_not_finite_has_diverged_whatever_its_exit_code(
    run: Run, twin: Twin
) -> None:
    record = run(steps_spec(max_steps=5, diverges_at=4), "steps-00000000nan")
    assert (record.status, record.error and record.error.name) == ("FAILED", "LossNotFinite")
    assert record.error is not None
    assert "at its last 2 logged steps; the first such step of the run was 4" in record.error.message
    assert exit_status(record) == 3
    assert_nothing_is_left(twin, record.run_id)


def test_a_truncated_archive_is_an_invalid_data_set_and_leaves_nothing_behind(run: Run, twin: Twin, home: Path) -> None:
    spec = {**steps_spec(), "dataset": {"url": "s3://tests/truncated.tar"}}
    record = run(spec, "steps-000000000bad")
    assert record.error is not None
    assert record.error.name == "DatasetInvalid"
    assert "truncated.tar" in record.error.message
    left = [path.name for path in (home / "volumes" / "data").glob("*truncated*")]
    assert left in ([], [".truncated.lock"])
    assert "training" not in record.jobs


def test_code_that_was_replaced_in_the_bucket_is_not_run(run: Run, twin: Twin, tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    (project / "mine.py").write_text("print('mine')")
    document = steps_spec()
    spec = {**document, "workload": {"image": "trainer:test", "script": "mine.py", "code": "."}}
    code = pack(parse_run_spec(spec).workload, beside=project)
    assert code is not None
    PackedCode(content=b"another", sha256=code.sha256).upload(twin.client("s3"), bucket=deployment.ARTIFACT_BUCKET)
    named = code.named_in(parse_run_spec(spec), bucket=deployment.ARTIFACT_BUCKET)

    record = run(named.model_dump(mode="json", exclude_none=True), "replaced-000000")

    assert record.error is not None
    assert record.error.name == "CodeInvalid"
    assert f"{code.sha256}.tar.gz has the SHA-256" in record.error.message
    assert set(record.jobs) == {"preflight"}, "no node was asked for"


def test_two_runs_at_once_do_not_mix(run: Run) -> None:
    records: dict[str, RunRecord] = {}

    def start(run_id: str, steps: int) -> None:
        records[run_id] = run(steps_spec(max_steps=steps), run_id)

    threads = [threading.Thread(target=start, args=(f"steps-00000000000{n}", 5 + n)) for n in (1, 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for number in (1, 2):
        record = records[f"steps-00000000000{number}"]
        assert record.status == "SUCCEEDED", record.error
        assert record.metrics_published is not None
        assert record.metrics_published.datapoints == 5 + number
