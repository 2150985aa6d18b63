"""The live page: runs as they go on, in a browser on this machine."""

from __future__ import annotations

from trainflow.page.server import PageServer

__all__ = ["PageServer"]
