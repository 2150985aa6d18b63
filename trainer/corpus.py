"""A small, real data set for pretraining: `python -m trainer.corpus --out FILE.tar`.

Takes English text that is already on the machine (Python's own language reference, which ships inside `pydoc`), so
nothing is downloaded. The archive looks like the WikiCorpus one: a folder of HDF5 shards in a tar file.
"""

from __future__ import annotations

import gzip
import io
import os
import pydoc_data.topics
import re
import sys
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from trainer import arguments, program
from trainer.environment import Environment
from trainer.errors import ConfigInvalid, StorageFailed
from trainer.files import written_whole
from trainer.samples import SPECIAL_TOKENS, UNK, Document, SampleShape, SentencePair, as_rows, sentence_pairs
from trainer.shards import Rows

SENTENCES_PER_DOCUMENT = 50
"""Text is cut into documents of so many sentences: a single file, too, then has other places to draw a random second
segment from."""

_SENTENCE_END = re.compile(r"(?<=[.!?:])\s+|\n\s*\n")


@dataclass(frozen=True, kw_only=True)
class CorpusConfig:
    """What the data set shall look like."""

    out: Path
    """Archive to write, a .tar or .tar.gz file."""
    text: tuple[Path, ...] = ()
    """Files of English text, UTF-8; Python's language reference if left out."""
    num_shards: int = 8
    """HDF5 files in the archive."""
    max_seq_length: int = 128
    """Tokens in a sequence; phase 1 of BERT pretraining uses 128."""
    max_predictions: int = 20
    """Masked tokens at most in a sequence; 20 go with 128 tokens."""
    vocab_size: int = 4096
    """Tokens in the WordPiece vocabulary, which is trained on the text; less if the text has no more."""
    passes: int = 8
    """Walks through the text; each cuts and masks it differently."""
    seed: int = 0
    """The same seed and text give the same archive, byte for byte."""

    def __post_init__(self) -> None:
        if self.out.suffixes[-1:] not in ([".tar"], [".gz"]):
            raise ConfigInvalid(f"--out is {self.out}; it has to end in .tar or .tar.gz.")
        for name, least in (("num_shards", 1), ("passes", 1), ("max_seq_length", 16), ("max_predictions", 1)):
            if getattr(self, name) < least:
                raise ConfigInvalid(f"--{name} is {getattr(self, name)}; it has to be at least {least}.")
        if self.vocab_size <= 2 * len(SPECIAL_TOKENS):
            raise ConfigInvalid(f"--vocab_size is {self.vocab_size}; a vocabulary needs hundreds of tokens.")


def main(argv: Sequence[str], _environment: Environment) -> Mapping[str, Any]:
    """Read the text, make the samples, write the archive."""
    program.raise_on_sigterm()
    config = arguments.parse(CorpusConfig, argv, program="trainer.corpus")
    vocabulary, documents = tokenized([sentences(text) for text in _texts(config.text)], config.vocab_size)
    if len(documents) < 2:
        raise ConfigInvalid(f"--text holds fewer than {SENTENCES_PER_DOCUMENT + 1} sentences; give more text.")
    rows = samples(documents, config, vocab_size=len(vocabulary))
    num_samples = len(rows["next_sentence_labels"])
    if num_samples < config.num_shards:
        raise ConfigInvalid(
            f"--num_shards is {config.num_shards} and the text gives {num_samples} samples; ask for fewer shards."
        )
    try:
        write_archive(config, vocabulary, rows)
    except OSError as error:
        raise StorageFailed(f"--out {config.out} could not be written ({error}); give another place.") from error
    return {
        "archive": str(config.out),
        "num_shards": config.num_shards,
        "num_samples": num_samples,
        "vocab_size": len(vocabulary),
        "max_seq_length": config.max_seq_length,
        "bytes": config.out.stat().st_size,
    }


def sentences(text: str) -> list[str]:
    """The sentences of a text; rulers and other lines without a letter are left out."""
    pieces = (" ".join(piece.split()) for piece in _SENTENCE_END.split(text))
    return [piece for piece in pieces if any(character.isalpha() for character in piece)]


