"""Uses of paths in a program: the calls that write and read, with the options that the paths begin with."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from trainflow.client.programs.flow import ALL_OPTIONS, MAX_PATHS, Flow, Origin, Scope
from trainflow.client.programs.options import literal
from trainflow.client.programs.path_calls import CALLS, TESTS, Kind, paths_in
from trainflow.client.programs.reachable import Region
from trainflow.client.programs.source import Module, Sources, last_name

PASSES = 6
"""Rounds of passing values on: as many as a path has assignments between the option and its use."""


@dataclass(frozen=True)
class Condition:
    """A test in front of a call."""

    option: str | None
    """Attribute of the option that is tested; None for a test of something else."""
    value: str | None = None
    """Text that the option is compared with; None if it only has to be given."""


@dataclass(frozen=True)
class Use:
    """A call that does something at a path."""

    kind: Kind
    path: Origin
    function: str
    """Name of what is called."""
    line: int
    module: Module
    conditions: tuple[Condition, ...] = ()
    """Values of options that the call depends on."""
    is_tried: bool = False
    """Whether the program goes on if the call fails."""

    @property
    def is_opened(self) -> bool:
        """Whether the call reads what is at the path, and does more than look whether it is there."""
        return self.kind == "read" and self.function not in TESTS


Tests = tuple[ast.expr | ast.Try, ...]
"""Tests in front of a statement, and blocks around it whose errors are handled."""


class _Facts(ast.NodeVisitor):
    """The statements of a part of a program that pass values on, each with its scope."""

    def __init__(self, region: Region) -> None:
        self.scope = Scope(region.module)
        self.assignments: list[tuple[Scope, ast.expr, ast.expr]] = []
        self.calls: list[tuple[Scope, ast.Call, Tests]] = []
        self.returns: list[tuple[Scope, ast.AST, ast.expr]] = []
        self.definitions: list[tuple[Module, ast.FunctionDef | ast.AsyncFunctionDef]] = []
        self.tests: Tests = ()
        self.visit(region.node)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        self._function(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> None:
        self._function(node)

    def _function(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        self.definitions.append((self.scope.module, node))
        for argument, default in _with_defaults(node):
            self.assignments.append((Scope(self.scope.module, node, self.scope), argument, default))
        outer, self.scope = self.scope, Scope(self.scope.module, node, self.scope)
        tests, self.tests = self.tests, ()
        self.generic_visit(node)
        self.scope, self.tests = outer, tests

    def visit_If(self, node: ast.If) -> None:
        tests = self.tests
        self.visit(node.test)
        self.tests = (*tests, node.test)
        for statement in node.body:
            self.visit(statement)
        self.tests = tests
        for statement in node.orelse:
            self.visit(statement)

    def visit_Try(self, node: ast.Try) -> None:
        tests = self.tests
        self.tests = (*tests, node) if node.handlers else tests
        for statement in node.body:
            self.visit(statement)
        self.tests = tests
        for part in (*node.handlers, *node.orelse, *node.finalbody):
            self.visit(part)

    def visit_Assign(self, node: ast.Assign) -> None:
        for target in node.targets:
            self._assign(target, node.value)
        self.generic_visit(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self._assign(node.target, node.value)
        self.generic_visit(node)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        self._assign(node.target, ast.BinOp(left=node.target, op=node.op, right=node.value))
        self.generic_visit(node)

    def visit_For(self, node: ast.For) -> None:
        elements = node.iter.elts if isinstance(node.iter, ast.List | ast.Tuple) else [node.iter]
        for element in elements:
            self._assign(node.target, element)
        self.generic_visit(node)

    def visit_NamedExpr(self, node: ast.NamedExpr) -> None:
        self._assign(node.target, node.value)
        self.generic_visit(node)

    def _assign(self, target: ast.expr, value: ast.expr) -> None:
        if not isinstance(target, ast.Tuple | ast.List):
            self.assignments.append((self.scope, target, value))
            return
        values = value.elts if isinstance(value, ast.Tuple | ast.List) else []
        for number, each in enumerate(target.elts):
            self.assignments.append((self.scope, each, values[number] if len(values) == len(target.elts) else value))

    def visit_Call(self, node: ast.Call) -> None:
        self.calls.append((self.scope, node, self.tests))
        self.generic_visit(node)

    def visit_Return(self, node: ast.Return) -> None:
        if node.value is not None and self.scope.node is not None:
            self.returns.append((self.scope, self.scope.node, node.value))
        self.generic_visit(node)


def _with_defaults(node: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Parameters with their defaults, as if each were assigned."""
    arguments = [*node.args.posonlyargs, *node.args.args]
    defaults = node.args.defaults
    pairs = [*zip(arguments[len(arguments) - len(defaults) :], defaults, strict=True)]
    pairs += [(a, d) for a, d in zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True) if d is not None]
    return ((ast.Name(id=argument.arg), default) for argument, default in pairs)


