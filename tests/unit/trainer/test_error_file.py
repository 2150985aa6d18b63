"""The exception of a rank reaches the termination message through torchrun's error file."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.plans import supervised
from trainer.steps.error_file import shortened
from trainflow.failures.judging import Evidence, judge
from trainflow.protocol import variables
from trainflow.protocol.plan import Report
from trainflow.protocol.result import MAX_BYTES

RECORDED = """
from torch.distributed.elastic.multiprocessing.errors import record

@record
def main():
    raise RuntimeError("nrt_exec_hw_err_hbm_ue on nd3")

main()
"""
NO_RECORD = "raise RuntimeError('no one hears of it')"
OWN_RESULT = """
import os
with open(os.environ["TRAINFLOW_RESULT_FILE"], "w") as file:
    file.write('{"error": "X"}')
raise SystemExit(3)
"""


def run(tmp_path: Path, *command: str) -> tuple[int, str]:
    """Exit code of the command, and the termination message."""
    result_file = tmp_path / "termination-log"
    result_file.touch()  # as the kubelet mounts it
    process = subprocess.run(
        supervised(*command, report=Report()),
        env={**os.environ, variables.RESULT_FILE: str(result_file), "PYTHONPATH": ".", "TMPDIR": str(tmp_path)},
        capture_output=True,
        timeout=120,
        check=False,
    )
    return process.returncode, result_file.read_text()


def torchrun(tmp_path: Path, text: str) -> tuple[str, ...]:
    script = tmp_path / "train.py"
    script.write_text(text)
    flags = ("--nnodes=1", "--nproc_per_node=2", "--master_addr=127.0.0.1", "--master_port=29711")
    return (sys.executable, "-m", "torch.distributed.run", *flags, str(script))


def test_the_exception_of_a_rank_is_the_termination_message(tmp_path: Path) -> None:
    code, message = run(tmp_path, *torchrun(tmp_path, RECORDED))
    assert code == 1
    assert json.loads(message)["message"]["message"] == "RuntimeError: nrt_exec_hw_err_hbm_ue on nd3"
    verdict = judge(Evidence(message=message, exit_code=code))
    assert (verdict.error.name, verdict.rank_exit_code) == ("DeviceFailed", 1)
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith("error-")] == []


def test_a_program_that_records_nothing_leaves_the_message_to_the_log(tmp_path: Path) -> None:
    assert run(tmp_path, sys.executable, "-c", NO_RECORD) == (1, "")


def test_the_programs_own_result_stays(tmp_path: Path) -> None:
    assert run(tmp_path, sys.executable, "-c", OWN_RESULT) == (3, '{"error": "X"}')


def test_signals_and_their_exit_codes_pass_through(tmp_path: Path) -> None:
    with subprocess.Popen(
        supervised("sh", "-c", "echo up; exec sleep 60", report=Report()),
        env={**os.environ, "PYTHONPATH": "."},
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"up\n"
        time.sleep(0.1)
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 143


@pytest.mark.parametrize(
    "document",
    [
        {"message": {"message": "E: x", "errorCode": -6, "extraInfo": {"py_callstack": "é\n" * 9000 + "E: x"}}},
        {"message": "E" * 90_000},
        {"message": {"message": "E" * 90_000, "extraInfo": None}},
        {},
        [1],
        "text",
    ],
)
def test_any_error_file_is_made_to_fit(document: Any) -> None:
    assert len(shortened(document)) <= MAX_BYTES
    assert json.loads(shortened(document))


def test_the_end_of_a_long_call_stack_is_kept() -> None:
    document = {"message": {"message": "E: x", "errorCode": -6, "extraInfo": {"py_callstack": "é\n" * 9000 + "E: x"}}}
    kept = json.loads(shortened(document))["message"]
    assert kept["extraInfo"]["py_callstack"].endswith("E: x")
    assert judge(Evidence(message=json.dumps({"message": kept}), exit_code=1)).rank_exit_code == 134
