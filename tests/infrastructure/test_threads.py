"""No thread, timer or task ends in silence: each comes from a module that hands its exception to somebody."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOTS = ("trainer", "local", "packages/kubetwin/kubetwin", "lambdas", "trainflow", "stacks")

MAKERS = {
    "trainer": "trainer/runtime/workers.py",
    "local": "packages/kubetwin/kubetwin/background.py",
    "packages": "packages/kubetwin/kubetwin/background.py",
    "lambdas": "trainflow/background.py",
    "trainflow": "trainflow/background.py",
    "stacks": "trainflow/background.py",
}
"""The module that makes threads, by the top folder of who wants one."""

ACCEPTED = {
    ("trainer/node_test.py", "main"): "the timer's function ends the process with a verdict, whatever it meets",
    ("trainer/node_test.py", "run"): "each thread ends the process or stores what it meets as the verdict",
    ("lambdas/gateways/kubernetes.py", "_followed"): "the timer closes a connection, and its reader meets the end",
}
"""Places that may make a thread or a timer themselves, with the reason."""

DROPPED = {"submit": "the future", "map": "the results", "create_task": "the task", "ensure_future": "the task"}


def faults(path: Path, text: str) -> Iterator[str]:
    """Sentences about threads, timers and tasks of one module whose exceptions nobody would see."""
    tree = ast.parse(text)
    executes = "ThreadPoolExecutor" in text or "ProcessPoolExecutor" in text
    maker = MAKERS[path.parts[0]]
    for function, node in _within(tree, ""):
        if isinstance(node, ast.ClassDef):
            bare = any(_name(base) in ("Thread", "Timer") for base in node.bases)
        else:
            bare = isinstance(node, ast.Call) and _name(node.func) in ("Thread", "Timer")
        if bare and str(path) != maker and (str(path), function) not in ACCEPTED:
            yield f"{path}:{node.lineno}: a plain thread or timer ends in silence; use {maker}."
        if not isinstance(node, ast.Expr) or not isinstance(node.value, ast.Call):
            continue
        name = _name(node.value.func)
        called_on_pool = isinstance(node.value.func, ast.Attribute) and executes
        if name in ("create_task", "ensure_future") or (name in ("submit", "map") and called_on_pool):
            yield f"{path}:{node.lineno}: nobody reads {DROPPED[name]} of {name}(…); read it, or use {maker}."


def _within(node: ast.AST, function: str) -> Iterator[tuple[str, ast.AST]]:
    """Every node below one, with the name of the innermost function around it."""
    for child in ast.iter_child_nodes(node):
        inner = child.name if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef) else function
        yield inner, child
        yield from _within(child, inner)


def _name(value: ast.expr) -> str:
    return value.attr if isinstance(value, ast.Attribute) else value.id if isinstance(value, ast.Name) else ""


def modules() -> Iterator[Path]:
    for root in ROOTS:
        yield from sorted(Path(root).rglob("*.py"))


def test_every_thread_hands_its_exception_to_somebody() -> None:
    assert [fault for path in modules() for fault in faults(path, path.read_text())] == []


def test_every_accepted_place_is_still_there() -> None:
    found = {
        (str(path), function)
        for path in {Path(name) for name, _ in ACCEPTED}
        for function, node in _within(ast.parse(path.read_text()), "")
        if isinstance(node, ast.Call) and _name(node.func) in ("Thread", "Timer")
    }
    assert found == set(ACCEPTED)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("threading.Thread(target=work).start()", "a plain thread or timer ends in silence"),
        ("timer = Timer(1, work)", "a plain thread or timer ends in silence"),
        ("class Mine(threading.Thread): pass", "a plain thread or timer ends in silence"),
        ("async def f():\n    asyncio.create_task(g())", "nobody reads the task of create_task(…)"),
        ("async def f():\n    asyncio.ensure_future(g())", "nobody reads the task of ensure_future(…)"),
        ("pool = ThreadPoolExecutor(1)\npool.submit(work)", "nobody reads the future of submit(…)"),
        ("pool = ThreadPoolExecutor(1)\npool.map(work, [1])", "nobody reads the results of map(…)"),
    ],
)
def test_a_thread_that_would_end_in_silence_is_found(text: str, sentence: str) -> None:
    (found,) = faults(Path("local/new.py"), text)
    assert sentence in found
    assert found.endswith("use packages/kubetwin/kubetwin/background.py.")


@pytest.mark.parametrize(
    "text",
    [
        "pool = ThreadPoolExecutor(1)\nfuture = pool.submit(work)",
        "pool = ThreadPoolExecutor(1)\nlist(pool.map(work, [1]))",
        "backend.submit(job)",
        "worker = Worker(work, name='reader')",
        "pool = ThreadPoolExecutor(1)\nsubmit(pool, work, name='a delivery')",
    ],
)
def test_a_thread_whose_exception_somebody_sees_is_fine(text: str) -> None:
    assert list(faults(Path("local/new.py"), text)) == []
