"""Generates the tables of docs/twin-contract.md and docs/upstream.md from the TOML files beside this module.

python -m tests.infrastructure.generated_pages    # `make schema` runs it
"""

from __future__ import annotations

import ast
import re
import tomllib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
DOCS = HERE.parents[1] / "docs"
PATCHES = HERE.parents[1] / "local" / "aws"
SEVERAL = "…"
"""In the page: attributes whose names the code computes."""


@dataclass(frozen=True, kw_only=True)
class Request:
    """A request that the twin refuses, or another behaviour of AWS or Kubernetes that it has."""

    request: str
    tests: tuple[str, ...]
    """`FILE::NAME` of the tests that prove it, or a whole `FILE`."""
    answer: str = ""


@dataclass(frozen=True, kw_only=True)
class Gap:
    """A request that the twin lets pass, or another difference from AWS or Kubernetes."""

    request: str
    hides: str
    """The fault that a run in the twin therefore does not show."""


@dataclass(frozen=True, kw_only=True)
class Section:
    """One part of the twin's contract."""

    title: str
    refuses: tuple[Request, ...]
    lets_pass: tuple[Gap, ...]


def sections() -> list[Section]:
    """The twin's contract, as `twin_contract.toml` has it."""
    data = tomllib.loads((HERE / "twin_contract.toml").read_text(encoding="utf-8"))
    return [
        Section(
            title=section["title"],
            refuses=tuple(Request(**{**row, "tests": tuple(row["tests"])}) for row in section["refuses"]),
            lets_pass=tuple(Gap(**row) for row in section["lets_pass"]),
        )
        for section in data["sections"]
    ]


def replaced_functions() -> dict[str, set[str]]:
    """Functions of moto that each module below `local/aws/` replaces, as `Owner.attribute`."""
    found = defaultdict(set)
    for path in sorted(PATCHES.rglob("*.py")):
        for call in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "replace":
                owner, name, _ = call.args
                attribute = str(name.value) if isinstance(name, ast.Constant) else SEVERAL
                found[path.relative_to(PATCHES).as_posix()].add(f"{ast.unparse(owner)}.{attribute}")
    return dict(found)


def offers() -> dict[str, str]:
    """For each module, whether its patches could be offered to moto."""
    return tomllib.loads((HERE / "moto_patches.toml").read_text(encoding="utf-8"))


def pages() -> Iterator[tuple[Path, str]]:
    """Each page with generated tables, and its text."""
    contract = DOCS / "twin-contract.md"
    yield contract, _with_block(contract.read_text(encoding="utf-8"), "contract", _contract())
    upstream = DOCS / "upstream.md"
    yield upstream, _with_block(upstream.read_text(encoding="utf-8"), "replaced", _patches())


def _contract() -> str:
    blocks = []
    for section in sections():
        answered = any(row.answer for row in section.refuses)
        rows = [
            (row.request, *([row.answer] if answered else []), ", ".join(f"`{test}`" for test in row.tests))
            for row in section.refuses
        ]
        blocks += [
            f"## {section.title}",
            _table(("as the real one", *(["answer"] if answered else []), "test"), rows),
            _table(
                ("lets pass, or does less", "a fault that a run does not show"),
                [(row.request, row.hides) for row in section.lets_pass],
            ),
        ]
    return "\n\n".join(blocks)


def _patches() -> str:
    rows = [
        (f"`{module}`", ", ".join(f"`{name}`" for name in sorted(names)), offers().get(module, ""))
        for module, names in sorted(replaced_functions().items())
    ]
    return _table(("module", "replaces", "offered"), rows)


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *([cell.replace("|", "\\|") for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _with_block(page: str, name: str, text: str) -> str:
    begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
    return re.sub(f"{begin}.*{end}", lambda _: f"{begin}\n{text}\n{end}", page, flags=re.DOTALL)


if __name__ == "__main__":
    for path, text in pages():
        path.write_text(text, encoding="utf-8")
