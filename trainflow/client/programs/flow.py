"""Paths in a program as far as its source shows them: from an option, a variable or a text to the whole path.

A path is followed through assignments, attributes, f-strings, `os.path.join`, `/`, and the parameters and results of
functions. The order of the statements does not matter: every value of a variable counts. Only the beginning of a path
decides whose path it is: `os.path.join("runs", args.name)` is not the option's.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from trainflow.client.programs.options import literal
from trainflow.client.programs.reachable import definition, module_named
from trainflow.client.programs.source import Module, Sources, last_name

MAX_PATHS = 12
"""Most paths that one variable may have."""

MAX_METHODS = 5
"""Most methods of one name that a call may mean."""

MAX_TAIL = 200
"""Most characters behind the beginning of a path."""

OLD_FIELD = re.compile(r"%(?:\(\w+\))?[-+ #0]*\d*(?:\.\d+)?[diufeEgGrsx]")
NEW_FIELD = re.compile(r"\{[^{}]*\}")
"""Places for values in a text that `%` or `format` fills."""

STEP_WORDS = ("step", "iter", "epoch", "update", "round")
"""Parts of the names of variables that count a training's progress."""

STEP_NAMES = ("it", "i", "n_iter", "ep", "e")

NAMESPACES = frozenset(
    (
        *("args", "opt", "opts", "options", "config", "cfg", "conf", "hparams", "hps", "params", "FLAGS", "flags"),
        *("parsed", "namespace", "ns", "arguments", "a", "p", "hp", "settings", "C"),
    )
)
"""Usual names of the object that holds the options; others are found by the call that makes it."""

PARSES = frozenset(
    (
        *("parse_args", "parse_known_args", "parse_args_into_dataclasses", "parse_args_and_config", "parse", "cli"),
        *("vars", "asdict", "Namespace", "EasyDict", "Munch", "SimpleNamespace", "deepcopy", "from_cli", "merge"),
    )
)
"""Calls whose result is such an object, or one made of it."""

_PATH_OF_FIRST = frozenset(("Path", "PurePath", "abspath", "expanduser", "expandvars", "realpath", "str", "normpath"))
_PATH_OF_OWNER = frozenset(
    ("resolve", "expanduser", "absolute", "as_posix", "rstrip", "strip", "with_suffix", "replace", "format")
)


# Decision 91: `init` follows values through the source and never executes the program.
@dataclass(frozen=True, order=True)
class Origin:
    """A path as far as the source shows it."""

    option: str
    """Attribute of the option that it begins with, or an environment variable behind `$`; empty for a path that the
    source spells out."""
    tail: str = ""
    """Text behind it, with `{step}` for a number of steps and `*` for what is not known."""
    is_namespace: bool = False
    """Whether it is the object that holds all options, instead of a path."""


ALL_OPTIONS = Origin("", is_namespace=True)


@dataclass(frozen=True, eq=False)
class Scope:
    """A function, or a module outside of its functions."""

    module: Module
    node: ast.AST | None = None
    outer: Scope | None = None


