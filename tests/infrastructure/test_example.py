"""config/example.yaml shows users every setting."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest
import yaml

from trainflow.configuration.deployment import Configuration, load_configuration
from trainflow.configuration.section import Section

EXAMPLE = Path("config/example.yaml")


def sections(model: type[Section]) -> list[type[Section]]:
    """The model, and every section that one of its fields may hold."""
    found = [model]
    for field in model.model_fields.values():
        found += [each for inner in _sections_in(field.annotation) for each in sections(inner)]
    return list(dict.fromkeys(found))


def _sections_in(annotation: Any) -> Iterator[type[Section]]:
    if isinstance(annotation, type) and issubclass(annotation, Section):
        yield annotation
    for part in get_args(annotation):
        yield from _sections_in(part)


@pytest.mark.parametrize("section", sections(Configuration), ids=lambda section: section.__name__)
def test_the_example_names_every_setting(section: type[Section]) -> None:
    text = EXAMPLE.read_text()
    missing = [name for name in section.model_fields if not re.search(rf"\b{name}:", text)]
    assert not missing


def test_what_the_example_calls_a_default_is_the_default() -> None:
    as_it_is = EXAMPLE.read_text()
    spelled_out = re.sub(r"^( *)# (\w+: .* # default)", r"\1\2", as_it_is, flags=re.MULTILINE)
    assert spelled_out != as_it_is
    assert Configuration.model_validate(yaml.safe_load(spelled_out)) == load_configuration(EXAMPLE)
