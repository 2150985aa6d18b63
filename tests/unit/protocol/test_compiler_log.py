"""What compilers say of graphs, as the trainer writes it and the workflow reads it."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainflow.protocol.compiler_log import CompilerLog, compiler_lines

ONE, TWO = "MODULE_8068656800389078395+abb26765", "MODULE_17109392703413819652+abb26765"
COUNTS = st.integers(0, 10**9 - 1)
PROGRAM_NAMES = st.from_regex(r"[a-z_]{1,9} \([a-z]{1,9}\.py:[0-9]{1,4}\)", fullmatch=True)


def read(lines: Iterable[str]) -> CompilerLog:
    log = CompilerLog()
    for line in lines:
        log.read(line)
    return log


@given(
    st.fixed_dictionaries(dict.fromkeys(("graphs", "succeeded", "failed", "cached"), COUNTS)),
    st.lists(PROGRAM_NAMES, unique=True, max_size=5),
    st.sampled_from(["", "2022-12-21 00:07:10.000925: INFO ||PARALLEL_COMPILE||: ", "[0]:"]),
)
def test_counts_and_names_come_back_from_their_lines(totals: dict[str, int], names: list[str], before: str) -> None:
    log = read(before + line for line in compiler_lines(totals, names))
    assert (log.totals, log.failed_graphs) == (totals, names)


@given(st.lists(st.text() | st.from_regex(r"Total graphs: [0-9]{10,5000}"), max_size=5))
def test_any_line_is_read(lines: list[str]) -> None:
    assert set(read(lines).totals) <= {"graphs"}


def test_no_count_has_thousands_of_digits() -> None:
    assert read(["Total graphs: 4", f"Total graphs: {'9' * 5000}"]).totals == {"graphs": 4}


def test_many_names_are_cut_short() -> None:
    log = read(f"Failed graph: forward (bert.py:{number})" for number in range(11))
    for line in ("Total graphs: 12", "Total failed compilations: 11"):
        log.read(line)
    said = log.failure()
    assert said.startswith("11 of 12 graphs failed to compile: forward (bert.py:0), forward (bert.py:1), ")
    assert said.endswith("forward (bert.py:7) and 3 more")


def test_a_compiler_that_ended_before_it_counted_has_named_what_failed() -> None:
    assert read(["Failed graph: forward (bert.py:40)"]).failure() == (
        "0 of 0 graphs failed to compile: forward (bert.py:40)"
    )


def test_a_failure_without_names_is_counted() -> None:
    log = read(["Total graphs: 2", "Total failed compilations: 1"])
    assert log.failure() == "1 of 2 graphs failed to compile"
    assert log.failure(again=True) == "1 of 2 graphs failed to compile again"


@pytest.mark.parametrize(
    "line",
    [
        f"INFO ||NCC_WRAPPER||: Got a cached failed neff at /c/neuronxcc-2.8/{ONE}/model.neff. Will skip compilation",
        f"INFO ||NCC_WRAPPER||: Compilation failed for /tmp/w/model.{ONE}.hlo.pb after 0 retries.",
        f"ERROR: Failed compilation with ['neuronx-cc', 'compile', '/w/model.{ONE}.hlo_module.pb', '--output']: [X]",
    ],
)
def test_a_failed_graph_is_named_by_whatever_the_compiler_says_of_it(line: str) -> None:
    cached = f"Using a cached neff at /c/{TWO}/model.neff. Exiting with a successfully compiled graph."
    assert read([line, cached]).failed_graphs == [ONE]


def test_the_report_at_the_end_knows_of_retries() -> None:
    lines = (
        f"Compilation failed for /tmp/w/model.{ONE}.hlo.pb after 0 retries.",
        f'INFO:         "/c/neuronxcc-2/{ONE}/model.hlo.pb": {{',
        'INFO:             "status": true,',
        'INFO:             "retry": 1',
        f'INFO:         "/c/neuronxcc-2/{TWO}/model.hlo.pb": {{',
        'INFO:             "status": false,',
    )
    assert read(lines).failed_graphs == [TWO]