def uses_of_paths(
    sources: Sources,
    found: Iterable[Region],
    *,
    options: Iterable[str],
    parameters: Mapping[ast.AST, Mapping[str, str]],
    variables: Iterable[str] = (),
) -> list[Use]:
    """Uses of paths in a program.

    Args:
        sources: The program's files.
        found: The parts of them that it reaches.
        options: Attributes of its options.
        parameters: Options that are parameters of a function, by function: the parameter's name and the attribute.
        variables: Options that are variables of the program's own file.
    """
    attributes = list(options)
    flow = Flow(
        sources, {**{each.rpartition(".")[2]: each for each in attributes}, **{each: each for each in attributes}}
    )
    facts = [_Facts(region) for region in found]
    for each in facts:
        for module, node in each.definitions:
            flow.methods[node.name].append((module, node))
    for function, names in parameters.items():
        for name, attribute in names.items():
            flow.variables[id(function), name].add(Origin(attribute))
    for name in variables:
        flow.variables[id(sources.main), name].add(Origin(name))
    for _ in range(PASSES):
        before = _size(flow)
        for each in facts:
            _pass_on(flow, each)
        if _size(flow) == before:
            break
    callers = _callers(flow, facts)
    return [use for each in facts for call in each.calls for use in _uses(flow, *call, callers)]


def _size(flow: Flow) -> int:
    tables: tuple[Mapping[object, set[Origin]], ...] = (flow.variables, flow.attributes, flow.results)  # type: ignore[assignment]
    return sum(len(values) for table in tables for values in table.values())


def _pass_on(flow: Flow, facts: _Facts) -> None:
    for scope, target, value in facts.assignments:
        _bind(flow, target, flow.origins(value, scope), scope)
    for scope, node, value in facts.returns:
        _add(flow.results[node], flow.origins(value, scope))
    for scope, call, _ in facts.calls:
        _pass_to_parameters(flow, call, scope)


def _bind(flow: Flow, target: ast.expr, values: set[Origin], scope: Scope) -> None:
    if isinstance(target, ast.Name):
        _add(flow.variables[id(scope.node or scope.module), target.id], values)
    elif isinstance(target, ast.Attribute):
        _add(flow.attributes[target.attr], values)
    elif isinstance(target, ast.Subscript) and isinstance(name := literal(target.slice), str):
        _add(flow.attributes[name], values)


def _add(known: set[Origin], values: Iterable[Origin]) -> None:
    for each in sorted(values):  # the same source gives the same paths, also where there are too many
        if len(known) < MAX_PATHS:
            known.add(each)


