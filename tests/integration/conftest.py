"""What some tests need of the machine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from local.aws import folder_buckets
from local.aws.server import AwsServer
from local.slurm import packages
from local.slurm.errors import SlurmMissing
from local.twin import Twin
from tests.integration.permitted import make_role


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests that run Slurm are skipped one by one, each with its name, where its packages are missing."""
    try:
        packages.require()
    except SlurmMissing as missing:
        for item in items:
            if item.get_closest_marker("slurm"):
                item.add_marker(pytest.mark.skip(reason=f"{item.name}: {missing}"))


@pytest.fixture(scope="module")
def aws() -> Iterator[AwsServer]:
    """The twin's AWS in this process, without a deployment; a module with another one has a fixture of its own."""
    server = AwsServer(time_scale=100)
    server.start()
    yield server
    server.stop()


@pytest.fixture(scope="module")
def role(aws: AwsServer) -> str:
    """ARN of a role that may do everything."""
    return make_role(aws, "test")


@pytest.fixture(scope="module")
def twin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Twin]:
    """A twin for the tests of a module; a module that needs other settings has a fixture of this name."""
    from tests.integration.test_runs import TIME_SCALE

    home, logs = tmp_path_factory.mktemp("home"), tmp_path_factory.mktemp("logs")
    with Twin(home=home, log_dir=logs, time_scale=TIME_SCALE) as running:
        yield running


@pytest.fixture(scope="module")
def demo_twin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Twin]:
    """A twin with the data of the demo and the tutorials."""
    from tests.integration.test_runs import TIME_SCALE

    home = tmp_path_factory.mktemp("home")
    folder_buckets.ensure_demo_data(home / "s3")
    with Twin(home=home, log_dir=tmp_path_factory.mktemp("logs"), time_scale=TIME_SCALE) as running:
        yield running


@pytest.fixture
def account(tmp_path: Path) -> Iterator[Twin]:
    """A twin in this process, to be used as an account: through its endpoints and with its credentials."""
    from tests.integration.test_runs import TIME_SCALE

    with Twin(home=tmp_path / "home", log_dir=tmp_path / "logs", time_scale=TIME_SCALE) as running:
        yield running
