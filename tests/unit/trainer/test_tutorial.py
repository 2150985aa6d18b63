"""Command lines of the tutorial's script: each of its options does the same here, or is refused with a reason."""

from __future__ import annotations

import pytest

from trainer.device import neuron_runtime
from trainer.pretraining import tutorial
from trainer.pretraining.config import PretrainConfig
from trainer.pretraining.presets import with_preset
from trainer.runtime import arguments
from trainer.runtime.errors import ConfigInvalid

OPTIONS = [
    "data_dir", "output_dir", "metrics_file", "optimizer", "batch_size", "max_steps", "steps_this_run",
    "shards_per_ckpt", "seed", "lr", "seq_len", "debug", "max_pred_len", "num_ckpts_to_keep", "resume_ckpt",
    "resume_ckpt_path", "resume_step", "warmup_steps", "grad_accum_usteps", "minimal_ckpt", "enable_pt_autocast",
    "enable_fp32", "phase1_end_step", "phase2", "print_grad_norm", "expected_average_throughput", "disable_dropout",
    "snapshot_step_list", "snapshot_rank_list", "snapshot_dump_dir", "torch_xla_compile",
]  # fmt: skip
"""Options of dp_bert_large_hf_pretrain_hdf5.py in Neuron 2.23's samples, May 2025."""


def parse(*argv: str, **environ: str) -> PretrainConfig:
    words = tutorial.translated(argv, environ)
    return arguments.parse(PretrainConfig, words, program="trainer.pretrain", complete=with_preset)


@pytest.mark.parametrize("option", OPTIONS)
def test_every_option_of_the_script_is_taken_or_refused_by_name(option: str) -> None:
    values = {"data_dir": ["/data"], "output_dir": ["/out"], "optimizer": ["LAMB"], "lr": ["4e-4"]}
    refused = any(name.split()[0] == f"--{option}" and " " not in name for name in tutorial.REFUSED)
    given = [f"--{option}", *([] if f"--{option}" in tutorial.SWITCHES else values.get(option, ["5"]))]
    if refused:
        with pytest.raises(ConfigInvalid, match=rf"^--{option} .*tutorial.*trainer's: "):
            parse(*given)
    else:
        parse(*given)


@pytest.mark.parametrize(
    "fields", [("precision", "bfloat16", "--enable_pt_autocast"), ("precision", "float32", "--enable_fp32")]
)
def test_precisions_of_the_script(fields: tuple[str, str, str]) -> None:
    name, value, flag = fields
    assert getattr(parse(flag), name) == value


@pytest.mark.parametrize("given", [["--bf16", "True"], ["--bf16=True"], ["--bf16", "true"]])
def test_bf16_keeps_weights_in_bfloat16(given: list[str]) -> None:
    assert parse(*given).precision == "pure_bfloat16"


@pytest.mark.parametrize("variable", tutorial.BFLOAT16_VARIABLES)
def test_so_do_the_variables_of_pytorch_xla(variable: str) -> None:
    assert parse(**{variable: "1"}).precision == "pure_bfloat16"
    assert parse(**{variable: "0"}).precision is None
    assert parse("--precision", "bfloat16", **{variable: "1"}).precision == "bfloat16"


def test_the_whole_command_of_the_tutorial() -> None:
    config = parse(
        "--output_dir", "output", "--steps_this_run", "5", "--batch_size=16", "--grad_accum_usteps=32",
        "--optimizer", "AdamW_FP32OptimParams", "--num_ckpts_to_keep", "-1", "--disable_dropout", "--print_grad_norm",
        "--resume_ckpt", "--seq_len", "128", "--max_pred_len", "20",
    )  # fmt: skip
    assert (config.optimization.micro_batch_size, config.optimization.gradient_accumulation_steps) == (16, 32)
    assert (config.optimization.optimizer, config.keep_checkpoints) == ("adamw", -1)
    assert (config.model.dropout, config.print_grad_norm, config.seq_len, config.max_pred_len) == (0.0, True, 128, 20)


def test_a_copy_of_the_weights_is_refused_with_what_keeps_them() -> None:
    with pytest.raises(ConfigInvalid, match=r"--precision bfloat16.*float32"):
        parse("--optimizer", "AdamW_FP32ParamsCopy")


def test_the_trainers_own_words_go_through() -> None:
    words = ["--print_grad_norm", "true", "--optimizer", "lamb", "--learning_rate", "-1", "--model", "tiny"]
    assert tutorial.translated(words, {}) == words


def test_neuron_is_told_what_the_tutorial_tells_it() -> None:
    environ = {"XLA_USE_BF16": "1", "NEURON_CC_FLAGS": "--cache_dir=/cache"}
    neuron_runtime.prepare(environ, pure_bfloat16=True, model_type="transformer")
    assert environ == {
        "NEURON_CC_FLAGS": "--cache_dir=/cache --model-type=transformer",
        "NEURON_RT_EXEC_TIMEOUT": "600",
        "NEURON_RT_STOCHASTIC_ROUNDING_EN": "1",
        "NEURON_RT_STOCHASTIC_ROUNDING_SEED": "0",
    }


def test_variables_that_are_set_for_neuron_stay() -> None:
    environ = {"NEURON_CC_FLAGS": "--model-type=generic", "NEURON_RT_EXEC_TIMEOUT": "30"}
    neuron_runtime.prepare(environ, pure_bfloat16=False, model_type="transformer")
    assert environ == {"NEURON_CC_FLAGS": "--model-type=generic", "NEURON_RT_EXEC_TIMEOUT": "30"}
