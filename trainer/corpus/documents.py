"""Reads documents from files, one at a time; a document is a list of sentences."""

from __future__ import annotations

import gzip
import json
import pydoc_data.topics
import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from trainer.runtime.errors import ConfigInvalid

SENTENCES_PER_DOCUMENT = 50
"""Text is cut into documents of so many sentences, so that even a single file has several documents. A random second
segment is drawn from another one."""

JSON_LINES = (".jsonl", ".ndjson", ".json")

_SENTENCE_END = re.compile(r"(?<=[.!?:])\s+|\n\s*\n")


def documents(files: Sequence[Path], *, text_key: str) -> Iterator[list[str]]:
    """The documents of all files, in order; without files, those of Python's language reference.

    Raises:
        ConfigInvalid: If a file cannot be read, or a line of JSON lines lacks the text.
    """
    if not files:
        for topic in pydoc_data.topics.topics.values():
            yield from in_documents(sentences(topic))
    for file in files:
        try:
            yield from _file_documents(file, text_key)
        except (OSError, EOFError, UnicodeDecodeError) as error:
            raise ConfigInvalid(f"--text {file} cannot be read ({error}); give files of UTF-8 text.") from error


def sentences(text: str) -> list[str]:
    """The sentences of a text; rulers and other lines without a letter are left out."""
    pieces = (" ".join(piece.split()) for piece in _SENTENCE_END.split(text))
    return [piece for piece in pieces if any(character.isalpha() for character in piece)]


def in_documents(found: Iterable[str]) -> Iterator[list[str]]:
    """Sentences, cut into documents."""
    rest = iter(found)
    while document := list(islice(rest, SENTENCES_PER_DOCUMENT)):
        yield document


def _file_documents(file: Path, text_key: str) -> Iterator[list[str]]:
    kind = file.with_suffix("").suffix if file.suffix == ".gz" else file.suffix
    with gzip.open(file, "rt", encoding="utf-8") if file.suffix == ".gz" else file.open(encoding="utf-8") as lines:
        if kind in JSON_LINES:
            for number, line in enumerate(lines, start=1):
                if line.strip():
                    yield from in_documents(sentences(_line_text(line, text_key, f"{file}, line {number}")))
        else:
            yield from in_documents(sentence for text in _paragraphs(lines) for sentence in sentences(text))


def _paragraphs(lines: Iterable[str]) -> Iterator[str]:
    """Pieces between blank lines, which end sentences: a file need not fit into memory."""
    piece: list[str] = []
    for line in lines:
        if line.strip():
            piece.append(line)
        elif piece:
            yield "".join(piece)
            piece = []
    yield "".join(piece)


def _line_text(line: str, text_key: str, place: str) -> str:
    try:
        document: Any = json.loads(line)
    except ValueError as error:
        raise ConfigInvalid(f"--text {place} is not JSON ({error}); write one object a line.") from error
    text = document.get(text_key) if isinstance(document, dict) else None
    if not isinstance(text, str):
        raise ConfigInvalid(f"--text {place} has no string {text_key!r}; name the field that holds it: --text_key.")
    return text
