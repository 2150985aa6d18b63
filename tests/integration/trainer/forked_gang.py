"""The test of a gang's nodes with real processes over gloo, forked from a process that has imported torch already."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

from torch.distributed import TCPStore  # type: ignore[attr-defined]

from tests.integration.trainer.forked_training import forkserver
from trainer import node_verdict
from trainer.node_verdict import Verdict
from trainflow.protocol import variables

DEADLINE_SECONDS = 240

LIMITS: Mapping[str, float] = {"LEAST_LIMIT_SECONDS": 3.0, "ACKNOWLEDGED_WITHIN": 60.0, "BACKSTOP_SECONDS": 200.0}
"""Limits of a test, short enough to wait for."""

Fault = Mapping[str, str]
"""What happens to a process at which step: the step's name, and a function of this module."""


def verdicts(
    folder: Path,
    *,
    num_nodes: int,
    per_node: int = 1,
    faults: Mapping[int, Fault] | None = None,
    limits: Mapping[str, float] | None = None,
) -> list[Verdict | None]:
    """The verdict that each node is left with, once all processes have ended.

    Args:
        folder: Empty folder.
        num_nodes: Nodes of the gang.
        per_node: Processes of each.
        faults: What happens to which ranks.
        limits: Other limits than the usual ones.
    """
    world_size = num_nodes * per_node
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False, timeout=timedelta(seconds=60))
    folders = [folder / f"node-{node}" for node in range(num_nodes)]
    processes = []
    for each in folders:
        each.mkdir()
    for rank in range(world_size):
        environ = {
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(store.port),
            "TORCHELASTIC_USE_AGENT_STORE": "True",
            "GLOO_SOCKET_IFNAME": "lo",
            "RANK": str(rank),
            "LOCAL_RANK": str(rank % per_node),
            "WORLD_SIZE": str(world_size),
            "LOCAL_WORLD_SIZE": str(per_node),
            variables.NODE_TEST_DIR: str(folders[rank // per_node]),
        }
        given = (environ, dict((faults or {}).get(rank, {})), {**LIMITS, **(limits or {})})
        processes.append(forkserver().Process(target=_process, args=given))
        processes[-1].start()
    deadline = time.monotonic() + DEADLINE_SECONDS
    for process in processes:
        process.join(max(0.0, deadline - time.monotonic()))
    left = [process for process in processes if process.is_alive()]
    for process in left:
        process.kill()
    assert not left, f"{len(left)} of {world_size} processes have not ended"
    return [node_verdict.read(each) for each in folders]


def hangs(_measure: Callable[[], Any]) -> Any:
    time.sleep(DEADLINE_SECONDS)


def fails(_measure: Callable[[], Any]) -> Any:
    raise RuntimeError("HBM parity error")


def dies(_measure: Callable[[], Any]) -> Any:
    os.kill(os.getpid(), signal.SIGKILL)


def lasts(measure: Callable[[], Any]) -> Any:
    """A step that takes longer than the least limit, as do those of all other nodes."""
    time.sleep(LIMITS["LEAST_LIMIT_SECONDS"] + 2)
    return measure()


def is_fast(measure: Callable[[], Any]) -> Any:
    """A figure that does not depend on what else this machine does."""
    return replace(measure(), gigabytes_per_second=1.0)


def is_slow(measure: Callable[[], Any]) -> Any:
    return replace(measure(), gigabytes_per_second=0.01)


def steady(world_size: int, faults: Mapping[int, Fault]) -> dict[int, Fault]:
    """Faults of some ranks; the figures of the others are the same."""
    healthy = {"memory": "is_fast", "exchange": "is_fast"}
    return {rank: healthy | dict(faults.get(rank, {})) for rank in range(world_size)}


def _process(environ: dict[str, str], fault: dict[str, str], limits: dict[str, float]) -> None:
    from trainer import node_figures, node_measurements, node_meeting, node_test
    from trainer.device import choose
    from trainer.runtime import program

    os.environ.update(environ)
    # Where PyTorch/XLA is installed, each of several processes on a CPU has a world of its own.
    vars(node_measurements)["choose"] = lambda _auto, **place: choose("cpu", **place)
    modules: Sequence[Any] = (node_figures, node_meeting, node_test)
    for module in modules:
        for name in limits.keys() & vars(module).keys():
            setattr(module, name, limits[name])
    node_test.PAUSE_SECONDS = 0.0
    for step, name in fault.items():
        _wrap(node_measurements.Measurements, step, globals()[name])
    program.leave(program.run(node_test.main, (), os.environ))


def _wrap(owner: Any, step: str, fault: Callable[[Callable[[], Any]], Any]) -> None:
    measure = getattr(owner, step)
    setattr(owner, step, lambda self: fault(lambda: measure(self)))