def _pass_to_parameters(flow: Flow, call: ast.Call, scope: Scope) -> None:
    if last_name(call.func)[:1].isupper():  # an object, whose fields have the names of its arguments
        for keyword in call.keywords:
            if keyword.arg:
                _add(flow.attributes[keyword.arg], flow.origins(keyword.value, scope))
            elif ALL_OPTIONS in flow.origins(keyword.value, scope):  # Config(**options)
                for attribute, option in flow.options.items():
                    _add(flow.attributes[attribute], [Origin(option)])
    for _, function, has_self in flow.called(call, scope):
        names = [argument.arg for argument in (*function.args.posonlyargs, *function.args.args)][1 if has_self else 0 :]
        pairs: list[tuple[str | None, ast.expr]] = [*zip(names, call.args, strict=False)]
        pairs += [(keyword.arg, keyword.value) for keyword in call.keywords]
        for name, value in pairs:
            if name is None:  # **vars(args)
                if ALL_OPTIONS in flow.origins(value, scope):
                    for each in set(names) & set(flow.options):
                        _add(flow.variables[id(function), each], [Origin(flow.options[each])])
            elif not isinstance(value, ast.Starred):
                _add(flow.variables[id(function), name], flow.origins(value, scope))


Callers = Mapping[ast.AST, list[tuple[Scope, Tests]]]


def _callers(flow: Flow, facts: Iterable[_Facts]) -> Callers:
    """The calls of each function: their scopes, and the tests in front of them."""
    found: dict[ast.AST, list[tuple[Scope, Tests]]] = defaultdict(list)
    for each in facts:
        for scope, call, tests in each.calls:
            for _, function, _ in flow.called(call, scope):
                found[function].append((scope, tests))
    return found


def _uses(flow: Flow, scope: Scope, call: ast.Call, tests: Tests, callers: Callers) -> Iterator[Use]:
    if (isinstance(call.func, ast.Name) or last_name(call.func) not in CALLS) and any(
        not node.args.vararg for _, node, _ in flow.called(call, scope)
    ):
        return  # the program's own function: its body says what it does
    conditions = tuple(_conditions(flow, scope, tests, callers))
    is_tried = any(isinstance(test, ast.Try) for test in tests)
    for kind, path in paths_in(call):
        for origin in sorted(flow.origins(path, scope)):
            if not origin.is_namespace:
                yield Use(kind, origin, last_name(call.func), call.lineno, scope.module, conditions, is_tried)


def _conditions(flow: Flow, scope: Scope, tests: Tests, callers: Callers, depth: int = 3) -> Iterator[Condition]:
    """The tests in front of a call, and in front of the only call of its function."""
    for test in tests:
        if not isinstance(test, ast.Try):
            yield from _tested(flow, test, scope)
    calls = callers.get(scope.node, []) if scope.node is not None else []
    if depth and len(calls) == 1:
        yield from _conditions(flow, *calls[0], callers, depth - 1)


def _tested(flow: Flow, test: ast.expr, scope: Scope) -> Iterator[Condition]:
    match test:
        case ast.BoolOp(op=ast.And(), values=values):
            for value in values:
                yield from _tested(flow, value, scope)
        case ast.Compare(left=ast.Name(id="__name__")):
            return
        case ast.Compare(left=left, ops=[ast.Eq()], comparators=[ast.Constant(value=str(value))]):
            yield from (Condition(name, value) for name in _options(flow, left, scope) or [None])
        case ast.Compare(left=left, ops=[ast.IsNot() | ast.NotEq() | ast.Is() | ast.Eq()]):
            if names := _options(flow, left, scope):
                yield from (Condition(name) for name in names)
            elif not is_usual_test(test):
                yield Condition(None)
        case ast.Name() | ast.Attribute():
            yield from (Condition(name) for name in _options(flow, test, scope) or [None])
        case _:
            if not is_usual_test(test):
                yield Condition(None)


def _options(flow: Flow, node: ast.expr, scope: Scope) -> Sequence[str | None]:
    return sorted({each.option for each in flow.origins(node, scope) if each.option and not each.tail})


def is_usual_test(node: ast.expr) -> bool:
    """Whether a test only asks for a file that may be there, or for the process."""
    names = {last_name(inner) for inner in ast.walk(node) if isinstance(inner, ast.Name | ast.Attribute)}
    return any(name in ("exists", "isfile", "isdir", "is_file", "is_dir", "listdir", "glob") for name in names) or any(
        "rank" in name or "main_process" in name or "master" in name or name == "__name__" for name in names
    )
