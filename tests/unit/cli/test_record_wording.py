from __future__ import annotations

import math

import pytest

from trainflow.record.wording import clock, count, duration, estimated_cost, number, rate, size, speed_of


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0, "0.0 s"),
        (-3, "0.0 s"),
        (0.44, "0.4 s"),
        (9.96, "10 s"),
        (59.6, "1 min 00 s"),
        (131, "2 min 11 s"),
        (3599.7, "1 h 00 min"),
        (12_000, "3 h 20 min"),
        (187_200, "2 d 4 h"),
    ],
)
def test_a_duration_has_at_most_two_units(seconds: float, words: str) -> None:
    assert duration(seconds) == words


@pytest.mark.parametrize(
    ("num_bytes", "text"), [(5, "5 B"), (1536, "1.5 KiB"), (3 << 40, "3.0 TiB"), (3 << 50, "3,072.0 TiB"), (None, "–")]
)
def test_sizes_have_binary_units(num_bytes: int | None, text: str) -> None:
    assert size(num_bytes) == text


def test_a_clock_has_hours_only_where_there_are_any() -> None:
    assert [clock(42), clock(87.9), clock(3723), clock(-1)] == ["0:42", "1:27", "1:02:03", "0:00"]


def test_what_is_no_number_is_said_so() -> None:
    assert [number(None), number(math.nan), number(math.inf), number(1234.5, 1)] == ["–", "NaN", "∞", "1,234.5"]


def test_fast_trainings_need_no_decimals() -> None:
    assert [rate(6449.36), rate(118.6), rate(None)] == ["6,449", "118.6", "–"]


def test_counts_agree_with_their_nouns() -> None:
    assert [count(1, "gap"), count(25_000, "event")] == ["1 gap", "25,000 events"]
    assert [count(1, "process"), count(64, "process")] == ["1 process", "64 processes"]


def test_a_cost_is_said_with_how_exact_it_is() -> None:
    assert estimated_cost(12.3) == "about 12.30 USD at on-demand prices"
    assert estimated_cost(0.004) == "less than 0.01 USD at on-demand prices"


@pytest.mark.parametrize(
    ("sequences_per_second", "metrics", "words"),
    [
        (6450.4, {"tokens_per_second": 1.0}, "6,450 sequences/s"),
        (None, {"tokens_per_second": 12_800.0}, "12,800 tokens/s"),
        (None, {"tokens_per_second_per_device": 800.0}, "800.0 tokens/s per device"),
        (None, {"tokens_per_second_per_device": 800.0, "batches_per_second": 2.0}, "2.0 batches/s"),
        (None, {"train/images/sec": 812.0, "it/s": 3.0}, "812.0 images/s"),
        (None, {"Examples_per_sec": 70.0}, "70.0 examples/s"),
        (None, {"throughput": 5.0, "io_bytes_per_second": 7.0, "loss": 1.0}, ""),
    ],
)
def test_a_speed_has_the_unit_that_the_program_names(
    sequences_per_second: float | None, metrics: dict[str, float], words: str
) -> None:
    assert speed_of(sequences_per_second, metrics) == words
