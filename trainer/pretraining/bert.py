"""BERT for pretraining (Devlin et al. 2019): a forward pass of fixed shapes and no host synchronisation.

Modules and weights have the names that Hugging Face's `BertForPreTraining` has, so weights go there and come from there
(`trainer.exchange`); a test holds losses and gradients against it. Importing it would more than double what a training
takes to import (`python -m benchmarks trainer`), on each of a node's 32 ranks.

Shape suffixes: B = sequences in the micro-batch, S = tokens in a sequence, M = predictions at most in a sequence,
H = hidden size, V = vocabulary.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import nn
from torch.nn import functional

from trainer.device.kernels import Kernels, TorchKernels
from trainer.pretraining.batches import PADDING_TOKEN, MicroBatch
from trainer.pretraining.config import ModelConfig, ModelShape
from trainer.pretraining.objectives import gather_positions, masked_lm_loss, next_sentence_loss

INITIAL_DEVIATION = 0.02
"""Standard deviation of the normal distribution of initial weights (Devlin et al. 2019's own code)."""

LAYER_NORM_EPS = 1e-12
"""ε of the layer norms (Devlin et al. 2019's own code)."""

NUM_SEGMENTS = 2


class Losses(NamedTuple):
    """Losses of a micro-batch in nats, float32 scalars on the device. Their sum is minimised (Devlin et al. 2019,
    §3.1)."""

    masked_lm_loss: torch.Tensor
    next_sentence_loss: torch.Tensor


class BertPretraining(nn.Module):
    """A BERT that returns its pretraining losses. Only masked positions are passed to the vocabulary's head."""

    def __init__(self, config: ModelConfig, kernels: Kernels | None = None) -> None:
        """
        Args:
            config: Sizes of the model.
            kernels: How the device computes dropout and attention; torch's way if left out.
        """
        super().__init__()
        self.bert = Bert(config.shape, Dropout(config.dropout, kernels or TorchKernels()))
        self.cls = Heads(config.shape)
        self.apply(_initialise)
        self.tie_weights()

    def forward(self, batch: MicroBatch) -> Losses:
        """Both losses of a micro-batch."""
        embeddings = self.bert.embeddings
        for_lookup, for_product = embeddings.dropout.kernels.shared(embeddings.word_embeddings.weight)
        return self.objectives(self.bert.hidden_states(batch, for_lookup), batch, for_product)

    def objectives(self, hidden_BSH: torch.Tensor, batch: MicroBatch, table_VH: torch.Tensor) -> Losses:
        """Compute both losses from the last layer's hidden states and the embeddings' table."""
        heads = self.cls
        masked_BMH = gather_positions(hidden_BSH, batch.masked_positions_BM)
        pooled_BH = self.bert.pooler(hidden_BSH)
        return Losses(
            masked_lm_loss(heads.predictions(masked_BMH, table_VH), batch.masked_labels_BM),
            next_sentence_loss(heads.seq_relationship(pooled_BH), batch.is_random_next_B),
        )

    def compile_layers(self, compiler: str) -> None:
        """Compile, with this backend of torch.compile, the encoder's layer, which all layers share as one graph.

        Not the whole model: compilation then takes as long for 24 layers as for 2 (measured on a 2-layer BERT and two
        cores: 22 kernels and 22 s of CPU, against 38 and 33 s for the whole model and the same step time), and the
        gradients of one layer travel between the ranks while those of the next are computed.
        """
        for layer in self.bert.encoder.layer:
            layer.compile(fullgraph=True, dynamic=False, backend=compiler)

    def tie_weights(self) -> None:
        """Tie the vocabulary's head to the embeddings' weights, and both names of its bias to one parameter.

        Moving a model to an XLA device creates every parameter again for each module that has it, so what was one
        parameter is two from there on, which are trained apart. To be called again behind such a move.
        """
        predictions = self.cls.predictions
        predictions.decoder.weight = self.bert.embeddings.word_embeddings.weight
        predictions.decoder.bias = predictions.bias


class Bert(nn.Module):
    """Embeddings, encoder and pooler."""

    def __init__(self, shape: ModelShape, dropout: Dropout) -> None:
        super().__init__()
        self.embeddings = Embeddings(shape, dropout)
        self.encoder = Encoder(shape, dropout)
        self.pooler = Pooler(shape.hidden_size)

    def hidden_states(self, batch: MicroBatch, table_VH: torch.Tensor) -> torch.Tensor:
        """Hidden states of the last layer, (B, S, H); the pass begins with the embeddings' table."""
        hidden_BSH: torch.Tensor = self.embeddings(batch.token_ids_BS, batch.segment_ids_BS, table_VH)
        attended_BS = batch.attended_BS
        mask_B11S = None if attended_BS is None else additive_mask(attended_BS, hidden_BSH.dtype)
        for layer in self.encoder.layer:
            hidden_BSH = layer(hidden_BSH, mask_B11S)
        return hidden_BSH


class Dropout(nn.Module):
    """Dropout while the model trains; all layers share one instance."""

    def __init__(self, probability: float, kernels: Kernels) -> None:
        super().__init__()
        self.probability = probability
        self.kernels = kernels

    @property
    def current(self) -> float:
        """The current probability: 0 unless the model trains."""
        return self.probability if self.training else 0.0

    def forward(self, given: torch.Tensor) -> torch.Tensor:
        return self.kernels.dropout(given, self.current)


class Embeddings(nn.Module):
    """Sum of the embeddings of tokens, positions and segments."""

    def __init__(self, shape: ModelShape, dropout: Dropout) -> None:
        super().__init__()
        self.word_embeddings = nn.Embedding(shape.vocab_size, shape.hidden_size, padding_idx=PADDING_TOKEN)
        self.position_embeddings = nn.Embedding(shape.max_position_embeddings, shape.hidden_size)
        self.token_type_embeddings = nn.Embedding(NUM_SEGMENTS, shape.hidden_size)
        self.LayerNorm = nn.LayerNorm(shape.hidden_size, eps=LAYER_NORM_EPS)
        self.dropout = dropout

    def forward(self, token_ids_BS: torch.Tensor, segment_ids_BS: torch.Tensor, table_VH: torch.Tensor) -> torch.Tensor:
        positions_SH = self.position_embeddings.weight[: token_ids_BS.shape[1]]
        tokens_BSH = self.dropout.kernels.lookup(token_ids_BS, table_VH, PADDING_TOKEN)
        embedded_BSH = tokens_BSH + self.token_type_embeddings(segment_ids_BS) + positions_SH
        normalised_BSH: torch.Tensor = self.dropout(self.LayerNorm(embedded_BSH))
        return normalised_BSH


class Encoder(nn.Module):
    """The layers, one after the other."""

    def __init__(self, shape: ModelShape, dropout: Dropout) -> None:
        super().__init__()
        self.layer = nn.ModuleList([Layer(shape, dropout) for _ in range(shape.num_hidden_layers)])


class Layer(nn.Module):
    """Attention and a feed-forward network, each with a residual connection and a layer norm after it."""

    def __init__(self, shape: ModelShape, dropout: Dropout) -> None:
        super().__init__()
        self.attention = Attention(shape, dropout)
        self.intermediate = Dense(shape.hidden_size, shape.intermediate_size)
        self.output = Residual(shape.intermediate_size, shape.hidden_size, dropout)

    def forward(self, hidden_BSH: torch.Tensor, mask_B11S: torch.Tensor | None) -> torch.Tensor:
        attended_BSH = self.attention(hidden_BSH, mask_B11S)
        layer_BSH: torch.Tensor = self.output(functional.gelu(self.intermediate(attended_BSH)), attended_BSH)
        return layer_BSH


class Attention(nn.Module):
    """Self-attention: every token attends to all tokens of its sequence."""

    def __init__(self, shape: ModelShape, dropout: Dropout) -> None:
        super().__init__()
        self.self = SelfAttention(shape, dropout)
        self.output = Residual(shape.hidden_size, shape.hidden_size, dropout)

    def forward(self, hidden_BSH: torch.Tensor, mask_B11S: torch.Tensor | None) -> torch.Tensor:
        attended_BSH: torch.Tensor = self.output(self.self(hidden_BSH, mask_B11S), hidden_BSH)
        return attended_BSH


class SelfAttention(nn.Module):
    """Scaled dot-product attention with several heads."""

    def __init__(self, shape: ModelShape, dropout: Dropout) -> None:
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(shape.hidden_size, shape.hidden_size) for _ in range(3))
        self._heads = shape.num_attention_heads
        self.dropout = dropout

    def forward(self, hidden_BSH: torch.Tensor, mask_B11S: torch.Tensor | None) -> torch.Tensor:
        query, key, value = (
            projection(hidden_BSH).unflatten(-1, (self._heads, -1)).transpose(1, 2)
            for projection in (self.query, self.key, self.value)
        )
        seen = self.dropout.kernels.attention(query, key, value, mask_B11S, self.dropout.current)
        return seen.transpose(1, 2).flatten(2)


