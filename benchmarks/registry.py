"""Every benchmark by its name."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from benchmarks import cli, overhead, rehearsal, scale, scaling, staging, trainer
from benchmarks.result import Result

BENCHMARKS: Mapping[str, Callable[[], Result]] = {
    "cli": cli.run,
    "overhead": overhead.run,
    "rehearsal": rehearsal.run,
    "scale": scale.run,
    "scaling": scaling.run,
    "staging": staging.run,
    "trainer": trainer.run,
}
