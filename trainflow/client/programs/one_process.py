"""Signs that a program trains without a launcher if it is only one process.

Many programs look for torchrun's variables and train by themselves where these are absent. Under torchrun they take the
other branch, which needs a backend and devices that a world of one process need not have.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Literal

from trainflow.client.programs.options import assigned, literal
from trainflow.client.programs.reachable import Region
from trainflow.client.programs.source import last_name

RANK_VARIABLES = frozenset(("LOCAL_RANK", "WORLD_SIZE", "RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK"))
"""Variables of torchrun that a program may read."""

STARTS_GROUP = frozenset(("init_process_group", "init_device_mesh", "init_distributed"))
"""Calls that end with an error without torchrun's variables: those of torch, and DeepSpeed's."""

ASKS = re.compile(r"(^|_)dist(_|$)|distributed|ddp|rank|world|parallel|launch|fsdp|nproc|slurm", re.IGNORECASE)
"""Parts of names that tests for more processes than one have."""

SAYS_NOTHING = frozenset(("is_available", "is_initialized"))
"""Calls whose result is the same with one process as with many."""

FAILS = frozenset(("exit", "_exit", "abort", "error"))
"""Calls that end a program."""

Uses = Literal["required", "optional", "absent"]
"""Use of torchrun's variables and of a group of processes: the program fails without them, tests for them, or does not
mention them."""

_Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class _Event:
    """A need or a call of a statement, and whether a test for several processes stands in front of it."""

    name: str
    is_guarded: bool
    is_need: bool


@dataclass
class _Reader:
    """The statements of a program, with the tests in front of them.

    Attributes:
        asked: Variables that hold the answer to a question for several processes.
    """

    asked: set[str] = field(default_factory=set)

    def block(self, statements: Iterable[ast.stmt], guarded: bool) -> Iterator[_Event]:
        """Events of statements that follow each other."""
        for statement in statements:
            yield from self.events(statement, guarded)
            guarded = guarded or (isinstance(statement, ast.If) and self._asks(statement.test) and _returns(statement))

    def events(self, node: ast.AST, guarded: bool) -> Iterator[_Event]:
        """Events of a node and of what is below it, except inside of functions."""
        if isinstance(node, _Function | ast.ClassDef | ast.Lambda):
            return
        yield from (_Event(name, guarded, is_need=True) for name in _needs(node))
        yield from (_Event(name, guarded, is_need=False) for name in _calls(node))
        inner = guarded or (isinstance(node, ast.If | ast.IfExp) and self._asks(node.test))
        inner = inner or (isinstance(node, ast.Try) and any(map(_goes_on, node.handlers)))
        for name, part in ast.iter_fields(node):
            below = guarded if name == "test" else inner
            if isinstance(part, list) and part and isinstance(part[0], ast.stmt):
                yield from self.block(part, below)
            else:
                children = part if isinstance(part, list) else [part]
                yield from (
                    event for child in children if isinstance(child, ast.AST) for event in self.events(child, below)
                )

    def _asks(self, test: ast.expr) -> bool:
        names = {*_names(test)}
        return bool(names & self.asked) or any(ASKS.search(name) for name in names)


def launcher_uses(found: list[Region]) -> Uses:
    """Whether a program demands a group of processes or torchrun's variables, or only asks for them.

    Args:
        found: The parts of the program that it reaches.
    """
    reader = _Reader(set(_asked(found)))
    functions = _functions(found)
    waiting = [*_first_events(reader, found, functions)]
    seen: set[ast.AST] = set()
    for event in waiting:  # grows
        if event.is_guarded:
            continue
        if event.is_need:
            return "required"
        for function in functions.get(event.name, ()):
            if function not in seen:
                seen.add(function)
                waiting.extend(reader.block(function.body, guarded=False))
    return "optional" if any(_needed(node) for region in found for node in region.nodes) else "absent"


def variables_read(region: Region) -> Iterator[str]:
    """torchrun's variables that a part of a program reads."""
    return (name for node in region.nodes if (name := _variable_read(node)) is not None)


def _needed(node: ast.AST) -> bool:
    return bool([*_needs(node)]) or _variable_read(node) is not None