def tokenized(texts: Sequence[Sequence[str]], vocab_size: int) -> tuple[list[str], list[Document]]:
    """Train a lower-case WordPiece vocabulary on the texts and write them down in it.

    Returns:
        The tokens in the order of their ids; and the documents.
    """
    # Threads would count words in an order that is a matter of luck.
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    from tokenizers import Tokenizer, models

    vocabulary = trained_vocabulary([sentence for text in texts for sentence in text], vocab_size)
    ids = {token: number for number, token in enumerate(vocabulary)}
    tokenizer = _lower_case(Tokenizer(models.WordPiece(ids, unk_token=SPECIAL_TOKENS[UNK])))
    documents: list[Document] = []
    for text in texts:
        encoded = [tuple(encoding.ids) for encoding in tokenizer.encode_batch(list(text))]
        documents.extend(
            encoded[start : start + SENTENCES_PER_DOCUMENT] for start in range(0, len(text), SENTENCES_PER_DOCUMENT)
        )
    return vocabulary, documents


def trained_vocabulary(sentences: Sequence[str], vocab_size: int) -> list[str]:
    """WordPiece tokens in the order of their ids, special tokens first; the same for the same text.

    The trainer numbers the letters inside words as they come out of a hash table, and lets these numbers decide
    between equally frequent pairs. Handing it those letters in alphabetical order, as if they were special tokens,
    takes the chance out.
    """
    from tokenizers import Tokenizer, models, trainers

    inner_letters = sorted({f"##{letter}" for sentence in sentences for letter in sentence.lower() if letter.strip()})
    trainer = trainers.WordPieceTrainer(
        vocab_size=vocab_size, special_tokens=[*SPECIAL_TOKENS, *inner_letters], show_progress=False
    )
    tokenizer = _lower_case(Tokenizer(models.WordPiece(unk_token=SPECIAL_TOKENS[UNK])))
    tokenizer.train_from_iterator(sentences, trainer)
    ids = tokenizer.get_vocab()
    return sorted(ids, key=lambda token: int(ids[token]))


def _lower_case(tokenizer: Any) -> Any:
    """The tokenizer with BERT's rules for case, accents and word borders."""
    from tokenizers import normalizers, pre_tokenizers

    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return tokenizer


def samples(documents: Sequence[Document], config: CorpusConfig, *, vocab_size: int) -> Rows:
    """All samples of all passes, shuffled."""
    rng = np.random.default_rng(config.seed)
    max_tokens = config.max_seq_length - 3  # [CLS] and two [SEP]
    pairs: list[SentencePair] = []
    for _ in range(config.passes):
        pairs.extend(sentence_pairs(documents, rng, max_tokens=max_tokens))
    shape = SampleShape(
        max_seq_length=config.max_seq_length, max_predictions=config.max_predictions, vocab_size=vocab_size
    )
    return as_rows([pairs[index] for index in rng.permutation(len(pairs))], rng, shape)


def write_archive(config: CorpusConfig, vocabulary: Sequence[str], rows: Rows) -> None:
    """Pack shards and vocabulary, whole or not at all."""
    folder = f"bert_pretrain_demo_tokenized_hdf5_seqlen{config.max_seq_length}"
    shares = np.array_split(np.arange(len(rows["next_sentence_labels"])), config.num_shards)
    with written_whole(config.out) as file, _tar(file, compressed=config.out.suffix == ".gz") as archive:
        _add(archive, f"{folder}/vocab.txt", "".join(f"{token}\n" for token in vocabulary).encode())
        for number, share in enumerate(shares):
            shard = shard_bytes({key: values[share] for key, values in rows.items()})
            _add(archive, f"{folder}/demo_training_{number}.hdf5", shard)


def shard_bytes(rows: Rows) -> bytes:
    """The rows as an HDF5 file, compressed as in NVIDIA's recipe."""
    import h5py

    buffer = io.BytesIO()
    with h5py.File(buffer, "w") as file:
        for key, values in rows.items():
            file.create_dataset(key, data=values, compression="gzip", compression_opts=1)
    return buffer.getvalue()


@contextmanager
def _tar(file: BinaryIO, *, compressed: bool) -> Iterator[tarfile.TarFile]:
    """A tar file without time stamps, so that the same content is the same file."""
    if not compressed:
        with tarfile.open(fileobj=file, mode="w") as archive:
            yield archive
        return
    with (
        gzip.GzipFile(fileobj=file, mode="wb", filename="", mtime=0) as stream,
        tarfile.open(fileobj=stream, mode="w") as archive,
    ):
        yield archive


def _add(archive: tarfile.TarFile, name: str, content: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.size = len(content)
    archive.addfile(member, io.BytesIO(content))


def _texts(files: Sequence[Path]) -> list[str]:
    if not files:
        return list(pydoc_data.topics.topics.values())
    try:
        return [file.read_text(encoding="utf-8") for file in files]
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigInvalid(f"--text cannot be read ({error}); give files of UTF-8 text.") from error


if __name__ == "__main__":
    sys.exit(program.run(main, sys.argv[1:], os.environ))
