"""All shards of a data set, found and checked before the first step."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing import get_context
from pathlib import Path

from trainer.data.shard_file import Shard, inspect, require_unchanged, require_vocabulary
from trainer.runtime.errors import DatasetInvalid, DatasetNotFound
from trainer.staging import marker

PATTERN = "*_training_*.hdf5"

ROWS_CHECKED = 200_000
"""Samples of the whole data set whose values are checked before the first step, in half a second of one core. Of a data
set with more samples, the first samples of every shard are checked now, and the rest when it is read."""

SHARDS_PER_PROCESS = 100
"""A process takes 0.4 s to start, and a shard on a local disk 1.5 ms to check; on a network, several."""

MAX_PROCESSES = 16
"""Enough to hide the latency of a network file system, and no burden to it."""


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

    @property
    def max_predictions(self) -> int:
        return self.shards[0].max_predictions

    @property
    def description(self) -> str:
        """Describe the data set in words, with a checksum that identifies it.

        The checksum covers each shard's name, number of samples and first samples. It does not cover folders, which
        differ between nodes and attempts, nor how a file is compressed. Reading all samples would take as long as an
        epoch of reading, so a change after the first samples of a shard that keeps their number is not detected.
        """
        digest = hashlib.sha256()
        for shard in self.shards:
            digest.update(f"{shard.path.name} {shard.num_samples} {shard.digest}\n".encode())
        shards = "1 shard" if len(self.shards) == 1 else f"{len(self.shards)} shards"
        return f"{self.num_samples} samples of {self.max_seq_length} tokens in {shards} ({digest.hexdigest()[:12]})"

    def require_unchanged(self, *, rank: int, world_size: int) -> int:
        """Compare one rank's share of the files with the digests that the stager computed.

        Returns:
            Number of shards of the whole data set that cannot be compared, since they lack a digest.

        Raises:
            DatasetInvalid: If a file differs from that of the stager.
        """
        for shard in self.shards[rank::world_size]:
            require_unchanged(shard)
        return sum(shard.sha256 is None for shard in self.shards)

    def require_vocabulary(self, vocab_size: int) -> None:
        """Require that every token that was read when the shards were opened is in the vocabulary.

        Raises:
            DatasetInvalid: If one is not.
        """
        for shard in self.shards:
            require_vocabulary(shard.path, shard.largest_token_id, vocab_size)


def open_dataset(folder: Path) -> ShardedDataset:
    """Find and check every shard below a folder, many at once.

    Raises:
        DatasetNotFound: If the folder does not exist or holds no shard.
        DatasetInvalid: If a shard is damaged, lacks an array, or does not fit the others.
    """
    paths = sorted(folder.rglob(PATTERN))
    if not paths:
        lack = "holds no file" if folder.is_dir() else "does not exist, so it holds no file"
        raise DatasetNotFound(f"The data folder {folder} {lack} named {PATTERN}; stage a data set there first.")
    staged = marker.read(folder)
    digests = {} if staged is None else staged.shard_sha256
    inspected = zip(paths, _inspected(paths), strict=True)
    shards = tuple(replace(shard, sha256=digests.get(str(path.relative_to(folder)))) for path, shard in inspected)
    for shard in shards[1:]:
        _require_same_lengths(shard, shards[0])
    return ShardedDataset(shards)


def _inspected(paths: Sequence[Path]) -> list[Shard]:
    """Check every shard, in several processes, because the HDF5 library runs one thread at a time."""
    check = partial(inspect, rows_checked=max(1, ROWS_CHECKED // len(paths)))
    num_processes = min(MAX_PROCESSES, os.cpu_count() or 1, len(paths) // SHARDS_PER_PROCESS)
    if num_processes < 2:
        return [check(path) for path in paths]
    # Not forked: threads of torch and gloo may be running.
    with ProcessPoolExecutor(num_processes, mp_context=get_context("spawn")) as pool:
        return list(pool.map(check, paths, chunksize=16))


def _require_same_lengths(shard: Shard, first: Shard) -> None:
    lengths = (shard.max_seq_length, shard.max_predictions)
    expected = (first.max_seq_length, first.max_predictions)
    if lengths != expected:
        raise DatasetInvalid(
            f"The shard {shard.path.name} has sequences of {lengths[0]} tokens with {lengths[1]} predictions and "
            f"{first.path.name} has {expected[0]} with {expected[1]}; a data set needs one length, so make them alike."
        )
