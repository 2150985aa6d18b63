"""What is left out is not asked for, and nothing else is."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from trainer.staging import stream
from trainer.staging.source import RemoteFile
from trainer.staging.transfer import RANGE_BYTES

SIZE = 3 * RANGE_BYTES + 5
FILE = RemoteFile(name="a.tar", url="s3://b/a.tar", address="http://b/a.tar", size=SIZE, etag=None)


@settings(deadline=None)
@given(st.lists(st.integers(0, SIZE), max_size=8, unique=True).map(sorted))
def test_ranges_cover_everything_but_what_is_left_out(ends: list[int]) -> None:
    without = dict(zip(ends[::2], ends[1::2], strict=False))
    covered = [(asked.start, asked.end) for asked in stream._ranges(FILE, without)]
    both = sorted([*covered, *without.items()])
    assert all(0 < end - start <= RANGE_BYTES for start, end in covered)
    assert [start for start, _ in both] == [0, *(end for _, end in both[:-1])]
    assert both[-1][1] == SIZE
