"""BERT for pretraining: Hugging Face's layers in a forward pass of fixed shapes and no host synchronisation.

Shape suffixes: B = sequences in the micro-batch, S = tokens in a sequence, M = predictions at most in a sequence,
H = hidden size.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import nn
from transformers.models.bert.configuration_bert import BertConfig
from transformers.models.bert.modeling_bert import BertForPreTraining

from trainer.batches import MicroBatch
from trainer.config import ModelConfig, ModelShape
from trainer.objectives import gather_positions, masked_lm_loss, next_sentence_loss


class Losses(NamedTuple):
    """Of a micro-batch, in nats: float32 scalars on the device."""

    masked_lm: torch.Tensor
    next_sentence: torch.Tensor

    @property
    def total(self) -> torch.Tensor:
        """What is minimised (Devlin et al. 2019, §3.1)."""
        return self.masked_lm + self.next_sentence


class BertPretraining(nn.Module):
    """A BERT that answers with its pretraining losses.

    The weights are those of `transformers.BertForPreTraining` under the same names (`self.model.state_dict()`), so a
    checkpoint loads there. What differs is the forward pass: only masked positions reach the vocabulary's head, and
    the attention mask is made here as four-dimensional and additive, because Hugging Face's own conversion of a
    two-dimensional one reads from the device in every pass (seen on XLA).
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.model = BertForPreTraining(hugging_face_config(config.shape, dropout=config.dropout))

    def forward(self, batch: MicroBatch) -> Losses:
        """Both losses of a micro-batch."""
        encoder = self.model.bert
        hidden_BSH = encoder.embeddings(batch.token_ids_BS, batch.segment_ids_BS)
        mask_B11S = additive_mask(batch.attended_BS, hidden_BSH.dtype)
        for layer in encoder.encoder.layer:
            hidden_BSH = encoded(layer, hidden_BSH, mask_B11S)
        return self.objectives(hidden_BSH, batch)

    def tie_weights(self) -> None:
        """Let the vocabulary's head have the embeddings' weights, and both names of its bias mean one, as in the model.

        Moving a model to an XLA device makes every parameter anew for each module that has it, so what was one
        parameter is two from there on, which are trained apart.
        """
        self.model.tie_weights()
        self.model.cls.predictions.decoder.bias = self.model.cls.predictions.bias

    def objectives(self, hidden_BSH: torch.Tensor, batch: MicroBatch) -> Losses:
        """Both heads and their losses, from the last layer's hidden states."""
        heads = self.model.cls
        masked_BMH = gather_positions(hidden_BSH, batch.masked_positions_BM)
        pooled_BH = self.model.bert.pooler(hidden_BSH)
        return Losses(
            masked_lm_loss(heads.predictions(masked_BMH), batch.masked_labels_BM),
            next_sentence_loss(heads.seq_relationship(pooled_BH), batch.is_random_next_B),
        )

    def compile_layers(self, compiler: str) -> None:
        """Compile, with this backend of torch.compile, the encoder's layer, which all layers share as one graph.

        Not the whole model: compilation then takes as long for 24 layers as for 2 (measured on a 2-layer BERT and two
        cores: 22 kernels and 22 s of CPU, against 38 and 33 s for the whole model and the same step time), and the
        gradients of one layer travel between the ranks while those of the next are computed.
        """
        for layer in self.model.bert.encoder.layer:
            layer.compile(fullgraph=True, dynamic=False, backend=compiler)


def encoded(layer: nn.Module, hidden_BSH: torch.Tensor, mask_B11S: torch.Tensor) -> torch.Tensor:
    """The hidden states behind one encoder layer.

    transformers 5 returns them alone; transformers 4, which the Neuron image for torch 2.9 holds, in a tuple, first.
    """
    output = layer(hidden_BSH, mask_B11S)
    hidden: torch.Tensor = output[0] if isinstance(output, tuple) else output
    return hidden


def additive_mask(attended_BS: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """0 where a token may be attended to and the most negative number on padding, broadcast over heads and queries."""
    hidden = 1.0 - attended_BS[:, None, None, :].to(dtype)
    return hidden * torch.finfo(dtype).min


def hugging_face_config(shape: ModelShape, *, dropout: float) -> BertConfig:
    """The same model as Hugging Face describes it."""
    return BertConfig(
        **vars(shape), hidden_dropout_prob=dropout, attention_probs_dropout_prob=dropout, attn_implementation="sdpa"
    )
