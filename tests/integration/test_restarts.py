"""A run that loses a worker goes on from its newest checkpoint, and ends as if nothing had happened."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
from kubetwin.client import ApiClient
from kubetwin.kubeconfig import load_connection

from local.aws import deployment, folder_buckets
from local.planned_faults import OUT_OF_SERVICE
from local.slurm import packages
from local.slurm.configuration import SlurmSettings
from local.slurm.errors import SlurmMissing
from local.twin import Twin
from tests.integration.running import follow_run
from tests.integration.test_runs import TIME_SCALE, assert_nothing_is_left, demo_spec, processes_of, steps_spec
from tests.integration.test_slurm_runs import on_slurm
from trainflow.deployment.kubernetes_names import RUN_LABEL
from trainflow.nodes.instances import nodegroup_name
from trainflow.spec.run_spec import RunSpec, parse_run_spec
from trainflow.workflow.run_record import RunRecord


@pytest.fixture(scope="module")
def twin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Twin]:
    home, logs = tmp_path_factory.mktemp("home"), tmp_path_factory.mktemp("logs")
    folder_buckets.ensure_demo_data(home / "s3")
    with Twin(home=home, log_dir=logs, time_scale=TIME_SCALE, slurm=slurm_if_installed()) as running:
        yield running


def slurm_if_installed() -> SlurmSettings | None:
    try:
        packages.require()
    except SlurmMissing:
        return None
    return SlurmSettings(num_nodes=2)


def start(twin: Twin, spec: RunSpec, run_id: str, folder: Path) -> RunRecord:
    return follow_run(twin, spec, run_id, folder=folder / run_id)


def spec_with_checkpoints() -> dict[str, Any]:
    spec = demo_spec()
    spec["precompile"] = {"enabled": False}
    spec["workload"]["arguments"] |= {"max_steps": 30, "checkpoint_steps": 5}
    spec["compute"]["processes_per_node"] = 1
    return spec


@pytest.fixture(scope="module")
def calm(twin: Twin, tmp_path_factory: pytest.TempPathFactory) -> RunRecord:
    """The run without an interruption."""
    return start(twin, parse_run_spec(spec_with_checkpoints()), "demo-0000000calm", tmp_path_factory.mktemp("calm"))


def keeps_its_own(process: psutil.Process) -> bool:
    """Whether the checkpoint of a process's node is complete, if its node keeps any."""
    folder = process.environ().get("TRAINFLOW_LOCAL_CHECKPOINTS")
    seen = Path(f"/proc/{process.pid}/root{folder}") / "checkpoints"  # its own root file system, behind walls
    return folder is None or any(seen.glob("*.json"))


@contextmanager
def killed_after_its_first_checkpoint(
    twin: Twin, run_id: str, *, whole_pod: bool = False
) -> Iterator[list[dict[str, str]]]:
    """Kill rank 1 of a run once there is a checkpoint; the variables of its killed processes are added to the list.

    Args:
        twin: The twin.
        run_id: The run.
        whole_pod: Whether the processes that started it are killed first.
    """
    killed: list[dict[str, str]] = []
    checkpoints = twin.home / "volumes" / "runs" / run_id / "checkpoints"

    def kill_a_worker() -> None:
        while not list(checkpoints.glob("*")):
            if stopping.wait(0.05):
                return
        while not all(map(keeps_its_own, processes_of(run_id, RANK="1", TRAINFLOW_STAGE="training"))):
            if stopping.wait(0.02):
                return
        for process in processes_of(run_id, RANK="1", TRAINFLOW_STAGE="training"):
            killed.append(process.environ())
            of_run = {each.pid for each in processes_of(run_id)}
            starters = [each for each in process.parents() if each.pid in of_run] if whole_pod else []
            for each in (*reversed(starters), process):
                each.kill()

    stopping = threading.Event()
    killer = threading.Thread(target=kill_a_worker)
    killer.start()
    try:
        yield killed
    finally:
        stopping.set()
        killer.join()


