"""Pages of an execution's history."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from local.aws.histories import page_of


def read(events: Sequence[int], size: int, *, newest_first: bool, grows: bool = False) -> list[list[int]]:
    """Every page, while the history may grow by an event between two of them."""
    pages, token = [], None
    while not pages or token is not None:
        page, token = page_of(events, after=token, max_results=size, newest_first=newest_first)
        pages.append(list(page))
        events = [*events, len(events) + 1] if grows else events
    return pages


@given(num_events=st.integers(0, 30), size=st.integers(1, 12), newest_first=st.booleans())
def test_pages_are_full_and_hold_each_event_once_in_the_order_asked_for(
    num_events: int, size: int, newest_first: bool
) -> None:
    events = list(range(1, num_events + 1))
    pages = read(events, size, newest_first=newest_first)
    ordered = events[::-1] if newest_first else events
    assert pages == ([ordered[start : start + size] for start in range(0, num_events, size)] or [[]])


def test_events_that_come_meanwhile_move_none_from_one_page_to_another() -> None:
    assert read([1, 2, 3, 4, 5], 2, newest_first=True, grows=True) == [[5, 4], [3, 2], [1]]


@pytest.mark.parametrize("token", ["0", "4", "-1", "soon"])
def test_a_token_of_no_page_is_refused(token: str) -> None:
    with pytest.raises(ValueError):
        page_of([1, 2, 3], after=token, max_results=2, newest_first=True)
