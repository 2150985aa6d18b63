"""Lines of progress, in the one form that others read."""

from __future__ import annotations

import pytest

from trainer.staging.progress import Progress


def test_a_line_comes_every_ten_seconds_at_most_and_one_at_the_end() -> None:
    now, lines, files = [0.0], [], [0]
    progress = Progress(10_000, files=lambda: files[0], say=lines.append, clock=lambda: now[0])
    progress.found(1000)
    for second in range(1, 26):
        now[0] = float(second)
        files[0] = second
        progress.advance(100)
    progress.end()
    assert lines == [
        "STAGE 2000/10000 bytes 10 files 100 B/s",
        "STAGE 3000/10000 bytes 20 files 100 B/s",
        "STAGE 10000/10000 bytes 25 files 100 B/s",
    ]


def test_the_speed_of_a_line_is_that_since_the_line_before_and_of_the_last_one_that_of_all() -> None:
    now, lines = [5.0], list[str]()
    progress = Progress(10_000, files=lambda: 1, say=lines.append, clock=lambda: now[0])
    for second, num_bytes in ((14.9, 100), (15.0, 100), (24.9, 300), (25.0, 100), (30.0, 900)):
        now[0] = second
        progress.advance(num_bytes)
    progress.end()
    assert lines == [
        "STAGE 200/10000 bytes 1 files 20 B/s",
        "STAGE 600/10000 bytes 1 files 40 B/s",
        "STAGE 10000/10000 bytes 1 files 60 B/s",
    ]


def test_lines_are_printed_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    Progress(7, files=lambda: 1, clock=lambda: 0.0).end()
    assert capsys.readouterr().out == "STAGE 7/7 bytes 1 files 0 B/s\n"


def test_an_unknown_total_is_a_question_mark() -> None:
    lines: list[str] = []
    progress = Progress(None, files=lambda: 1, say=lines.append, clock=lambda: 0.0)
    progress.advance(7)
    progress.end()
    assert lines == ["STAGE 7/? bytes 1 files 7000 B/s"]


def test_what_was_there_already_counts_in_full_and_not_as_speed() -> None:
    now, lines = [0.0], []
    progress = Progress(None, files=lambda: 3, say=lines.append, clock=lambda: now[0])
    progress.found(500)
    progress.found(300)
    now[0] = 2.0
    progress.advance(100)
    progress.end()
    assert lines == ["STAGE 900/? bytes 3 files 50 B/s"]
