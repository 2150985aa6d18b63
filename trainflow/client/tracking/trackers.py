"""Packages of trackers, which are installed beside Trainflow by those who use them."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from trainflow.errors import TrainflowError


class TrackerMissing(TrainflowError):
    """A tracker's package is not installed."""

    input_at_fault = True


class TrackerRefused(TrainflowError):
    """A tracker did not take the run, or cannot be reached; the message is its own."""

    what_to_do = "Check the tracker's address and the credentials that its own client reads, then export the run again."
    input_at_fault = True


def package(name: str, *, extra: str) -> Any:
    """A tracker's package.

    Args:
        name: Its name for `import`.
        extra: The extra of Trainflow's distribution that brings it.

    Raises:
        TrackerMissing: If it is not installed.
    """
    try:
        return import_module(name)
    except ModuleNotFoundError as missing:
        if missing.name != name.split(".")[0]:
            raise
        raise TrackerMissing(
            f"The package '{name}' is not installed: pip install 'trainflow[{extra}]', in a checkout '.[{extra}]'."
        ) from None