@dataclass(eq=False)
class Flow:
    """Values of the variables of a program.

    Attributes:
        sources: The program's files.
        options: Attributes of its options, also by the last part of a name with sections.
    """

    sources: Sources
    options: Mapping[str, str]
    variables: dict[tuple[int, str], set[Origin]] = field(default_factory=lambda: defaultdict(set))
    attributes: dict[str, set[Origin]] = field(default_factory=lambda: defaultdict(set))
    results: dict[ast.AST, set[Origin]] = field(default_factory=lambda: defaultdict(set))
    methods: dict[str, list[tuple[Module, ast.FunctionDef | ast.AsyncFunctionDef]]] = field(
        default_factory=lambda: defaultdict(list)
    )

    def origins(self, node: ast.expr | None, scope: Scope) -> set[Origin]:
        """The paths that an expression may be."""
        match node:
            case ast.Constant(value=str(text)):
                return {Origin("", text[:MAX_TAIL])}
            case ast.Name(id=name):
                return self._variable(name, scope)
            case ast.Attribute(value=owner, attr=name):
                return self._attribute(owner, name, scope)
            case ast.Subscript(value=owner, slice=ast.Constant(value=str(name))) if last_name(owner) == "environ":
                return {Origin(f"${name}")}
            case ast.Subscript(value=owner, slice=ast.Constant(value=str(name))):
                return self._attribute(owner, name, scope)
            case ast.JoinedStr(values=[first, *others]):
                return self._joined(first, others, scope)
            case ast.FormattedValue(value=value):
                return self.origins(value, scope)
            case ast.BinOp(left=left, op=ast.Add(), right=right):
                return self._behind(self.origins(left, scope), right, scope)
            case ast.BinOp(left=left, op=ast.Div(), right=right):
                return self._behind(self.origins(left, scope), right, scope, separator="/")
            case ast.BinOp(left=ast.Constant(value=str(text)), op=ast.Mod(), right=right):
                return self._filled(text.replace("%%", "%"), right, scope)
            case ast.BoolOp(values=values):
                return self._any(values, scope)
            case ast.IfExp(body=body, orelse=orelse):
                return self._any([body, orelse], scope)
            case ast.NamedExpr(value=value) | ast.Await(value=value):
                return self.origins(value, scope)
            case ast.Tuple(elts=elements) | ast.List(elts=elements):
                return self._any(elements, scope)  # of a list, each element may be the one
            case ast.Call():
                return self._call(node, scope)
        return set()

    def _any(self, nodes: Iterable[ast.expr], scope: Scope) -> set[Origin]:
        return {each for node in nodes for each in self.origins(node, scope)}

    def _variable(self, name: str, scope: Scope) -> set[Origin]:
        found: Scope | None = scope
        while found is not None:
            key = (id(found.node or found.module), name)
            if self.variables.get(key):
                return self.variables[key]
            found = found.outer
        binding = self.sources.bindings(scope.module).get(name)
        if binding is not None and binding.name is not None:
            return self.variables.get((id(binding.module), binding.name), set())
        return {ALL_OPTIONS} if name in NAMESPACES or name.endswith("_args") else set()

    def _attribute(self, owner: ast.expr, name: str, scope: Scope) -> set[Origin]:
        last = last_name(owner)
        of_owner = self.origins(owner, scope)
        is_namespace = last in NAMESPACES or last.endswith("_args") or ALL_OPTIONS in of_owner
        if name in self.options and is_namespace:
            return {Origin(self.options[name])}
        if is_namespace and name in ("__dict__", *NAMESPACES):
            return {ALL_OPTIONS}
        found = set(self.attributes.get(name, ()))
        if is_namespace:  # a section of the configuration, as in `cfg.train.output_dir`
            found.add(ALL_OPTIONS)
        return found or ({ALL_OPTIONS} if name in NAMESPACES else set())

    def _joined(self, first: ast.expr, others: list[ast.expr], scope: Scope) -> set[Origin]:
        found = self.origins(first, scope)
        if not found and isinstance(first, ast.FormattedValue):
            return set()
        for other in others:
            found = self._behind(found, other, scope)
        return found

    def _behind(self, begin: set[Origin], node: ast.expr, scope: Scope, separator: str = "") -> set[Origin]:
        texts = self._texts(node, scope)
        return {
            replace(each, tail=f"{each.tail}{separator}{text}"[:MAX_TAIL])
            for each in begin
            if not each.is_namespace
            for text in texts
            if not (len(text) > 1 and each.tail.endswith(f"{separator}{text}"))  # `path = path / name`, again and again
        }

    def _texts(self, node: ast.expr, scope: Scope) -> set[str]:
        """An expression in the middle of a path."""
        value = node.value if isinstance(node, ast.FormattedValue) else node
        if isinstance(value, ast.Attribute) and ALL_OPTIONS in self.origins(value.value, scope):
            return {"{step}" if counts_steps(value) else "*"}  # a setting, which may differ from its default
        origins = {each for each in self.origins(node, scope) if not each.is_namespace}
        texts = {each.tail for each in origins if not each.option}
        texts |= {f"*{each.tail}" for each in origins if each.option and each.tail and "/" not in each.tail}
        if isinstance(value, ast.Constant) and isinstance(value.value, int):
            return {str(value.value)}
        if texts and not isinstance(node, ast.FormattedValue):
            return texts
        return texts or {"{step}" if counts_steps(value) else "*"}

    def _filled(self, text: str, values: ast.expr, scope: Scope) -> set[Origin]:
        """A text with `%` or `{}` in it."""
        nodes = list(values.elts) if isinstance(values, ast.Tuple) else [values]
        return self._pieces(OLD_FIELD.split(text), nodes, scope)

    def _pieces(self, pieces: list[str], nodes: list[ast.expr], scope: Scope) -> set[Origin]:
        nodes = nodes[: len(pieces) - 1]
        if not pieces[0] and nodes:
            found = self.origins(nodes[0], scope)
            pieces, nodes = pieces[1:], nodes[1:]
            found = {replace(each, tail=f"{each.tail}{pieces[0]}") for each in found if not each.is_namespace}
        else:
            found = {Origin("", pieces[0])}
        for node, piece in zip(nodes, pieces[1:], strict=False):
            found = {replace(e, tail=e.tail + piece) for e in self._behind(found, node, scope)}
        return found

    def _call(self, call: ast.Call, scope: Scope) -> set[Origin]:
        name = last_name(call.func)
        owner = call.func.value if isinstance(call.func, ast.Attribute) else None
        if name in PARSES:
            return {ALL_OPTIONS}
        if name == "join" and isinstance(owner, ast.Constant):
            return self._joined_text(str(owner.value), call.args, scope)
        if name in ("join", "joinpath"):
            parts = list(call.args) if name == "join" else [owner, *call.args] if owner is not None else []
            return self._joined_path(parts, scope)
        if name == "format" and owner is not None:
            text = literal(owner)
            return self._pieces(NEW_FIELD.split(text), list(call.args), scope) if isinstance(text, str) else set()
        if name in _PATH_OF_FIRST and call.args:
            return self._joined_path(list(call.args), scope) if name == "Path" else self.origins(call.args[0], scope)
        if name in _PATH_OF_OWNER and owner is not None:
            return self.origins(owner, scope)
        if name in ("get", "getenv") and call.args and (name == "getenv" or last_name(owner) == "environ"):
            variable = literal(call.args[0])
            return {Origin(f"${variable}")} if isinstance(variable, str) else set()
        if name in ("get", "getattr", "pop") and call.args:
            return self._looked_up(call, owner, scope)
        return {each for _, node, _ in self.called(call, scope) for each in self.results.get(node, ())}

    def _joined_text(self, separator: str, arguments: list[ast.expr], scope: Scope) -> set[Origin]:
        """`"-".join([name, str(step)])`."""
        parts = arguments[0].elts if arguments and isinstance(arguments[0], ast.List | ast.Tuple) else []
        found = self.origins(parts[0], scope) if parts else set()
        for part in parts[1:]:
            found = self._behind(found, part, scope, separator=separator)
        return found

    def _looked_up(self, call: ast.Call, owner: ast.expr | None, scope: Scope) -> set[Origin]:
        arguments = call.args if last_name(call.func) != "getattr" else call.args[1:]
        of = owner if last_name(call.func) != "getattr" else call.args[0]
        name = literal(arguments[0]) if arguments else None
        return self._attribute(of, name, scope) if of is not None and isinstance(name, str) else set()

    def _joined_path(self, parts: list[ast.expr], scope: Scope) -> set[Origin]:
        if not parts or isinstance(parts[0], ast.Starred):
            return set()
        found = self.origins(parts[0], scope)
        for part in parts[1:]:
            if isinstance(part, ast.Starred):
                found = {replace(each, tail=f"{each.tail}/*"[:MAX_TAIL]) for each in found if not each.is_namespace}
            else:
                found = self._behind(found, part, scope, separator="/")
        return found

    def called(
        self, call: ast.Call, scope: Scope
    ) -> Iterator[tuple[Module, ast.FunctionDef | ast.AsyncFunctionDef, bool]]:
        """The program's own functions that a call may start, each with whether its first parameter is an object."""
        function = call.func
        if isinstance(function, ast.Name):
            found = definition(self.sources, scope.module, function.id)
            inner = self.methods.get(function.id, ()) if found is None else ()
            yield from ((m, node, _is_method(node)) for m, node in inner if m is scope.module)
        elif isinstance(function, ast.Attribute):
            owner = module_named(self.sources, scope.module, function.value)
            found = definition(self.sources, owner, function.attr) if owner is not None else None
            methods = self.methods.get(function.attr, ()) if owner is None else ()
            yield from [(m, node, True) for m, node in methods if _is_method(node)][:MAX_METHODS]
        else:
            found = None
        if found is not None and isinstance(found[1], ast.ClassDef):
            inits = (e for e in found[1].body if isinstance(e, ast.FunctionDef) and e.name == "__init__")
            yield from ((found[0], init, True) for init in inits)
        elif found is not None and not isinstance(found[1], ast.ClassDef):
            yield found[0], found[1], False


def _is_method(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    return bool(node.args.args) and node.args.args[0].arg in ("self", "cls")


def counts_steps(node: ast.expr) -> bool:
    """Whether an expression is a number of steps by its name, as `global_step`, `state.step + 1` and `step:06d` are."""
    if isinstance(node, ast.BinOp):
        return counts_steps(node.left) or counts_steps(node.right)
    if isinstance(node, ast.Call) and node.args:
        return counts_steps(node.args[0])
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        return counts_steps(node.func.value)
    name = literal(node.slice) if isinstance(node, ast.Subscript) else last_name(node)
    return isinstance(name, str) and (name in STEP_NAMES or any(word in name.lower() for word in STEP_WORDS))
