"""A server of objects, and an environment in which AWS programs talk to it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.unit.trainer.staging.object_server import ObjectServer, serving


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[ObjectServer]:
    with serving(ObjectServer()) as started:
        for name, value in {
            "AWS_ENDPOINT_URL": started.url,
            "AWS_ACCESS_KEY_ID": "testing",
            "AWS_SECRET_ACCESS_KEY": "testing",
            "AWS_DEFAULT_REGION": "us-east-1",
        }.items():
            monkeypatch.setenv(name, value)
        yield started
