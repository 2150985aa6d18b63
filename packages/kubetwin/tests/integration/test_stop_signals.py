"""Signals end the command: whichever of its threads receives one, and a second one at once."""

from __future__ import annotations

import ctypes
import os
import signal
import time
from pathlib import Path

import pytest
from kubetwin_testing.cluster import Cluster, command, eventually

_TGKILL = {"x86_64": 234, "aarch64": 131}
"""Number of the system call that signals one thread (Linux: asm/unistd_64.h, asm-generic/unistd.h)."""

IGNORES = "trap '' TERM; echo up; while :; do sleep 1; done"
"""A program that delays a stop for the whole grace period."""


def test_a_signal_that_another_thread_receives_ends_the_command(tmp_path: Path) -> None:
    machine = os.uname().machine
    if not Path("/proc/self/task").is_dir() or machine not in _TGKILL:
        pytest.skip(f"Single threads cannot be signalled on {os.uname().sysname} {machine}.")
    with command("--state", str(tmp_path)) as (process, _):
        others = [
            int(task.name) for task in Path(f"/proc/{process.pid}/task").iterdir() if int(task.name) != process.pid
        ]
        signalled = ctypes.CDLL(None).syscall(_TGKILL[machine], process.pid, others[0], signal.SIGTERM)
        assert signalled == 0
        assert process.wait(30) == 0


def test_a_second_signal_ends_the_command_at_once(tmp_path: Path) -> None:
    with command("--state", str(tmp_path)) as (process, ready):
        cluster = Cluster(Path(ready["kubeconfig"]), tmp_path, namespace="stopping")
        cluster.run("p", IGNORES)
        cluster.phase("p", "Running")
        eventually(lambda: cluster.log("p") == "up\n", "it runs")
        while process.poll() is None:
            process.terminate()
            time.sleep(0.05)
        assert process.returncode == -signal.SIGTERM
