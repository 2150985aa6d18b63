"""States and children of real processes are read, and those that have ended disturb nobody."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from trainer.runtime import descendants
from trainer.runtime.process_status import ENDED, children, read_status

pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="reads /proc")

SLEEPS = (sys.executable, "-c", "import time; time.sleep(60)")


def test_a_child_is_listed_with_its_state_and_parent() -> None:
    with subprocess.Popen(SLEEPS) as child:
        assert child.pid in [*children(os.getpid())]
        status = read_status(child.pid)
        assert status.parent == os.getpid() and status.state not in ENDED
        child.kill()


def test_a_process_that_has_ended_gets_no_signal_and_keeps_none_from_the_others() -> None:
    gone = subprocess.Popen((sys.executable, "-c", ""))
    gone.wait()
    with subprocess.Popen(SLEEPS) as living:
        descendants.send([gone.pid, living.pid], signal.SIGTERM)
        assert living.wait(30) == -signal.SIGTERM
    assert [*children(gone.pid)] == []
    with pytest.raises(OSError):
        read_status(gone.pid)
