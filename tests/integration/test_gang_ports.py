"""What a gang opens while it is tested and trains is reached by nobody but the pods."""

from __future__ import annotations

import io
import socket
import threading
from pathlib import Path
from typing import Any

import psutil
import pytest
from kubetwin.node.isolation import machine_can_isolate, missing_network
from rich.console import Console

from local.twin import Twin
from tests.integration.running import follow_run
from tests.integration.strangers import (
    answers_to_another_user,
    granted,
    listening,
    listening_in_network_of,
    only_root,
    opened_by_another_user,
    shares_network,
)
from tests.integration.test_runs import steps_spec
from trainflow.spec.run_spec import RunSpec, parse_run_spec
from trainflow.workflow.run_record import RunRecord

pytestmark = [
    only_root,
    pytest.mark.skipif(
        not machine_can_isolate() or missing_network() is not None, reason="this machine gives its users no networks"
    ),
]

EVERY_ADDRESS = {"0.0.0.0", "::"}
BACKENDS: dict[str, dict[str, Any]] = {
    "job": {"backend": "job"},
    "jobset": {"backend": "jobset"},
    "volcano": {"backend": "volcano"},
    "pytorchjob": {"backend": "pytorchjob"},
    "trainjob": {"backend": "trainjob"},
    "elastic": {"backend": "pytorchjob", "elastic": {"min_nodes": 1, "max_nodes": 2, "max_restarts": 1}},
    "pod": {"backend": "pod", "num_nodes": 1, "processes_per_node": 2},
}


def gang(name: str) -> RunSpec:
    """A gang whose nodes are tested first, unless it is elastic."""
    document = steps_spec(launcher="torchrun", max_steps=15)
    document["compute"] |= {"check_nodes": True, **BACKENDS[name]}
    return parse_run_spec(document)


class Watch:
    """Where the twin's processes have listened, as far as they were seen."""

    def __init__(self) -> None:
        self.of_machine: set[tuple[str, int]] = set()
        """In the machine's network."""
        self.of_pods: dict[str, set[tuple[str, int]]] = {}
        """In the pods' network, by the stage of a process in it."""
        self.answers: dict[str, int | str] = {}
        """What another user had of them."""

    def look(self) -> None:
        found = [psutil.Process(), *psutil.Process().children(recursive=True)]
        outside = listening(process for process in found if shares_network(process))
        self.of_machine |= outside.addresses
        new = {}
        for process in found:
            if shares_network(process):
                continue
            stage, ports = _stage(process), listening_in_network_of(process)
            new |= dict.fromkeys(ports - self.of_pods.setdefault(stage, set()), stage)
            self.of_pods[stage] |= ports
        taken = {port for _host, port in listening_in_network_of(psutil.Process())}  # numbers are free in each network
        for port in {port for _host, port in new} - taken:
            for host in ("127.0.0.1", socket.gethostname()):
                self.answers[f"{host}:{port}"] = opened_by_another_user(host, port)


def _stage(process: psutil.Process) -> str:
    try:
        return process.environ().get("TRAINFLOW_STAGE", "")
    except psutil.Error:
        return ""


@pytest.mark.slow
@pytest.mark.parametrize("name", BACKENDS)
def test_another_user_and_another_machine_reach_nothing_of_a_gang(twin: Twin, tmp_path: Path, name: str) -> None:
    records: list[RunRecord] = []

    def start() -> None:
        console = Console(file=io.StringIO())
        records.append(follow_run(twin, gang(name), f"ports-{name}", folder=tmp_path, console=console))

    watch, running = Watch(), threading.Thread(target=start)
    running.start()
    while running.is_alive():
        watch.look()
        running.join(0.1)

    [record] = records
    assert (record.status, record.error) == ("SUCCEEDED", None)
    assert {host for host, _port in watch.of_machine} <= {"127.0.0.1", "::1"}
    assert {host for host, _port in watch.of_pods["training"]} & EVERY_ADDRESS, "torchrun's store was seen"
    assert set(watch.answers.values()) == {"ConnectionRefusedError"}


def test_another_user_has_nothing_from_the_ports_that_a_twin_of_gangs_keeps(twin: Twin) -> None:
    found = listening(filter(shares_network, [psutil.Process(), *psutil.Process().children(recursive=True)]))
    assert {host for host, _port in found.addresses} <= {"127.0.0.1", "::1"}
    assert granted(answers_to_another_user(found)) == {}
