"""The settings of a data set: the options of `python -m trainer.corpus`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from trainer.corpus.samples import SPECIAL_TOKENS
from trainer.runtime.errors import ConfigInvalid


@dataclass(frozen=True, kw_only=True)
class CorpusConfig:
    """The settings of a data set."""

    out: Path
    """Archive to write, a .tar or .tar.gz file, or a folder for the bare shards, a name without a suffix."""
    text: tuple[Path, ...] = ()
    """Files of English text, UTF-8: plain, or JSON lines (.jsonl, .ndjson, .json), both also as .gz; Python's own
    language reference if left out."""
    text_key: str = "text"
    """Name of the field in JSON lines that holds a document's text."""
    num_shards: int = 8
    """HDF5 files in the archive; of more than 8 MiB of text each is made by itself, in memory, from its share."""
    max_seq_length: int = 128
    """Tokens in a sequence; phase 1 of BERT pretraining uses 128."""
    max_predictions: int = 20
    """Masked tokens at most in a sequence; 20 go with 128 tokens."""
    vocab_size: int = 4096
    """Tokens in the WordPiece vocabulary, which is trained on the text; less if the text has no more."""
    vocab_file: Path | None = None
    """A vocabulary to use instead, one token a line, as BERT's own vocab.txt; [PAD] comes first."""
    passes: int = 8
    """Walks through the text; each cuts and masks it differently."""
    processes: int | None = None
    """Processes that make shards at once; as many as there are cores if left out. They do not change the result."""
    seed: int = 0
    """The same seed and text give the same archive, byte for byte."""

    def __post_init__(self) -> None:
        if self.out.suffix not in ("", ".tar") and self.out.suffixes[-2:] != [".tar", ".gz"]:
            raise ConfigInvalid(f"--out is {self.out}; it has to end in .tar or .tar.gz, or be a folder.")
        least = {"num_shards": 1, "passes": 1, "max_seq_length": 16, "max_predictions": 1, "processes": 1, "seed": 0}
        for name, smallest in least.items():
            value = getattr(self, name)
            if value is not None and value < smallest:
                raise ConfigInvalid(f"--{name} is {value}; it has to be at least {smallest}.")
        if self.vocab_size <= 2 * len(SPECIAL_TOKENS):
            raise ConfigInvalid(f"--vocab_size is {self.vocab_size}; a vocabulary needs hundreds of tokens.")

    @property
    def name(self) -> str:
        """Prefix of the shards' names."""
        return "corpus" if self.text else "demo"
