"""The Kubernetes API fails in each way for ten minutes in each phase of a run: no run is lost, and no healthy job is
deleted when it is back."""

from __future__ import annotations

import io
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kubetwin.kubeconfig import load_connection, write_kubeconfig
from kubetwin.server import ApiServer
from kubetwin.troubles import Trouble, TroubledGateway
from rich.console import Console

from benchmarks.api_outages import OF_FAILURES, OUTAGE_SECONDS, PHASES, OutageInEachPhase
from benchmarks.fault_injection import Mail, Plan, twin_with
from local.aws import deployment
from local.functions_gateway import FunctionsGateway
from local.twin import Twin
from tests.integration.running import follow_run
from tests.integration.test_runs import assert_nothing_is_left, demo_spec, steps_spec
from trainflow.errors import ClusterUnavailable
from trainflow.kubernetes.connection import from_endpoint
from trainflow.kubernetes.renewable import RenewableApi
from trainflow.spec.run_spec import parse_run_spec
from trainflow.workflow.run_record import RunRecord, RunStatus

TIME_SCALE = 100
NUM_STEPS = 20
"""As many as take longer than some polls."""


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[TroubledGateway]:
    server = ApiServer()
    server.start()
    kubeconfig = tmp_path / "kubeconfig"
    write_kubeconfig(kubeconfig, endpoint=server.endpoint, ca_pem=server.ca_pem, token=server.admin_token)
    gateway = TroubledGateway(load_connection(kubeconfig))
    gateway.start()
    yield gateway
    gateway.stop()
    server.stop()


