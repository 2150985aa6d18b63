"""Every benchmark by its name."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from benchmarks import overhead, scaling, trainer
from benchmarks.result import Result

BENCHMARKS: Mapping[str, Callable[[], Result]] = {
    "overhead": overhead.run,
    "scaling": scaling.run,
    "trainer": trainer.run,
}
