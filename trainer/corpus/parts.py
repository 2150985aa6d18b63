"""Divides the text into parts, which can become shards in any process and any order with the same result."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from trainer.corpus import vocabulary
from trainer.corpus.config import CorpusConfig
from trainer.corpus.documents import SENTENCES_PER_DOCUMENT
from trainer.corpus.samples import Document, SampleShape, SentencePair, as_rows, sentence_pairs
from trainer.data import shard_file
from trainer.data.data_order import Positions
from trainer.data.shard_file import Rows
from trainer.runtime.errors import ConfigInvalid


@dataclass(frozen=True)
class Part:
    """A share of the text, spooled to a file of one document a line."""

    number: int
    path: Path
    shards: range
    """Numbers of the shards that are made of it."""

    def documents(self) -> Iterator[list[str]]:
        """Iterate over the documents of this part, which are lists of sentences."""
        with self.path.open(encoding="utf-8") as lines:
            for line in lines:
                yield json.loads(line)


@dataclass(frozen=True)
class MadeShard:
    """A shard on disk."""

    path: Path
    num_samples: int


def split(documents: Iterable[Sequence[str]], folder: Path, *, num_parts: int, num_shards: int) -> list[Part]:
    """Distribute the documents over the parts in turn, so that every shard has some of every file.

    Args:
        documents: Lists of sentences.
        folder: The folder for the spooled text.
        num_parts: 1, which becomes all the shards, or as many as shards.
        num_shards: Number of HDF5 files to make.
    """
    each = num_shards // num_parts
    parts = [
        Part(number, folder / f"part-{number}.jsonl", range(number * each, (number + 1) * each))
        for number in range(num_parts)
    ]
    with ExitStack() as stack:
        files = [stack.enter_context(part.path.open("w", encoding="utf-8")) for part in parts]
        for number, document in enumerate(documents):
            print(json.dumps(document), file=files[number % num_parts])
    return parts


def make_shards(part: Part, *, config: CorpusConfig, tokens: Sequence[str]) -> list[MadeShard]:
    """Make and write the shards of a part, beside its text.

    Args:
        part: The part of the text.
        config: The settings of the data set.
        tokens: The vocabulary.

    Raises:
        ConfigInvalid: If the part has too little text.
    """
    documents = vocabulary.tokenized(list(part.documents()), tokens)
    if len(documents) < 2:
        wanted = "" if len(part.shards) > 1 else f" for each of --num_shards {config.num_shards}"
        raise ConfigInvalid(f"--text holds fewer than {SENTENCES_PER_DOCUMENT + 1} sentences{wanted}; give more text.")
    rows = samples(documents, config, tokens, part=part.number)
    num_samples = len(rows["next_sentence_labels"])
    if num_samples < len(part.shards):
        raise ConfigInvalid(
            f"--num_shards is {config.num_shards} and the text gives {num_samples} samples; ask for fewer shards."
        )
    shares = np.array_split(np.arange(num_samples), len(part.shards))
    return [_written(part, number, rows, share, config) for number, share in zip(part.shards, shares, strict=True)]


def samples(documents: Sequence[Document], config: CorpusConfig, tokens: Sequence[str], *, part: int) -> Rows:
    """All samples of all passes, shuffled."""
    rng = np.random.default_rng((config.seed, part))
    max_tokens = config.max_seq_length - 3  # [CLS] and two [SEP]
    pairs: list[SentencePair] = []
    for _ in range(config.passes):
        pairs.extend(sentence_pairs(documents, rng, max_tokens=max_tokens))
    shape = SampleShape(
        max_seq_length=config.max_seq_length,
        max_predictions=config.max_predictions,
        vocab_size=len(tokens),
        special=vocabulary.special_ids(tokens),
    )
    return as_rows([pairs[index] for index in rng.permutation(len(pairs))], rng, shape)


def _written(part: Part, number: int, rows: Rows, share: Positions, config: CorpusConfig) -> MadeShard:
    path = part.path.parent / f"{config.name}_training_{number}.hdf5"
    path.write_bytes(shard_file.as_bytes({key: values[share] for key, values in rows.items()}))
    return MadeShard(path, len(share))
