"""Formats of public programs, most of which were collected before the reader was tried with them.

`public.txt` has those that are read. `held.txt` is a measure: the reader was not corrected for its formats. One that is
to be mended moves to `public.txt`, and others take its place.
"""

from __future__ import annotations

import pytest

from tests.unit.progress.public_formats import PublicFormat, public_formats
from tests.unit.progress.test_general import read

PUBLIC = list(public_formats("public.txt"))
HELD = list(public_formats("held.txt"))
LEAST_SHARE = 0.85
"""Goal for formats that nobody has looked at while the reader was written."""


@pytest.mark.parametrize("printed", PUBLIC, ids=lambda printed: printed.name)
def test_steps_and_losses_of_a_public_format_are_read(printed: PublicFormat) -> None:
    assert printed.differences(read(printed.lines)) == []


def test_most_formats_that_the_reader_was_not_written_for_are_read() -> None:
    unread = [printed.name for printed in HELD if printed.differences(read(printed.lines))]
    assert len(unread) <= (1 - LEAST_SHARE) * len(HELD), unread


def test_each_format_has_a_name_of_its_own() -> None:
    names = [printed.name for printed in [*PUBLIC, *HELD]]
    assert len(set(names)) == len(names)
