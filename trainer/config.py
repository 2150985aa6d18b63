"""The settings of BERT pretraining: what `python -m trainer.pretrain` accepts.

Names and defaults are those of the Trainium tutorial's script, so that its command lines go on working.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from trainer.arguments import aliases
from trainer.errors import ConfigInvalid

Preset = Literal["tiny", "base", "large"]


@dataclass(frozen=True, kw_only=True)
class ModelShape:
    """The numbers that decide which tensors a BERT has; a checkpoint fits one shape only."""

    num_hidden_layers: int
    hidden_size: int
    num_attention_heads: int
    intermediate_size: int
    vocab_size: int
    max_position_embeddings: int


PRESETS: dict[Preset, tuple[int, int, int, int]] = {
    "tiny": (2, 128, 2, 512),  # Turc et al. 2019, table 1
    "base": (12, 768, 12, 3072),  # Devlin et al. 2019, §3
    "large": (24, 1024, 16, 4096),  # Devlin et al. 2019, §3
}
"""Layers, hidden size, attention heads, intermediate size."""


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """Which BERT to train."""

    model: Preset = "large"
    """Shape that the four sizes below start from; the tutorial trains BERT-large."""
    num_hidden_layers: int | None = None
    """Transformer layers; the preset's if left out."""
    hidden_size: int | None = None
    """Width of the hidden states; the preset's if left out."""
    num_attention_heads: int | None = None
    """Attention heads a layer; has to divide the hidden size; the preset's if left out."""
    intermediate_size: int | None = None
    """Width of the feed-forward layers; the preset's if left out."""
    vocab_size: int = 30522
    """Tokens in the vocabulary; every token id in the shards has to be below it. BERT's own English vocabulary."""
    max_position_embeddings: int = 512
    """Longest sequence, in tokens, that the model has position embeddings for."""
    dropout: float = 0.1
    """Probability with which hidden states and attention weights are dropped (Devlin et al. 2019, §A.2)."""

    def __post_init__(self) -> None:
        shape = self.shape
        for name, value in vars(shape).items():
            _require(value >= 1, name, value, "at least 1")
        _require(
            shape.hidden_size % shape.num_attention_heads == 0,
            "hidden_size",
            shape.hidden_size,
            f"a multiple of --num_attention_heads, which is {shape.num_attention_heads}",
        )
        _require(0 <= self.dropout < 1, "dropout", self.dropout, "at least 0 and below 1")

    @property
    def shape(self) -> ModelShape:
        """The preset's shape with what was given instead."""
        layers, hidden, heads, intermediate = PRESETS[self.model]
        return ModelShape(
            num_hidden_layers=_given(self.num_hidden_layers, layers),
            hidden_size=_given(self.hidden_size, hidden),
            num_attention_heads=_given(self.num_attention_heads, heads),
            intermediate_size=_given(self.intermediate_size, intermediate),
            vocab_size=self.vocab_size,
            max_position_embeddings=self.max_position_embeddings,
        )


@dataclass(frozen=True, kw_only=True)
class OptimizationConfig:
    """How each step changes the weights."""

    micro_batch_size: int = field(default=16, metadata=aliases("batch_size"))
    """Sequences that one process puts through the model at once."""
    gradient_accumulation_steps: int = field(default=32, metadata=aliases("grad_accum_usteps"))
    """Micro-batches of one process whose gradients make one step."""
    max_steps: int = 28125
    """Steps of the whole training; the learning rate reaches zero behind the last. The tutorial's phase 1."""
    learning_rate: float = field(default=4e-4, metadata=aliases("lr"))
    """Learning rate at the end of the warm-up."""
    warmup_steps: int = 2000
    """Steps over which the learning rate rises from zero."""
    weight_decay: float = 0.01
    """AdamW's decay, a step, of all weights but biases and layer norms (Devlin et al. 2019, §A.2)."""
    max_grad_norm: float = 1.0
    """Longer gradients are scaled down to this 2-norm, once a step."""
    seed: int = 12349
    """Decides initial weights, sample order and dropout. The tutorial's number."""

    def __post_init__(self) -> None:
        for name in ("micro_batch_size", "gradient_accumulation_steps", "max_steps"):
            _require(getattr(self, name) >= 1, name, getattr(self, name), "at least 1")
        for name in ("warmup_steps", "weight_decay", "seed"):
            _require(getattr(self, name) >= 0, name, getattr(self, name), "at least 0")
        for name in ("learning_rate", "max_grad_norm"):
            _require(getattr(self, name) > 0, name, getattr(self, name), "above 0")


@dataclass(frozen=True, kw_only=True)
class CheckpointConfig:
    """When the training is written down."""

    checkpoint_steps: int = 100
    """Steps between two checkpoints; the last step of a run always leaves one."""
    keep_checkpoints: int = field(default=2, metadata=aliases("num_ckpts_to_keep"))
    """Newest checkpoints that stay; two, so that one is whole while the next is being written."""

    def __post_init__(self) -> None:
        for name in ("checkpoint_steps", "keep_checkpoints"):
            _require(getattr(self, name) >= 1, name, getattr(self, name), "at least 1")


@dataclass(frozen=True, kw_only=True)
class PretrainConfig:
    """Everything that `python -m trainer.pretrain` can be told."""

    data_dir: Path | None = None
    """Folder with the shards, searched for `*_training_*.hdf5` at any depth; else TRAINFLOW_DATA_DIR."""
    output_dir: Path | None = None
    """Folder for checkpoints and TensorBoard events; else TRAINFLOW_RUN_DIR."""
    steps_this_run: int = -1
    """Stop after so many steps, with a checkpoint to go on from; -1 goes on to --max_steps."""
    log_steps: int = 1
    """Steps between two metrics lines; SIGTERM is noticed at these steps too."""
    device: Literal["auto", "cpu", "cuda", "xla"] = "auto"
    """Where to train; auto takes an XLA device (NeuronCore) if torch_xla is installed, then CUDA, then the CPU."""
    precision: Literal["float32", "bfloat16"] = "float32"
    """Of matrix products; weights and losses stay in float32."""
    compile: bool = True
    """Compile the model with TorchInductor, on devices that it compiles for."""
    model: ModelConfig = field(default_factory=ModelConfig)
    optimization: OptimizationConfig = field(default_factory=OptimizationConfig)
    checkpoints: CheckpointConfig = field(default_factory=CheckpointConfig)

    def __post_init__(self) -> None:
        _require(self.log_steps >= 1, "log_steps", self.log_steps, "at least 1")
        _require(
            self.steps_this_run == -1 or self.steps_this_run >= 1,
            "steps_this_run",
            self.steps_this_run,
            "at least 1, or -1 for all",
        )


def _given(value: int | None, otherwise: int) -> int:
    return otherwise if value is None else value


def _require(holds: bool, name: str, value: float, requirement: str) -> None:
    if not holds:
        raise ConfigInvalid(f"--{name} is {value}; it has to be {requirement}.")
