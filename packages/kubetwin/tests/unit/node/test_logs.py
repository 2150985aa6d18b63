from __future__ import annotations

import io
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kubetwin.node.log_reader import LogOptions, offset_of_tail, offset_of_time, read_log
from kubetwin.node.log_writer import PREFIX_LENGTH, ContainerLog, LineStamper

START = datetime(2026, 11, 21, 3, 0, tzinfo=UTC)
NANOSECONDS = 1_000_000_000


def stored(text: bytes, *, seconds_apart: float = 1.0) -> io.BytesIO:
    """A log in which each line arrived `seconds_apart` after the one before."""
    stamper, log = LineStamper(), io.BytesIO()
    now = int(START.timestamp()) * NANOSECONDS
    for line in text.splitlines(keepends=True):
        log.write(stamper.stamp(line, now))
        now += int(seconds_apart * NANOSECONDS)
    log.write(stamper.flush(now))
    return log


def shown(log: io.BytesIO, **options: object) -> bytes:
    return b"".join(read_log(log, LogOptions(**options)))  # type: ignore[arg-type]


def numbered(count: int) -> bytes:
    return b"".join(b"line %d\n" % number for number in range(count))


def test_every_line_has_its_time() -> None:
    assert shown(stored(b"a\nb\n"), timestamps=True) == (
        b"2026-11-21T03:00:00.000000000Z a\n2026-11-21T03:00:01.000000000Z b\n"
    )


def test_a_partial_last_line_is_kept() -> None:
    assert shown(stored(b"a\nb")) == b"a\nb"


def test_a_line_is_held_back_until_it_is_whole() -> None:
    stamper = LineStamper()
    assert stamper.stamp(b"ab", 0) == b""
    assert stamper.stamp(b"c\n", 5) == b"1970-01-01T00:00:00.000000005Z abc\n"


def test_an_endless_line_is_stored_in_pieces_with_one_time() -> None:
    stamper = LineStamper()
    first = stamper.stamp(b"x" * 20_000, 0)
    second = stamper.stamp(b"y" * 20_000 + b"\n", 9)
    assert first[PREFIX_LENGTH:] + second == b"x" * 20_000 + b"y" * 20_000 + b"\n"


@given(st.lists(st.binary(max_size=30), max_size=20), st.lists(st.integers(0, 3), min_size=20, max_size=20))
def test_times_rise_strictly_and_no_byte_is_lost(chunks: list[bytes], clock: list[int]) -> None:
    stamper = LineStamper()
    log = b"".join(stamper.stamp(chunk, now) for chunk, now in zip(chunks, clock, strict=False)) + stamper.flush(9)
    assert shown(io.BytesIO(log)) == b"".join(chunks)
    times = [line[:PREFIX_LENGTH] for line in log.split(b"\n") if line]
    assert times == sorted(set(times))


@given(st.integers(0, 300), st.integers(0, 400))
def test_tail_shows_the_last_lines(count: int, tail: int) -> None:
    expected = numbered(count).splitlines(keepends=True)[max(0, count - tail) :]
    assert shown(stored(numbered(count)), tail_lines=tail) == b"".join(expected)


def test_tail_counts_a_partial_line() -> None:
    assert shown(stored(b"a\nb\nc"), tail_lines=2) == b"b\nc"


@given(st.integers(0, 300), st.floats(-5, 310))
def test_since_shows_the_lines_from_that_time_on(count: int, seconds: float) -> None:
    since = START + timedelta(seconds=seconds)
    exact = (since - START).total_seconds()
    expected = [line for number, line in enumerate(numbered(count).splitlines(keepends=True)) if number >= exact]
    assert shown(stored(numbered(count)), since=since) == b"".join(expected)


def test_since_and_tail_together_show_what_both_allow() -> None:
    log = stored(numbered(10))
    assert shown(log, since=START + timedelta(seconds=7), tail_lines=5) == b"line 7\nline 8\nline 9\n"
    assert shown(log, since=START + timedelta(seconds=2), tail_lines=1) == b"line 9\n"


def test_a_limit_cuts_in_the_middle_of_a_line() -> None:
    assert shown(stored(b"line1\nline2\n"), limit_bytes=8) == b"line1\nli"


def test_lines_longer_than_a_block_are_shown_whole() -> None:
    text = b"x" * 200_000 + b"\nshort\n" + b"y" * 150_000 + b"\n"
    assert shown(stored(text)) == text
    assert shown(stored(text), tail_lines=2) == b"short\n" + b"y" * 150_000 + b"\n"
    assert shown(stored(text), since=START + timedelta(seconds=1)) == b"short\n" + b"y" * 150_000 + b"\n"


class CountingFile(io.BytesIO):
    num_read = 0

    def read(self, size: int | None = -1) -> bytes:
        block = super().read(size)
        self.num_read += len(block)
        return block


def test_finding_a_place_does_not_read_the_whole_log() -> None:
    log = CountingFile(stored(numbered(200_000), seconds_apart=0.001).getvalue())
    offset_of_tail(log, 10)
    offset_of_time(log, START + timedelta(seconds=77))
    assert log.num_read < len(log.getvalue()) / 10


def test_options_are_read_from_a_query() -> None:
    query = {"follow": "true", "tailLines": "3", "sinceSeconds": "60", "timestamps": "true", "limitBytes": "9"}
    assert LogOptions.from_query(query, START) == LogOptions(
        follow=True, tail_lines=3, since=START - timedelta(seconds=60), timestamps=True, limit_bytes=9
    )


@pytest.mark.parametrize("query", [{"tailLines": "x"}, {"sinceTime": "yesterday"}, {"sinceTime": "2026-11-21"}])
def test_options_that_cannot_be_read_are_refused(query: dict[str, str]) -> None:
    with pytest.raises(ValueError, match=r".+"):
        LogOptions.from_query(query, START)


def test_a_follower_sees_what_is_written_later_and_ends_with_the_log(tmp_path: Path) -> None:
    log = ContainerLog(tmp_path / "c.log")
    log.write_line("early")
    with log.path.open("rb") as reader:
        blocks = read_log(reader, LogOptions(follow=True), lambda offset: log.wait_for_more(offset, 10))
        assert next(blocks) == b"early\n"
        log.write_line("late")
        assert next(blocks) == b"late\n"
        log.close()
        assert list(blocks) == []
