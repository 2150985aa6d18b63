"""One shard of pretraining samples: an HDF5 file in the schema of NVIDIA's BERT recipe, which WikiCorpus archives use.

Shape suffixes: N = samples in the shard, S = tokens in a sequence, M = predictions at most in a sequence.
"""

from __future__ import annotations

import hashlib
import io
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from trainer.runtime.errors import DatasetInvalid

KEYS = {
    "input_ids": "NS",
    "input_mask": "NS",
    "segment_ids": "NS",
    "masked_lm_positions": "NM",
    "masked_lm_ids": "NM",
    "next_sentence_labels": "N",
}
"""Every shard's arrays and their axes. All are integers; masked positions are padded with token id 0."""

TOKEN_KEYS = ("input_ids", "masked_lm_ids")
"""The arrays that hold tokens of the vocabulary."""

DIGEST_ROWS = 4
"""Samples whose values distinguish a shard from another of the same size. They are among those whose values are
checked, and take a tenth of a millisecond to hash at 512 tokens."""

Rows = dict[str, npt.NDArray[Any]]
"""Some samples of a shard, by key."""


@dataclass(frozen=True)
class Shard:
    """One file of samples."""

    path: Path
    num_samples: int
    max_seq_length: int
    max_predictions: int
    largest_token_id: int
    """Largest token id of the samples that were checked when the shard was opened."""
    digest: str
    """SHA-256 of the values of its first samples, whatever integers and compression hold them."""
    chunk_rows: int
    """Rows whose tokens are stored, compressed and read together; 1 in a file without chunks."""
    sha256: str | None = None
    """SHA-256 of the file that the stager computed; None if it did not."""


def inspect(path: Path, *, rows_checked: int) -> Shard:
    """Check one shard's arrays, and the values of its first samples.

    Args:
        path: The file.
        rows_checked: Number of samples whose values are checked; all if there are fewer.

    Raises:
        DatasetInvalid: If it cannot be read, lacks an array, its arrays do not fit together, or a value that was
            checked cannot be trained on.
    """
    import h5py  # imported late: it is slow to import, and programs that only move files do not need it

    try:
        with h5py.File(path) as file:
            arrays = {key: file.get(key) for key in KEYS}
            missing = [key for key, array in arrays.items() if not isinstance(array, h5py.Dataset)]
            if missing:
                raise DatasetInvalid(f"The shard {path.name} has no array {missing[0]!r}; write all of {_listed()}.")
            sizes = _sizes(path, {key: (array.shape, array.dtype) for key, array in arrays.items()})
            chunks = arrays["input_ids"].chunks  # of the largest array; those of the others differ a little
            rows = {key: array[: max(rows_checked, DIGEST_ROWS)] for key, array in arrays.items()}
    except OSError as error:
        raise DatasetInvalid(
            f"The shard {path.name} is not a readable HDF5 file ({error}); write or upload it again."
        ) from error
    require_sound(path, rows)
    chunk_rows = chunks[0] if chunks else 1
    return Shard(path, sizes["N"], sizes["S"], sizes["M"], largest_token_id(rows), _digest(rows), chunk_rows)


def read_rows(path: Path, start: int, stop: int) -> Rows:
    """Samples `start` to `stop` of a shard, all arrays.

    Raises:
        DatasetInvalid: If they cannot be read or trained on.
    """
    import h5py

    try:
        with h5py.File(path) as file:
            rows = {key: file[key][start:stop] for key in KEYS}
    except OSError as error:
        raise DatasetInvalid(f"The shard {path.name} became unreadable ({error}); stage the data set again.") from error
    require_sound(path, rows)
    return rows


def require_unchanged(shard: Shard) -> None:
    """Require that a shard's file is byte for byte the one that the stager wrote.

    HDF5 itself notices few damaged bits of arrays without compression.

    Raises:
        DatasetInvalid: If it is not, or cannot be read.
    """
    if shard.sha256 is None:
        return
    try:
        with shard.path.open("rb") as content:
            found = hashlib.file_digest(content, "sha256").hexdigest()
    except OSError as error:
        raise DatasetInvalid(
            f"The shard {shard.path.name} became unreadable ({error}); stage the data set again."
        ) from error
    if found != shard.sha256:
        raise DatasetInvalid(
            f"The shard {shard.path} has SHA-256 {found} and was staged with {shard.sha256}: it was damaged or "
            "replaced since; remove the data set's folder and its marker, so that the next run stages it again."
        )


