from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from trainer.loop.training_config import TrainingConfig
from trainer.optimizers.optimization_config import OptimizationConfig
from trainer.pretraining.config import ModelConfig, PretrainConfig
from trainer.runtime import arguments
from trainer.runtime.errors import ConfigInvalid


def parse(*argv: str) -> PretrainConfig:
    return arguments.parse(PretrainConfig, argv, program="trainer.pretrain")


def test_options_of_nested_configurations_are_flat() -> None:
    config = parse("--model", "tiny", "--max_steps", "7", "--keep_checkpoints", "3", "--data_dir", "/data/x")
    assert config.model.model == "tiny"
    assert config.optimization.max_steps == 7
    assert config.keep_checkpoints == 3
    assert config.data_dir == Path("/data/x")


def test_the_tutorials_command_line_is_understood() -> None:
    config = parse(
        *("--batch_size", "16", "--grad_accum_usteps", "32", "--lr", "4e-4"),
        *("--data_dir", "/data/wikicorpus", "--output_dir", "/data/output", "--steps_this_run", "10"),
    )
    expected = PretrainConfig(data_dir=Path("/data/wikicorpus"), output_dir=Path("/data/output"), steps_this_run=10)
    assert config == expected
    assert config.model.shape.hidden_size == 1024


@pytest.mark.parametrize(("text", "value"), [("true", True), ("True", True), ("0", False), ("no", False)])
def test_booleans_are_written_out(text: str, value: bool) -> None:
    assert parse("--compile", text).compile is value


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (("--max_stepz", "3"), ("'--max_stepz'", "did you mean --max_steps?")),
        (("--frobnicate",), ("'--frobnicate'", "--help")),
        (("--max_steps", "many"), ("--max_steps", "'many'")),
        (("--max_steps",), ("--max_steps", "expected one argument")),
        (("--compile", "perhaps"), ("--compile", "neither true nor false")),
        (("--device", "tpu"), ("--device", "cpu")),
        (("--max_steps", "0"), ("--max_steps is 0", "at least 1")),
        (("--hidden_size", "100", "--num_attention_heads", "3"), ("--hidden_size is 100", "multiple")),
        (("--learning_rate", "0"), ("--learning_rate", "above 0")),
        (("--steps_this_run", "0"), ("--steps_this_run", "-1 for all")),
        (("--dropout", "1"), ("--dropout", "below 1")),
    ],
)
def test_a_bad_argument_gets_one_sentence_that_names_it(argv: tuple[str, ...], words: tuple[str, ...]) -> None:
    with pytest.raises(ConfigInvalid) as caught:
        parse(*argv)
    assert "\n" not in str(caught.value)
    for word in words:
        assert word in str(caught.value)


@pytest.mark.parametrize("config", [PretrainConfig, ModelConfig, OptimizationConfig, TrainingConfig])
def test_every_field_has_its_docstring(config: type[Any]) -> None:
    documented = arguments.field_docstrings(config)
    nested = {"model", "optimization", "checkpoints"} if config is PretrainConfig else set()
    assert {field.name for field in fields(config)} - nested == set(documented) - nested


def test_help_shows_meaning_and_default(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        parse("--help")
    assert caught.value.code == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "Micro-batches of one process in one step. Default: 32." in shown
