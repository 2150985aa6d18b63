"""Pretraining of BERT (Devlin et al. 2019), as a task of the training loop."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch

from trainer.checkpoints.fingerprint import PURE_BFLOAT16, Fingerprint
from trainer.data import data_order
from trainer.data.shards import ShardedDataset
from trainer.device import Device, Precision
from trainer.device.distributed import Gang
from trainer.device.kernels import TorchKernels
from trainer.loop.saving import read_once_a_node
from trainer.loop.task import Plan, Samples, TrainingProcess
from trainer.optimizers import schedule
from trainer.optimizers.building import Optimizer, build, decay_groups
from trainer.pretraining import flops, hugging_face
from trainer.pretraining.batches import BatchReader
from trainer.pretraining.bert import BertPretraining, Losses
from trainer.pretraining.config import PretrainConfig
from trainer.runtime.errors import ConfigInvalid

DIVIDES_WORK = frozenset({"micro_batch_size", "gradient_accumulation_steps", "scaling", "global_batch_size", "zero1"})
"""Options of the optimization that say how processes share its work. The global batch that they make is compared
instead."""


@dataclass(frozen=True)
class Pretraining:
    """Pretraining of a BERT on shards of sequence pairs with AdamW or LAMB."""

    config: PretrainConfig
    dataset: ShardedDataset
    precision: Precision
    """Precision of the computation: the configured one, or else the device's default."""
    micro_batches: int
    """Micro-batches of each process in a step; `trainer.loop.scaling` computes the number."""
    world_size: int

    losses = Losses._fields

    @cached_property
    def plan(self) -> Plan:
        """The numbers that control the loop."""
        optimization = self.config.optimization
        return Plan(
            seed=optimization.seed,
            max_steps=optimization.max_steps,
            micro_batch_size=optimization.micro_batch_size,
            micro_batches=self.micro_batches,
            max_grad_norm=optimization.max_grad_norm,
            precision=self.precision,
        )

    @cached_property
    def samples(self) -> Samples:
        """Sequences, and the operations that one of them takes."""
        dataset = self.dataset
        operations = flops.per_sequence(
            self.config.model.shape, max_seq_length=dataset.max_seq_length, max_predictions=dataset.max_predictions
        )
        return Samples(name="sequences", tokens=dataset.max_seq_length, operations=operations)

    @cached_property
    def fingerprint(self) -> Fingerprint:
        """Every option of `OptimizationConfig` and `ModelConfig` is compared without being named here, so that a new
        option is compared from the beginning."""
        config, shape = self.config, vars(self.config.model.shape)
        settings = {
            "dataset": self.dataset.description,
            "data_order": data_order.VERSION,
            "global_batch_size": self.plan.micro_batch_size * self.micro_batches * self.world_size,
            "precision": self.precision,
            **{name: value for name, value in vars(config.model).items() if name not in shape and name != "model"},
            **{name: value for name, value in vars(config.optimization).items() if name not in DIVIDES_WORK},
        }
        return Fingerprint(shape, settings)

    def open_batches(self, gang: Gang) -> BatchReader:
        """The stream of sequences.

        Raises:
            ConfigInvalid: If the model has fewer positions than the sequences have tokens, or the shards are not of the
                sizes asked for.
        """
        dataset, positions = self.dataset, self.config.model.max_position_embeddings
        for option, held in (("seq_len", dataset.max_seq_length), ("max_pred_len", dataset.max_predictions)):
            asked = getattr(self.config, option)
            if asked not in (None, held):
                raise ConfigInvalid(
                    f"--{option} is {asked} and the shards hold {held}; leave it out, or give other shards."
                )
        if dataset.max_seq_length > positions:
            raise ConfigInvalid(
                f"--max_position_embeddings is {positions} and the shards hold sequences of {dataset.max_seq_length} "
                "tokens; give at least as many."
            )
        vocab_size = self.config.model.vocab_size
        reader = BatchReader(dataset, seed=self.plan.seed, vocab_size=vocab_size, world_size=gang.world_size)
        gang.from_rank0(lambda: reader.require_readable(0))  # a wrong vocabulary is detected at once, and reported once
        return reader

    def build_model(self, device: Device, *, compiler: str | None) -> BertPretraining:
        """A BERT; its layers are compiled, which all share one graph."""
        dtype = torch.bfloat16 if self.precision == PURE_BFLOAT16 else torch.float32
        kernels = device.kernels if compiler is None else TorchKernels()  # the compiler knows torch's own
        model = BertPretraining(self.config.model, kernels).to(dtype)  # rounded before the device has it
        model.to(device.torch_device)
        model.tie_weights()
        model.cls.predictions.multiple = device.vocabulary_multiple
        if compiler is not None:
            model.compile_layers(compiler)
        return model

    def build_optimizer(self, model: BertPretraining, device: Device, gang: Gang) -> Optimizer:
        """Build AdamW or LAMB."""
        groups = decay_groups(model, self.config.optimization.weight_decay)
        return build(groups, self.config.optimization, device, gang)

    def learning_rate(self, step: int) -> float:
        """Learning rate of a step: the warm-up, then the decay."""
        return schedule.learning_rate(step, self.config.optimization)

    def start(self, model: BertPretraining, process: TrainingProcess) -> None:
        """Load `--initial_weights`; one process of each node reads them."""
        source = self.config.initial_weights
        if source is None:
            return
        found = process.gang.from_rank0(lambda: hugging_face.find(source, option="initial_weights", say=process.say))
        if found.checkpoint is not None:
            read_once_a_node(process, found.checkpoint)
        model.load_state_dict(hugging_face.read_weights(found, shape=self.config.model.shape))
        process.say(f"Starting from the weights in {found.path}.")

    def conclude(self, model: BertPretraining, process: TrainingProcess, *, last_loss: float) -> Mapping[str, Any]:
        """Do nothing: the model is in the newest checkpoint."""
        return {}
