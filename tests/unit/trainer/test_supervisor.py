"""The supervisor executes the steps of a plan in one process, and starts the program."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.plans import launch_of, supervised
from trainflow.protocol import variables
from trainflow.protocol.plan import (
    Code,
    CompileCache,
    Launch,
    LockedMemory,
    Plan,
    Precompile,
    Progress,
    Report,
    Resume,
    to_text,
)

COMPILES = "print('Total graphs: 3'); print('Total successful compilations: 3')"


def run(tmp_path: Path, command: list[str], **environ: str) -> tuple[subprocess.CompletedProcess[str], dict[str, Any]]:
    """The supervisor's end, and the result that it has left."""
    result = tmp_path / "result"
    given = {variables.RESULT_FILE: str(result), variables.RUN_DIR: str(tmp_path / "run"), **environ}
    done = subprocess.run(
        command, env={**os.environ, **given}, capture_output=True, text=True, timeout=120, check=False
    )
    return done, json.loads(result.read_text()) if result.exists() else {}


def test_every_step_prepares_the_same_program_and_one_process_is_around_it(tmp_path: Path) -> None:
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache/_READY").write_text('{"files": {}}')
    (tmp_path / "run").mkdir()
    (tmp_path / "run/step-7.pt").touch()
    (tmp_path / "run/step-7.done").mkdir()
    (tmp_path / "run/step-7.done/DONE").touch()
    (tmp_path / "code").mkdir()
    (tmp_path / "code/train.py").write_text(
        "import json, os, sys\n"
        "print(json.dumps([sys.argv[1:], os.getcwd(), os.environ['PYTHONPATH'].split(':')[0], os.getppid(),\n"
        "    os.environ['TRAINFLOW_CACHE_DIR'].startswith(os.environ['TMPDIR'])]))\n"
    )
    steps = {
        "locked_memory": LockedMemory(mebibytes=1),
        "compile_cache": CompileCache(source=str(tmp_path / "cache")),
        "resume": Resume(path="step-{step}.done", words=("--from", "{checkpoint}"), marker="DONE", decision="d"),
        "code": Code(folder=str(tmp_path / "code")),
        "progress": Progress(),
        "report": Report(),
    }
    supervisor = subprocess.Popen(
        supervised(sys.executable, "train.py", "{rank}", **steps),
        env={
            **os.environ,
            variables.RUN_DIR: str(tmp_path / "run"),
            "TMPDIR": str(tmp_path),
            "PYTHONPATH": str(Path.cwd()),
        },
        stdout=subprocess.PIPE,
        text=True,
    )
    printed, _ = supervisor.communicate(timeout=120)
    assert supervisor.returncode == 0
    code = str(tmp_path / "code")
    argv = ["0", "--from", str(tmp_path / "run/step-7.done")]
    assert json.loads(printed.splitlines()[-1]) == [argv, code, code, supervisor.pid, True]


def test_a_program_without_anything_beside_it_replaces_the_supervisor(tmp_path: Path) -> None:
    program = "import os; print(os.getpid())"
    with subprocess.Popen(supervised(sys.executable, "-c", program), stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert int(process.stdout.read()) == process.pid


@pytest.mark.parametrize("processes", [0, 2])
def test_a_precompilation_counts_the_graphs_of_all_processes_of_a_node(tmp_path: Path, processes: int) -> None:
    launch = launch_of(
        sys.executable, "-c", f"{COMPILES}; import os; print(os.environ['TRAINFLOW_PRECOMPILE'])",
        launcher="mpi" if processes else "none", processes=processes or 1,
    )  # fmt: skip
    command = supervised(launch=launch, precompile=Precompile(), report=Report())
    done, result = run(tmp_path, command, TRAINFLOW_CACHE_DIR=str(tmp_path / "cache"))
    assert (done.returncode, result) == (0, {"result": {"graphs": 3, "succeeded": 3}}), done.stderr
    assert done.stdout.splitlines().count("1") == max(processes, 1)
    assert (tmp_path / "cache/_READY").exists()


def test_other_nodes_than_the_first_leave_the_cache_to_it(tmp_path: Path) -> None:
    command = supervised(sys.executable, "-c", COMPILES, node_rank=1, precompile=Precompile())
    done, _ = run(tmp_path, command, TRAINFLOW_CACHE_DIR=str(tmp_path / "cache"))
    assert (done.returncode, (tmp_path / "cache").exists()) == (0, False), done.stderr


def test_a_step_that_fails_is_the_result_and_no_program_starts(tmp_path: Path) -> None:
    command = supervised("echo", "started", compile_cache=CompileCache(source=str(tmp_path / "gone")), report=Report())
    done, result = run(tmp_path, command)
    assert (done.returncode, done.stdout, result["error"]) == (1, "", "CompileCacheGone")


def test_a_stop_while_the_node_is_prepared_starts_no_program(tmp_path: Path) -> None:
    (tmp_path / "code").mkdir()
    (tmp_path / "code/requirements.txt").write_text("--find-links http://127.0.0.1:9/\nabsent\n")
    pip = "import os, signal, time; os.kill(os.getppid(), signal.SIGTERM); time.sleep(60)"
    (tmp_path / "image/pip").mkdir(parents=True)
    (tmp_path / "image/pip/__init__.py").touch()
    (tmp_path / "image/pip/__main__.py").write_text(pip)
    step = Code(folder=str(tmp_path / "code"), requirements="requirements.txt", packages=str(tmp_path / "packages"))
    path = os.pathsep.join([str(tmp_path / "image"), str(Path.cwd())])
    done, result = run(tmp_path, supervised("echo", "started", code=step, report=Report()), PYTHONPATH=path)
    assert (done.returncode, done.stdout, result["error"]) == (128 + signal.SIGTERM, "", "Terminated")
    assert list((tmp_path / "packages").iterdir()) == []


def test_the_plan_of_a_file_is_executed(tmp_path: Path) -> None:
    (tmp_path / "plan.json").write_text(to_text(Plan(launch=launch_of("echo", "{rank}"))))
    command = [sys.executable, "-m", "trainer.supervisor", "--plan_file", str(tmp_path / "plan.json")]
    done, _ = run(tmp_path, [*command, "--node_rank", "3"])
    assert (done.returncode, done.stdout) == (0, "3\n")


@pytest.mark.parametrize("words", [[], ["{}"], ["{", "}"]])
def test_a_text_that_is_not_a_plan_is_the_result(tmp_path: Path, words: list[str]) -> None:
    done, result = run(tmp_path, [sys.executable, "-m", "trainer.supervisor", "--", *words])
    assert (done.returncode, result["error"]) == (2, "ConfigInvalid")
    assert result["message"].startswith("The plan cannot be executed: ")


def test_a_plan_longer_than_one_word_of_a_command_arrives(tmp_path: Path) -> None:
    words = [f"--word-{number}={'€' * 100}" for number in range(700)]
    launch = Launch(launcher="none", num_nodes=1, processes=1, port=1, is_python=False, program=("echo", *words))
    done, _ = run(tmp_path, supervised(launch=launch))
    assert done.stdout.split() == words
