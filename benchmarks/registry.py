"""Every benchmark by its name."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from benchmarks import overhead
from benchmarks.result import Result

BENCHMARKS: Mapping[str, Callable[[], Result]] = {
    "overhead": overhead.run,
}
