"""A pod's message is the cause of its failure, whichever rank printed the last line."""

from __future__ import annotations

import json
from typing import Any

import pytest

from lambdas.logic.program_output import last_line
from tests.unit.failures.failed_programs import LIB, PROGRAMS, elastic_report
from trainflow.observed.pod import read_pod
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


SECOND = """
[rank0]: During handling of the above exception, another exception occurred:

[rank0]: Traceback (most recent call last):
[rank0]:   File "/workspace/train.py", line 3, in main
[rank0]:     close(group)
"""


@pytest.mark.parametrize("lines", range(1, 6))
def test_a_process_that_is_killed_while_it_prints_a_second_traceback_has_the_first_as_its_cause(lines: int) -> None:
    log = CONNECTION_LOST + "\n".join(SECOND.splitlines()[: lines + 1])
    for printed in (log, log + "\n" + elastic_report(1)):
        assert "Connection closed by peer" in cause("pod-0", printed, 1, None)
    assert last_line(log.splitlines()).endswith("GLHF!")


@pytest.mark.parametrize("calls", range(6, 22))
def test_what_is_left_of_a_launcher_that_a_signal_ends_behind_its_report_is_no_cause(calls: int) -> None:
    link = "\nDuring handling of the above exception, another exception occurred:\n\n"
    call = f'  File "{LIB}/torch/library.py", line 667, in _del_library\n    _clear_torch_ops_cache(op_defs)\n'
    ended = "torch.distributed.elastic.multiprocessing.api.SignalException: Process 31267 got signal: 15\n"
    signalled = f"Traceback (most recent call last):\n{call * calls}{ended}"
    handled = f"Traceback (most recent call last):\n{call * 4}KeyError: 30\n"
    reports = (elastic_report(1) + link, elastic_report(1), elastic_report(1) + "\n" + handled + link)
    for log in [report + signalled for report in reports]:
        message = log[-2048:]  # what the kubelet keeps
        assert len(message) > 2000
        assert cause("pod-0", message, 1, None) == ""


def test_a_message_with_lines_of_launchers_only_has_no_cause() -> None:
    assert cause("pod-0", elastic_report(1), 1, None) == ""
    assert cause("pod-0", elastic_report(1)[-1500:], 1, None) == ""


def test_the_rest_of_a_line_at_the_beginning_of_a_cut_message_is_no_cause() -> None:
    report = elastic_report(1, others=tuple((rank, -15) for rank in (0, 2, 3, 4, 5, 6)))
    message = f"\ufffd\ufffd\ufe0f\n{report}".strip()
    assert len(message.encode()) > 2000
    assert cause("pod-0", message, 1, None) == ""


def test_the_pod_that_the_error_names_has_its_line() -> None:
    error = RunError(name="ScriptFailed", message="", what_to_do="", line="ValueError: bad batch", pod="pod-1")
    assert cause("pod-1", elastic_report(1), 1, error) == "ValueError: bad batch"
    assert cause("pod-0", "OOMKilled", 137, error) == "OOMKilled"


def test_a_pod_that_the_cluster_has_ended_does_not_show_torchruns_document() -> None:
    document = {
        "message": "SignalException: Process 61 got signal: 15",
        "extraInfo": {
            "py_callstack": "Traceback (most recent call last):\n"
            f'  File "{LIB}/torch/distributed/run.py", line 1, in main\n'
            "torch.distributed.elastic.multiprocessing.api.SignalException: Process 61 got signal: 15\n",
            "timestamp": "1764230000",
        },
    }
    message = read_pod(failed_pod(json.dumps({"message": document}))).message
    assert message is not None and "extraInfo" not in message
    assert cause("pod-0", message, 1, None) == ""


ENDED_WHILE_IT_LOGS = f"""\
  File "{LIB}/torch/distributed/elastic/agent/server/api.py", line 838, in _exit_barrier
    logger.info("Waiting")
  File "/usr/lib/python3.11/logging/__init__.py", line 1489, in warning
    def warning(self, msg, *args, **kwargs):
    ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
  File "{LIB}/torch/distributed/elastic/multiprocessing/api.py", line 88, in _terminate_process_handler
    raise SignalException(f"Process {{os.getpid()}} got signal: {{sigval}}", sigval=sigval)
torch.distributed.elastic.multiprocessing.api.SignalException: Process 61 got signal: 15
"""
"""The end of torchrun's traceback: a signal may come in any call, also of Python's library."""


def test_a_launcher_that_was_ended_in_a_call_of_another_library_is_no_cause() -> None:
    heading = "Traceback (most recent call last):\n"
    assert cause("pod-0", ENDED_WHILE_IT_LOGS, 1, None) == ""
    assert cause("pod-0", f"ValueError: bad batch\n{heading}{ENDED_WHILE_IT_LOGS}", 1, None) == "ValueError: bad batch"


def test_an_error_file_of_torchrun_is_shown_by_its_exception() -> None:
    stack = "Traceback (most recent call last):\n  File \"/code/fit.py\", line 3, in main\nKeyError: 'x'\n"
    message = {"message": "KeyError: 'x'", "extraInfo": {"py_callstack": stack}}
    assert (
        cause("pod-0", read_pod(failed_pod(json.dumps({"message": message}))).message or "", 1, None) == "KeyError: 'x'"
    )


def failed_pod(left: str) -> dict[str, Any]:
    """A failed pod that has left a termination message, as the API serves it."""
    ended = {"exitCode": 1, "reason": "Error", "message": left}
    status = {"phase": "Failed", "containerStatuses": [{"name": "workload", "state": {"terminated": ended}}]}
    return {"metadata": {"name": "pod-0"}, "spec": {"containers": [{"name": "workload"}]}, "status": status}


@pytest.mark.parametrize(
    ("code", "text"), [(143, "ended by SIGTERM"), (137, "ended by SIGKILL"), (1, ""), (0, ""), (None, ""), (255, "")]
)
def test_a_pod_without_a_message_is_explained_by_its_signal(code: int | None, text: str) -> None:
    assert cause("pod-0", "", code, None) == text
