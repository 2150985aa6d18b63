"""Results in compilers' logs: counts of graphs, and the names of those that failed.

The lines are those of `neuron_parallel_compile` and `neuronx-cc` (AWS Neuron documentation, "PyTorch NeuronX
neuron_parallel_compile CLI"). The trainer's, for TorchInductor, are worded alike; the number of cached graphs and the
name of a failed graph are lines of its own.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

MOST_NAMES = 8
"""Most names of failed graphs in one sentence."""

_FAILED_GRAPH = "Failed graph: "
_NAMES = {
    "graphs": "graphs",
    "successful compilations": "succeeded",
    "failed compilations": "failed",
    "cached graphs": "cached",
}
_TOTAL = re.compile(rf"Total ({'|'.join(_NAMES)}): (\d{{1,9}})\s*$")
_MODULE = re.compile(r"MODULE_[\w.]*?\d+(?:\+[0-9a-f]+)?")
_SAID_TO_FAIL = re.compile(r"Got a cached failed neff|Compilation failed for|Failed compilation with")
_REPORTED = re.compile(r'"[^"]*(?P<module>MODULE_[^/"]+)/[^/"]*": \{\s*$')
_STATUS = re.compile(r'"status": (?P<status>\w+)')


class CompilerLog:
    """A compiler's output, read line by line."""

    def __init__(self) -> None:
        self.totals: dict[str, int] = {}
        """The last count of each kind."""
        self._said: dict[str, None] = {}
        self._reported: dict[str, bool] = {}
        self._module: str | None = None

    def failure(self, *, again: bool = False) -> str:
        """A clause with the number of the failed graphs and, as far as they are known, their names."""
        names = self.failed_graphs
        shown = ", ".join(names[:MOST_NAMES])
        more = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
        counts = f"{self.totals.get('failed', 0)} of {self.totals.get('graphs', 0)} graphs failed to compile"
        return f"{counts}{' again' if again else ''}{f': {shown}{more}' if shown else ''}"

    @property
    def failed_graphs(self) -> list[str]:
        """Names, in the order of failing. Where there is a report at the end it knows best: it comes after retries."""
        if self._reported:
            return [module for module, compiled in self._reported.items() if not compiled]
        return list(self._said)

    def read(self, line: str) -> None:
        """Take in one line."""
        if total := _TOTAL.search(line):
            self.totals[_NAMES[total[1]]] = int(total[2])
        elif reported := _REPORTED.search(line):
            self._module = reported["module"]
        elif self._module and (status := _STATUS.search(line)):
            self._reported[self._module] = status["status"] == "true"
            self._module = None
        elif _FAILED_GRAPH in line:
            self._said[line.split(_FAILED_GRAPH, 1)[1].strip()] = None
        elif _SAID_TO_FAIL.search(line) and (module := _MODULE.search(line)):
            self._said[module[0]] = None


def compiler_lines(totals: Mapping[str, int], failed_graphs: Sequence[str]) -> list[str]:
    """The lines of a compilation's end: names of failed graphs, then the counts.

    Args:
        totals: The count of each kind, by the names of `CompilerLog.totals`.
        failed_graphs: Names as a person finds them in the program, such as `forward (bert.py:40)`.
    """
    counts = [f"Total {kind}: {totals[name]}" for kind, name in _NAMES.items()]
    return [f"{_FAILED_GRAPH}{name}" for name in failed_graphs] + counts
