"""The command ends at a signal, whichever of its threads the kernel delivers it to."""

from __future__ import annotations

import ctypes
import os
import signal
from pathlib import Path

import pytest
from kubetwin_testing.cluster import command

_TGKILL = {"x86_64": 234, "aarch64": 131}
"""Number of the system call that signals one thread (Linux: asm/unistd_64.h, asm-generic/unistd.h)."""


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
