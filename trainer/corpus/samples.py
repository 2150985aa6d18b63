"""Pretraining samples out of plain text: sentence pairs and masked tokens (Devlin et al. 2019, §3.1 and §A.1).

Pure: token ids and a random generator in, arrays out. Shape suffixes: N = samples, S = tokens in a sequence,
M = predictions at most in a sequence.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from trainer.data.shard_file import Rows

SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
PAD, UNK, CLS, SEP, MASK = range(len(SPECIAL_TOKENS))

MASKED_SHARE = 0.15
"""Share of a sequence's tokens to predict; the next two are shares of these tokens."""
REPLACED_BY_MASK = 0.8
REPLACED_BY_RANDOM = 0.1

Document = Sequence[Sequence[int]]
"""Sentences of token ids, in the order of the text."""


class SentencePair(NamedTuple):
    """Two segments of text, each at least one token long."""

    first: list[int]
    second: list[int]
    is_random_next: bool
    """Whether the second was drawn at random; otherwise it follows the first in the text."""


@dataclass(frozen=True, kw_only=True)
class SpecialIds:
    """Ids of a vocabulary's special tokens; [PAD] is 0 in all of them."""

    cls: int = CLS
    sep: int = SEP
    mask: int = MASK


@dataclass(frozen=True, kw_only=True)
class SampleShape:
    """Sizes and ids that all samples share."""

    max_seq_length: int
    """Tokens in a sequence, with [CLS] and both [SEP]."""
    max_predictions: int
    """Masked tokens at most in a sequence."""
    vocab_size: int
    special: SpecialIds = SpecialIds()


def sentence_pairs(
    documents: Sequence[Document], rng: np.random.Generator, *, max_tokens: int
) -> Iterator[SentencePair]:
    """Walk once through all documents and cut them into pairs; every second one has a random second segment.

    Args:
        documents: At least two, so that there is another one to draw from.
        rng: Random generator for the lengths and for the choice of random pairs.
        max_tokens: Most tokens of both segments together.
    """
    for number, document in enumerate(documents):
        position = 0
        while True:
            budget = int(rng.integers(max_tokens // 4, 3 * max_tokens // 4)) or 1
            first, position = _take(document, position, budget)
            if position >= len(document):
                break  # before the random choice: half of the pairs have to stay random
            is_random_next = bool(rng.random() < 0.5)
            room = max_tokens - len(first)
            if is_random_next:
                other = documents[(number + int(rng.integers(1, len(documents)))) % len(documents)]
                second, _ = _take(other, int(rng.integers(len(other))), room)
            else:
                second, position = _take(document, position, room)
            yield SentencePair(first, second, is_random_next)
            if position >= len(document):
                break


def _take(document: Document, position: int, budget: int) -> tuple[list[int], int]:
    """Sentences from a position on until the budget is spent, and the position after them."""
    tokens: list[int] = []
    while position < len(document) and len(tokens) < budget:
        tokens.extend(document[position])
        position += 1
    return tokens[:budget], position


def as_rows(pairs: Sequence[SentencePair], rng: np.random.Generator, shape: SampleShape) -> Rows:
    """The arrays of a shard: sequences with their masks, and what was masked."""
    num_samples, length, special = len(pairs), shape.max_seq_length, shape.special
    rows: Rows = {
        "input_ids": np.full((num_samples, length), PAD, dtype=np.int32),
        "input_mask": np.zeros((num_samples, length), dtype=np.int8),
        "segment_ids": np.zeros((num_samples, length), dtype=np.int8),
        "masked_lm_positions": np.zeros((num_samples, shape.max_predictions), dtype=np.int32),
        "masked_lm_ids": np.full((num_samples, shape.max_predictions), PAD, dtype=np.int32),
        "next_sentence_labels": np.array([pair.is_random_next for pair in pairs], dtype=np.int8),
    }
    for row, pair in enumerate(pairs):
        tokens = np.array([special.cls, *pair.first, special.sep, *pair.second, special.sep], dtype=np.int32)
        rows["input_mask"][row, : len(tokens)] = 1
        rows["segment_ids"][row, len(pair.first) + 2 : len(tokens)] = 1
        positions = masked_positions(tokens, rng, max_predictions=shape.max_predictions, special=special)
        rows["masked_lm_positions"][row, : len(positions)] = positions
        rows["masked_lm_ids"][row, : len(positions)] = tokens[positions]
        tokens[positions] = replacements(tokens[positions], rng, vocab_size=shape.vocab_size, mask=special.mask)
        rows["input_ids"][row, : len(tokens)] = tokens
    return rows


def masked_positions(
    tokens: npt.NDArray[np.int32], rng: np.random.Generator, *, max_predictions: int, special: SpecialIds = SpecialIds()
) -> npt.NDArray[np.int64]:
    """Which tokens to predict: 15 % of those that are text, at least one, in ascending order."""
    text = np.flatnonzero((tokens != special.cls) & (tokens != special.sep))
    count = min(max_predictions, max(1, round(MASKED_SHARE * len(text))))
    return np.sort(rng.choice(text, size=count, replace=False))


def replacements(
    tokens: npt.NDArray[np.int32], rng: np.random.Generator, *, vocab_size: int, mask: int = MASK
) -> npt.NDArray[np.int32]:
    """The tokens at the positions to predict: [MASK] for 80 %, a random token for 10 %, the original token for the
    rest."""
    chance = rng.random(len(tokens))
    drawn = rng.integers(len(SPECIAL_TOKENS), vocab_size, size=len(tokens), dtype=np.int32)
    replaced = np.where(chance < REPLACED_BY_MASK + REPLACED_BY_RANDOM, drawn, tokens)
    return np.where(chance < REPLACED_BY_MASK, np.int32(mask), replaced).astype(np.int32)
