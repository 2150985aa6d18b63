"""The tutorials' recipes for BERT-large by name: `--preset lamb-phase1`.

Options on the command line override the recipe. Phase 1 trains on sequences of 128 tokens,
phase 2 on 512 from phase 1's weights. The numbers are those of the aws-neuron-samples launch scripts
(`run_dp_bert_large_hf_pretrain_bf16_s128[_lamb].sh` and `…_s512_[lamb_]phase2.sh`), which train on the 32
NeuronCores of one trn1.32xlarge, divide the accumulation by the number of nodes, and keep weights in bfloat16.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

PresetName = Literal["adamw-phase1", "adamw-phase2", "lamb-phase1", "lamb-phase2"]

PHASE_2: tuple[PresetName, ...] = ("adamw-phase2", "lamb-phase2")
"""Recipes that need weights to start from."""

PRESETS: dict[PresetName, Mapping[str, Any]] = {
    "adamw-phase1": {
        "optimizer": "adamw",
        "micro_batch_size": 16,
        "gradient_accumulation_steps": 32,
        "global_batch_size": 16 * 32 * 32,
        "learning_rate": 4e-4,
        "warmup_steps": 2000,
        "max_steps": 28125,
    },
    "adamw-phase2": {
        "optimizer": "adamw",
        "micro_batch_size": 2,
        "gradient_accumulation_steps": 512,
        "global_batch_size": 2 * 512 * 32,
        "learning_rate": 2.8e-4,
        "warmup_steps": 781,
        "max_steps": 1563,
    },
    "lamb-phase1": {
        "optimizer": "lamb",
        "micro_batch_size": 16,
        "gradient_accumulation_steps": 128,
        "global_batch_size": 16 * 128 * 32,
        "learning_rate": 6e-3,
        "warmup_steps": 2000,
        "max_steps": 7032,
    },
    "lamb-phase2": {
        "optimizer": "lamb",
        "micro_batch_size": 2,
        "gradient_accumulation_steps": 512,
        "global_batch_size": 2 * 512 * 32,
        "learning_rate": 4e-3,
        "warmup_steps": 781,
        "max_steps": 1563,
    },
}
"""Options by recipe. Without `--scaling weak` the global batch is kept, whatever the number of processes."""


def with_preset(given: Mapping[str, Any]) -> Mapping[str, Any]:
    """Complete the options of the command line by those of the recipe that it names.

    Args:
        given: Values of the options that were given, by name.
    """
    name = given.get("preset")
    if name is None:
        return given
    recipe = {"model": "large", "scaling": "strong", "precision": "pure_bfloat16", **PRESETS[name]}
    if given.get("scaling") == "weak":
        del recipe["global_batch_size"]  # then every process does its 16 × 32, however many there are
    return {**recipe, **given}
