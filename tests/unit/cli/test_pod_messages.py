"""A pod's message is the cause of its failure, whichever rank printed the last line."""

from __future__ import annotations

from tests.unit.failures.failed_programs import PROGRAMS, elastic_report
from trainflow.record.pod_messages import cause
from trainflow.workflow.run_error import RunError

CONNECTION_LOST = """\
[rank0]:     work.wait()
[rank0]: RuntimeError: [pair.cc:547] Connection closed by peer [127.0.0.1]:40000
[rank0]: This may be because the peer crashed before reporting an error. GLHF!
"""


def test_the_cause_is_the_line_that_is_judged_and_not_the_last_one() -> None:
    assert cause("pod-0", PROGRAMS[0].log, 1, None) == "ValueError: bad batch"
    assert "Connection closed by peer" in cause("pod-0", CONNECTION_LOST, 1, None)


def test_a_message_with_lines_of_launchers_only_has_no_cause() -> None:
    assert cause("pod-0", elastic_report(1), 1, None) == ""
    assert cause("pod-0", elastic_report(1)[-1500:], 1, None) == ""


def test_the_pod_that_the_error_names_has_its_line() -> None:
    error = RunError(name="ScriptFailed", message="", what_to_do="", line="ValueError: bad batch", pod="pod-1")
    assert cause("pod-1", elastic_report(1), 1, error) == "ValueError: bad batch"
    assert cause("pod-0", "OOMKilled", 137, error) == "OOMKilled"
