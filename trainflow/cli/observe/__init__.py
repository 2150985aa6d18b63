"""Observing a run from outside, through the APIs of AWS and Kubernetes alone."""

from __future__ import annotations

from trainflow.cli.observe.cluster import ClusterError
from trainflow.cli.observe.observer import RunObserver
from trainflow.cli.observe.snapshot import RunSnapshot

__all__ = ["ClusterError", "RunObserver", "RunSnapshot"]
