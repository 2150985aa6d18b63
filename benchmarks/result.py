"""The form of every benchmark's result."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any


class BenchmarkFailed(Exception):
    """A benchmark could not be measured; the message says why."""


@dataclass(frozen=True, kw_only=True)
class Result:
    """The result of a benchmark."""

    benchmark: str
    ratios: Mapping[str, float]
    """Values that can be compared between machines."""
    seconds: Mapping[str, Any]
    """Measured times; nested where a time has parts."""
    machine: Mapping[str, Any]
    details: Mapping[str, Any] = field(default_factory=dict)
    """Facts other than numbers, such as whether a cache was hit."""

    def to_json(self) -> str:
        """The result as one JSON object."""
        return json.dumps(asdict(self), indent=2)


def this_machine() -> dict[str, Any]:
    """Properties of the machine that matter for a measurement, without any that identify it."""
    return {
        "processor": _processor(),
        "cores": _cores(),
        "memory_gib": _memory_gib(),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
    }


def _cores() -> int:
    """Cores that this process may use, which is what matters in a container."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _processor() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _memory_gib() -> float | None:
    try:
        return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1)
    except (ValueError, OSError):
        return None
