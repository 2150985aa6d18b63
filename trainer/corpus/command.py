"""Text in, a data set out: reads, deals the work to processes, packs.

Without `--text` it takes English text that is already on the machine (Python's own language reference, which ships
inside `pydoc`), so nothing is downloaded: the demo's data set.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from itertools import takewhile
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from trainer.corpus import archive, vocabulary
from trainer.corpus.config import CorpusConfig
from trainer.corpus.documents import documents
from trainer.corpus.parts import MadeShard, Part, make_shards, split
from trainer.runtime import arguments, program
from trainer.runtime.environment import Environment
from trainer.runtime.errors import StorageFailed

TEXT_OF_ONE_PART = 8 * 2**20
"""Bytes of text that are shuffled as a whole, a few seconds' work; more is split into as many parts as shards."""

VOCABULARY_TEXT = 100 * 2**20
"""Characters of text that a vocabulary is trained on: more hardly changes it, and it is one thread's work."""

SECONDS_BETWEEN_NEWS = 2.0


def main(argv: Sequence[str], _environment: Environment) -> Mapping[str, Any]:
    """Read the text, make the samples, write the archive."""
    program.raise_on_sigterm()
    config = arguments.parse(CorpusConfig, argv, program="trainer.corpus")
    tokens = vocabulary.read(config.vocab_file) if config.vocab_file else None
    try:
        config.out.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".corpus-", dir=config.out.parent) as folder:
            return _make(config, Path(folder), tokens)
    except OSError as error:
        raise StorageFailed(f"--out {config.out} could not be written ({error}); give another place.") from error


def _make(config: CorpusConfig, folder: Path, tokens: list[str] | None) -> Mapping[str, Any]:
    num_parts = config.num_shards if _is_much(config.text) else 1
    news = News()
    read = news.of(documents(config.text, text_key=config.text_key), "documents read")
    parts = split(read, folder, num_parts=num_parts, num_shards=config.num_shards)
    if tokens is None:
        tokens = vocabulary.trained(_vocabulary_sample(parts), config.vocab_size)
    shards: list[MadeShard] = []
    for made in news.of(_made(parts, config, tokens), f"of {num_parts} parts of the text made into shards"):
        shards.extend(made)
    name = f"bert_pretrain_{config.name}_tokenized_hdf5_seqlen{config.max_seq_length}"
    size = archive.write(config.out, name, [shard.path for shard in shards], tokens)
    return {
        "archive": str(config.out),
        "num_shards": len(shards),
        "num_samples": sum(shard.num_samples for shard in shards),
        "vocab_size": len(tokens),
        "max_seq_length": config.max_seq_length,
        "bytes": size,
    }


def _made(parts: Sequence[Part], config: CorpusConfig, tokens: Sequence[str]) -> Iterator[list[MadeShard]]:
    """The shards of each part, in order, whichever part is ready first."""
    make = partial(make_shards, config=config, tokens=tokens)
    num_processes = min(config.processes or os.cpu_count() or 1, len(parts))
    if num_processes == 1:
        yield from map(make, parts)
        return
    with ProcessPoolExecutor(num_processes, mp_context=get_context("spawn")) as pool:
        yield from pool.map(make, parts)


def _is_much(files: Sequence[Path]) -> bool:
    """Whether there is more text than one process should turn into samples; judged by the files' sizes."""
    return sum(file.stat().st_size for file in files if file.exists()) > TEXT_OF_ONE_PART


def _vocabulary_sample(parts: Sequence[Part]) -> list[str]:
    """Sentences for the vocabulary; every part has some of every file, so the first parts represent all."""
    characters = 0

    def is_wanted(sentence: str) -> bool:
        nonlocal characters
        characters += len(sentence)
        return characters <= VOCABULARY_TEXT

    sentences = (sentence for part in parts for document in part.documents() for sentence in document)
    return list(takewhile(is_wanted, sentences))


class News:
    """Reports the progress of a long work on stderr; a short one prints nothing."""

    def __init__(self) -> None:
        self._began = self._told = time.monotonic()

    def of(self, items: Iterable[Any], what: str) -> Iterator[Any]:
        """The items, counted as they pass."""
        for count, item in enumerate(items, start=1):
            now = time.monotonic()
            if now - self._told >= SECONDS_BETWEEN_NEWS:
                self._told = now
                print(f"{count:,} {what} after {now - self._began:.0f} s", file=sys.stderr, flush=True)
            yield item
