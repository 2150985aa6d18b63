"""Arguments that do not count in a cache's key are options of the trainer's programs, under all their spellings."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Iterator
from pathlib import Path

import pytest

from trainer.classification.config import ClassificationConfig
from trainer.classifier import ClassifierConfig
from trainer.pretraining.config import PretrainConfig
from trainer.steps.compile_cache import environment
from trainflow.protocol.compile_cache import NEVER_SHAPE_GRAPHS, OTHERS_ARGUMENTS, OWN_ARGUMENTS

CONFIGURATIONS = (PretrainConfig, ClassificationConfig, ClassifierConfig)


def options(configuration: type) -> Iterator[set[str]]:
    """Each option of a program, with all of its spellings."""
    types = typing.get_type_hints(configuration)
    for field in dataclasses.fields(configuration):
        if dataclasses.is_dataclass(types[field.name]):
            yield from options(typing.cast(type, types[field.name]))
        else:
            yield {field.name, *field.metadata.get("aliases", ())}


OPTIONS = [spellings for configuration in CONFIGURATIONS for spellings in options(configuration)]


@pytest.mark.parametrize("name", sorted(OWN_ARGUMENTS))
def test_an_argument_that_does_not_count_is_an_option_of_the_trainer(name: str) -> None:
    assert any(name in spellings for spellings in OPTIONS)


@pytest.mark.parametrize("spellings", OPTIONS, ids=lambda spellings: "|".join(sorted(spellings)))
def test_an_option_counts_under_all_its_spellings_or_under_none(spellings: set[str]) -> None:
    assert spellings <= NEVER_SHAPE_GRAPHS or not spellings & NEVER_SHAPE_GRAPHS


@pytest.mark.parametrize("name", sorted(OTHERS_ARGUMENTS))
def test_the_names_of_other_programs_are_no_options_of_ours(name: str) -> None:
    assert not any(name in spellings for spellings in OPTIONS)


def test_the_copy_of_a_cache_is_set_for_the_same_compilers_as_the_cache(tmp_path: Path) -> None:
    assert {value.startswith(str(tmp_path)) for value in environment(str(tmp_path)).values()} == {True}


def test_each_compiler_is_told_where_its_cache_is() -> None:
    assert environment("/cache/abc") == {
        "TRAINFLOW_CACHE_DIR": "/cache/abc",
        "TORCHINDUCTOR_CACHE_DIR": "/cache/abc/inductor",
        "NEURON_COMPILE_CACHE_URL": "/cache/abc/neuron",
        "TORCH_NEURONX_NEFF_CACHE_DIR": "/cache/abc/torch_neuronx",
    }
