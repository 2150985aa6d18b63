"""Every line of a log is read once, wherever polls end and however the log is stored.

The log here is what a kubelet has: stamped lines in the order of writing, the last perhaps half written. It answers as
a kubelet does: `sinceTime` to the second, inclusive, line by line; the answer may be cut anywhere into chunks, and
anywhere off.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lambdas.gateways.kubernetes_objects import log_lines
from lambdas.logic.unread_log import UnreadLines
from trainflow.kubernetes.lines import LONGEST_LINE_BYTES, complete_lines
from trainflow.workflow.log_line import LogLine
from trainflow.workflow.run import LogPosition

BEGINNING = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)


@dataclass
class Log:
    """One container's log as a kubelet stores it."""

    lines: list[tuple[datetime, str]] = field(default_factory=list)
    half_written: str = ""

    def answer(self, since: datetime | None) -> bytes:
        found = [(at, text) for at, text in self.lines if since is None or at >= since]
        text = "".join(f"{at.isoformat().replace('+00:00', 'Z')} {text}\n" for at, text in found)
        return (text + self.half_written).encode()


def poll(
    log: Log, position: LogPosition | None, *, num_lines: int | None = None, chunk: int = 7, cut_off: int = 0
) -> tuple[list[str], UnreadLines, LogPosition | None]:
    """Read at most so many new lines; the position goes through JSON, as between two states."""
    data = log.answer(position.since if position else None)
    data = data[: len(data) - cut_off] if cut_off else data
    chunks = (data[start : start + chunk] for start in range(0, len(data), chunk))
    unread = UnreadLines(log_lines(complete_lines(chunks)), position, pod="pod")
    given_lines = [line.text for line in itertools.islice(unread, num_lines)]
    after = unread.position
    return given_lines, unread, LogPosition.model_validate_json(after.model_dump_json()) if after else None


@dataclass(frozen=True)
class Look:
    num_lines: int
    chunk: int
    cut_off: int


LOOKS = st.builds(
    Look,
    num_lines=st.integers(min_value=1, max_value=40),
    chunk=st.integers(min_value=1, max_value=300),
    cut_off=st.integers(min_value=0, max_value=200),
)

WRITES = st.builds(
    lambda count, advance, disorder: (count, timedelta(milliseconds=advance), timedelta(milliseconds=disorder)),
    st.integers(min_value=1, max_value=60),
    st.sampled_from([0, 0, 1, 300, 1000, 2500]),
    st.sampled_from([0, 0, 0, 1, 999]),
)
"""A burst of lines of one and the same time; how far the clock goes before it, and how late its last line is."""

DISASTERS = st.just("replaced")
"""Rotation, or a restart of the container: a new log, of whose predecessor nothing can be read any more."""


@settings(deadline=None, max_examples=300)
@given(events=st.lists(st.one_of(WRITES, LOOKS, DISASTERS), max_size=25))
def test_no_line_is_lost_or_counted_twice_whatever_happens_between_polls(
    events: list[tuple[int, timedelta, timedelta] | Look | str],
) -> None:
    log, position, now, number = Log(), None, BEGINNING, itertools.count()
    returned: list[str] = []
    readable: list[str] = []
    """Lines that have to be returned: all but those that were replaced before they were read."""
    for event in [*events, Look(num_lines=10_000, chunk=64, cut_off=0)]:
        if isinstance(event, Look):
            lines, _, position = poll(
                log, position, num_lines=event.num_lines, chunk=event.chunk, cut_off=event.cut_off
            )
            returned += lines
        elif isinstance(event, str):
            unread = {text for _, text in log.lines} - set(returned)
            readable = [text for text in readable if text not in unread]
            log = Log()
        else:
            count, advance, disorder = event
            now += advance
            burst = [(now, f"line {next(number)}") for _ in range(count)]
            burst[-1] = (burst[-1][0] - disorder if log.lines else now, burst[-1][1])
            log.lines += burst
            readable += [text for _, text in burst]
    assert returned == readable


def test_a_burst_within_one_second_is_read_in_as_many_polls_as_it_takes() -> None:
    log = Log([(BEGINNING, f"line {number}") for number in range(1000)])
    position, returned = None, []
    for _ in range(10):
        lines, unread, position = poll(log, position, num_lines=100)
        assert len(lines) == 100
        assert not unread.exhausted
        returned += lines
    assert returned == [text for _, text in log.lines]
    lines, unread, after = poll(log, position)
    assert (lines, unread.exhausted, after) == ([], True, position)


