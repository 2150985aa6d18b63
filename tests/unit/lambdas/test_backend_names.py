"""Only `lambdas/backends/` distinguishes backends by name; all other code asks the backend or its description."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest

from lambdas.backends.registry import BACKENDS
from local.twin import REPOSITORY
from trainflow.deployment.backends import DESCRIPTIONS, BackendName

NAMES = frozenset(get_args(BackendName))

COMMON_WORDS = frozenset({"job", "pod"})
"""Names that are also words of other things: a document may well have a key `pod`."""

SEARCHED = ("app.py", "benchmarks", "lambdas", "local", "stacks", "trainer", "trainflow")
"""kubetwin knows kinds of Kubernetes objects, and no backends."""

ALLOWED = Path("lambdas/backends")

OTHER_THINGS = {
    Path("trainflow/cli/account/needs.py"): "stacks of a deployment, by what they hold",
    Path("trainer/images/smoke.py"): "environments that programs are installed in",
}
"""Files where a backend's name is the key of something else, and what that is."""


def comparisons_of_names(text: str) -> Iterator[int]:
    """Lines of a program that compare with a backend's name, match it, or use it as a key."""
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.Compare():
                if any(_compares(operand, operator) for operand, operator in _operands(node)):
                    yield node.lineno
            case ast.MatchValue(value=value) if _constants([value]) & NAMES:
                yield node.lineno
            case ast.Dict(keys=keys) if _tells_apart(_constants(keys)):
                yield node.lineno
            case ast.Subscript(slice=key) if _constants([key]) & (NAMES - COMMON_WORDS):
                yield node.lineno


def _operands(node: ast.Compare) -> Iterator[tuple[ast.expr, ast.cmpop]]:
    yield node.left, node.ops[0]
    yield from zip(node.comparators, node.ops, strict=True)


def _compares(operand: ast.expr, operator: ast.cmpop) -> bool:
    if isinstance(operand, ast.Tuple | ast.List | ast.Set):
        return _tells_apart(_constants(operand.elts))
    if isinstance(operator, ast.Eq | ast.NotEq):
        return bool(_constants([operand]) & NAMES)
    return bool(_constants([operand]) & (NAMES - COMMON_WORDS))  # `"pod" in document` asks for a key


def _tells_apart(texts: frozenset[str]) -> bool:
    """Whether a collection of texts is one of backends: common words count where there is nothing else."""
    return bool(texts & (NAMES - COMMON_WORDS)) or texts == COMMON_WORDS


def _constants(nodes: list[ast.expr] | list[ast.expr | None]) -> frozenset[str]:
    return frozenset(node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str))


def programs() -> Iterator[Path]:
    for name in SEARCHED:
        path = REPOSITORY / name
        yield from (found.relative_to(REPOSITORY) for found in ([path] if path.is_file() else path.rglob("*.py")))


def places(path: Path) -> list[str]:
    return [f"{path}:{line}" for line in comparisons_of_names((REPOSITORY / path).read_text())]


def test_backends_are_distinguished_by_name_in_their_own_folder_only() -> None:
    elsewhere = [path for path in programs() if not path.is_relative_to(ALLOWED) and path not in OTHER_THINGS]
    assert len(elsewhere) > 300, "the search finds the programs"
    assert [place for path in elsewhere for place in places(path)] == []


@pytest.mark.parametrize("path", OTHER_THINGS, ids=str)
def test_an_exception_is_one(path: Path) -> None:
    assert len(places(path)) == 1


@pytest.mark.parametrize(
    "text",
    [
        'if compute.backend == "slurm": pass',
        'if "pod" != job.backend: pass',
        'x = name in ("volcano", "slurm")',
        'x = name not in {"job", "pod"}',
        'match name:\n    case "job" | "jobset": pass',
        'x = {"pytorchjob": 1, "else": 2}',
        'x = TABLE["volcano"]',
        'x = "slurm" in names',
    ],
)
def test_a_comparison_that_is_put_back_is_found(text: str) -> None:
    assert list(comparisons_of_names(text))


@pytest.mark.parametrize(
    "text",
    [
        'x = {"job": job, "run": run}',
        'x = "pod" in document',
        'x = document["job"]',
        'x = key in ("pod", "last_lines")',
    ],
)
def test_a_key_of_a_document_is_no_backend(text: str) -> None:
    assert list(comparisons_of_names(text)) == []


def test_every_backend_is_described_and_registered() -> None:
    assert DESCRIPTIONS.keys() == BACKENDS.keys() == NAMES
