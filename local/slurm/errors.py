"""Errors of the twin's Slurm, with sentences for the user."""

from __future__ import annotations


class SlurmError(Exception):
    """Slurm could not be started, or one of its commands has failed."""


class SlurmMissing(SlurmError):
    """Slurm's packages are not installed."""
