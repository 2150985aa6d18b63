"""What some tests need of the machine."""

from __future__ import annotations

import pytest

from local.slurm import packages
from local.slurm.errors import SlurmMissing


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests that run Slurm are skipped one by one, each with its name, where its packages are missing."""
    try:
        packages.require()
    except SlurmMissing as missing:
        for item in items:
            if item.get_closest_marker("slurm"):
                item.add_marker(pytest.mark.skip(reason=f"{item.name}: {missing}"))
