"""The settings of every training, and those of BERT pretraining: what `python -m trainer.pretrain` accepts.

Names and defaults are those of the Trainium tutorial's script, so that its command lines go on working.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from trainer.arguments import aliases
from trainer.errors import ConfigInvalid
from trainer.presets import PHASE_2, PresetName

ModelSize = Literal["tiny", "base", "large"]


@dataclass(frozen=True, kw_only=True)
class TrainingConfig:
    """What every training can be told, whatever it trains."""

    data_dir: Path | None = None
    """Folder with the data set; else TRAINFLOW_DATA_DIR."""
    output_dir: Path | None = None
    """Folder for checkpoints and TensorBoard events; else TRAINFLOW_RUN_DIR."""
    allow_changes: str | None = None
    """Settings, separated by commas, in which this run may differ from the one whose checkpoint it goes on from:
    `learning_rate,max_steps`, `dataset`. A checkpoint that differs in others is refused."""
    steps_this_run: int = -1
    """Stop after so many steps, with a checkpoint to go on from; -1 goes on to the last."""
    log_steps: int = 1
    """Steps between two metrics lines; SIGTERM is noticed at these steps too."""
    print_grad_norm: bool = False
    """End the metrics line with the gradients' 2-norm before clipping, as the tutorial's script does when asked to;
    the report behind the line always has it."""
    checkpoint_steps: int = 100
    """Steps between two checkpoints; the last step of a run always leaves one."""
    checkpoint_minutes: float = 0.0
    """Minutes after which the next logged step leaves a checkpoint too; 0 counts steps alone."""
    keep_checkpoints: int = field(default=2, metadata=aliases("num_ckpts_to_keep"))
    """Newest checkpoints that stay; two, so that one is whole while the next is being written. -1 keeps all."""
    device: Literal["auto", "cpu", "cuda", "xla", "neuron"] = "auto"
    """Where to train: xla is trn1's NeuronCores through PyTorch/XLA, neuron those of trn2 and trn3 through TorchNeuron;
    auto takes what is installed in the order xla, neuron, cuda, cpu."""
    compile: bool | None = None
    """Compile the model with the device's torch.compile backend, where it has one. By default on GPUs and not on the
    CPU, where it makes a step slower."""
    bucket_mib: int | None = None
    """MiB of gradients that travel between the processes at once; the device's own number if left out: 512 on trn1,
    the BUCKET_CAP_MB of the tutorial, and 25 elsewhere."""

    def __post_init__(self) -> None:
        for name in ("log_steps", "checkpoint_steps"):
            _require(getattr(self, name) >= 1, name, getattr(self, name), "at least 1")
        for name in ("steps_this_run", "keep_checkpoints"):
            value = getattr(self, name)
            _require(value >= 1 or value == -1, name, value, "at least 1, or -1 for all")
        _require(self.checkpoint_minutes >= 0, "checkpoint_minutes", self.checkpoint_minutes, "at least 0")
        if self.bucket_mib is not None:
            _require(self.bucket_mib >= 1, "bucket_mib", self.bucket_mib, "at least 1")


@dataclass(frozen=True, kw_only=True)
class ModelShape:
    """The numbers that decide which tensors a BERT has; a checkpoint fits one shape only."""

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
class OptimizationConfig:
    """How each step changes the weights."""

    optimizer: Literal["adamw", "lamb"] = "adamw"
    """AdamW (Loshchilov & Hutter 2019), or LAMB (You et al. 2020) for global batches of tens of thousands."""
    micro_batch_size: int = field(default=16, metadata=aliases("batch_size"))
    """Sequences that one process puts through the model at once."""
    gradient_accumulation_steps: int = field(default=32, metadata=aliases("grad_accum_usteps"))
    """Micro-batches of one process whose gradients make one step."""
    scaling: Literal["weak", "strong"] = "weak"
    """With more processes, weak lets the global batch grow; strong keeps it and makes fewer micro-batches of each."""
    global_batch_size: int | None = None
    """Sequences in a step that strong scaling keeps; by default those of one node, so that the number of nodes
    divides --gradient_accumulation_steps, as in the tutorial's launch scripts."""
    max_steps: int = 28125
    """Steps of the whole training; the learning rate reaches zero behind the last. The tutorial's phase 1."""
    learning_rate: float = field(default=4e-4, metadata=aliases("lr"))
    """Learning rate at the end of the warm-up."""
    warmup_steps: int = 2000
    """Steps over which the learning rate rises from zero."""
    schedule: Literal["linear", "cosine", "constant"] = "linear"
    """How the learning rate goes on behind the warm-up: down to zero in a line, as in the tutorial, or along half a
    cosine, or not at all."""
    weight_decay: float = 0.01
    """Decay, a step, of all weights but biases and layer norms (Devlin et al. 2019, §A.2)."""
    beta1: float = 0.9
    """Share of the running mean of the gradient that a step keeps."""
    beta2: float = 0.999
    """Share of the running mean of the gradient's square that a step keeps."""
    eps: float = field(default=1e-6, metadata=aliases("adam_epsilon"))
    """Keeps the division by the root of that mean from growing without bound. AdamW adds it before the mean's start is
    corrected, as the tutorial does; LAMB behind that."""
    trust_clip: bool = True
    """LAMB never lets a layer's step grow beyond its learning rate, as in the tutorial."""
    zero1: bool = False
    """Divide the optimizer's state between the processes (ZeRO stage 1, Rajbhandari et al. 2020, §5.1): the same
    weights to the last bit, state / world size of memory a process, one more broadcast a step. Not on trn1."""
    max_grad_norm: float = 1.0
    """Longer gradients are scaled down to this 2-norm, once a step."""
    seed: int = 12349
    """Decides initial weights, sample order and dropout. The tutorial's number."""

    def __post_init__(self) -> None:
        for name in ("micro_batch_size", "gradient_accumulation_steps", "max_steps"):
            _require(getattr(self, name) >= 1, name, getattr(self, name), "at least 1")
        for name in ("warmup_steps", "weight_decay", "seed"):
            _require(getattr(self, name) >= 0, name, getattr(self, name), "at least 0")
        for name in ("learning_rate", "max_grad_norm", "eps"):
            _require(getattr(self, name) > 0, name, getattr(self, name), "above 0")
        for name in ("beta1", "beta2"):
            _require(0 <= getattr(self, name) < 1, name, getattr(self, name), "at least 0 and below 1")
        if self.global_batch_size is not None:
            _require(self.global_batch_size >= 1, "global_batch_size", self.global_batch_size, "at least 1")
            _require(
                self.scaling == "strong", "global_batch_size", self.global_batch_size, "given with --scaling strong"
            )