class Dense(nn.Module):
    """A linear map under the name that Hugging Face has for it."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.dense = nn.Linear(inputs, outputs)

    def forward(self, given: torch.Tensor) -> torch.Tensor:
        mapped: torch.Tensor = self.dense(given)
        return mapped


class Residual(nn.Module):
    """A linear map and dropout, added to what came before, normalised."""

    def __init__(self, inputs: int, outputs: int, dropout: Dropout) -> None:
        super().__init__()
        self.dense = nn.Linear(inputs, outputs)
        self.LayerNorm = nn.LayerNorm(outputs, eps=LAYER_NORM_EPS)
        self.dropout = dropout

    def forward(self, given: torch.Tensor, before: torch.Tensor) -> torch.Tensor:
        normalised: torch.Tensor = self.LayerNorm(self.dropout(self.dense(given)) + before)
        return normalised


class Pooler(Dense):
    """The sequence's representation, from its first token, [CLS]."""

    def __init__(self, hidden_size: int) -> None:
        super().__init__(hidden_size, hidden_size)

    def forward(self, hidden_BSH: torch.Tensor) -> torch.Tensor:
        return torch.tanh(super().forward(hidden_BSH[:, 0]))


class Heads(nn.Module):
    """The heads of both objectives."""

    def __init__(self, shape: ModelShape) -> None:
        super().__init__()
        self.predictions = Predictions(shape)
        self.seq_relationship = nn.Linear(shape.hidden_size, 2)


