"""Observing a run from outside, through the APIs of AWS and Kubernetes alone."""

from __future__ import annotations

from cli.observe.cluster import ClusterError
from cli.observe.observer import RunObserver
from cli.observe.snapshot import RunSnapshot

__all__ = ["ClusterError", "RunObserver", "RunSnapshot"]
