from __future__ import annotations

import subprocess
import sys

HANGS = """
import threading
from kubetwin.stopping import StopRequest
stop = StopRequest(stop_seconds=0.2)
stop.set()
stop.wait()
threading.Event().wait()
"""


def test_a_stop_that_hangs_ends_after_its_limit_and_prints_its_stacks() -> None:
    ended = subprocess.run([sys.executable, "-c", HANGS], capture_output=True, text=True, timeout=60)
    assert ended.returncode == 1
    assert "Timeout" in ended.stderr
    assert "line 7 in <module>" in ended.stderr
