"""What can go wrong with the twin's Slurm, in sentences for the person who asked for it."""

from __future__ import annotations


class SlurmError(Exception):
    """Slurm could not be started, or one of its commands has failed."""


class SlurmMissing(SlurmError):
    """Slurm's packages are not installed."""
