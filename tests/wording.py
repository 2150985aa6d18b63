"""Sentences for people that tests compare whole. They stand in one file, so that a wording changes in one place.

A test names a sentence and the words in it that matter: fields, values, commands.

    assert str(error) == wording("slurm_fit.wide_job", "compute.num_nodes", "17")

After a change that is meant, `python -m tests.goldens wording MODULE...` runs those test modules and writes the
sentences that they have seen. The words in the tests do not change with it: a sentence that lost one fails.
"""

from __future__ import annotations

import json
import os
from functools import cache
from pathlib import Path

GOLDEN = Path(__file__).parent / "assets" / "wording.json"
"""Name of each sentence, and the sentence."""

RECORD = "TRAINFLOW_RECORD_WORDING"
"""Variable that names the file to which seen sentences are added."""


class _Recorder(str):
    """A sentence that equals whatever it is compared with, and remembers that."""

    name: str

    def __eq__(self, other: object) -> bool:
        if isinstance(other, str):
            path = Path(os.environ[RECORD])
            path.write_text(as_text({**json.loads(path.read_text()), self.name: str(other)}))
        return isinstance(other, str)

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = str.__hash__


def wording(name: str, *words: str) -> str:
    """A sentence of the golden file.

    Args:
        name: Name of the sentence: the test's module, and what the sentence is about.
        words: Words that the sentence has to have, whatever its wording is.

    Raises:
        AssertionError: If the file does not have the sentence, or the sentence does not have a word.
    """
    if RECORD in os.environ:
        recorder = _Recorder(sentences().get(name, name))
        recorder.name = name
        return recorder
    assert name in sentences(), f"{GOLDEN.name} has no {name}: write it by `python -m tests.goldens wording MODULE`"
    missing = [word for word in words if word not in sentences()[name]]
    assert not missing, f"{name} does not have the words {missing}: {sentences()[name]}"
    return sentences()[name]


@cache
def sentences() -> dict[str, str]:
    """All sentences by their names."""
    found: dict[str, str] = json.loads(GOLDEN.read_text(encoding="utf-8"))
    return found


def as_text(found: dict[str, str]) -> str:
    """Content of the golden file."""
    return json.dumps(dict(sorted(found.items())), indent=2, ensure_ascii=False) + "\n"