def test_every_trouble_of_the_api_is_one_that_passes(
    gateway: TroubledGateway, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So no function takes it for an error of the run."""
    monkeypatch.setattr("trainflow.kubernetes.api.READ_SECONDS", 1.0)
    token = load_connection(tmp_path / "kubeconfig").authorization()
    assert token is not None
    forgotten: list[bool] = []

    def api() -> RenewableApi:
        ca_file = tmp_path / "ca.pem"
        ca_file.write_text(gateway.ca_pem)
        client = from_endpoint(gateway.endpoint, ca_file=str(ca_file), token=token.removeprefix("Bearer "))
        found = RenewableApi(client, forget=lambda: forgotten.append(True))
        found._read_seconds = 1.0
        return found

    used = api()
    for trouble in Trouble:
        assert used.list("/api/v1/namespaces", "")
        gateway.begin(trouble)
        with pytest.raises(ClusterUnavailable):
            used.list("/api/v1/namespaces", "")
        gateway.end()
    assert forgotten, "a connection whose certificate or token is refused is not used again"
    assert api().list("/api/v1/namespaces", "")


def test_an_outage_ends_with_its_block_and_leaves_no_timer(gateway: TroubledGateway) -> None:
    """The timer of one outage would end the next one."""
    outage, before = OutageInEachPhase(gateway, Trouble.ERROR, seconds=3600), threading.enumerate()
    with outage:
        outage("StageData", {})
        assert gateway.trouble is Trouble.ERROR
        outage("EnsureCapacity", {})
        assert outage.met == ["staging"], "one outage at a time"
        (timer,) = (each for each in set(threading.enumerate()) - set(before) if isinstance(each, threading.Timer))
    assert gateway.trouble is None
    timer.join(10)
    assert not timer.is_alive()
    outage("EnsureCapacity", {})
    assert gateway.trouble is None, "an invocation that comes late begins none"


@pytest.fixture(scope="module")
def plan() -> Plan:
    return Plan()


@pytest.fixture(scope="module")
def twin(plan: Plan, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Twin]:
    with twin_with(plan, tmp_path_factory.mktemp("twin"), time_scale=TIME_SCALE) as running:
        yield running


@pytest.fixture
def functions_gateway(twin: Twin) -> Iterator[FunctionsGateway]:
    gateway = FunctionsGateway(twin)
    with gateway.open():
        yield gateway


def endpoint(twin: Twin) -> tuple[str, str]:
    """Endpoint and authority of the Kubernetes API as the functions find them."""
    cluster = twin.client("eks").describe_cluster(name=deployment.CLUSTER_NAME)["cluster"]
    return cluster["endpoint"], cluster["certificateAuthority"]["data"]


def test_functions_find_the_api_itself_again_after_an_outage(twin: Twin) -> None:
    before, gateway = endpoint(twin), FunctionsGateway(twin)
    outage = OutageInEachPhase(gateway, Trouble.OTHER_AUTHORITY, seconds=3600)
    with pytest.raises(RuntimeError, match="the run was lost"), gateway.open(), outage:
        outage("StageData", {})
        assert endpoint(twin)[0] != before[0]
        raise RuntimeError("the run was lost")
    assert endpoint(twin) == before


def survived(twin: Twin, plan: Plan, outage: OutageInEachPhase, spec: dict[str, Any], folder: Path) -> RunRecord:
    """The record of a run that has succeeded, with one job of each stage."""
    run_id = f"outage-{folder.name[-12:]}".replace("_", "-").lower()
    with outage, plan.replaced(outage):
        console = Console(file=io.StringIO())
        record = follow_run(twin, parse_run_spec(spec), run_id, folder=folder, console=console)
    assert (record.error, record.status) == (None, RunStatus.SUCCEEDED)
    own = [visit.name for visit in record.states if visit.execution == run_id]
    assert "DeleteJob" not in own, "a job that was healthy all the time is not torn down"
    assert own.count("SubmitTraining") == 1
    assert_nothing_is_left(twin, run_id)
    return record


@pytest.mark.slow
def test_ten_minutes_without_an_api_cost_a_training_nothing(
    twin: Twin, plan: Plan, functions_gateway: FunctionsGateway, tmp_path: Path
) -> None:
    seconds, mail = OUTAGE_SECONDS / TIME_SCALE, Mail(twin, "outage")
    outage = OutageInEachPhase(functions_gateway, Trouble.UNAVAILABLE, seconds=seconds, phases=["training"])
    # The owner is told during the outage. Stalls are not judged then (test_state_machines.py): their limit is in real
    # time, in which a busy machine stalls by itself.
    spec = steps_spec(max_steps=NUM_STEPS, seconds_per_step=0.3) | {"limits": {"blind_minutes": 0.03}}
    record = survived(twin, plan, outage, spec, tmp_path)
    assert outage.met == ["training"]
    assert record.metrics_published is not None
    assert (record.metrics_published.datapoints, record.metrics_published.duplicates) == (NUM_STEPS, 0)
    assert mail.subjects() == [f"Trainflow: {record.run_id} {end}" for end in ("cannot be seen", "SUCCEEDED")]


@pytest.mark.slow
@pytest.mark.parametrize("trouble", list(Trouble))
def test_ten_minutes_of_every_trouble_in_every_phase_lose_no_run(
    twin: Twin, plan: Plan, functions_gateway: FunctionsGateway, tmp_path: Path, trouble: Trouble
) -> None:
    phases = [phase for phase in PHASES if phase not in OF_FAILURES]
    outage = OutageInEachPhase(functions_gateway, trouble, seconds=OUTAGE_SECONDS / TIME_SCALE, phases=phases)
    before = functions_gateway.failed
    spec = demo_spec(variant=list(Trouble).index(trouble))
    # A poll that hangs ends with its own time limit, 20 seconds: the training has to go on then.
    steps = 300 if trouble is Trouble.HANG else 12
    spec["workload"]["arguments"] |= {"max_steps": steps, "checkpoint_steps": steps // 2}
    record = survived(twin, plan, outage, spec, tmp_path)
    # A phase that a run passes while the outage of the one before goes on has none of its own.
    assert outage.met[0] == "preflight"
    assert set(outage.met) >= set(phases) - {"queueing", "metrics"}
    assert trouble is Trouble.OTHER_AUTHORITY or functions_gateway.failed > before
    published = record.metrics_published
    assert published is not None
    assert (published.datapoints, published.gaps, published.duplicates) == (steps, 0, 0)
    assert [len(record.jobs[stage].pods) for stage in ("precompile", "training")] == [2, 2]


@pytest.mark.slow
@pytest.mark.parametrize("trouble", list(Trouble))
def test_ten_minutes_of_every_trouble_leave_a_run_its_restart_and_its_own_error(
    twin: Twin, plan: Plan, functions_gateway: FunctionsGateway, tmp_path: Path, trouble: Trouble
) -> None:
    seconds, phases = OUTAGE_SECONDS / TIME_SCALE, [*OF_FAILURES, "tear-down"]
    outage = OutageInEachPhase(functions_gateway, trouble, seconds=seconds, phases=phases)
    run_id, mail = f"fails-{trouble.lower()}-0aa", Mail(twin, f"fails-{trouble}")
    spec = steps_spec(max_steps=3, dies_by_signal_at=3) | {"limits": {"max_restarts": 1, "restart_in_place": False}}
    with outage, plan.replaced(outage):
        console = Console(file=io.StringIO())
        record = follow_run(twin, parse_run_spec(spec), run_id, folder=tmp_path, console=console)
    assert outage.met == phases
    assert record.error is not None
    assert (record.status, record.error.name) == (RunStatus.FAILED, "WorkerFailed")
    assert f"Pod '{run_id}-training-2-" in record.error.message, "the second attempt has trained, too"
    assert len(record.jobs["training"].pods) == 4
    published = record.metrics_published
    assert published is not None
    assert (published.datapoints, published.duplicates) == (2, 0)
    events = ("restarts", "FAILED")
    assert mail.subjects() == [f"Trainflow: {run_id} {event}: WorkerFailed" for event in events]
    assert f"{run_id}-training-2-" in diagnostics(twin, run_id)
    assert_nothing_is_left(twin, run_id)


def diagnostics(twin: Twin, run_id: str) -> str:
    """What was collected of the failed pods, which are deleted."""
    key = f"runs/{run_id}/diagnostics.json"
    text: bytes = twin.client("s3").get_object(Bucket=deployment.ARTIFACT_BUCKET, Key=key)["Body"].read()
    return text.decode()
