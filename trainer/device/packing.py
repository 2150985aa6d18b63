"""Copies tensors to the host in a few large copies instead of one for each tensor: on an accelerator every copy is a
round trip.

Tensors of one type are concatenated on the device, as many as fit into a bucket, and copied at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import torch

BUCKET_BYTES = 256 << 20
"""Largest concatenation, and so the most memory of the device that a checkpoint needs beside the state. BERT-large's
float32 weights and AdamW's state, 4.0 GB, are copied in 16 buckets; PCIe takes some 10 ms for each, a thousand times
the latency of a copy."""

CACHE_LINE_BYTES = 64


@dataclass(frozen=True)
class Bucket:
    """Tensors of one device and type, and host memory for all of them."""

    sources: Sequence[torch.Tensor]
    host: torch.Tensor
    """One-dimensional, as long as all of them together."""

    def places(self) -> Iterable[tuple[torch.Tensor, torch.Tensor]]:
        """Each source with its part of the host's memory, in its shape."""
        start = 0
        for source in self.sources:
            yield source, self.host[start : start + source.numel()].view(source.shape)
            start += source.numel()


def in_buckets(tensors: Sequence[torch.Tensor], *, bucket_bytes: int = BUCKET_BYTES) -> list[list[int]]:
    """Numbers of the tensors in each bucket; the tensors of a bucket share a device and a type.

    Within a type the few of odd sizes come last, so that the others begin at multiples of a cache line: copies to other
    addresses take a fifth longer. A tensor that is larger than a bucket is copied by itself, without a concatenation.
    """
    buckets: list[list[int]] = []
    open_buckets: dict[tuple[torch.device, torch.dtype], tuple[list[int], int]] = {}
    for number in sorted(range(len(tensors)), key=lambda number: tensors[number].nbytes % CACHE_LINE_BYTES != 0):
        tensor = tensors[number]
        kind = (tensor.device, tensor.dtype)
        bucket, num_bytes = open_buckets.get(kind, ([], 0))
        if not bucket or num_bytes + tensor.nbytes > bucket_bytes:
            bucket, num_bytes = [], 0
            buckets.append(bucket)
        bucket.append(number)
        open_buckets[kind] = (bucket, num_bytes + tensor.nbytes)
    return buckets


def copy_packed(buckets: Iterable[Bucket], copy: Callable[[torch.Tensor, torch.Tensor], object]) -> None:
    """Concatenate each bucket on its device and copy it before the next one.

    Args:
        buckets: The tensors to copy, and the host memory for them.
        copy: Called with a one-dimensional tensor in host memory and one on the device.
    """
    for bucket in buckets:
        if len(bucket.sources) == 1:
            copy(bucket.host, bucket.sources[0].reshape(-1))
        else:
            copy(bucket.host, torch.cat([source.reshape(-1) for source in bucket.sources]))


def copy_each(buckets: Iterable[Bucket]) -> None:
    """Copy every tensor by itself, for tensors that are in host memory already."""
    for bucket in buckets:
        for source, place in bucket.places():
            place.copy_(source)