class Predictions(nn.Module):
    """Unnormalised scores of the vocabulary's tokens, (…, V), from hidden states."""

    def __init__(self, shape: ModelShape) -> None:
        super().__init__()
        self.transform = Transform(shape.hidden_size)
        self.decoder = nn.Linear(shape.hidden_size, shape.vocab_size)
        self.bias = nn.Parameter(torch.zeros(shape.vocab_size))
        self.multiple = 1
        """Scores are computed in a multiple of so many columns."""

    def forward(self, hidden: torch.Tensor, table_VH: torch.Tensor) -> torch.Tensor:
        transformed, bias_V = self.transform(hidden), self.bias
        padding = -len(bias_V) % self.multiple
        if padding == 0:
            return functional.linear(transformed, table_VH, bias_V)
        scores = functional.linear(
            transformed, functional.pad(table_VH, (0, 0, 0, padding)), functional.pad(bias_V, (0, padding))
        )
        return scores[..., : len(bias_V)]


class Transform(Dense):
    """The layer before the vocabulary's projection."""

    def __init__(self, hidden_size: int) -> None:
        super().__init__(hidden_size, hidden_size)
        self.LayerNorm = nn.LayerNorm(hidden_size, eps=LAYER_NORM_EPS)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        normalised: torch.Tensor = self.LayerNorm(functional.gelu(super().forward(hidden)))
        return normalised


def additive_mask(attended_BS: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """0 where a token may be attended to and the most negative number on padding, broadcast over heads and queries."""
    hidden = 1.0 - attended_BS[:, None, None, :].to(dtype)
    return hidden * torch.finfo(dtype).min


def _initialise(module: nn.Module) -> None:
    if isinstance(module, nn.Linear | nn.Embedding):
        nn.init.normal_(module.weight, std=INITIAL_DEVIATION)
    if isinstance(module, nn.Linear):
        nn.init.zeros_(module.bias)
    if isinstance(module, nn.Embedding) and module.padding_idx is not None:
        with torch.no_grad():
            module.weight[module.padding_idx].zero_()
