"""`trainflow init` leaves choices to the user where the source has several, and says which ones there are."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.wording import wording
from trainflow.cli.init import Answers, init_notes, program_in, spec_text
from trainflow.client.programs.arguments import missing_arguments

FLAGS = """
import argparse
p = argparse.ArgumentParser()
for_data = [p.add_argument("--corpus_name"), p.add_argument("--train_file"), p.add_argument("--size", type=int)]
args = p.parse_args()
"""


def spec(tmp_path: Path, source: str, files: Mapping[str, str] | None = None) -> tuple[str, dict[str, Any], list[str]]:
    """The text, the document and the notes for a program in a folder with other files."""
    for name, content in {"train.py": source, **(files or {})}.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    answers = Answers(script=tmp_path / "train.py", name="mine")
    program = program_in(answers.script, folder=tmp_path)
    text = spec_text(answers, program, folder=tmp_path)
    return text, yaml.safe_load(text), init_notes(program, answers, folder=tmp_path)


@pytest.mark.parametrize(
    "demand",
    [
        "if args.corpus_name is None and args.train_file is None: raise ValueError('give one')",
        "if not args.corpus_name and not args.train_file: p.error('give one')",
        "if args.corpus_name is not None: pass\nelif args.train_file is None: raise ValueError('give one')",
        "if args.corpus_name: load(args.corpus_name)\nelif args.train_file: read()\nelse: raise ValueError('give one')",
    ],
)
def test_alternatives_get_no_placeholder_since_it_would_be_taken_for_the_users_choice(
    demand: str, tmp_path: Path
) -> None:
    text, document, notes = spec(tmp_path, FLAGS + demand)
    assert document["workload"]["arguments"] == {}
    assert "one of corpus_name, train_file is required: add it" in text
    assert notes[0] == wording(
        "init_choices.alternatives_get_no_placeholder_since_it_would_be_taken_for_the_users_choice.1",
        "corpus_name",
        "train_file",
        "workload.arguments",
    )
    program = program_in(tmp_path / "train.py", folder=tmp_path)
    assert missing_arguments(program, {}) == [
        wording(
            "init_choices.alternatives_get_no_placeholder_since_it_would_be_taken_for_the_users_choice.2",
            "workload.arguments",
            "corpus_name",
            "train_file",
        )
    ]
    assert missing_arguments(program, {"train_file": "a.txt"}) == []


def test_a_flag_without_an_alternative_keeps_its_placeholder(tmp_path: Path) -> None:
    _, document, notes = spec(tmp_path, f"{FLAGS}if args.train_file is None: raise ValueError('no file')")
    assert document["workload"]["arguments"] == {"train_file": "change-me"}
    assert notes == ["write the values of train_file in place of 'change-me'"]


@pytest.mark.parametrize(
    "branches",
    [
        "if args.corpus_name: pass\nelif args.train_file: pass\nelse: args.size = 1",
        "if args.corpus_name: pass\nelif args.size == 3: raise ValueError",
        "if args.corpus_name: raise ValueError('not both')",
    ],
)
def test_branches_that_accept_nothing_demand_nothing(branches: str, tmp_path: Path) -> None:
    text, _, notes = spec(tmp_path, FLAGS + branches)
    assert "is required" not in text
    assert notes == []


@pytest.mark.parametrize(
    ("package", "environment"), [("mine", {"PYTHONPATH": "src"}), ("lightning", None), ("transformers", None)]
)
def test_a_checkout_of_a_library_does_not_hide_the_installed_one(
    package: str, environment: dict[str, str] | None, tmp_path: Path
) -> None:
    text, document, _ = spec(tmp_path, f"import {package}\n", {f"src/{package}/__init__.py": ""})
    assert document["workload"].get("env") == environment
    assert spec(tmp_path, f"import {package}, own\n", {"src/own/__init__.py": ""})[1]["workload"]["env"]
    is_named = f"# {package} is the image's; with env {{PYTHONPATH: src}} it is src/{package} of this folder" in text
    assert is_named == (environment is None)
