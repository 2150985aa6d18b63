"""Watch the ranks of a node, and print their stacks when they stand still.

A thread of the supervisor looks at the processes and takes their stacks only if nothing moves. It never makes the
training fail: a fault ends the watch with one line on stderr.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from trainer.runtime import descendants
from trainer.runtime.node import Node
from trainer.runtime.process_status import ENDED, PROC
from trainer.runtime.workers import Worker
from trainer.steps.hangs import dumps, processes, sitecustomize
from trainer.steps.hangs.processes import Rank
from trainer.steps.hangs.stillness import Action, Look, Stack, Stillness
from trainflow.protocol import variables
from trainflow.protocol.stacks import Group, NodeStacks, stacks_line

LOOKS = 12
"""Looks at the processes before the stacks are reported."""

ANSWER_SECONDS = 1.0
"""Time that a process has to write its stacks; one that waits for storage does not answer."""

LAST_SECONDS = 2.0


def watched(quiet_seconds: float, node: Node, run: Callable[[Mapping[str, str]], int]) -> int:
    """Run a program under the watch; its exit code.

    Args:
        quiet_seconds: The stacks are printed when no rank has moved for this time.
        node: This node.
        run: Runs the program with further environment variables, and returns its exit code.
    """
    # A compiler is judged by its output, and a program that it starts is meant to wait for it.
    is_training = os.environ.get(variables.STAGE) == variables.TRAINING
    if not (is_training and PROC.joinpath("self", "stat").exists()):
        return run({})
    folder = Path(tempfile.mkdtemp(prefix="stacks-"))
    shutil.copyfile(sitecustomize.__file__, folder / "sitecustomize.py")
    watch = Watch(node, folder, quiet_seconds=quiet_seconds)
    watch.start()
    try:
        return run(program_variables(folder, os.environ))
    finally:
        watch.stop()
        shutil.rmtree(folder, ignore_errors=True)


def program_variables(folder: Path, environ: Mapping[str, str]) -> dict[str, str]:
    """Variables of the processes that shall dump their stacks into a folder.

    The program's own folders stay in front: if one of them has a `sitecustomize.py`, that is imported, and the program
    dumps no stacks.
    """
    path = os.pathsep.join(filter(None, (environ.get("PYTHONPATH"), str(folder))))
    return {"PYTHONPATH": path}


class Watch:
    """Looks at the ranks below this process, in a thread of its own.

    Args:
        node: This node.
        folder: Folder of the ranks' files with their stacks.
        quiet_seconds: The stacks are printed when nothing has moved for this time.
    """

    def __init__(self, node: Node, folder: Path, *, quiet_seconds: float) -> None:
        self._node, self._folder, self._quiet = node, folder, quiet_seconds
        self._stillness = Stillness(quiet_seconds)
        self._stopping = threading.Event()
        self._thread = Worker(self._run, name="hangs")

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End, without a report."""
        self._stopping.set()
        self._thread.join(LAST_SECONDS)
        if self._thread.error is not None:
            print(f"trainer.steps.hangs: {self._thread.error!r}", file=sys.stderr, flush=True)

    def _run(self) -> None:
        while not self._stopping.wait(self._quiet / LOOKS):
            ranks = self._ranks()
            action = self._stillness.look(Look(at=time.monotonic(), ranks=ranks))
            if action is Action.TAKE_STACKS:
                action = self._take_stacks(ranks)
            if action is Action.TAKE_BACK:
                self._print()

    def _take_stacks(self, ranks: list[Rank]) -> Action:
        stacks = self._stacks(ranks)
        self._stillness.skip_output(Look(at=time.monotonic(), ranks=self._ranks()))
        action = self._stillness.stacks(stacks)
        if action is Action.REPORT:
            self._print(*grouped(ranks, stacks))
        return action

    def _print(self, *groups: Group) -> None:
        launch = self._node.launch
        stacks = NodeStacks(
            node=self._node.rank,
            processes=1 if launch.launcher == "none" else launch.processes,
            seconds=round(self._stillness.seconds, 1) if groups else 0.0,
            groups=groups,
        )
        os.write(1, f"{stacks_line(stacks)}\n".encode())

    def _ranks(self) -> list[Rank]:
        registered = frozenset(int(file.stem) for file in self._folder.glob("*.txt"))
        return processes.find_ranks(processes.processes(), registered, os.getpid(), first_rank=self._node.rank)

    def _stacks(self, ranks: list[Rank]) -> dict[int, Stack]:
        """The stacks of the ranks that answer; an empty one for the others."""
        files = {rank.number: self._folder / f"{rank.process.pid}.txt" for rank in ranks}
        sizes = {number: file.stat().st_size for number, file in files.items()}
        pids = [rank.process.pid for rank in ranks]
        catching = [pid for pid in pids if processes.catches(pid, sitecustomize.SIGNAL_NUMBER)]
        descendants.send((pid for pid in catching if not processes.is_paused(pid)), sitecustomize.SIGNAL_NUMBER)
        time.sleep(min(ANSWER_SECONDS, self._quiet / LOOKS))
        return {number: _read(file, sizes[number]) for number, file in files.items()}


def _read(file: Path, start: int) -> Stack:
    text = file.read_text(errors="replace")
    return dumps.shown_stacks(dumps.read_dump(text[start:]), dumps.main_thread(text), folder=Path.cwd())


def grouped(ranks: list[Rank], stacks: Mapping[int, Stack]) -> list[Group]:
    """The ranks by their places, with what the kernel says of each."""
    found: dict[Group, list[int]] = {}
    for rank in ranks:
        pid = rank.process.pid
        place = Group(
            ranks=(),
            state=rank.process.state,
            kernel=processes.kernel_function(pid),
            path=processes.open_path(pid),
            dead_children=sum(child.state in ENDED for child in rank.children),
            threads=stacks.get(rank.number, ()),
        )
        found.setdefault(place, []).append(rank.number)
    return [Group(**{**vars(place), "ranks": tuple(numbers)}) for place, numbers in found.items()]
