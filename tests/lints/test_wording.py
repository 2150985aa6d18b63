"""tests/assets/wording.json holds the sentences that tests compare, and no others."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path

import pytest

from tests import wording as module
from tests.wording import GOLDEN, RECORD, as_text, sentences, wording

SENTENCES = {"sizes.too_large": "compute.num_nodes is 17; ask for fewer.", "sizes.zero": "It is zero."}


@pytest.fixture
def golden(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A golden file of this module."""
    path = tmp_path / "wording.json"
    path.write_text(as_text(SENTENCES), encoding="utf-8")
    monkeypatch.setattr(module, "GOLDEN", path)
    monkeypatch.setattr(module, "sentences", sentences.__wrapped__)
    return path


def test_the_sentences_are_those_that_tests_name() -> None:
    calls = [call for path in Path("tests").rglob("test_*.py") if path != Path(__file__) for call in _names(path)]
    assert sorted(set(calls)) == sorted(sentences())
    assert sorted(calls) == sorted(sentences()), "two tests share a sentence: give each its own"
    assert GOLDEN.read_text(encoding="utf-8") == as_text(sentences())


def _names(path: Path) -> list[str]:
    text = path.read_text(encoding="utf-8")
    if not re.search(r"^from tests.wording import wording$", text, re.MULTILINE):
        return []
    return [
        str(ast.literal_eval(node.args[0]))
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "wording"
    ]


@pytest.mark.usefixtures("golden")
def test_a_sentence_has_to_have_its_words() -> None:
    assert wording("sizes.too_large", "compute.num_nodes", "17") == "compute.num_nodes is 17; ask for fewer."
    with pytest.raises(AssertionError, match="does not have the words"):
        wording("sizes.too_large", "compute.num_nodes", "18")
    with pytest.raises(AssertionError, match=r"has no sizes\.small"):
        wording("sizes.small")


def test_recording_replaces_what_was_compared_also_within_a_list(golden: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(RECORD, str(golden))
    seen = ["Zero is too small.", 3]
    assert seen == [wording("sizes.zero"), 3]
    assert wording("sizes.new") == "Take one."
    other: object = 3
    assert wording("sizes.zero") != other
    assert json.loads(golden.read_text()) == SENTENCES | {"sizes.zero": "Zero is too small.", "sizes.new": "Take one."}
