"""Sentence patterns, names and long patterns of tests that `CONTRIBUTING.md` asks to avoid, counted by room.

`python -m tests.lints.language` lists every place, and `--lower` writes the counts that have fallen into the baseline.
"""

from __future__ import annotations

import argparse
import ast
import json
import re
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tests.lints.sources import PRODUCT, docstrings, sources, tree

BASELINE = Path(__file__).with_name("language_baseline.json")
"""Room to the number of its places; may only fall."""

_ROOTS = (*PRODUCT, "benchmarks", "packages/kubetwin/kubetwin")

_TESTS = ("tests",)
"""Tests of our own messages; those of kubetwin compare Kubernetes' sentences, which it has to repeat."""

_LONGEST_MATCH = 40
"""Characters of a pattern for an error's message, without its placeholders. A longer one repeats a wording.

A text that AWS or Kubernetes defines is shortened likewise, or a constant with a name."""

_PREPOSITIONS = (
    "about|after|against|among|at|before|behind|below|beside|between|beyond|by|during|for|from|in|into|of|on|over|since"
    "|than|through|to|toward|under|until|upon|with|within|without"
)

_SENTENCES = {
    "begins with a clause": re.compile(r"\A(What|How|Where|When|Why|Until)\b"),
    "preposition + which": re.compile(rf"\b({_PREPOSITIONS}) which\b", re.IGNORECASE),
    "is no": re.compile(r"\b(is|are|was|were|be|been|has|have|had) (no|none|nothing)\b(?! (longer|more)\b)"),
    "alone": re.compile(r"\balone\b"),
    "tell": re.compile(r"\b(tell|tells|told|telling)\b"),
}
_NAMES = {
    "name with of": re.compile(r"\A_*of_|_of\Z"),
    "negated name": re.compile(r"\A_*(no|not|none|nothing|never)_"),
}


@dataclass(frozen=True)
class Place:
    """A place to rewrite.

    Attributes:
        room: Package that the file belongs to, and its folder there.
        where: `file:line`.
        pattern: The pattern that it matches.
        text: The sentence or name, shortened.
    """

    room: str
    where: str
    pattern: str
    text: str


@cache
def places() -> tuple[Place, ...]:
    """Every place of the product and then of its tests, in the order of their files."""
    hits = {source: [*_docstring_hits(source), *_name_hits(source)] for source in sources(*_ROOTS)}
    hits |= {source: [*_match_hits(source)] for source in sources(*_TESTS)}
    return tuple(
        Place(room(source), f"{source}:{line}", pattern, text)
        for source, found in hits.items()
        for line, pattern, text in sorted(found)
    )


def room(source: Path) -> str:
    """The two folders by which the places of a file are counted."""
    parts = source.relative_to("packages/kubetwin").parts if source.parts[0] == "packages" else source.parts
    return "/".join(parts[:-1][:2])


def counts() -> dict[str, int]:
    """Number of places in each room that has any."""
    return dict(sorted(Counter(place.room for place in places()).items()))


def baseline() -> dict[str, int]:
    """The numbers that may only fall."""
    numbers: dict[str, int] = json.loads(BASELINE.read_text())
    return numbers


def _docstring_hits(source: Path) -> Iterator[tuple[int, str, str]]:
    for constant in docstrings(source):
        if not isinstance(constant.value, str):
            continue
        text = " ".join(constant.value.split())
        for pattern, expression in _SENTENCES.items():
            for found in expression.finditer(text):
                yield constant.lineno, pattern, text[max(0, found.start() - 30) : found.end() + 50]


def _name_hits(source: Path) -> Iterator[tuple[int, str, str]]:
    for node in ast.walk(tree(source)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            for pattern, expression in _NAMES.items():
                if expression.search(node.name):
                    yield node.lineno, pattern, node.name


def _match_hits(source: Path) -> Iterator[tuple[int, str, str]]:
    for node in ast.walk(tree(source)):
        if not isinstance(node, ast.keyword) or node.arg != "match":
            continue
        parts = node.value.values if isinstance(node.value, ast.JoinedStr) else [node.value]
        text = "".join(str(part.value) for part in parts if isinstance(part, ast.Constant))
        if len(text) > _LONGEST_MATCH:
            yield node.value.lineno, "long match", text


def _lower() -> None:
    now, limits = counts(), baseline() if BASELINE.exists() else {}
    if raised := [name for name in now if limits and now[name] > limits.get(name, 0)]:
        sys.exit(f"More places than before in {', '.join(raised)}: rewrite them, the baseline may only fall.")
    BASELINE.write_text(json.dumps(now, indent=2) + "\n")


def main() -> None:
    """List the places, or lower the baseline."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("room", nargs="*", help="rooms or files whose places to list; all if none is given")
    parser.add_argument("--lower", action="store_true", help="write the counts that have fallen")
    options = parser.parse_args()
    if options.lower:
        _lower()
        return
    for place in places():
        if not options.room or any(place.where.startswith(prefix) or place.room == prefix for prefix in options.room):
            print(f"{place.where}: {place.pattern}: {place.text}")


if __name__ == "__main__":
    main()