def test_a_killed_worker_is_started_again_in_its_pods(twin: Twin, calm: RunRecord, tmp_path: Path) -> None:
    spec = spec_with_checkpoints()
    spec["limits"] = {"restart_in_place": True}
    run_id = "demo-000in-place"
    with killed_after_its_first_checkpoint(twin, run_id) as killed:
        disturbed = start(twin, parse_run_spec(spec), run_id, tmp_path)

    assert (disturbed.error, disturbed.status) == (None, "SUCCEEDED")
    assert [visit.name for visit in disturbed.states].count("DeleteJob") == 0
    (restart,) = disturbed.restarts
    assert (restart.error, restart.in_place, restart.last_step is not None) == ("WorkerFailed", True, True)
    assert "SIGKILL" in restart.message
    assert {variables.get("OMP_WAIT_POLICY") for variables in killed} == {"PASSIVE"}, "nodes share this machine's cores"
    assert disturbed.metrics_published is not None
    assert (disturbed.metrics_published.gaps, disturbed.metrics_published.duplicates) == (0, 0)
    assert disturbed.training is not None and calm.training is not None
    assert (disturbed.training.steps, disturbed.training.last_loss) == (calm.training.steps, calm.training.last_loss)
    assert_nothing_is_left(twin, run_id)


def logs_of(folder: Path, run_id: str, attempt: int) -> str:
    """The log of rank 0's pod."""
    return "".join(file.read_text() for file in (folder / run_id / "logs").glob(f"*-training-{attempt}-0-*.log"))


def spec_that_keeps_checkpoints_on_nodes() -> dict[str, Any]:
    spec = spec_with_checkpoints()
    spec["limits"] = {"restart_in_place": True}
    return spec | {"checkpoint": {"keep_local": {"gib": 1}}}


@pytest.mark.slow
def test_a_worker_that_is_started_again_in_its_pods_loads_the_checkpoint_of_its_node(
    twin: Twin, calm: RunRecord, tmp_path: Path
) -> None:
    run_id = "demo-000-near-me"
    with killed_after_its_first_checkpoint(twin, run_id) as killed:
        disturbed = start(twin, parse_run_spec(spec_that_keeps_checkpoints_on_nodes()), run_id, tmp_path)

    assert (disturbed.error, disturbed.status) == (None, "SUCCEEDED")
    assert [restart.in_place for restart in disturbed.restarts] == [True]
    (folder,) = {variables["TRAINFLOW_LOCAL_CHECKPOINTS"] for variables in killed}
    assert not folder.startswith(str(twin.home / "volumes")), "the folder is the pod's"
    assert re.search(r"Resuming from step-\d+\.pt, from memory or disks of the nodes", logs_of(tmp_path, run_id, 1))
    assert disturbed.training is not None and calm.training is not None
    assert (disturbed.training.steps, disturbed.training.last_loss) == (calm.training.steps, calm.training.last_loss)
    assert_nothing_is_left(twin, run_id)


@pytest.mark.slow
def test_pods_that_replace_lost_ones_load_the_shared_checkpoint(twin: Twin, calm: RunRecord, tmp_path: Path) -> None:
    """The whole pod of rank 1 dies, supervisor and all, and its memory with it."""
    run_id = "demo-0000pod-lost"
    with killed_after_its_first_checkpoint(twin, run_id, whole_pod=True):
        disturbed = start(twin, parse_run_spec(spec_that_keeps_checkpoints_on_nodes()), run_id, tmp_path)

    assert (disturbed.error, disturbed.status) == (None, "SUCCEEDED")
    assert [restart.in_place for restart in disturbed.restarts] == [False]
    resumed = re.findall(r"Resuming from step-\d+\.pt, ([^,]+)", logs_of(tmp_path, run_id, 2))
    assert resumed == ["verified"]
    assert disturbed.training is not None and calm.training is not None
    assert (disturbed.training.steps, disturbed.training.last_loss) == (calm.training.steps, calm.training.last_loss)
    assert_nothing_is_left(twin, run_id)


