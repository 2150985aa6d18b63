"""The line about files that a program left in its working folder."""

from __future__ import annotations

import json

import pytest

from trainflow.protocol.lost_files import (
    LOST_FILES,
    MAX_NAME_LENGTH,
    MAX_NAMED,
    LostFile,
    LostFiles,
    lost_files_line,
    merged,
    parse_lost_files_line,
)
from trainflow.protocol.step_report import is_relayed

MODEL, LOG = LostFile(name="model.pt", num_bytes=1200), LostFile(name="log.txt", num_bytes=30)
FOUND = LostFiles(num_files=2, num_bytes=1230, largest=(MODEL, LOG))


def many(number: int) -> LostFiles:
    files = tuple(LostFile(name=f"{index}.pt", num_bytes=1000 - index) for index in range(number))
    return LostFiles(num_files=number, num_bytes=sum(file.num_bytes for file in files), largest=files)


@pytest.mark.parametrize("found", [FOUND, many(3), LostFiles(num_files=7, num_bytes=1, is_partial=True)])
def test_the_line_is_read_as_it_was_written_also_behind_other_text(found: LostFiles) -> None:
    assert parse_lost_files_line(lost_files_line(found)) == found
    assert parse_lost_files_line(f"90%|#### | 9/10\r{lost_files_line(found)}\n") == found
    assert is_relayed(lost_files_line(found))


def test_the_line_names_the_first_files_and_counts_all() -> None:
    read = parse_lost_files_line(lost_files_line(many(500)))
    assert read is not None
    assert (read.num_files, len(read.largest)) == (500, MAX_NAMED)


def test_a_name_that_cannot_be_printed_is_escaped_and_a_long_one_is_cut_at_its_beginning() -> None:
    names = ["a\nb\x1b[31m", "latin\udce9", "x" * 500 + "/model.pt"]
    line = json.dumps({LOST_FILES: {"num_files": 3, "num_bytes": 3, "largest": [[name, 1, 1] for name in names]}})
    read = parse_lost_files_line(line)
    assert read is not None
    shown = [file.name for file in read.largest]
    assert shown[:2] == ["a\\nb\\x1b[31m", "latin\\udce9"]
    assert len(shown[2]) == MAX_NAME_LENGTH and shown[2].endswith("x/model.pt")
    assert all(name.isprintable() and name.encode() for name in shown)


@pytest.mark.parametrize(
    "said",
    [
        *(None, [], "x", {}, {"num_files": 1}, {"num_files": 0, "num_bytes": 0, "largest": []}),
        *({"num_files": count, "num_bytes": 1, "largest": []} for count in (-1, True, "2", 1.5, 10**30)),
        *({"num_files": 1, "num_bytes": 1, "largest": files} for files in (None, [1], [["a", 1]], [[1, 1, 1]])),
    ],
)
def test_what_is_no_such_message_is_passed_over(said: object) -> None:
    assert parse_lost_files_line(json.dumps({LOST_FILES: said})) is None
    assert parse_lost_files_line(json.dumps({LOST_FILES: said})[:-1]) is None


def test_a_file_that_several_nodes_wrote_is_named_and_counted_once() -> None:
    larger = LostFiles(num_files=1, num_bytes=1300, largest=(LostFile(name="model.pt", num_bytes=1300),))
    assert merged([FOUND, larger, FOUND]) == LostFiles(
        num_files=2,
        num_bytes=1330,
        largest=(
            LostFile(name="model.pt", num_bytes=1300, num_nodes=3),
            LostFile(name="log.txt", num_bytes=30, num_nodes=2),
        ),
    )


def test_files_that_are_only_counted_are_those_of_the_node_with_the_most() -> None:
    counted = LostFiles(num_files=1002, num_bytes=2230, largest=(MODEL, LOG), is_partial=True)
    found = merged([counted, FOUND, counted])
    assert found is not None
    assert (found.num_files, found.num_bytes, found.is_partial) == (1002, 2230, True)


def test_nodes_without_files_have_nothing_to_report() -> None:
    assert merged([]) is None
