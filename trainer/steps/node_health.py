"""Test a gang's nodes before its training.

The gang is started once with `trainer.node_test` in place of the program, at the next port. The test advises: the
supervisor ends only if the gang's verdict names an unhealthy node. Otherwise the training starts,
whatever happens to the test. An image without PyTorch skips the test.
"""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from trainer import node_verdict
from trainer.node_verdict import BACKSTOP_SECONDS, Verdict, skipped
from trainer.runtime.commands import SignalForwarding, helper
from trainer.runtime.errors import NodeUnhealthy, PeerLost
from trainer.runtime.node import Node, Prepared
from trainflow.protocol import compile_cache, variables
from trainflow.protocol.plan import NodeTest

SECONDS_FOR_THE_UNHEALTHY = 10.0
"""The unhealthy node reports itself in this time, and its peers wait: the first node to end ends the job."""

SECONDS_TO_END = 15.0
"""Time that the launcher of the test has to end after the verdict. The rest is killed, or left: a process that waits
for its driver in the kernel cannot be killed."""

POLL_SECONDS = 0.1

WAY_OUT = "compute.check_nodes: false in the run's spec trains without the test."


# Decision 47: a bad node is found before the training, while it can still be replaced.
def prepare(step: NodeTest, node: Node) -> Prepared:
    """Test the nodes.

    Raises:
        NodeUnhealthy: If the test has named this node.
        PeerLost: If it has named another one.
    """
    if importlib.util.find_spec("torch") is None:
        print("The image has no PyTorch, so the nodes are not tested.", flush=True)
        return Prepared()
    try:
        with tempfile.TemporaryDirectory(prefix="node-test-", ignore_cleanup_errors=True) as folder:
            verdict = tested(test_of(step, node), Path(folder))
    except OSError as error:
        verdict = skipped(f"could not be started ({error})")
    require_health(verdict, node.rank)
    return Prepared()


def require_health(verdict: Verdict, node: int) -> None:
    """Require that the verdict names no node, and print what it says of the gang.

    Raises:
        NodeUnhealthy: If it names this node.
        PeerLost: If it names another one, after some time for its own report.
    """
    if node in verdict.unhealthy:
        raise NodeUnhealthy(f"{verdict.unhealthy[node]} {WAY_OUT}")
    if verdict.unhealthy:
        time.sleep(SECONDS_FOR_THE_UNHEALTHY)
        named = next(iter(verdict.unhealthy))
        raise PeerLost(f"Node {named} of the gang failed its test; its own report says why. {WAY_OUT}")
    print(verdict.sentence, flush=True)


def tested(test: Sequence[str], folder: Path) -> Verdict:
    """Run the test's processes of this node to their verdict, and end them.

    Args:
        test: The command that starts them.
        folder: Empty folder for what they leave.

    Raises:
        OSError: If they cannot be started.
        SystemExit: If this process was asked to end meanwhile.
    """
    told = {
        **compile_cache.environment(str(folder)),  # its graphs are none of the training's
        variables.NODE_TEST_DIR: str(folder),
        "OMP_NUM_THREADS": "1",  # torchrun would say in five lines that it sets it
        variables.RESULT_FILE: "",  # the pod's result is the training's
    }
    signals = SignalForwarding()
    try:
        child = subprocess.Popen(test, env={**os.environ, **told})
        signals.forward_to(child)
        verdict = _awaited_verdict(child, folder)
        _end(child, folder)
    finally:
        signals.stop()
    if signals.received is not None:
        sys.exit(128 + signals.received)
    return verdict


def _awaited_verdict(child: subprocess.Popen[bytes], folder: Path) -> Verdict:
    """The verdict of the processes, once they have left one, have ended, or have missed their own limit."""
    until: float | None = None
    while child.poll() is None and node_verdict.read(folder) is None:
        if until is None and node_verdict.started(folder):
            until = time.monotonic() + BACKSTOP_SECONDS + SECONDS_TO_END
        if until is not None and time.monotonic() > until:
            return skipped(f"hangs after {BACKSTOP_SECONDS + SECONDS_TO_END:g} seconds")
        time.sleep(POLL_SECONDS)
    return node_verdict.read(folder) or skipped(f"has ended without a result (exit code {child.poll()})")


def _end(child: subprocess.Popen[bytes], folder: Path) -> None:
    """End what is left of the test, and wait for nothing that does not end."""
    with suppress(subprocess.TimeoutExpired):
        child.wait(SECONDS_TO_END)
        return
    for process in (*node_verdict.started(folder), child.pid):
        with suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)
    with suppress(subprocess.TimeoutExpired):
        child.wait(SECONDS_TO_END)


def test_of(step: NodeTest, node: Node) -> list[str]:
    """The command that starts the test on this node: torchrun, at the port after the training's."""
    launch = replace(node.launch, port=node.launch.port + 1)
    words = replace(node, plan=replace(node.plan, launch=launch)).rendezvous
    processes = ("--nproc_per_node", str(step.processes))
    return [sys.executable, "-m", "torch.distributed.run", *words, *processes, *helper("node_test")]
