"""The settings of BERT pretraining: what `python -m trainer.pretrain` accepts.

Names and defaults are those of the Trainium tutorial's script, so that its command lines keep working.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from trainer.loop.training_config import TrainingConfig
from trainer.optimizers.optimization_config import OptimizationConfig
from trainer.pretraining.presets import PHASE_2, PresetName
from trainer.runtime.arguments import require
from trainer.runtime.errors import ConfigInvalid

ModelSize = Literal["tiny", "base", "large"]


@dataclass(frozen=True, kw_only=True)
class ModelShape:
    """The sizes that determine the shapes of a BERT's tensors; a checkpoint fits one shape only."""

    num_hidden_layers: int
    hidden_size: int
    num_attention_heads: int
    intermediate_size: int
    vocab_size: int
    max_position_embeddings: int


SIZES: dict[ModelSize, tuple[int, int, int, int]] = {
    "tiny": (2, 128, 2, 512),  # Turc et al. 2019, table 1
    "base": (12, 768, 12, 3072),  # Devlin et al. 2019, §3
    "large": (24, 1024, 16, 4096),  # Devlin et al. 2019, §3
}
"""Layers, hidden size, attention heads, intermediate size."""


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """Which BERT to train."""

    model: ModelSize = "large"
    """Shape that the four sizes below start from; the tutorial trains BERT-large."""
    num_hidden_layers: int | None = None
    """Transformer layers; the model's if left out."""
    hidden_size: int | None = None
    """Width of the hidden states; the model's if left out."""
    num_attention_heads: int | None = None
    """Attention heads a layer; has to divide the hidden size; the model's if left out."""
    intermediate_size: int | None = None
    """Width of the feed-forward layers; the model's if left out."""
    vocab_size: int = 30522
    """Tokens in the vocabulary; every token id in the shards has to be below it. BERT's own English vocabulary."""
    max_position_embeddings: int = 512
    """Longest sequence, in tokens, that the model has position embeddings for."""
    dropout: float = 0.1
    """Probability that a hidden state or attention weight is dropped (Devlin et al. 2019, §A.2)."""

    def __post_init__(self) -> None:
        shape = self.shape
        for name, value in vars(shape).items():
            require(value >= 1, name, value, "at least 1")
        require(
            shape.hidden_size % shape.num_attention_heads == 0,
            "hidden_size",
            shape.hidden_size,
            f"a multiple of --num_attention_heads, which is {shape.num_attention_heads}",
        )
        require(0 <= self.dropout < 1, "dropout", self.dropout, "at least 0 and below 1")

    @property
    def shape(self) -> ModelShape:
        """The named model's shape with what was given instead."""
        layers, hidden, heads, intermediate = SIZES[self.model]
        return ModelShape(
            num_hidden_layers=_given(self.num_hidden_layers, layers),
            hidden_size=_given(self.hidden_size, hidden),
            num_attention_heads=_given(self.num_attention_heads, heads),
            intermediate_size=_given(self.intermediate_size, intermediate),
            vocab_size=self.vocab_size,
            max_position_embeddings=self.max_position_embeddings,
        )


@dataclass(frozen=True, kw_only=True)
class PretrainConfig(TrainingConfig):
    """The options of `python -m trainer.pretrain`."""

    preset: PresetName | None = None
    """One of the tutorials' recipes for BERT-large; other options override its numbers."""
    data_dir: Path | None = None
    """Folder with the shards, searched for `*_training_*.hdf5` at any depth; else TRAINFLOW_DATA_DIR."""
    initial_weights: Path | None = None
    """Weights to start a new training from: the output folder of another (phase 2 after phase 1), or a folder written
    by Hugging Face's `save_pretrained`. A training that resumes from its own checkpoint ignores it."""
    verify_shards: bool = True
    """Compare every shard with the digest of the stager before the first step, divided between the ranks."""
    seq_len: int | None = None
    """Tokens in a sequence that the shards must have; any length if left out."""
    max_pred_len: int | None = None
    """Predictions per sequence that the shards must have; any number if left out."""
    precision: Literal["float32", "tf32", "bfloat16", "pure_bfloat16"] | None = None
    """bfloat16 computes matrix products in it, over float32 weights (autocast); pure_bfloat16 keeps the weights in it
    too, rounded stochastically; tf32 computes products of float32 matrices on a GPU's tensor cores. The optimizer's
    state and the losses are float32 in every case. By default bfloat16 on GPUs and float32 elsewhere."""
    model: ModelConfig = field(default_factory=ModelConfig)
    optimization: OptimizationConfig = field(default_factory=OptimizationConfig)

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("seq_len", "max_pred_len"):
            if (value := getattr(self, name)) is not None:
                require(value >= 1, name, value, "at least 1")
        if self.preset in PHASE_2 and self.initial_weights is None:
            raise ConfigInvalid(
                f"--initial_weights is missing; --preset {self.preset} starts from phase 1's weights, so name the "
                "folder that phase 1 wrote them to."
            )


def _given(value: int | None, otherwise: int) -> int:
    return otherwise if value is None else value
