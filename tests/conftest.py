"""What holds for every test."""

from __future__ import annotations

import atexit
import functools
import os
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import botocore.loaders
import pytest
from hypothesis import settings

LISTENED_FOR = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)

# A machine's speed is not a property of the code: no test has a deadline.
settings.register_profile("change", deadline=None, max_examples=25)
settings.register_profile("nightly", deadline=None, max_examples=200)
settings.load_profile("change")

os.environ["MOTO_EC2_LOAD_DEFAULT_AMIS"] = "false"  # 1,300 images and their volumes, for each account and region anew


def pytest_configure(config: pytest.Config) -> None:
    """Temporary files go away with the tests: CDK's assemblies, torchrun's logs, what a killed twin leaves."""
    # A shell that starts the tests in the background lets them ignore SIGINT, and so would every command in them.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if hasattr(config, "workerinput"):
        return  # has the folder of who started it
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", tempfile.gettempdir())  # pytest keeps its own for a while
    folder = tempfile.TemporaryDirectory(prefix="tests-", ignore_cleanup_errors=True)
    Path(folder.name).chmod(0o711)  # Slurm's programs run as other users
    os.environ["TMPDIR"] = tempfile.tempdir = folder.name
    atexit.register(folder.cleanup)  # after multiprocessing has removed its own folder in it


@pytest.fixture(autouse=True)
def own_signals() -> Iterator[None]:
    """The command and the programs of pods listen for signals; the process of the tests must not go on doing so."""
    before = {number: signal.getsignal(number) for number in LISTENED_FOR}
    yield
    for number, handler in before.items():
        if handler is not None:  # one that is not Python's
            signal.signal(number, handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The long ones first: two workers then end together, and no twin lives beside all that CDK leaves in memory."""
    items.sort(key=lambda item: "integration" not in item.path.parts)


@pytest.fixture(scope="session", autouse=True)
def one_loader_of_service_models() -> Iterator[None]:
    """Parse each AWS service's model once in a process: every session would read megabytes of JSON anew."""
    with pytest.MonkeyPatch.context() as patch:
        # The AWS CLI searches folders of its own: a loader for each search path.
        patch.setattr("botocore.session.create_loader", functools.cache(botocore.loaders.create_loader))
        yield