@dataclass(frozen=True, kw_only=True)
class PretrainConfig(TrainingConfig):
    """Everything that `python -m trainer.pretrain` can be told."""

    preset: PresetName | None = None
    """One of the tutorials' recipes for BERT-large; other options given beside it win over its numbers."""
    data_dir: Path | None = None
    """Folder with the shards, searched for `*_training_*.hdf5` at any depth; else TRAINFLOW_DATA_DIR."""
    initial_weights: Path | None = None
    """Weights to start a new training from: the output folder of another (phase 2 after phase 1), or a folder written
    by Hugging Face's `save_pretrained`. A training that goes on from a checkpoint of its own does not look at it."""
    seq_len: int | None = None
    """Tokens in a sequence that the shards have to hold; whatever they hold if left out."""
    max_pred_len: int | None = None
    """Predictions at most in a sequence that the shards have to hold; whatever they hold if left out."""
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
                _require(value >= 1, name, value, "at least 1")
        if self.preset in PHASE_2 and self.initial_weights is None:
            raise ConfigInvalid(
                f"--initial_weights is missing; --preset {self.preset} starts from phase 1's weights, so name the "
                "folder that phase 1 wrote them to."
            )


def _given(value: int | None, otherwise: int) -> int:
    return otherwise if value is None else value


def _require(holds: bool, name: str, value: float, requirement: str) -> None:
    if not holds:
        raise ConfigInvalid(f"--{name} is {value}; it has to be {requirement}.")