def _first_events(reader: _Reader, found: list[Region], functions: dict[str, list[_Function]]) -> Iterator[_Event]:
    """Events of the statements outside of functions, and of the main file's functions that nothing names."""
    for region in found:
        if isinstance(region.node, ast.Module):
            yield from reader.block(region.node.body, guarded=False)
            named = {last_name(node) for node in region.nodes if isinstance(node, ast.Name | ast.Attribute)}
            unnamed = {name for name in functions if name not in named} & set(region.module.definitions)
            yield from (_Event(name, is_guarded=False, is_need=False) for name in sorted(unnamed))
        else:
            yield from reader.events(region.node, guarded=False)


def _functions(found: Iterable[Region]) -> dict[str, list[_Function]]:
    """Functions and methods by their names, and what makes an object by the name of its class."""
    functions: dict[str, list[_Function]] = defaultdict(list)
    for region in found:
        for node in region.nodes:
            if isinstance(node, _Function):
                functions[node.name].append(node)
            elif isinstance(node, ast.ClassDef):
                functions[node.name] += [
                    each for each in node.body if isinstance(each, _Function) and each.name.startswith("__")
                ]
    return functions


def _asked(found: Iterable[Region]) -> Iterator[str]:
    """Names of the variables that get a value made of torchrun's variables."""
    for region in found:
        for node in region.nodes:
            for target, value in assigned(node):
                if any(_variable_read(inner) for inner in ast.walk(value)):
                    yield last_name(target)


def _needs(node: ast.AST) -> Iterator[str]:
    """Names of what a node needs from a launcher."""
    if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load) and (name := _variable_read(node)):
        yield name
    elif isinstance(node, ast.Call) and last_name(node.func) in STARTS_GROUP:
        yield last_name(node.func)
    elif isinstance(node, ast.Call) and last_name(node.func) == "int" and node.args:
        inner = node.args[0]  # int(os.environ.get("RANK"))
        if (
            isinstance(inner, ast.Call)
            and len(inner.args) == 1
            and not inner.keywords
            and (name := _variable_read(inner))
        ):
            yield name


def _variable_read(node: ast.AST) -> str | None:
    """torchrun's variable that is read: `os.environ["RANK"]`, `environ.get("RANK")`, `"RANK" in os.environ`."""
    name = None
    if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load) and last_name(node.value) == "environ":
        name = literal(node.slice)
    elif isinstance(node, ast.Call) and last_name(node.func) in ("get", "getenv", "get_env", "pop") and node.args:
        name = literal(node.args[0])
    elif isinstance(node, ast.Compare) and last_name(node.comparators[0]) == "environ":
        name = literal(node.left)
    return name if isinstance(name, str) and name in RANK_VARIABLES else None


def _calls(node: ast.AST) -> Iterator[str]:
    """Names of the functions that a call starts: the one that is called, and those that it is given."""
    if isinstance(node, ast.Call):
        yield last_name(node.func)
        yield from (last_name(each) for each in node.args if isinstance(each, ast.Name | ast.Attribute))


def _names(test: ast.expr) -> Iterator[str]:
    """Names and texts in a test, without calls that say nothing."""
    if isinstance(test, ast.Call) and last_name(test.func) in SAYS_NOTHING:
        return
    if isinstance(test, ast.Name | ast.Attribute):
        yield last_name(test)
    elif isinstance(test, ast.Constant) and isinstance(test.value, str):
        yield test.value
    yield from (name for child in ast.iter_child_nodes(test) if isinstance(child, ast.expr) for name in _names(child))


def _returns(node: ast.If) -> bool:
    """Whether a branch leaves the function, so that what follows depends on the test."""
    branches = [node.body, node.orelse]
    return any(
        branch and (isinstance(branch[-1], ast.Return) or (isinstance(branch[-1], ast.If) and _returns(branch[-1])))
        for branch in branches
    )


def _goes_on(handler: ast.ExceptHandler) -> bool:
    """Whether a program goes on after an error that the absence of a variable or a launcher may cause."""
    names = {last_name(node) for node in ast.walk(handler.type) if isinstance(node, ast.expr)} if handler.type else {""}
    ends = any(
        isinstance(node, ast.Raise) or (isinstance(node, ast.Call) and last_name(node.func) in FAILS)
        for statement in handler.body
        for node in ast.walk(statement)
    )
    return not ends and bool(names & {"", "KeyError", "Exception", "ValueError", "RuntimeError", "BaseException"})
