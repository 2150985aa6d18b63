"""End a Python program after a few steps of its optimizer: `python -m trainer.limit_steps --steps 10 -- train.py …`.

A precompilation needs the graphs of a few steps. A program without a flag for their number is ended before its
optimizer begins the next step: every graph of the steps before has been executed by then. The program runs in this
process as `python` would run it; a program that takes no steps with `torch.optim` runs to its end.
"""

from __future__ import annotations

import importlib.abc
import importlib.util
import os
import runpy
import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

from trainer.runtime.errors import BAD_INPUT

OPTIMIZERS = "torch.optim.optimizer"
"""Module whose hooks every optimizer of torch calls (since torch 2.0)."""


class _AfterImport(importlib.abc.MetaPathFinder):
    """Calls a function with one module when it has been imported, without importing it earlier."""

    def __init__(self, name: str, call: Callable[[ModuleType], None]) -> None:
        self._name, self._call = name, call

    def find_spec(self, name: str, path: Any, target: ModuleType | None = None) -> ModuleSpec | None:
        """See `importlib.abc.MetaPathFinder`."""
        if name != self._name:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is None or spec.loader is None:
            return spec
        execute, call = spec.loader.exec_module, self._call

        def execute_and_call(module: ModuleType) -> None:
            execute(module)
            call(module)

        spec.loader.exec_module = execute_and_call  # type: ignore[method-assign]
        return spec


class StepLimit:
    """Ends the process when an optimizer begins the step behind the last one that is allowed."""

    def __init__(self, steps: int) -> None:
        self._steps = steps
        self._begun: dict[int, int] = {}
        self._ended = False

    def install(self) -> None:
        """Count the steps of every optimizer of torch from now on, also if torch is imported later."""
        sys.meta_path.insert(0, _AfterImport(OPTIMIZERS, self._hook_into))

    def _hook_into(self, module: ModuleType) -> None:
        module.register_optimizer_step_pre_hook(self._before_step)

    def _before_step(self, optimizer: object, *_: object) -> None:
        begun = self._begun[id(optimizer)] = self._begun.get(id(optimizer), 0) + 1
        if begun <= self._steps:
            return
        print(f"The program has taken {self._steps} steps, which precompilation needs; it is ended.", flush=True)
        if self._ended:  # the program caught the first SystemExit
            sys.stderr.flush()
            os._exit(0)
        self._ended = True
        sys.exit(0)


def _forget_our_packages() -> None:
    """Let the program import packages of its own under the names of ours."""
    for name in [name for name in sys.modules if name.split(".")[0] in ("trainer", "trainflow")]:
        del sys.modules[name]


def main(argv: Sequence[str]) -> int:
    """Run the program that the arguments name.

    Returns:
        2 if the program is missing; otherwise it ends the process itself.
    """
    if len(argv) < 4 or argv[0] != "--steps" or not argv[1].isdigit() or argv[2] != "--":
        print("Give the steps and the program: python -m trainer.limit_steps --steps 10 -- train.py", file=sys.stderr)
        return BAD_INPUT
    StepLimit(int(argv[1])).install()
    first, *rest = argv[3:]
    _forget_our_packages()
    if first == "-m" and rest:
        sys.argv = rest
        sys.path[0] = str(Path.cwd())
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
    else:
        sys.argv = [first, *rest]
        sys.path[0] = str(Path(first).resolve().parent)
        runpy.run_path(first, run_name="__main__")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