def test_restarts_in_the_pods_count_as_restarts(twin: Twin, tmp_path: Path) -> None:
    """A worker that always dies at one step has two restarts: one in its pods, and one by the workflow."""
    run_id = "steps-in-pods-in-vain"
    arguments = {"max_steps": 100, "seconds_per_step": 0.5, "dies_by_signal_at": 3}
    spec = steps_spec(**arguments) | {"limits": {"restart_in_place": True}}
    record = start(twin, parse_run_spec(spec), run_id, tmp_path)

    assert (record.status, record.error and record.error.name) == ("FAILED", "WorkerFailed")
    assert [restart.in_place for restart in record.restarts] == [True, False]
    assert [visit.name for visit in record.states].count("DeleteJob") == 1
    assert_nothing_is_left(twin, run_id)


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["job", pytest.param("slurm", marks=pytest.mark.slurm)])
def test_a_killed_worker_costs_the_steps_since_the_checkpoint_and_no_more(
    twin: Twin, calm: RunRecord, tmp_path: Path, backend: str
) -> None:
    """The last loss is that of the run without an interruption, bit for bit, and every step is published once."""
    spec = spec_with_checkpoints()
    run_id = f"demo-restart-{backend}"
    with killed_after_its_first_checkpoint(twin, run_id):
        disturbed = start(twin, on_slurm(spec) if backend == "slurm" else parse_run_spec(spec), run_id, tmp_path)

    for record in (disturbed, calm):
        assert (record.error, record.status) == (None, "SUCCEEDED")
        assert record.training is not None
        assert record.metrics_published is not None
        assert (record.metrics_published.gaps, record.metrics_published.duplicates) == (0, 0)
    assert [visit.name for visit in disturbed.states].count("DeleteJob") == 1
    assert disturbed.training is not None and calm.training is not None
    assert (disturbed.training.steps, disturbed.training.last_loss) == (calm.training.steps, calm.training.last_loss)
    assert_nothing_is_left(twin, run_id)


def test_a_worker_that_always_dies_at_the_same_step_ends_the_run_after_two_restarts(twin: Twin, tmp_path: Path) -> None:
    run_id = "steps-0000in-vain"
    record = start(twin, parse_run_spec(steps_spec(max_steps=3, dies_by_signal_at=3)), run_id, tmp_path)

    assert (record.status, record.error and record.error.name) == ("FAILED", "WorkerFailed")
    assert record.error is not None
    assert f"Pod '{run_id}-training-3-" in record.error.message, "the third attempt is named"
    assert [visit.name for visit in record.states].count("DeleteJob") == 2
    assert record.metrics_published is not None
    assert record.metrics_published.duplicates == 0
    assert_nothing_is_left(twin, run_id)


@pytest.fixture
def room_for_one_gang(twin: Twin) -> Iterator[None]:
    """The node group of the demo's type may have two nodes, as in the example configuration."""
    eks, group = twin.client("eks"), nodegroup_name(demo_spec()["compute"]["instance_type"])

    def allow(num_nodes: int) -> None:
        eks.update_nodegroup_config(
            clusterName=deployment.CLUSTER_NAME, nodegroupName=group, scalingConfig={"maxSize": num_nodes}
        )

    allow(2)
    yield
    allow(deployment.MAX_NODES)


def test_a_node_that_is_not_proven_bad_is_used_again_where_the_node_group_has_no_other(
    twin: Twin, room_for_one_gang: None, tmp_path: Path
) -> None:
    """Of three deaths two are on the same node, which is avoided from then on."""
    run_id = "steps-000000room"
    spec = steps_spec(max_steps=3, dies_by_signal_at=3) | {"limits": {"max_restarts": 3, "restart_in_place": False}}
    record = start(twin, parse_run_spec(spec), run_id, tmp_path)
    assert record.error is not None
    assert (record.error.name, [restart.error for restart in record.restarts]) == ("WorkerFailed", ["WorkerFailed"] * 3)
    pods = [pod for job in record.jobs.values() for pod in job.pods if f"{run_id}-training-" in pod.name]
    assert (len(pods), len({pod.node for pod in pods})) == (2 * 4, 2)
    assert_nothing_is_left(twin, run_id)


