"""Many runs compete for few nodes: all of them end, and no node is counted for two."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from kubetwin.certificates import create_authority
from kubetwin.client import ApiClient, ApiUnreachable
from kubetwin.kubeconfig import write_kubeconfig

from benchmarks.many_runs import Contention, left_in_cluster, limit_nodes, run_all
from local.aws import deployment
from local.twin import Twin
from trainflow.spec.run_spec import Limits

TYPE = "trn1.32xlarge"
TIME_SCALE = 20
POLL_SECONDS = Limits().poll_seconds / TIME_SCALE


@pytest.fixture(scope="module")
def twin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Twin]:
    home, logs = tmp_path_factory.mktemp("home"), tmp_path_factory.mktemp("logs")
    with Twin(home=home, log_dir=logs, time_scale=TIME_SCALE, no_op_seconds=1.0) as running:
        yield running


def spec(num_nodes: int) -> dict[str, Any]:
    return {
        "version": 1,
        "name": "rival",
        "workload": {"script": "tests/assets/programs/steps.py", "image": "trainer:test"},
        "compute": {"instance_type": TYPE, "num_nodes": num_nodes, "processes_per_node": 1},
        "precompile": {"enabled": False},
        "limits": {"capacity_timeout_minutes": 120},
    }


@pytest.fixture
def unreachable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Any, list[ApiClient]]:
    """A twin whose API does not answer, and the clients of it that were closed."""
    closed: list[ApiClient] = []
    close = ApiClient.close
    monkeypatch.setattr(ApiClient, "close", lambda self: closed.append(self) or close(self))
    kubeconfig = tmp_path / "kubeconfig"
    authority = create_authority().certificate_pem
    write_kubeconfig(kubeconfig, endpoint="https://127.0.0.1:1", ca_pem=authority, token="none")
    return SimpleNamespace(kubeconfig=kubeconfig), closed


def test_what_asks_the_cluster_closes_its_client_also_if_there_is_no_answer(
    unreachable: tuple[Any, list[ApiClient]],
) -> None:
    twin, closed = unreachable
    with pytest.raises(ApiUnreachable), Contention(twin, TYPE) as seen:
        seen.poll()
    assert len(closed) == 1
    with pytest.raises(ApiUnreachable):
        left_in_cluster(twin)
    assert len(closed) == 2


@pytest.mark.parametrize(
    ("num_runs", "num_nodes"), [(3, 2), pytest.param(50, 7, marks=pytest.mark.slow)], ids=["3 for 2", "50 for 7"]
)
def test_runs_that_compete_for_nodes_all_end_and_share_none(twin: Twin, num_runs: int, num_nodes: int) -> None:
    limit_nodes(twin, TYPE, num_nodes)
    sizes = [1 + number % min(num_nodes, 4) for number in range(num_runs)]
    specs = {f"rival-{num_runs:04x}{number:08x}": spec(size) for number, size in enumerate(sizes)}
    with Contention(twin, TYPE) as seen:
        statuses = run_all(twin, specs, limit_seconds=60 * num_runs, meanwhile=seen.poll)
    assert Counter(statuses.values()) == {"SUCCEEDED": num_runs}
    assert 0 < seen.most_granted <= num_nodes
    assert seen.most_nodes <= num_nodes
    assert seen.longest_partial <= POLL_SECONDS + 5
    assert left_in_cluster(twin) == []
    assert deployment.gang_nodes() == 0