def test_a_half_written_line_waits_for_its_end() -> None:
    log = Log([(BEGINNING, "one")], half_written="2026-11-21T12:00:00Z tw")
    lines, _, position = poll(log, None)
    assert lines == ["one"]
    log.lines.append((BEGINNING, "two"))
    log.half_written = ""
    assert poll(log, position)[0] == ["two"]


def test_the_late_line_of_the_other_stream_is_not_lost() -> None:
    log = Log([(BEGINNING + timedelta(seconds=1), "on stdout")])
    _, _, position = poll(log, None)
    log.lines.append((BEGINNING + timedelta(milliseconds=999), "on stderr, stamped before and stored behind"))
    assert poll(log, position)[0] == ["on stderr, stamped before and stored behind"]


@pytest.mark.parametrize("earlier", [[], ["zero"], ["zero", "one"]], ids=["none", "one", "two"])
def test_a_late_line_is_counted_with_its_second(earlier: list[str]) -> None:
    """Else a later poll would return lines of that second again, or take the log for another one."""
    log = Log([(BEGINNING, text) for text in earlier] + [(BEGINNING + timedelta(seconds=1), "newest")])
    _, _, position = poll(log, None)
    log.lines.append((BEGINNING + timedelta(milliseconds=999), "late"))
    lines, unread, position = poll(log, position)
    assert (lines, unread.replaced) == (["late"], False)
    assert position is not None
    assert position.num_lines == len(log.lines)
    log.lines.append((BEGINNING + timedelta(seconds=1), "more"))
    lines, unread, _ = poll(log, position)
    assert (lines, unread.replaced) == (["more"], False)


def test_a_log_that_took_the_place_of_another_is_new_from_its_first_line() -> None:
    log = Log([(BEGINNING, f"before {number}") for number in range(3)])
    _, unread, position = poll(log, None)
    assert not unread.replaced
    log = Log([(BEGINNING, f"after {number}") for number in range(5)])
    lines, unread, _ = poll(log, position)
    assert lines == [text for _, text in log.lines]
    assert unread.replaced


def test_messages_of_the_kubelet_itself_are_no_log_lines() -> None:
    foreign = [b"unable to retrieve container logs for containerd://0123", b"", b"2026-11-21 is no time of day"]
    assert list(log_lines([*foreign, b"2026-11-21T12:00:00.5+01:00 a line"])) == [
        LogLine(datetime(2026, 11, 21, 11, 0, 0, 500_000, tzinfo=UTC), "a line")
    ]


@given(
    lines=st.lists(st.binary(max_size=50).map(lambda line: line.replace(b"\n", b"")), max_size=20),
    rest=st.binary(max_size=20).map(lambda line: line.replace(b"\n", b"")),
    chunk=st.integers(min_value=1, max_value=100),
)
def test_lines_are_the_same_wherever_chunks_are_cut(lines: list[bytes], rest: bytes, chunk: int) -> None:
    data = b"".join(line + b"\n" for line in lines) + rest
    assert list(complete_lines(data[start : start + chunk] for start in range(0, len(data), chunk))) == lines


@pytest.mark.parametrize("chunk", [1000, LONGEST_LINE_BYTES, 3 * LONGEST_LINE_BYTES])
def test_a_line_without_an_end_is_held_in_part_only(chunk: int) -> None:
    def chunks() -> Iterator[bytes]:
        for _ in range(0, 50 * LONGEST_LINE_BYTES, chunk):
            yield b"x" * chunk
        yield b"\nnext\n"

    first, second = complete_lines(chunks())
    assert first == b"x" * LONGEST_LINE_BYTES
    assert second == b"next"


def test_a_position_is_small_whatever_it_is_behind() -> None:
    log = Log([(BEGINNING + timedelta(milliseconds=number), f"line {number}") for number in range(5000)])
    _, _, position = poll(log, None, chunk=65536)
    assert position is not None
    assert len(json.dumps(position.model_dump(mode="json"))) < 200
    assert position.num_lines == 2000
