"""The controllers: every module of this package with a `start(cluster, recorder)` runs beside the API server."""

from __future__ import annotations

import importlib
import pkgutil

from kubetwin.controllers.events import EventRecorder
from kubetwin.state.cluster import Cluster


def start_controllers(cluster: Cluster) -> None:
    """Start all controllers; called on the server's event loop, before the first request."""
    recorder = EventRecorder(cluster)
    for module in pkgutil.iter_modules(__path__):
        loaded = importlib.import_module(f"{__name__}.{module.name}")
        if hasattr(loaded, "start"):
            loaded.start(cluster, recorder)
