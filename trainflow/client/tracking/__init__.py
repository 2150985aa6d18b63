"""Runs in experiment trackers: what a run was, is and published, handed to MLflow or to Weights & Biases.

A tracker is a module here with one function that takes an `ExportedRun`, and an option of `trainflow export`.
"""

from __future__ import annotations

from trainflow.client.tracking.exported_run import ExportedRun, exported_run
from trainflow.client.tracking.trackers import TrackerMissing, TrackerRefused

__all__ = ["ExportedRun", "TrackerMissing", "TrackerRefused", "exported_run"]
