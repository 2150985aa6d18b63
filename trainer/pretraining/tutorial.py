"""Command lines of the tutorial's script, `dp_bert_large_hf_pretrain_hdf5.py`, translated to the trainer's options.

Options with a value have the same names here (`trainer.pretraining.config`). This module holds the rest: options that
are named or valued otherwise, and those that the trainer refuses, each with what does the same here. The script's
environment variables for bfloat16 are read here, too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from trainer.runtime.environment import BFLOAT16_VARIABLES
from trainer.runtime.errors import ConfigInvalid

SWITCHES: Mapping[str, Sequence[str]] = {
    "--enable_pt_autocast": ("--precision", "bfloat16"),
    "--enable_fp32": ("--precision", "float32"),
    "--disable_dropout": ("--dropout", "0"),
    "--print_grad_norm": ("--print_grad_norm", "true"),
    "--resume_ckpt": (),  # a training always goes on from its newest checkpoint
}
"""Options without a value, with their translation."""

VALUES: Mapping[str, Mapping[str, Sequence[str]]] = {
    "--optimizer": {
        "AdamW": ("--optimizer", "adamw"),
        "AdamW_FP32OptimParams": ("--optimizer", "adamw"),  # the optimizer's state is float32 in every precision
        "LAMB": ("--optimizer", "lamb"),
    },
    "--bf16": {"true": ("--precision", "pure_bfloat16"), "false": ("--precision", "float32")},
}
"""Values that have another name here, by option."""

REFUSED: Mapping[str, str] = {
    "--optimizer AdamW_FP32ParamsCopy": "--precision bfloat16 keeps float32 weights and computes in bfloat16",
    "--metrics_file": "the result is in the run's record, metrics are in CloudWatch and in TensorBoard's events",
    "--shards_per_ckpt": "checkpoints are counted in steps, so give --checkpoint_steps, or --checkpoint_minutes",
    "--minimal_ckpt": "every checkpoint holds the optimizer's state, without which no training goes on",
    "--resume_ckpt_path": "a training goes on from its own --output_dir; to start a new one from weights, give "
    "--initial_weights",
    "--resume_step": "a training goes on from its newest checkpoint that is whole; delete newer ones to go back",
    "--phase2": "give --preset adamw-phase2 or lamb-phase2, with --initial_weights",
    "--phase1_end_step": "phase 2 is a training of its own and counts from step 1",
    "--expected_average_throughput": "the run spec's limits.min_throughput raises an alarm",
    "--debug": "give --model tiny, or the model's sizes",
    "--torch_xla_compile": "PyTorch/XLA traces the whole step as it is",
    "--snapshot_step_list": "graphs with their inputs are dumped by XLA_FLAGS in the run spec's environment",
    "--snapshot_rank_list": "graphs with their inputs are dumped by XLA_FLAGS in the run spec's environment",
    "--snapshot_dump_dir": "graphs with their inputs are dumped by XLA_FLAGS in the run spec's environment",
}
"""Options that the trainer does not have, with what replaces them."""


def translated(argv: Sequence[str], environ: Mapping[str, str]) -> list[str]:
    """Translate a command line of the tutorial to the trainer's options.

    Args:
        argv: Arguments, the tutorial's or the trainer's own.
        environ: Environment variables.

    Raises:
        ConfigInvalid: If an option of the tutorial's lacks a counterpart; the message names its replacement.
    """
    given = _split(argv)
    words: list[str] = []
    if any(environ.get(name) == "1" for name in BFLOAT16_VARIABLES):
        words += ["--precision", "pure_bfloat16"]
    while given:
        word = given.pop(0)
        value = given[0] if given and not given[0].startswith("--") else None
        for refused in (word, f"{word} {value}"):
            if refused in REFUSED:
                raise ConfigInvalid(f"{refused} is the tutorial's option and not the trainer's: {REFUSED[refused]}.")
        if word in SWITCHES and value is None:
            words += SWITCHES[word]
        elif word in VALUES and value is not None and (other := _other_words(word, value)) is not None:
            words += other
            given.pop(0)
        else:
            words.append(word)
    return words


def _split(argv: Sequence[str]) -> list[str]:
    """Split `--name=value` into two words."""
    return [
        part for word in argv for part in (word.split("=", 1) if word.startswith("--") and "=" in word else (word,))
    ]


def _other_words(option: str, value: str) -> Sequence[str] | None:
    words = VALUES[option]
    return words.get(value) or words.get(value.lower())
