"""WordPiece: a vocabulary trained on text or read from a file, and text written down in it."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from trainer.corpus.samples import SPECIAL_TOKENS, UNK, Document, SpecialIds
from trainer.runtime.errors import ConfigInvalid

# Threads would count words in random order; shards are made by several processes anyway.
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")


def tokenized(documents: Sequence[Sequence[str]], vocabulary: Sequence[str]) -> list[Document]:
    """Lower-case documents as token ids."""
    from tokenizers import Tokenizer, models

    ids = {token: number for number, token in enumerate(vocabulary)}
    tokenizer = _lower_case(Tokenizer(models.WordPiece(ids, unk_token=SPECIAL_TOKENS[UNK])))
    return [[tuple(encoding.ids) for encoding in tokenizer.encode_batch(list(document))] for document in documents]


def trained(sentences: Sequence[str], vocab_size: int) -> list[str]:
    """WordPiece tokens in the order of their ids, special tokens first; the same for the same text.

    The trainer numbers the letters inside words in the order of a hash table, and these numbers decide between equally
    frequent pairs. Passing it those letters in alphabetical order, as if they were special tokens, makes the result
    reproducible. These letters take half of the vocabulary at most, the most frequent first.
    """
    from tokenizers import Tokenizer, models, trainers

    counted = Counter(letter for sentence in sentences for letter in sentence.lower() if letter.strip())
    frequent = sorted(counted, key=lambda letter: (-counted[letter], letter))[: vocab_size // 2]
    trainer = trainers.WordPieceTrainer(
        vocab_size=vocab_size,
        special_tokens=[*SPECIAL_TOKENS, *(f"##{letter}" for letter in sorted(frequent))],
        show_progress=False,
    )
    tokenizer = _lower_case(Tokenizer(models.WordPiece(unk_token=SPECIAL_TOKENS[UNK])))
    tokenizer.train_from_iterator(sentences, trainer)
    ids = tokenizer.get_vocab()
    return sorted(ids, key=lambda token: int(ids[token]))


def read(file: Path) -> list[str]:
    """A vocabulary from a file of one token a line.

    Raises:
        ConfigInvalid: If it cannot be read, or lacks a special token or has one twice.
    """
    try:
        tokens = file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigInvalid(f"--vocab_file cannot be read ({error}); give a file of one token a line.") from error
    lacking = [token for token in SPECIAL_TOKENS if token not in tokens]
    if lacking or tokens[0] != SPECIAL_TOKENS[0] or len(set(tokens)) != len(tokens):
        wrong = f"lacks {lacking[0]}" if lacking else f"does not begin with {SPECIAL_TOKENS[0]}, or repeats a token"
        raise ConfigInvalid(f"--vocab_file {file} {wrong}; give a vocabulary in the form of BERT's vocab.txt.")
    return tokens


def special_ids(vocabulary: Sequence[str]) -> SpecialIds:
    """Ids of a vocabulary's special tokens; [PAD] is 0 in all of them."""
    _, _, cls, sep, mask = (vocabulary.index(token) for token in SPECIAL_TOKENS)
    return SpecialIds(cls=cls, sep=sep, mask=mask)


def _lower_case(tokenizer: Any) -> Any:
    """The tokenizer with BERT's rules for case, accents and word borders."""
    from tokenizers import normalizers, pre_tokenizers

    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return tokenizer
