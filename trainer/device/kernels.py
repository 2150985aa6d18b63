"""Functions of a model's layers that a device may implement itself."""

from __future__ import annotations

from typing import Protocol

import torch
from torch.nn import functional


class Kernels(Protocol):
    """A device's implementation of these functions."""

    def dropout(self, given: torch.Tensor, probability: float) -> torch.Tensor:
        """Set elements to zero with this probability and scale the others up, so that the mean stays; drawn from
        torch's generator."""

    def attention(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        mask: torch.Tensor | None,
        dropout: float,
    ) -> torch.Tensor:
        """Compute scaled dot products, their softmax over the keys, and the values' mean with these weights.

        Args:
            query: (B, heads, S, width of a head), as are the next two and the result.
            key: Multiplied with the queries.
            value: What is averaged.
            mask: Added to the products; broadcast over heads and queries. None to attend to every key.
            dropout: Probability that a weight is dropped.
        """

    def shared(self, table: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """A table of weights for its two uses in a pass: as the rows of `lookup`, and in a matrix product."""

    def lookup(self, token_ids: torch.Tensor, table: torch.Tensor, padding: int) -> torch.Tensor:
        """Rows of a table that is shared; the padding's row gets no gradient from here."""


class TorchKernels:
    """torch's own implementations, which the device's library and the compilers know."""

    def dropout(self, given: torch.Tensor, probability: float) -> torch.Tensor:
        return functional.dropout(given, probability)

    def attention(
        self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: torch.Tensor | None, dropout: float
    ) -> torch.Tensor:
        return functional.scaled_dot_product_attention(query, key, value, attn_mask=mask, dropout_p=dropout)

    def shared(self, table: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return table, table

    def lookup(self, token_ids: torch.Tensor, table: torch.Tensor, padding: int) -> torch.Tensor:
        return functional.embedding(token_ids, table, padding_idx=padding)
