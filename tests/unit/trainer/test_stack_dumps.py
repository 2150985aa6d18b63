"""Stacks of real processes: they are dumped without disturbing the program, also where the interpreter is locked."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.waiting import PATIENCE
from trainer.steps.hangs import dumps, processes, sitecustomize
from trainer.steps.hangs.watch import program_variables

HOLDS_THE_LOCK = "import ctypes, os; r, _ = os.pipe(); print('ready', flush=True); ctypes.PyDLL(None).read(r, b'0', 1)"
SLEEPS = "import time; print('ready', flush=True); time.sleep(60)"


def started(tmp_path: Path, program: str, **environ: str) -> subprocess.Popen[str]:
    folder = tmp_path / "stacks"
    folder.mkdir(exist_ok=True)
    (folder / "sitecustomize.py").write_text(Path(sitecustomize.__file__).read_text())
    file = tmp_path / "train.py"
    file.write_text(program)
    child = subprocess.Popen(
        [sys.executable, str(file)],
        env={**os.environ, **environ, **program_variables(folder, environ)},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "ready\n"
    return child


def dumped(tmp_path: Path, child: subprocess.Popen[str]) -> str:
    """The file of a process after a signal."""
    file = tmp_path / "stacks" / f"{child.pid}.txt"
    assert processes.catches(child.pid, sitecustomize.SIGNAL_NUMBER)
    child.send_signal(sitecustomize.SIGNAL_NUMBER)
    deadline = time.monotonic() + 30
    while "<module>" not in file.read_text() and time.monotonic() < deadline:
        time.sleep(0.05)
    return file.read_text()


@pytest.mark.parametrize("program", [SLEEPS, HOLDS_THE_LOCK], ids=["sleeps", "holds the interpreter's lock"])
def test_a_process_dumps_its_stack_and_goes_on(tmp_path: Path, program: str) -> None:
    child = started(tmp_path, program)
    try:
        text = dumped(tmp_path, child)
        (main, *_) = dumps.shown_stacks(dumps.read_dump(text), dumps.main_thread(text), folder=tmp_path)
        assert (main[0].file, main[0].line, main[0].function) == ("train.py", 1, "<module>")
        assert main[0].text == program
        assert child.poll() is None
    finally:
        child.kill()
        child.communicate()


def test_a_customization_of_the_program_comes_first(tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.mkdir()
    (own / "sitecustomize.py").write_text("IS_OWN = True\n")
    shown = "import sitecustomize; print('ready', flush=True); assert sitecustomize.IS_OWN"
    child = started(tmp_path, shown, PYTHONPATH=str(own))
    child.communicate(timeout=PATIENCE)
    assert child.returncode == 0


def test_the_images_customization_is_imported_as_well(tmp_path: Path) -> None:
    image = tmp_path / "image"
    image.mkdir()
    (image / "sitecustomize.py").write_text("IS_OF_THE_IMAGE = True\n")
    path = [str(tmp_path / "stacks"), str(image)]
    program = (
        f"import sys; sys.path[:0] = {path}; del sys.modules['sitecustomize']; import sitecustomize\n"
        "print('ready', flush=True); assert sys.modules['sitecustomize'].IS_OF_THE_IMAGE"
    )
    child = started(tmp_path, program)
    child.communicate(timeout=PATIENCE)
    assert child.returncode == 0


def test_a_process_that_does_not_catch_the_signal_is_not_sent_it() -> None:
    child = subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(60)"])
    try:
        assert not processes.catches(child.pid, sitecustomize.SIGNAL_NUMBER)
        assert not processes.catches(child.pid, signal.SIGUSR1)
    finally:
        child.kill()
        child.wait()
    assert not processes.catches(child.pid, sitecustomize.SIGNAL_NUMBER)


def test_a_process_that_waits_for_a_signal_is_not_sent_one(tmp_path: Path) -> None:
    child = started(tmp_path, "import signal; print('ready', flush=True); signal.pause()")
    try:
        deadline = time.monotonic() + 30
        while not processes.is_paused(child.pid) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert processes.is_paused(child.pid)
    finally:
        child.kill()
        child.communicate()


def test_the_main_thread_comes_first_and_threads_outside_of_the_program_are_left_out() -> None:
    text = """main 0x01
Thread 0x03 (most recent call first):
  File "/usr/lib/python3.11/threading.py", line 5 in wait

Thread 0x02 (most recent call first):
  File "/work/loader.py", line 8 in fill
  File "/usr/lib/python3.11/threading.py", line 9 in run

Current thread 0x01 (most recent call first):
  File "/opt/venv/lib/python3.11/site-packages/torch/nn/x.py", line 3 in f
  File "/work/train.py", line 7 in main
"""
    main, other = dumps.shown_stacks(dumps.read_dump(text), dumps.main_thread(text), folder=Path("/work"))
    assert [frame.file for frame in main] == ["site-packages/torch/nn/x.py", "train.py"]
    assert [frame.file for frame in other] == ["loader.py", "python3.11/threading.py"]


@pytest.mark.parametrize("text", ["", "main 0x01\n", "Thread 0x2 (most recent call first):\n  <no Python frame>\n"])
def test_a_process_that_did_not_answer_has_no_calls(text: str) -> None:
    stacks = dumps.shown_stacks(dumps.read_dump(text), dumps.main_thread(text), folder=Path("/"))
    assert not any(stacks)
