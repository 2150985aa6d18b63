"""BERT for pretraining: Hugging Face's layers in a forward pass of fixed shapes and no host synchronisation.

Shape suffixes: B = sequences in the micro-batch, S = tokens in a sequence, M = predictions at most in a sequence,
H = hidden size.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn
from transformers.models.bert.configuration_bert import BertConfig
from transformers.models.bert.modeling_bert import BertForPreTraining

from trainer.batches import MicroBatch
from trainer.config import ModelConfig
from trainer.objectives import gather_positions, masked_lm_loss, next_sentence_loss


class BertPretraining(nn.Module):
    """A BERT that answers with its pretraining loss.

    The weights are those of `transformers.BertForPreTraining` under the same names (`self.model.state_dict()`), so a
    checkpoint loads there. What differs is the forward pass: only masked positions reach the vocabulary's head, and
    the attention mask is made here as four-dimensional and additive, because Hugging Face's own conversion of a
    two-dimensional one reads from the device in every pass (seen on XLA).
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.model = BertForPreTraining(_hugging_face(config))

    def forward(self, batch: MicroBatch) -> torch.Tensor:
        """The sum of both losses of a micro-batch, in nats: a float32 scalar."""
        encoder = self.model.bert
        hidden_BSH = encoder.embeddings(batch.token_ids_BS, batch.segment_ids_BS)
        mask_B11S = additive_mask(batch.attended_BS, hidden_BSH.dtype)
        for layer in encoder.encoder.layer:
            hidden_BSH = layer(hidden_BSH, mask_B11S)
        return self.objectives(hidden_BSH, batch)

    def objectives(self, hidden_BSH: torch.Tensor, batch: MicroBatch) -> torch.Tensor:
        """Both heads and their losses, from the last layer's hidden states."""
        heads = self.model.cls
        masked_BMH = gather_positions(hidden_BSH, batch.masked_positions_BM)
        pooled_BH = self.model.bert.pooler(hidden_BSH)
        return masked_lm_loss(heads.predictions(masked_BMH), batch.masked_labels_BM) + next_sentence_loss(
            heads.seq_relationship(pooled_BH), batch.is_random_next_B
        )

    def compile_layers(self) -> None:
        """Compile the encoder's layer, which all layers share as one graph.

        Not the whole model: compilation then takes as long for 24 layers as for 2 (measured on a 2-layer BERT and two
        cores: 22 kernels and 22 s of CPU, against 38 and 33 s for the whole model and the same step time), and the
        gradients of one layer travel between the ranks while those of the next are computed.
        """
        for layer in self.model.bert.encoder.layer:
            layer.compile(fullgraph=True, dynamic=False)


def additive_mask(attended_BS: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """0 where a token may be attended to and the most negative number on padding, broadcast over heads and queries."""
    hidden = 1.0 - attended_BS[:, None, None, :].to(dtype)
    return hidden * torch.finfo(dtype).min


def _hugging_face(config: ModelConfig) -> BertConfig:
    return BertConfig(
        **vars(config.shape),
        hidden_dropout_prob=config.dropout,
        attention_probs_dropout_prob=config.dropout,
        attn_implementation="sdpa",
    )


def decay_groups(model: nn.Module, weight_decay: float) -> Sequence[dict[str, object]]:
    """Parameters for the optimizer: biases and layer norms are not decayed (Devlin et al. 2019's own code)."""
    decayed: list[nn.Parameter] = []
    kept: list[nn.Parameter] = []
    for name, parameter in model.named_parameters():
        (kept if name.endswith("bias") or "LayerNorm" in name else decayed).append(parameter)
    return [{"params": decayed, "weight_decay": weight_decay}, {"params": kept, "weight_decay": 0.0}]
