"""Start the program of a gang again, in the same pods, when a signal has ended one of its ranks.

Each node watches for the others' votes while its program runs. The node whose rank was killed votes with the cause;
the others end what is left of their programs, vote, and all start the program again with the newest checkpoint and at
another port. Whatever prevents that ends the pod with the program's exit code, and the workflow decides as before
(docs/decisions/0099-restart-in-the-pods.md).
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from trainer.checkpoints import checkpoint_files
from trainer.runtime import descendants
from trainer.runtime.commands import SignalForwarding
from trainer.runtime.node import SHARED_NOTES, Node
from trainer.runtime.stderr_tail import StderrTail
from trainer.runtime.workers import Worker
from trainer.steps import ended_ranks, processes, resume
from trainer.steps.error_file import ERROR_FILE
from trainer.steps.meeting import Meeting, Verdict, Vote
from trainer.steps.processes import Process
from trainflow.protocol import variables
from trainflow.protocol.launcher_report import FIRST_SIGNAL_EXIT_CODE, SIGNALS_FROM_OUTSIDE, first_exit_code
from trainflow.protocol.restart_line import Restarted, restarted_line

POLL_SECONDS = 0.25
"""Time between two looks for votes of other nodes while the program runs."""

GRACE_SECONDS = 5.0
"""Time between SIGTERM and SIGKILL for ranks that have lost another one: most wait for it in a collective."""

LONG_ROUND_SECONDS = 6 * 3600.0
"""A program that has run for so long has got further, also if no checkpoint shows it (decision 19)."""

PORTS = 50
"""Restarts after that a port is used again."""

MEMORY_EVENTS = Path("/sys/fs/cgroup/memory.events")
"""Counts processes of the container that were killed for lack of memory (Linux, "Control Group v2")."""

NOT_READABLE = (OSError, ValueError, TypeError, KeyError)
"""Errors of votes and checkpoints on the shared file system: the gang is not restarted in its pods then."""

Start = Callable[[Node, Sequence[str]], list[Process]]
"""Makes the processes of a round."""


def killed_for_memory() -> int:
    """Number of processes of this container that were killed for lack of memory."""
    with suppress(OSError, ValueError):
        lines = (line.split() for line in MEMORY_EVENTS.read_text().splitlines())
        return sum(int(words[1]) for words in lines if words[0] == "oom_kill")
    return 0


@dataclass
class Rounds:
    """The starts of a program on one node."""

    node: Node
    added: Sequence[str]
    start: Start
    round: int = 0
    began: float = field(default_factory=time.monotonic)
    """Begin of the round, on the monotonic clock."""
    checkpoint: int | None = None
    """Number of the checkpoint at the newest restart."""
    signals: SignalForwarding = field(default_factory=SignalForwarding)
    killed_for_memory: int = field(default_factory=killed_for_memory)

    def meeting(self) -> Meeting:
        """The meeting of this round."""
        launch, run_dir = self.node.launch, self.node.environment.run_dir
        folder = None
        if launch.num_nodes > 1 and run_dir is not None and self.node.plan.restart is not None:
            folder = run_dir / SHARED_NOTES / f"{self.node.plan.restart.job}.rounds" / str(self.round)
        return Meeting(folder, node=self.node.rank, num_nodes=launch.num_nodes)

    def node_of_round(self) -> Node:
        """The node with a port of this round: a process of the round before may hold the other one for a while."""
        launch = self.node.launch
        port = launch.port + 2 * (self.round % PORTS)  # the test of the nodes has the next one
        return replace(self.node, plan=replace(self.node.plan, launch=replace(launch, port=port)))

    def is_stopping(self) -> bool:
        """Whether this process has got a signal, which its program has got too."""
        return self.signals.received is not None


def repeated(node: Node, added: Sequence[str], start: Start) -> int:
    """Run the program, again after each restart that the gang agrees on; its last exit code.

    Args:
        node: The node, whose plan has the step.
        added: Words behind the program's.
        start: Makes the processes of a round, of the node and the words.
    """
    rounds = Rounds(node=node, added=added, start=start)
    if not _may_meet(rounds):
        return processes.run(start(node, added), ended_ranks.watcher(node), signals=rounds.signals)
    while True:
        meeting = rounds.meeting()
        code, lines, was_ended = _run_round(rounds, meeting)
        try:
            meeting.vote(_vote(rounds, code, lines, was_ended=was_ended))
            if code == 0 or not meeting.agrees(is_stopping=rounds.is_stopping):
                return code
            if not descendants.end(grace_seconds=GRACE_SECONDS) or rounds.is_stopping():
                return code
            _begin_round(rounds, *(meeting.cause() or (node.rank, "")))
        except NOT_READABLE as error:
            print(f"trainer.steps.restart: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
            return code


def _may_meet(rounds: Rounds) -> bool:
    """Whether the gang can agree on a restart: not without a folder, nor in a pod that replaces another of its job."""
    node = rounds.node
    if not descendants.adopt_orphans() or (node.launch.num_nodes > 1 and node.environment.run_dir is None):
        return False
    with suppress(*NOT_READABLE):
        return node.rank not in rounds.meeting().votes()
    return False


def _run_round(rounds: Rounds, meeting: Meeting) -> tuple[int, list[str], bool]:
    """Run the program once: its exit code, the last lines of its launcher, and whether it was ended for a restart."""
    node = rounds.node_of_round()
    started = rounds.start(node, rounds.added)
    for file in {process.variables[ERROR_FILE] for process in started if ERROR_FILE in process.variables}:
        Path(file).unlink(missing_ok=True)  # the exception of the round before
    over, was_ended = threading.Event(), threading.Event()
    watcher = Worker(lambda: _end_with_others(meeting, over, was_ended), name="restart")
    watcher.start()
    tail = StderrTail() if node.launch.launcher == "torchrun" else None
    with tail or nullcontext():
        writer = tail.writer if tail else None
        code = processes.run(started, ended_ranks.watcher(node), signals=rounds.signals, stderr=writer)
        if code and not rounds.is_stopping():
            descendants.end(grace_seconds=GRACE_SECONDS)
    over.set()
    watcher.join()
    return code, tail.lines if tail else [], was_ended.is_set()


def _end_with_others(meeting: Meeting, over: threading.Event, was_ended: threading.Event) -> None:
    """End this node's program when another node knows a cause."""
    while not over.wait(POLL_SECONDS):
        with suppress(*NOT_READABLE):
            if meeting.cause() is not None:
                was_ended.set()
                descendants.end(grace_seconds=GRACE_SECONDS)
                return