def as_bytes(rows: Rows) -> bytes:
    """The rows as an HDF5 file, compressed as in NVIDIA's recipe."""
    import h5py

    buffer = io.BytesIO()
    with h5py.File(buffer, "w") as file:
        for key, values in rows.items():
            file.create_dataset(key, data=values, compression="gzip", compression_opts=1)
    return buffer.getvalue()


def require_sound(path: Path, rows: Rows) -> None:
    """Require that values which the model uses as indices are in range.

    Raises:
        DatasetInvalid: If one is not. The largest token id is left to the caller, who knows the vocabulary.
    """
    below = {
        "input_mask": 2,
        "segment_ids": 2,
        "masked_lm_positions": rows["input_ids"].shape[1],
        "next_sentence_labels": 2,
    }
    for key, values in rows.items():
        smallest, largest = int(values.min(initial=0)), int(values.max(initial=0))
        if smallest < 0 or largest >= below.get(key, largest + 1):
            allowed = f"from 0 to {below[key] - 1}" if key in below else "at least 0"
            raise DatasetInvalid(
                f"The array {key!r} of the shard {path.name} holds {smallest if smallest < 0 else largest}; "
                f"its values have to be {allowed}."
            )


def require_vocabulary(path: Path, largest: int, vocab_size: int) -> None:
    """Require that every token id has an embedding.

    Raises:
        DatasetInvalid: If the shard holds a token id outside of the vocabulary.
    """
    if largest >= vocab_size:
        raise DatasetInvalid(
            f"The shard {path.name} holds the token id {largest} and --vocab_size is {vocab_size}; "
            "give the size of the vocabulary that the shards were made with."
        )


def largest_token_id(rows: Rows) -> int:
    """Largest token id of all input tokens and labels."""
    return max(int(rows[key].max(initial=0)) for key in TOKEN_KEYS)


def _digest(rows: Rows) -> str:
    """Digest of the first samples' values."""
    digest = hashlib.sha256()
    for key in KEYS:
        digest.update(rows[key][:DIGEST_ROWS].astype("<i8").tobytes())
    return digest.hexdigest()


def _sizes(path: Path, arrays: dict[str, tuple[tuple[int, ...], np.dtype[Any]]]) -> dict[str, int]:
    """The length of each axis; all arrays have to agree."""
    sizes: dict[str, tuple[int, str]] = {}
    for key, axes in KEYS.items():
        shape, dtype = arrays[key]
        if not np.issubdtype(dtype, np.integer):
            raise DatasetInvalid(f"The array {key!r} of the shard {path.name} holds {dtype}; write it as integers.")
        if len(shape) != len(axes):
            raise DatasetInvalid(
                f"The array {key!r} of the shard {path.name} has {len(shape)} axes; it needs {len(axes)}."
            )
        for axis, size in zip(axes, shape, strict=True):
            expected, by = sizes.setdefault(axis, (size, key))
            if size != expected:
                raise DatasetInvalid(_unequal(path, axis, (key, size), (by, expected)))
    if sizes["N"][0] == 0:
        raise DatasetInvalid(f"The shard {path.name} holds no samples; leave it out of the archive.")
    return {axis: size for axis, (size, _) in sizes.items()}


def _unequal(path: Path, axis: str, one: tuple[str, int], other: tuple[str, int]) -> str:
    what = {"N": "samples", "S": "tokens a sequence", "M": "predictions a sequence"}[axis]
    return (
        f"The arrays of the shard {path.name} do not have equal lengths: {one[0]!r} holds {one[1]} {what} and "
        f"{other[0]!r} holds {other[1]}; write the shard again."
    )


def _listed() -> str:
    return ", ".join(KEYS)
