"""Dropout, attention and embeddings on the CPU, and the memory that they work in.

torch draws a random number for each element that may be dropped, one after the other, which is a sixth of a small
model's step; 16 random bits are enough for each. With dropout its attention takes a general path, which scales both
factors and searches for rows that are completely masked. And the gradient of an embedding is a table of zeros with a
few rows filled in, which is added to the one of the vocabulary's head.
"""

from __future__ import annotations

import ctypes
import math
from typing import Any

import numpy as np
import torch
from torch.nn import functional

BITS = 16
PER_DRAW = 64 // BITS

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
"""Options of glibc's mallopt (malloc.h)."""

KEPT_BYTES = 2**31 - 1
"""Largest value that mallopt takes."""


class CpuKernels:
    """Kernels that are faster than torch's own where the model is not compiled."""

    def dropout(self, given: torch.Tensor, probability: float) -> torch.Tensor:
        if probability == 0:
            return given
        dropped: torch.Tensor = _Dropout.apply(given, probability)  # type: ignore[no-untyped-call]
        return dropped

    def attention(
        self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: torch.Tensor | None, dropout: float
    ) -> torch.Tensor:
        if dropout == 0:
            return functional.scaled_dot_product_attention(query, key, value, attn_mask=mask)
        scores = torch.matmul(query / math.sqrt(query.shape[-1]), key.transpose(-2, -1))
        scores = scores if mask is None else scores + mask
        mixed: torch.Tensor = torch.matmul(self.dropout(scores.softmax(-1), dropout), value)
        return mixed

    def shared(self, table: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        for_lookup, for_product = _Shared.apply(table)  # type: ignore[no-untyped-call]
        return for_lookup, for_product

    def lookup(self, token_ids: torch.Tensor, table: torch.Tensor, padding: int) -> torch.Tensor:
        return functional.embedding(token_ids, table, padding_idx=padding, sparse=True)


class _Shared(torch.autograd.Function):
    """Adds the few rows of one gradient to the other in place; torch would copy the whole gradient first."""

    @staticmethod
    def forward(_ctx: Any, table: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return table.view_as(table), table.view_as(table)

    @staticmethod
    def backward(_ctx: Any, *gradients: torch.Tensor) -> torch.Tensor:
        of_lookup, of_product = gradients
        return of_product.add_(of_lookup)


class _Dropout(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, given: torch.Tensor, probability: float) -> torch.Tensor:
        ctx.factors = factors(given, probability)
        dropped: torch.Tensor = (given * ctx.factors).to(given.dtype)
        return dropped

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, None]:
        return (gradients[0] * ctx.factors).to(gradients[0].dtype), None


def factors(like: torch.Tensor, probability: float) -> torch.Tensor:
    """0 where an element is dropped and 1 / (1 - probability) where it is kept, float32, in the shape of a tensor.

    The probability is rounded to a multiple of 2^-16. Drawn by SFC64 from a seed that torch's generator gives, which
    draws eight times as fast as that one.
    """
    seed = int(torch.empty((), dtype=torch.int64).random_())
    draws = np.random.Generator(np.random.SFC64(seed)).integers(
        2**64, size=-(-like.numel() // PER_DRAW), dtype=np.uint64
    )
    bits = torch.from_numpy(draws.view(np.int16))[: like.numel()].view(like.shape)
    lowest = round(probability * 2**BITS) - 2 ** (BITS - 1)
    return torch.ge(bits, lowest).to(torch.float32).div_(1 - probability)


def keep_freed_memory() -> None:
    """Let the C library keep the memory that a step frees for the next one.

    A tensor of more than 32 MiB, such as the gradient of an embedding, is otherwise released to the system when it is
    freed, and every page of the next one is fetched and zeroed again. Other C libraries than glibc are left as they
    are.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(M_MMAP_THRESHOLD, KEPT_BYTES)
        mallopt(M_TRIM_THRESHOLD, KEPT_BYTES)
