"""Every benchmark by its name."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from benchmarks import (
    checkpoints,
    cli,
    failures,
    faults,
    judging,
    memory,
    overhead,
    page,
    publishing,
    rehearsal,
    scale,
    scaling,
    staging,
    trainer,
)
from benchmarks.aws import run as aws
from benchmarks.gallery import run as gallery
from benchmarks.recovery import run as recovery
from benchmarks.result import Result

BENCHMARKS: Mapping[str, Callable[[], Result]] = {
    "aws": aws,
    "checkpoints": checkpoints.run,
    "cli": cli.run,
    "failures": failures.run,
    "faults": faults.run,
    "gallery": gallery.run,
    "judging": judging.run,
    "memory": memory.run,
    "overhead": overhead.run,
    "page": page.run,
    "publishing": publishing.run,
    "recovery": recovery.run,
    "rehearsal": rehearsal.run,
    "scale": scale.run,
    "scaling": scaling.run,
    "staging": staging.run,
    "trainer": trainer.run,
}
