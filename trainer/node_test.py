"""Test of a gang's nodes, on every process of it: `torchrun … -m trainer.node_test`, as the step
`trainer.steps.node_health` starts it.

Once all nodes are there, each process copies memory of its device, and each pair of neighbouring nodes exchanges data.
The test advises: its verdict goes into a file, and the process ends with 0 whatever it has found. Imports, the start of
devices and compilation are not measured, and whatever takes longer than the backstop is skipped.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from trainer import node_verdict
from trainer.node_figures import PARTS, Measured, better
from trainer.node_verdict import BACKSTOP_SECONDS, Verdict, skipped
from trainer.runtime import program
from trainer.runtime.environment import Environment
from trainflow.protocol import variables

if TYPE_CHECKING:
    from trainer.node_meeting import Meeting

PAUSE_SECONDS = 2.0
"""Seconds before a gang is measured again, so that a disturbance may end."""

Steps = Mapping[str, tuple[Callable[[], Measured], Callable[[], Measured]]]
"""Preparation and measurement of each part, by its name."""


def main(_argv: Sequence[str], environment: Environment) -> None:
    """Take part in the test; a thread ends the process when there is a verdict."""
    folder = Path(os.environ[variables.NODE_TEST_DIR])
    node_verdict.mark_started(folder)
    backstop = threading.Timer(BACKSTOP_SECONDS, _give_up, (folder,))
    backstop.daemon = True
    backstop.start()
    run(environment, folder)


def run(environment: Environment, folder: Path) -> NoReturn:
    """Measure what rank 0 asks for, until the verdict is there."""
    import torch  # takes seconds, in which the backstop counts already

    from trainer.node_measurements import Measurements
    from trainer.node_meeting import Coordinator, Meeting, Place, connect

    torch.set_num_threads(1)  # on a CPU, a copy by several threads waits for the one that another program holds up
    place = Place(environment.rank, environment.world_size, environment.local_world_size)
    address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    watcher = threading.Thread(target=_end, args=(Meeting(place, connect(address, port)), folder), daemon=True)
    watcher.start()
    if place.rank == 0:
        coordinator = Coordinator(place, connect(address, port))
        threading.Thread(target=coordinator.conclude, daemon=True).start()
    own = Measurements(environment, place)
    steps: Steps = {"memory": (own.start_memory, own.memory), "exchange": (own.start_exchange, own.exchange)}
    with suppress(RuntimeError):  # the launcher's store is gone, as the watcher finds as well
        _take_part(Meeting(place, connect(address, port)), steps)
    watcher.join()
    program.leave(0)


def _take_part(meeting: Meeting, steps: Steps) -> None:
    """Answer each question. None follows once there is a verdict, which ends the process."""
    from trainer.node_measurements import attempted
    from trainer.node_meeting import AGAIN, START, question_of

    meeting.answer(START, Measured())
    for part in PARTS:
        start, measure = steps[part.name]
        reply, number, best = meeting.answer(question_of(part, 0), attempted(start)), 0, None
        while reply == AGAIN:
            if number:
                time.sleep(PAUSE_SECONDS)
            number += 1
            now = attempted(measure)
            best = now if best is None else better(best, now)
            reply = meeting.answer(question_of(part, number), best)


def _end(meeting: Meeting, folder: Path) -> None:
    """End this process when there is a verdict. A device that hangs answers no signal, so a thread does it."""
    try:
        verdict = meeting.verdict()
        node_verdict.write(folder, verdict)
        if meeting.place.node in verdict.unhealthy:
            meeting.acknowledge()
    except Exception as error:  # noqa: BLE001  (the launcher's store is gone, or this node's disk is full)
        _leave(folder, skipped(f"broke down ({type(error).__name__}: {next(iter(str(error).splitlines()), '')})"))
    program.leave(0)


def _give_up(folder: Path) -> None:
    _leave(folder, skipped(f"has not ended after {BACKSTOP_SECONDS:g} seconds"))


def _leave(folder: Path, verdict: Verdict) -> NoReturn:
    try:
        node_verdict.write(folder, verdict)
    finally:
        program.leave(0)


if __name__ == "__main__":
    sys.exit(program.run(main, sys.argv[1:], os.environ))
