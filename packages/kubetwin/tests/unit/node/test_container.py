from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from kubetwin.node.container import ContainerProcess, Exit
from kubetwin.node.log_writer import PREFIX_LENGTH, ContainerLog
from kubetwin.node.memory import uses_more_than
from kubetwin.node.supervised import CannotStart

WAIT_SECONDS = 30.0

Act = Callable[[ContainerProcess, Path], None]


def run(tmp_path: Path, script: str, act: Act | None = None) -> tuple[Exit, bytes]:
    """Run a shell script as a container; its end and its output."""
    ended, exits = threading.Event(), list[Exit]()
    log = ContainerLog(tmp_path / "c.log")

    def on_exit(exit_: Exit) -> None:
        exits.append(exit_)
        ended.set()

    process = ContainerProcess(
        ["sh", "-c", script], {"PATH": os.environ["PATH"], "HERE": str(tmp_path)}, tmp_path, log, on_exit
    )
    if act is not None:
        act(process, log.path)
    assert ended.wait(WAIT_SECONDS)
    return exits[0], b"".join(line[PREFIX_LENGTH:] for line in log.path.read_bytes().splitlines(keepends=True))


def wait_for_output(path: Path, text: bytes) -> None:
    changed = threading.Event()
    for _ in range(int(WAIT_SECONDS / 0.01)):
        if text in path.read_bytes():
            return
        changed.wait(0.01)
    pytest.fail(f"{text!r} never came")


def is_alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def assert_dead(*pids: int) -> None:
    """A signal of the kernel's arrives when it does: soon, not at once."""
    pause = threading.Event()
    for _ in range(int(WAIT_SECONDS / 0.01)):
        if not any(map(is_alive, pids)):
            return
        pause.wait(0.01)
    pytest.fail(f"still alive: {[pid for pid in pids if is_alive(pid)]}")


def pids_in(path: Path) -> list[int]:
    return [int(word) for word in path.read_text().split()]


@pytest.mark.parametrize(
    ("script", "code", "reason"),
    [("true", 0, "Completed"), ("exit 3", 3, "Error"), ("kill -9 $$", 137, "Error"), ("kill -15 $$", 143, "Error")],
)
def test_the_exit_code_is_the_processs_or_128_and_the_signal(
    tmp_path: Path, script: str, code: int, reason: str
) -> None:
    exit_, _ = run(tmp_path, script)
    assert (exit_.code, exit_.reason) == (code, reason)


def test_output_and_errors_are_stored_in_the_order_in_which_they_came(tmp_path: Path) -> None:
    _, output = run(tmp_path, "echo out; echo err >&2; printf end")
    assert output == b"out\nerr\nend"


def test_the_environment_is_the_given_one_and_the_shells_variables(tmp_path: Path) -> None:
    _, output = run(tmp_path, "env")
    names = {line.partition("=")[0] for line in output.decode().splitlines()}
    assert names - {"PWD", "OLDPWD", "SHLVL", "_"} == {"HERE", "PATH"}


@pytest.mark.parametrize(("command", "exit_code"), [("no-such-command", 127), ("/etc/passwd", 126)])
def test_a_command_that_cannot_be_started_has_a_reason(tmp_path: Path, command: str, exit_code: int) -> None:
    with pytest.raises(CannotStart, match=command) as error:
        ContainerProcess([command], {"PATH": "/usr/bin"}, tmp_path, ContainerLog(tmp_path / "c.log"), print)
    assert error.value.exit_code == exit_code


@pytest.mark.skipif(sys.platform != "linux", reason="orphans outside of the group are found on Linux alone")
def test_children_that_outlive_their_parent_are_killed_even_in_sessions_of_their_own(tmp_path: Path) -> None:
    script = """
        sleep 600 & echo $! > pids
        setsid sleep 600 & echo $! >> pids
        setsid sh -c 'sleep 600 & echo $! >> pids; exec sleep 600' &
        while [ $(wc -l < pids) -lt 3 ]; do sleep 0.01; done
    """
    exit_, _ = run(tmp_path, script)
    assert exit_.code == 0
    assert_dead(*pids_in(tmp_path / "pids"))


def test_a_container_begins_with_no_signal_ignored(tmp_path: Path) -> None:
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)  # as a process that nohup or another program started may
    try:
        exit_, _ = run(tmp_path, "kill -15 $$")
    finally:
        signal.signal(signal.SIGTERM, before)
    assert (exit_.code, exit_.reason) == (143, "Error")


def test_termination_reaches_the_whole_group(tmp_path: Path) -> None:
    script = (
        "trap 'wait; exit 7' TERM; sh -c 'trap \"echo child; exit\" TERM; echo up; while :; do sleep 0.01; done' & wait"
    )

    def terminate(process: ContainerProcess, log: Path) -> None:
        wait_for_output(log, b"up")
        process.terminate()

    exit_, output = run(tmp_path, script, terminate)
    assert exit_.code == 7
    assert b"child\n" in output


def test_a_kill_needs_no_consent_and_carries_its_reason(tmp_path: Path) -> None:
    def kill(process: ContainerProcess, log: Path) -> None:
        wait_for_output(log, b"up")
        process.terminate()
        process.kill("OOMKilled")

    exit_, _ = run(tmp_path, "trap '' TERM; echo up; sleep 600", kill)
    assert (exit_.code, exit_.reason) == (137, "OOMKilled")


def test_the_container_does_not_outlive_its_supervisor(tmp_path: Path) -> None:
    pids: list[int] = []

    def kill_supervisor(process: ContainerProcess, log: Path) -> None:
        wait_for_output(log, b"up")
        pids.append(process.pid)
        psutil.Process(process.supervisor_pid).kill()

    exit_, _ = run(tmp_path, "echo up; sleep 600", kill_supervisor)
    assert exit_.code == 137
    assert_dead(pids[0])


@pytest.mark.lengthy
def test_ten_mebibytes_of_short_lines_are_stored_without_loss(tmp_path: Path) -> None:
    _, output = run(tmp_path, "yes 0123456789 | head -c 10485759")
    assert len(output) == 10485759


def test_the_output_in_the_pipe_is_stored_after_the_end_however_slow_the_disk_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = ContainerLog._store

    def store_slowly(log: ContainerLog, text: bytes) -> None:
        time.sleep(0.2)
        store(log, text)

    monkeypatch.setattr(ContainerLog, "_store", store_slowly)
    monkeypatch.setattr("kubetwin.node.container._LAST_OUTPUT_SECONDS", 0.4)
    _, output = run(tmp_path, "yes 0123456789 | head -c 1000000")
    assert len(output) == 1000000


def test_memory_is_that_of_the_whole_tree() -> None:
    program = "import sys; block = bytearray(64 * 1024**2); print('up', flush=True); sys.stdin.read()"
    with subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        assert uses_more_than(os.getpid(), 32 * 1024**2)
        assert not uses_more_than(os.getpid(), 64 * 1024**3)
