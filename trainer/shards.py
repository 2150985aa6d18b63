"""Shards of pretraining samples: HDF5 files in the schema of NVIDIA's BERT recipe, which WikiCorpus archives use.

Shape suffixes: N = samples in the shard, S = tokens in a sequence, M = predictions at most in a sequence.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from trainer.errors import DatasetInvalid, DatasetNotFound

PATTERN = "*_training_*.hdf5"

KEYS = {
    "input_ids": "NS",
    "input_mask": "NS",
    "segment_ids": "NS",
    "masked_lm_positions": "NM",
    "masked_lm_ids": "NM",
    "next_sentence_labels": "N",
}
"""Every shard's arrays and their axes. All are integers; masked positions are padded with token id 0."""

Rows = dict[str, npt.NDArray[Any]]
"""Some samples of a shard, by key."""


@dataclass(frozen=True)
class Shard:
    """One file of samples."""

    path: Path
    num_samples: int
    max_seq_length: int
    max_predictions: int


@dataclass(frozen=True)
class ShardedDataset:
    """All shards of a folder, in the order of their paths."""

    shards: tuple[Shard, ...]

    @property
    def num_samples(self) -> int:
        return sum(shard.num_samples for shard in self.shards)

    @property
    def max_seq_length(self) -> int:
        return self.shards[0].max_seq_length


def open_dataset(folder: Path) -> ShardedDataset:
    """Find and check every shard below a folder.

    Raises:
        DatasetNotFound: If the folder does not exist or holds no shard.
        DatasetInvalid: If a shard is damaged, lacks an array, or does not fit the others.
    """
    paths = sorted(folder.rglob(PATTERN))
    if not paths:
        lack = "holds no file" if folder.is_dir() else "does not exist, so it holds no file"
        raise DatasetNotFound(f"The data folder {folder} {lack} named {PATTERN}; stage a data set there first.")
    shards = tuple(inspect(path) for path in paths)
    for shard in shards[1:]:
        _require_same_lengths(shard, shards[0])
    return ShardedDataset(shards)


def inspect(path: Path) -> Shard:
    """Check one shard's arrays without reading its samples.

    Raises:
        DatasetInvalid: If it cannot be read, lacks an array, or its arrays do not fit together.
    """
    import h5py  # slow to import, and the programs that only move files do not need it

    try:
        with h5py.File(path) as file:
            missing = [key for key in KEYS if not isinstance(file.get(key), h5py.Dataset)]
            if missing:
                raise DatasetInvalid(f"The shard {path.name} has no array {missing[0]!r}; write all of {_listed()}.")
            arrays = {key: (file[key].shape, file[key].dtype) for key in KEYS}
    except OSError as error:
        raise DatasetInvalid(
            f"The shard {path.name} is no readable HDF5 file ({error}); write or upload it again."
        ) from error
    return _shard(path, arrays)


def read_rows(path: Path, start: int, stop: int) -> Rows:
    """Samples `start` to `stop` of a shard, all arrays."""
    import h5py

    try:
        with h5py.File(path) as file:
            return {key: file[key][start:stop] for key in KEYS}
    except OSError as error:
        raise DatasetInvalid(f"The shard {path.name} became unreadable ({error}); stage the data set again.") from error


def _shard(path: Path, arrays: dict[str, tuple[tuple[int, ...], np.dtype[Any]]]) -> Shard:
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
    return Shard(path, sizes["N"][0], sizes["S"][0], sizes["M"][0])


def _unequal(path: Path, axis: str, one: tuple[str, int], other: tuple[str, int]) -> str:
    what = {"N": "samples", "S": "tokens a sequence", "M": "predictions a sequence"}[axis]
    return (
        f"The arrays of the shard {path.name} do not have equal lengths: {one[0]!r} holds {one[1]} {what} and "
        f"{other[0]!r} holds {other[1]}; write the shard again."
    )


def _require_same_lengths(shard: Shard, first: Shard) -> None:
    lengths = (shard.max_seq_length, shard.max_predictions)
    expected = (first.max_seq_length, first.max_predictions)
    if lengths != expected:
        raise DatasetInvalid(
            f"The shard {shard.path.name} has sequences of {lengths[0]} tokens with {lengths[1]} predictions and "
            f"{first.path.name} has {expected[0]} with {expected[1]}; a data set needs one length, so make them alike."
        )


def _listed() -> str:
    return ", ".join(KEYS)
