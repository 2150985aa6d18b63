"""Formats of public programs, most of which were collected before the reader was tried with them."""

from __future__ import annotations

import pytest

from tests.unit.progress.public_formats import PublicFormat, public_formats
from tests.unit.progress.test_general import read

PUBLIC = list(public_formats("public.txt"))


@pytest.mark.parametrize("printed", PUBLIC, ids=lambda printed: printed.name)
def test_steps_and_losses_of_a_public_format_are_read(printed: PublicFormat) -> None:
    assert printed.differences(read(printed.lines)) == []


def test_each_format_has_a_name_of_its_own() -> None:
    names = [printed.name for printed in PUBLIC]
    assert len(set(names)) == len(names)
