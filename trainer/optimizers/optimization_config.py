"""The settings of the optimizer."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from trainer.runtime.arguments import aliases, require


@dataclass(frozen=True, kw_only=True)
class OptimizationConfig:
    """The settings of the optimizer."""

    optimizer: Literal["adamw", "lamb"] = "adamw"
    """AdamW (Loshchilov & Hutter 2019), or LAMB (You et al. 2020) for global batches of tens of thousands."""
    micro_batch_size: int = field(default=16, metadata=aliases("batch_size"))
    """Sequences in one forward pass of one process."""
    gradient_accumulation_steps: int = field(default=32, metadata=aliases("grad_accum_usteps"))
    """Micro-batches of one process in one step."""
    scaling: Literal["weak", "strong"] = "weak"
    """The effect of more processes: weak lets the global batch grow; strong keeps it and gives each process fewer
    micro-batches."""
    global_batch_size: int | None = None
    """Sequences in a step that strong scaling keeps; by default those of one node, so that the number of nodes
    divides --gradient_accumulation_steps, as in the tutorial's launch scripts."""
    max_steps: int = 28125
    """Steps of the whole training; the learning rate reaches zero after the last. The tutorial's phase 1."""
    learning_rate: float = field(default=4e-4, metadata=aliases("lr"))
    """Learning rate at the end of the warm-up."""
    warmup_steps: int = 2000
    """Number of steps while the learning rate rises from zero."""
    schedule: Literal["linear", "cosine", "constant"] = "linear"
    """Course of the learning rate after the warm-up: linear to zero, as in the tutorial, along half a cosine to zero,
    or constant."""
    weight_decay: float = 0.01
    """Decay per step of all weights but biases and layer norms (Devlin et al. 2019, §A.2)."""
    beta1: float = 0.9
    """Share of the running mean of the gradient that a step keeps."""
    beta2: float = 0.999
    """Share of the running mean of the gradient's square that a step keeps."""
    eps: float = field(default=1e-6, metadata=aliases("adam_epsilon"))
    """Keeps the division by the root of that mean from growing without bound. AdamW adds it before the mean's start is
    corrected, as the tutorial does; LAMB adds it afterwards."""
    trust_clip: bool = True
    """LAMB never lets a layer's step grow beyond its learning rate, as in the tutorial."""
    zero1: bool = False
    """Divide the optimizer's state between the processes (ZeRO stage 1, Rajbhandari et al. 2020, §5.1): the same
    weights to the last bit, state / world size of memory a process, one more broadcast a step. Not on trn1."""
    max_grad_norm: float = 1.0
    """Gradients with a larger 2-norm are scaled down to it, once per step."""
    seed: int = 12349
    """Determines the initial weights, the order of samples and dropout. The tutorial's number."""

    def __post_init__(self) -> None:
        for name in ("micro_batch_size", "gradient_accumulation_steps", "max_steps"):
            require(getattr(self, name) >= 1, name, getattr(self, name), "at least 1")
        for name in ("warmup_steps", "weight_decay", "seed"):
            require(getattr(self, name) >= 0, name, getattr(self, name), "at least 0")
        for name in ("learning_rate", "max_grad_norm", "eps"):
            require(getattr(self, name) > 0, name, getattr(self, name), "above 0")
        for name in ("beta1", "beta2"):
            require(0 <= getattr(self, name) < 1, name, getattr(self, name), "at least 0 and below 1")
        if self.global_batch_size is not None:
            require(self.global_batch_size >= 1, "global_batch_size", self.global_batch_size, "at least 1")
            require(
                self.scaling == "strong", "global_batch_size", self.global_batch_size, "given with --scaling strong"
            )
