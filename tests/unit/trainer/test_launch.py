"""The launcher starts a program on each node as `none` and `mpi` say, and ends all processes together."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.fakes.plans import launch_of, node_of, supervised
from tests.waiting import PATIENCE
from trainer.steps.processes import processes_of
from trainflow.protocol.plan import Launcher, Plan

PATH = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
"""Search path that begins with the programs of this Python, such as torchrun."""

SHOWN = (
    "NUM_NODES",
    "NODE_RANK",
    "MASTER_ADDR",
    "MASTER_PORT",
    "RANK",
    "WORLD_SIZE",
    "LOCAL_RANK",
    "OMPI_COMM_WORLD_RANK",
)
SHOW = f"""
import json, os, sys
names = [name for name in os.environ if name.removeprefix("TRAINFLOW_") in {SHOWN!r}]
line = json.dumps([sys.argv[1:], {{name: os.environ[name] for name in sorted(names)}}])
os.write(1, f"{{line}}\\n".encode())
"""
"""Writes whole lines: a print's newline may be a write of its own, and the processes of a node share one stream."""


def launch(*words: str, processes: int) -> subprocess.Popen[str]:
    launcher = "mpi" if processes else "none"
    launch = launch_of(*words, launcher=launcher, num_nodes=2, processes=processes)
    command = supervised(node_rank=1, launch=launch)
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def output_of(words: Sequence[str], *, processes: int) -> tuple[int, list[str], str]:
    launched = launch(*words, processes=processes)
    stdout, stderr = launched.communicate(timeout=PATIENCE)
    return launched.returncode, stdout.splitlines(), stderr


def test_a_program_without_ranks_is_started_once_with_the_nodes_place() -> None:
    code, (line,), _ = output_of([sys.executable, "-c", SHOW, "{rank}", "{{rank}}", "{other}"], processes=0)
    assert code == 0
    assert json.loads(line) == [
        ["1", "{rank}", "{other}"],
        {
            "MASTER_ADDR": "first",
            "MASTER_PORT": "20001",
            "TRAINFLOW_NODE_RANK": "1",
            "TRAINFLOW_NUM_NODES": "2",
        },
    ]


def test_every_process_of_a_node_finds_its_ranks_as_under_open_mpi() -> None:
    code, lines, _ = output_of([sys.executable, "-c", SHOW, "{rank}"], processes=2)
    assert code == 0
    shown = sorted(map(json.loads, lines))
    assert [argv for argv, _ in shown] == [["2"], ["3"]]
    assert shown[1][1] == {
        "MASTER_ADDR": "first",
        "MASTER_PORT": "20001",
        "OMPI_COMM_WORLD_RANK": "3",
        "LOCAL_RANK": "1",
        "RANK": "3",
        "WORLD_SIZE": "4",
        "TRAINFLOW_NODE_RANK": "1",
        "TRAINFLOW_NUM_NODES": "2",
    }


def test_the_ranks_of_a_gang_are_all_numbers_once() -> None:
    plan = Plan(launch=launch_of("train", launcher="mpi", num_nodes=3, processes=4))
    nodes = [node_of(plan, rank=node) for node in range(3)]
    ranks = [process.variables["RANK"] for node in nodes for process in processes_of(node)]
    assert ranks == [str(rank) for rank in range(12)]


def test_one_failed_process_ends_the_others_and_its_exit_code_is_the_nodes() -> None:
    program = "import sys, time\nif sys.argv[1] == '2': sys.exit(7)\ntime.sleep(600)"
    began = time.monotonic()
    code, _, _ = output_of([sys.executable, "-c", program, "{rank}"], processes=2)
    assert code == 7
    assert time.monotonic() - began < 60


@pytest.mark.parametrize("processes", [0, 2])
def test_sigterm_reaches_the_program(processes: int, tmp_path: Path) -> None:
    program = f"""
import os, pathlib, signal, sys
def end(*_):
    (pathlib.Path({str(tmp_path)!r}) / sys.argv[1]).touch()
    sys.exit(0)
signal.signal(signal.SIGTERM, end)
os.write(1, b"ready\\n")
signal.pause()
"""
    launched = launch(sys.executable, "-c", program, "{rank}", processes=processes)
    assert launched.stdout is not None
    for _ in range(max(processes, 1)):
        assert launched.stdout.readline() == "ready\n"
    launched.send_signal(signal.SIGTERM)
    assert launched.wait(timeout=PATIENCE) == 0
    launched.communicate()
    assert sorted(path.name for path in tmp_path.iterdir()) == (["2", "3"] if processes else ["1"])


@pytest.mark.parametrize("processes", [0, 2])
def test_a_program_that_is_not_there_is_named(processes: int) -> None:
    code, _, stderr = output_of(["/nowhere/train"], processes=processes)
    assert code == 2
    assert "The program '/nowhere/train' cannot be started (No such file or directory); correct workload" in stderr
    assert "Traceback" not in stderr


DOLLARS = ("$5", "5$$", "$$HOME", "${HOME}", "${local_rank}", "$local_rank", '{"price": "$1", "of": ["$$"]}', "$(date)")


@pytest.mark.parametrize(
    ("launcher", "processes", "is_python"),
    [("torchrun", 1, True), ("torchrun", 2, True), ("torchrun", 3, True), ("torchrun", 2, False), ("none", 1, True)],
)
def test_dollars_in_words_reach_every_process_unchanged(
    launcher: Launcher, processes: int, is_python: bool, tmp_path: Path
) -> None:
    program = tmp_path / "show$$.py"
    program.write_text(
        f"#!{sys.executable}\nimport json, os, sys\nos.write(1, (json.dumps(sys.argv) + '\\n').encode())"
    )
    program.chmod(0o755)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    fields = {"launcher": launcher, "processes": processes, "is_python": is_python, "port": port}
    launch = launch_of(str(program), *DOLLARS, **fields)
    (process,) = processes_of(node_of(Plan(launch=launch), master_addr="127.0.0.1"))
    done = subprocess.run(
        process.words,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PATH": PATH},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert [json.loads(line) for line in done.stdout.splitlines()] == [[str(program), *DOLLARS]] * processes, (
        done.stderr
    )
