"""The names that `trainflow.client` offers to programs."""

from __future__ import annotations

import importlib
import pkgutil

import pytest

from trainflow import client


def test_no_module_of_the_package_has_the_name_of_what_the_package_offers() -> None:
    """An imported module would take the name's place."""
    assert not {*client.__all__} & {module.name for module in pkgutil.iter_modules(client.__path__)}


def test_what_is_offered_is_there_whatever_was_imported_before() -> None:
    for module in pkgutil.iter_modules(client.__path__, "trainflow.client."):
        importlib.import_module(module.name)
    assert all(callable(getattr(client, name)) for name in client.__all__)
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        client.nothing  # noqa: B018
