"""What we ship, the functions' archive, the images and the client, may be shipped and changed by those who use it."""

from __future__ import annotations

import re
import tomllib
from importlib.metadata import metadata
from pathlib import Path

import pytest

from stacks.orchestration.bundling import REPOSITORY, pins

NAME = re.compile(r"^[A-Za-z0-9._-]+", re.M)
UNWANTED = re.compile(r"GPL|General Public|SSPL|Server Side|Business Source|Non-?Commercial|Proprietary", re.IGNORECASE)
"""Licences that would reach users' own programs, or forbid a use."""


def shipped() -> set[str]:
    """Names of the packages that reach an account or a user's machine."""
    files = (Path("trainer/images/cpu.txt"), Path("trainer/images/tools.txt"), Path("trainer/images/neuron.txt"))
    client = tomllib.loads(Path("pyproject.toml").read_text())["project"]["dependencies"]
    listed = "\n".join([*pins(REPOSITORY), *client, *(file.read_text() for file in files)])
    return set(NAME.findall(listed))


def licences(name: str) -> list[str]:
    """What a package says of its licence, in the newest of the three ways in which it may say it."""
    known = metadata(name)
    classifiers = [each for each in known.get_all("Classifier") or () if each.startswith("License ::")]
    expression = known.get("License-Expression")
    text = known.get("License", "").strip().splitlines()[:1]  # some have the whole licence there
    return [expression] if expression else classifiers or text


@pytest.mark.parametrize("name", sorted(shipped()))
def test_what_is_shipped_has_a_licence_that_permits_it(name: str) -> None:
    said = licences(name)
    assert said, f"{name} does not say its licence"
    assert not any(UNWANTED.search(licence) for licence in said), said


def test_plots_are_shipped_with_their_licence() -> None:
    licence = Path("trainflow/page/assets/uPlot.LICENSE")
    assert licence.read_text().startswith("The MIT License (MIT)")
    data = tomllib.loads(Path("pyproject.toml").read_text())["tool"]["setuptools"]["package-data"]["trainflow.page"]
    assert any(licence.match(pattern) for pattern in data)
