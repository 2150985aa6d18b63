"""A stream goes forward; what is left out is not asked for, and nothing else is."""

from __future__ import annotations

import io
import tarfile
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.wording import wording
from trainer.runtime.errors import DatasetInvalid
from trainer.staging import stream
from trainer.staging.source import RemoteFile
from trainer.staging.stream import LONGEST_READ, ReadStream
from trainer.staging.transfer import RANGE_BYTES

SIZE = 3 * RANGE_BYTES + 5
FILE = RemoteFile(name="a.tar", url="s3://b/a.tar", address="http://b/a.tar", size=SIZE, etag=None)


def stream_of(content: bytes, **more: Any) -> ReadStream:
    return ReadStream(io.BytesIO(content), **more)


def test_a_stream_goes_forward_only_and_knows_where_it_is() -> None:
    whole = stream_of(b"0123456789")
    assert (whole.peek(3), whole.tell()) == (b"012", 0)
    assert (whole.read(2), whole.tell()) == (b"01", 2)
    whole.skip_to(5)
    assert (b"".join(whole.pieces(3)), whole.tell()) == (b"567", 8)
    whole.skip_to(8)
    assert (whole.read(0), whole.read(9), whole.tell()) == (b"", b"89", 10)
    assert (whole.read(1), whole.peek(1), whole.cut()) == (b"", b"", None)
    rest = stream_of(b"0123456789")
    rest.drain()
    assert rest.tell() == 10


def test_reads_go_on_over_the_pieces_in_which_bytes_come(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ReadStream, "CHUNK", 4)
    whole = stream_of(b"0123456789")
    assert (whole.peek(8), whole.read(6)) == (b"0123", b"012345")
    assert [bytes(piece) for piece in whole.pieces(3)] == [b"67", b"8"]
    whole.skip_to(10)
    assert whole.tell() == 10


def test_a_stream_that_ends_too_soon_says_so() -> None:
    with pytest.raises(tarfile.ReadError, match=r"^unexpected end of data$"):
        stream_of(b"012").skip_to(4)
    with pytest.raises(tarfile.ReadError, match=r"^unexpected end of data$"):
        list(stream_of(b"012").pieces(4))


@pytest.mark.parametrize("size", [-1, LONGEST_READ + 1])
def test_more_than_a_header_may_have_is_not_read(size: int) -> None:
    with pytest.raises(tarfile.ReadError, match=f"^it asks for {size} bytes of header$"):
        stream_of(b"").read(size)
    assert stream_of(b"01").read(LONGEST_READ) == b"01"


def test_a_stream_may_have_as_many_bytes_as_are_allowed_and_no_more() -> None:
    assert stream_of(b"0123", most=4).read(4) == b"0123"
    with pytest.raises(DatasetInvalid) as refused:
        stream_of(bytes(1235), most=1234).read(1)
    assert str(refused.value) == (
        wording(
            "stream.a_stream_may_have_as_many_bytes_as_are_allowed_and_no_more",
            "1,234",
            "dataset.max_expansion",
            "max_expansion",
        )
    )


class Broken:
    """A source whose bytes are damaged."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    def read(self, _size: int = -1, /) -> bytes:
        raise self._error


@pytest.mark.parametrize(
    ("error", "said"), [(EOFError("it ends"), "it ends"), (EOFError(), "EOFError")], ids=["with words", "without"]
)
def test_damage_is_an_error_of_the_archive_and_another_error_stays_what_it_is(error: Exception, said: str) -> None:
    with pytest.raises(tarfile.ReadError, match=f"^{said}$"):
        ReadStream(Broken(error), errors=(EOFError,)).read(1)
    with pytest.raises(EOFError):
        ReadStream(Broken(error)).read(1)


@settings(deadline=None)
@given(st.lists(st.integers(0, SIZE), max_size=8, unique=True).map(sorted))
def test_ranges_cover_everything_but_what_is_left_out(ends: list[int]) -> None:
    without = dict(zip(ends[::2], ends[1::2], strict=False))
    covered = [(asked.start, asked.end) for asked in stream._ranges(FILE, without)]
    both = sorted([*covered, *without.items()])
    assert all(0 < end - start <= RANGE_BYTES for start, end in covered)
    assert [start for start, _ in both] == [0, *(end for _, end in both[:-1])]
    assert both[-1][1] == SIZE
