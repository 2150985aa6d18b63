"""The modules that the helpers consist of.

Each container of a run installs the helpers. To read the sources for their imports takes a quarter of a second of CPU,
so this is done when an import changes: `python -m tests.goldens` writes the list.
"""

from __future__ import annotations

import json
from pathlib import Path

from trainer.helpers import start
from trainer.images.smoke import modules_of_ours

LIST = Path(__file__).with_suffix(".json")

NOT_IN_PODS = ("trainer.steps.code",)
"""Modules that the helpers import on Slurm's nodes only: in a pod, the installation fetches the run's code."""


def listed() -> list[str]:
    """Names of the helpers' modules and packages, as the list has them."""
    names: list[str] = json.loads(LIST.read_text())
    return names


def found() -> list[str]:
    """Names of the helpers, of all that they import of ours, and of the packages of these."""
    programs = (f"trainer.{name}" for name in start.PROGRAMS + start.IN_TRAININGS)
    modules = modules_of_ours(programs, without=NOT_IN_PODS)
    packages = {".".join(module.split(".")[:depth]) for module in modules for depth in range(1, module.count(".") + 1)}
    return sorted(modules | packages)


def as_text(names: list[str]) -> str:
    """The content of the list's file."""
    return json.dumps(names, indent=2) + "\n"
