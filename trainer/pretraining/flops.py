"""Operations that pretraining a BERT takes.

Counted as in "PaLM: Scaling Language Modeling with Pathways" (Chowdhery et al. 2022, appendix B): multiplications and
additions of the model's matrix products, two forward and four backward for each weight and token that it works on, and
those of attention, which works without weights. Lookups, norms and whatever a device computes twice do not count.
"""

from __future__ import annotations

from trainer.pretraining.config import ModelShape

OPERATIONS_PER_WEIGHT = 6
"""A multiplication and an addition, forward once and backward twice."""


def per_sequence(shape: ModelShape, *, max_seq_length: int, max_predictions: int) -> int:
    """Operations of one training sequence, forward and backward.

    Args:
        shape: Of the model.
        max_seq_length: Tokens of the sequence; all of them are computed, padding too.
        max_predictions: Tokens that reach the vocabulary's head.
    """
    hidden, tokens = shape.hidden_size, max_seq_length
    layer = 4 * hidden * hidden + 2 * hidden * shape.intermediate_size
    vocabulary_head = hidden * hidden + hidden * shape.vocab_size
    sentence_head = hidden * hidden + 2 * hidden  # on the first token alone
    products = tokens * shape.num_hidden_layers * layer + max_predictions * vocabulary_head + sentence_head
    attention = shape.num_hidden_layers * 2 * tokens * tokens * hidden  # scores, and their values' sum
    return OPERATIONS_PER_WEIGHT * (products + attention)