def silent_spec(**arguments: int) -> dict[str, Any]:
    spec = steps_spec(**arguments)
    spec["workload"]["script"] = "tests/assets/programs/silent.py"
    return spec | {"progress": "none", "checkpoint": {"path": "checkpoint-{step}.json"}}


@pytest.mark.slow
def test_a_program_without_steps_is_restarted_as_long_as_each_life_leaves_a_newer_checkpoint(
    twin: Twin, tmp_path: Path
) -> None:
    """The checkpoint of a life is seen when the next one begins."""
    record = start(twin, parse_run_spec(silent_spec(max_steps=5)), "steps-00silent-on", tmp_path)
    assert (record.error, record.status) == (None, "SUCCEEDED")
    assert [restart.error for restart in record.restarts] == ["WorkerFailed"] * 4, "two in vain are allowed"


@pytest.mark.slow
def test_a_program_without_steps_that_dies_at_the_same_checkpoint_ends_the_run(twin: Twin, tmp_path: Path) -> None:
    spec = parse_run_spec(silent_spec(max_steps=5, steps_per_life=9, dies_at=3))
    record = start(twin, spec, "steps-silent-vain", tmp_path)
    assert (record.status, record.error and record.error.name) == ("FAILED", "WorkerFailed")
    # One after the life that got to the checkpoint, two in vain, and one with the checkpoint before it: decision 89.
    errors = [restart.error for restart in record.restarts]
    assert sorted(errors) == ["CheckpointUnusable", *["WorkerFailed"] * 3], errors


def pods_of(api: ApiClient, run_id: str, attempt: int) -> dict[str, str]:
    """Nodes of the training's pods of one attempt, by the pods' names."""
    found = api.get("/api/v1/pods", labelSelector=f"{RUN_LABEL}={run_id}")["items"]
    named = f"{run_id}-training-{attempt}-"
    return {
        pod["metadata"]["name"]: pod["spec"]["nodeName"]
        for pod in found
        if pod["metadata"]["name"].startswith(named) and pod["spec"].get("nodeName")
    }


@pytest.mark.slow
@pytest.mark.parametrize("spares", [0, 1])
def test_a_run_whose_rank_0_loses_its_node_goes_on_with_another_one(
    twin: Twin, calm: RunRecord, tmp_path: Path, spares: int
) -> None:
    """With a spare, its gang is placed at the first poll for nodes."""
    run_id, spec = f"demo-000lost-node{spares}", spec_with_checkpoints()
    spec["compute"]["spares"] = spares
    api = ApiClient(load_connection(twin.kubeconfig))
    checkpoints = twin.home / "volumes" / "runs" / run_id / "checkpoints"
    stopping, seen = threading.Event(), dict[int, dict[str, str]]()

    def lose_the_node_of_rank_0() -> None:
        while not list(checkpoints.glob("*")):
            if stopping.wait(0.05):
                return
        seen[1] = pods_of(api, run_id, 1)
        node = next(node for pod, node in seen[1].items() if pod.startswith(f"{run_id}-training-1-0"))
        api.patch(f"/api/v1/nodes/{node}", {"spec": {"taints": [OUT_OF_SERVICE]}})
        seen[0] = {"lost": node}
        while not stopping.wait(0.05) and len(seen.get(2, {})) < 2:
            seen[2] = pods_of(api, run_id, 2)

    thread = threading.Thread(target=lose_the_node_of_rank_0)
    thread.start()
    try:
        record = start(twin, parse_run_spec(spec), run_id, tmp_path)
    finally:
        stopping.set()
        thread.join()

    assert (record.error, record.status) == (None, "SUCCEEDED")
    [restart] = record.restarts
    assert restart.error == "NodeLost"
    assert len(seen[2]) == 2, "the second attempt has both of its pods"
    assert seen[0]["lost"] not in seen[2].values()
    assert record.training is not None and calm.training is not None
    assert (record.training.steps, record.training.last_loss) == (calm.training.steps, calm.training.last_loss)
    states = [visit.name for visit in record.states]
    after_loss = states[states.index("DeleteJob") :]
    assert (after_loss.count("EnsureCapacity") == 1) == (spares == 1)
    assert_nothing_is_left(twin, run_id)
