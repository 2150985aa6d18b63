"""Runs seen from outside: where they execute, how they are observed, and what is written of them. No terminal here.

For programs, `connect` opens a deployment and `this_machine` the runs of this machine; see `trainflow.client.handles`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trainflow.client.handles import Client, Run, connect, this_machine

__all__ = ["Client", "Run", "connect", "this_machine"]


def __getattr__(name: str) -> Any:
    """Imported when it is asked for (PEP 562): a list of runs, which shares this package, has to be quick."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from trainflow.client import handles

    return getattr(handles, name)