def _vote(rounds: Rounds, code: int, lines: Sequence[str], *, was_ended: bool) -> Vote:
    """This node's vote after the end of its program."""
    if code == 0 or rounds.is_stopping() or not _is_useful(rounds):
        return Vote(verdict=Verdict.FINAL)
    if was_ended:
        return Vote(verdict=Verdict.ENDED)
    if _has_result(rounds.node) or killed_for_memory() > rounds.killed_for_memory:
        return Vote(verdict=Verdict.FINAL)
    rank = first_exit_code(lines)
    cause = next((each for each in (rank, code) if each in SIGNALS_FROM_OUTSIDE), None)
    if cause is None or (rank is not None and rank != cause):
        return Vote(verdict=Verdict.UNKNOWN)
    number = signal.Signals(cause - FIRST_SIGNAL_EXIT_CODE)
    return Vote(verdict=Verdict.CAUSE, reason=f"signal {number.value} ({number.name})")


def _has_result(node: Node) -> bool:
    """Whether the program has named its error, which the workflow judges."""
    file = node.environment.result_file
    return file is not None and file.exists() and file.stat().st_size > 0


def _is_useful(rounds: Rounds) -> bool:
    """Whether the program has got further since the newest restart, if there was one: else other nodes are tried."""
    if rounds.round == 0 or time.monotonic() - rounds.began > LONG_ROUND_SECONDS:
        return True
    newest = _newest_checkpoint(rounds.node)
    return newest is not None and (rounds.checkpoint is None or newest > rounds.checkpoint)


def _newest_checkpoint(node: Node) -> int | None:
    """Number of the newest complete checkpoint; one of Trainflow's own programs, where the plan describes no others."""
    if node.plan.resume is not None:
        return resume.newest_number(node.plan.resume, node)
    run_dir = node.environment.run_dir
    return None if run_dir is None else max(checkpoint_files.complete_ones(run_dir), default=None)


def _begin_round(rounds: Rounds, cause_node: int, reason: str) -> None:
    """Print the restart, and choose the checkpoint of the next round."""
    rounds.round, rounds.began = rounds.round + 1, time.monotonic()
    attempt = os.environ.get(variables.ATTEMPT, "")
    restarted = Restarted(
        attempt=int(attempt) if attempt.isdecimal() else 1, round=rounds.round, node=cause_node, reason=reason
    )
    print(restarted_line(restarted), flush=True)
    rounds.checkpoint = _newest_checkpoint(rounds.node)
    if rounds.node.plan.resume is None:
        return
    os.environ.pop(variables.CHECKPOINT, None)
    prepared = resume.prepare(rounds.node.plan.resume, rounds.node, round_number=rounds.round)
    os.environ.update(prepared.variables)
    rounds.added = prepared.words
