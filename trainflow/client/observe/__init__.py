"""Observing a run from outside, through the APIs of AWS and Kubernetes alone."""

from __future__ import annotations

from trainflow.client.observe.observer import RunObserver
from trainflow.client.observe.snapshot import RunSnapshot

__all__ = ["RunObserver", "RunSnapshot"]
