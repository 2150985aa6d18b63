"""What compilers say of the graphs they compiled: counts, and the names of those that failed.

The lines are those of `neuron_parallel_compile` and `neuronx-cc` (AWS Neuron documentation, "PyTorch NeuronX
neuron_parallel_compile CLI"), and ours for TorchInductor, which are worded alike.
"""

from __future__ import annotations

import re

FAILED_GRAPH = "Failed graph: "
"""Text before the name of a graph in our own lines."""

_TOTAL = re.compile(r"Total (graphs|successful compilations|failed compilations|cached graphs): (\d+)\s*$")
_NAMES = {
    "graphs": "graphs",
    "successful compilations": "succeeded",
    "failed compilations": "failed",
    "cached graphs": "cached",
}
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
        elif FAILED_GRAPH in line:
            self._said[line.split(FAILED_GRAPH, 1)[1].strip()] = None
        elif _SAID_TO_FAIL.search(line) and (module := _MODULE.search(line)):
            self._said[module[0]] = None
