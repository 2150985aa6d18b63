"""The commands that README and docs tell a reader to type."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from local.twin import REPOSITORY

SHELLS = ("console", "bash", "sh")
"""First word of the fences that hold commands. A second word says what they need: see NEEDS."""

NEEDS = {
    "account": "an AWS account",
    "cluster": "a cluster",
    "node": "a machine of one's own cluster",
    "slurm": "a machine of a Slurm cluster",
}
"""Second word of a fence: what its commands need that a laptop has not."""

PROGRAMS = ("make", "trainflow", "python", "torchrun", "aws", "kubectl")


@dataclass(frozen=True)
class Block:
    """A fenced block of commands, or one command in the middle of a sentence."""

    where: str
    """File and line."""
    text: str
    need: str | None
    """A word of NEEDS; None for what a laptop can do."""
    inline: bool

    def commands(self) -> list[list[str]]:
        """The commands of PROGRAMS in it, as lists of words: the program's name first, without its folder."""
        return [command for line in self._lines() for command in _commands(line)]

    def _lines(self) -> list[str]:
        joined = re.sub(r"\\\n\s*", " ", re.sub(r"<<'EOF'\n.*?\nEOF", "", self.text, flags=re.DOTALL))
        return [line.removeprefix("$ ") for line in joined.splitlines()]


def documents() -> list[Path]:
    """README and everything below docs/."""
    return [REPOSITORY / "README.md", *sorted((REPOSITORY / "docs").rglob("*.md"))]


def blocks() -> list[Block]:
    """All blocks of all documents."""
    return [block for path in documents() for block in _blocks(path)]


def _blocks(path: Path) -> Iterator[Block]:
    text, name = path.read_text(), path.relative_to(REPOSITORY)

    def where(match: re.Match[str]) -> str:
        return f"{name}:{text.count(chr(10), 0, match.start()) + 1}"

    for fence in _FENCE.finditer(text):
        language, _, need = fence["info"].partition(" ")
        if language in SHELLS:
            yield Block(where(fence), fence["body"], need.strip() or None, inline=False)
    prose = _FENCE.sub(lambda match: "\n" * match[0].count("\n"), text)
    for code in _INLINE.finditer(prose):
        yield Block(f"{name}:{prose.count(chr(10), 0, code.start()) + 1}", code["code"], None, inline=True)


_FENCE = re.compile(r"^(?P<indent> *)```(?P<info>[^\n`]*)\n(?P<body>.*?)^(?P=indent)```", re.MULTILINE | re.DOTALL)
_INLINE = re.compile(rf"`(?P<code>(?:\.venv/bin/)?(?:{'|'.join(PROGRAMS)}) [^`]+)`")


def _commands(line: str) -> Iterator[list[str]]:
    """Those of a line; substitutions and pipes are commands of their own."""
    bare = re.sub(r"\$\{[^}]*\}", "VALUE", line).replace("\\|", "|")
    bare = re.sub(r"^\s*\w+\(\) *\{", "", bare)  # of a function, what it does
    bare = bare.replace('"$(', " ( ").replace("$(", " ( ").replace(')"', " ) ")
    # An option that may be left out stands in brackets.
    bare = re.sub(r"\[(-[^\]]*)\]", r"\1", bare)
    reader = shlex.shlex(bare, posix=True, punctuation_chars="();|&<>")
    reader.whitespace_split, reader.commenters = True, "#"
    words: list[str] = []
    try:
        tokens = list(reader)
    except ValueError:  # a quotation that goes on in the next line of prose
        tokens = bare.split()
    for token in [*tokens, ";"]:
        if token and set(token) <= set("();|&<>{}"):
            if words := _of_ours(words):
                yield words
            words = []
        else:
            words.append(token)


def _of_ours(words: list[str]) -> list[str]:
    while words and (re.fullmatch(r"\w+=.*", words[0]) or words[0] in ("{", "command", "sudo", "then")):
        words = words[1:]
    words = [word for word in words if word not in ("…", "...")]
    if words and (program := words[0].removeprefix(".venv/bin/")) in PROGRAMS:
        return [program, *words[1:]]
    return []
