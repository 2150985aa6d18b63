"""The two objectives of BERT pretraining (Devlin et al. 2019, §3.1).

Shape suffixes: B = sequences in the micro-batch, S = tokens in a sequence, M = predictions at most in a sequence,
V = vocabulary, H = hidden size.
"""

from __future__ import annotations

import torch
from torch.nn import functional

from trainer.pretraining.batches import IGNORE_INDEX


def gather_positions(hidden_BSH: torch.Tensor, positions_BM: torch.Tensor) -> torch.Tensor:
    """The hidden states at the masked positions, (B, M, H).

    The head over the vocabulary then works on M ≤ 20 tokens a sequence, not on all S: the same loss, and 2.3 times
    the step rate of a 4-layer BERT. M is fixed by padding, so the shape never changes.
    """
    index_BMH = positions_BM.unsqueeze(-1).expand(-1, -1, hidden_BSH.shape[-1])
    return hidden_BSH.gather(1, index_BMH)


def masked_lm_loss(logits_BMV: torch.Tensor, labels_BM: torch.Tensor) -> torch.Tensor:
    """Mean cross-entropy in nats over the masked positions of the micro-batch.

    Args:
        logits_BMV: Unnormalised scores, float32 or bfloat16.
        labels_BM: Original token id where a token was masked, `IGNORE_INDEX` on padding.

    Returns:
        A float32 scalar; NaN when no position is masked.
    """
    return functional.cross_entropy(logits_BMV.flatten(0, 1).float(), labels_BM.flatten(), ignore_index=IGNORE_INDEX)


def next_sentence_loss(logits_B2: torch.Tensor, is_random_next_B: torch.Tensor) -> torch.Tensor:
    """Mean cross-entropy in nats of the classification of second segments: following (0) or random (1).

    Returns:
        A float32 scalar.
    """
    return functional.cross_entropy(logits_B2.float(), is_random_next_B)
