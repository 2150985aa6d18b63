from __future__ import annotations

from pathlib import Path

import pytest
from kubetwin.node.log_writer import ContainerLog
from kubetwin.node.termination import termination_message


@pytest.fixture
def log(tmp_path: Path) -> Path:
    written = ContainerLog(tmp_path / "c.log")
    for number in range(100):
        written.write_line(f"line {number}")
    written.close()
    return written.path


def message(tmp_path: Path, log: Path, *, text: str, policy: str = "FallbackToLogsOnError", exit_code: int = 1) -> str:
    file = tmp_path / "message"
    file.write_text(text)
    return termination_message(file, log, policy=policy, exit_code=exit_code)


def test_the_file_is_the_message_up_to_4096_bytes(tmp_path: Path, log: Path) -> None:
    assert message(tmp_path, log, text="why") == "why"
    assert len(message(tmp_path, log, text="x" * 5000)) == 4096


def test_a_failed_container_without_a_message_shows_the_end_of_its_log(tmp_path: Path, log: Path) -> None:
    lines = message(tmp_path, log, text="").splitlines()
    assert (len(lines), lines[0], lines[-1]) == (80, "line 20", "line 99")


def test_at_most_2048_bytes_of_the_log_are_shown(tmp_path: Path) -> None:
    written = ContainerLog(tmp_path / "c.log")
    written.write_line("y" * 9000)
    written.close()
    assert len(message(tmp_path, written.path, text="")) == 2048


@pytest.mark.parametrize(("policy", "exit_code"), [("File", 1), ("FallbackToLogsOnError", 0)])
def test_otherwise_the_log_is_no_message(tmp_path: Path, log: Path, policy: str, exit_code: int) -> None:
    assert message(tmp_path, log, text="", policy=policy, exit_code=exit_code) == ""
