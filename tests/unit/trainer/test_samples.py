"""Sentence pairs and masks: the numbers of the BERT paper."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainer.corpus.samples import (
    CLS,
    MASK,
    PAD,
    SEP,
    SampleShape,
    SentencePair,
    as_rows,
    masked_positions,
    sentence_pairs,
)
from trainer.data.shard_file import Rows

VOCAB_SIZE = 1000
SHAPE = SampleShape(max_seq_length=128, max_predictions=20, vocab_size=VOCAB_SIZE)


def documents(seed: int = 0, num_documents: int = 40) -> list[list[list[int]]]:
    rng = np.random.default_rng(seed)
    return [
        [rng.integers(5, VOCAB_SIZE, size=rng.integers(3, 30)).tolist() for _ in range(50)]
        for _ in range(num_documents)
    ]


@pytest.fixture(scope="module")
def pairs() -> list[SentencePair]:
    return list(sentence_pairs(documents(), np.random.default_rng(1), max_tokens=125))


@pytest.fixture(scope="module")
def rows(pairs: list[SentencePair]) -> Rows:
    return as_rows(pairs * 5, np.random.default_rng(2), SHAPE)


def test_half_of_the_second_segments_are_random() -> None:
    many = list(sentence_pairs(documents(num_documents=400), np.random.default_rng(3), max_tokens=60))
    assert np.mean([pair.is_random_next for pair in many]) == pytest.approx(0.5, abs=0.02)


def test_a_second_segment_that_is_not_random_follows_the_first_in_the_text() -> None:
    numbered = [[[1000 * document + sentence] for sentence in range(60)] for document in range(1, 5)]
    for pair in sentence_pairs(numbered, np.random.default_rng(4), max_tokens=8):
        same_text = pair.second[0] == pair.first[-1] + 1
        assert same_text != pair.is_random_next


def test_pairs_fill_the_sequence_and_never_overflow(pairs: list[SentencePair]) -> None:
    lengths = [len(pair.first) + len(pair.second) for pair in pairs]
    assert max(lengths) == 125
    assert min(len(segment) for pair in pairs for segment in (pair.first, pair.second)) >= 1
    assert np.mean(lengths) > 100


def test_fifteen_percent_of_the_tokens_are_predicted(rows: Rows) -> None:
    text = rows["input_mask"].sum() - 3 * len(rows["input_mask"])
    predicted = np.count_nonzero(rows["masked_lm_ids"])
    assert predicted / text == pytest.approx(0.15, abs=0.005)


def test_of_those_80_percent_are_masked_10_percent_random_and_10_percent_left_alone(rows: Rows) -> None:
    real = rows["masked_lm_ids"] != PAD
    shown = np.take_along_axis(rows["input_ids"], rows["masked_lm_positions"].astype(np.int64), axis=1)[real]
    original = rows["masked_lm_ids"][real]
    assert np.mean(shown == MASK) == pytest.approx(0.8, abs=0.02)
    assert np.mean(shown == original) == pytest.approx(0.1, abs=0.02)
    assert np.mean((shown != MASK) & (shown != original)) == pytest.approx(0.1, abs=0.02)


def test_special_tokens_are_never_predicted_and_segments_are_marked(rows: Rows, pairs: list[SentencePair]) -> None:
    assert not np.isin(rows["masked_lm_ids"], (CLS, SEP, MASK)).any()
    first, second, _ = pairs[0]
    assert rows["input_ids"][0, 0] == CLS
    assert rows["segment_ids"][0].sum() == len(second) + 1
    assert rows["segment_ids"][0, len(first) + 2] == 1
    assert rows["input_mask"][0].sum() == len(first) + len(second) + 3


@given(st.integers(1, 200), st.integers(1, 20), st.integers(0, 2**32))
def test_predictions_are_distinct_ordered_and_within_their_limit(length: int, limit: int, seed: int) -> None:
    tokens = np.array([CLS, *range(10, 10 + length), SEP], dtype=np.int32)
    positions = masked_positions(tokens, np.random.default_rng(seed), max_predictions=limit)
    assert 1 <= len(positions) <= limit
    assert list(positions) == sorted(set(positions))
    assert positions[0] >= 1
    assert positions[-1] <= length
