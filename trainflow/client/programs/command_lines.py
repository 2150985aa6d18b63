"""Readers of the libraries that make a command line: which options a source gives each of them.

| library | a required option or argument is |
|---|---|
| argparse, jsonargparse, configargparse | `required=True`; a positional one without `nargs="?"` |
| click, typer | `required=True`; an argument; a parameter without default |
| fire, tyro, jsonargparse's `CLI`, LightningCLI | a parameter of the function or class without default |
| HfArgumentParser, TrlParser, simple-parsing, draccus, pyrallis | a field of the dataclass without default |
| absl | `required=True`, `mark_flag_as_required` |
| Hydra | `???` in the configuration's file |
| `exec(open("configurator.py").read())`, as in nanoGPT | none: variables of the file |
| `sys.argv[1]` | a word, unless the file looks at the number of words |
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from trainflow.client.programs import words
from trainflow.client.programs.options import Flag, added_flags, assigned, keywords, literal, one_line
from trainflow.client.programs.reachable import Region, definition
from trainflow.client.programs.signatures import annotated, field, flags_of_parameters, is_dataclass, library_fields
from trainflow.client.programs.source import Definition, Module, Sources, dotted, last_name

Style = Literal["flags", "overrides", "assignments"]
"""`overrides`: Hydra's `key=value` words. `assignments`: `--key=value` words of programs with a configurator."""

ONE_OF_SIGNATURE = {
    "Fire": "",
    "cli": "",
    "CLI": "",
    "auto_cli": "",
    "run": "typer",
}
"""Calls that make a command line of the parameters of a function or class, and the package where the name needs one."""

OF_DATACLASSES = frozenset(
    ("HfArgumentParser", "TrlParser", "H4ArgumentParser", "NeuronHfArgumentParser", "PdArgumentParser")
)
"""Parsers of dataclasses. A field is a flag."""

PARSES_DATACLASS = {
    "simple_parsing": ("parse", "add_arguments"),
    "pyrallis": ("parse", "wrap"),
    "draccus": ("parse", "wrap"),
}
"""Functions of other libraries that do so."""

ADD_FLAGS = frozenset(
    (
        *("LightningCLI", "parse_known_args", "add_argparse_args", "add_config_arguments", "default_argument_parser"),
        *("add_ctc_arguments", "get_training_parser", "parse_args_and_arch", "get_args_parser"),
    )
)
"""Functions of libraries that add flags to a parser, and those that accept unknown flags."""


@dataclass(frozen=True, kw_only=True)
class CommandLine:
    """The command line of a program."""

    flags: tuple[Flag, ...] = ()
    accepts_others: bool = False
    """Whether it takes flags that its source does not name: a library's, or those that it computes."""
    style: Style = "flags"
    is_hydra: bool = False
    commands: tuple[str, ...] = ()
    """Its subcommands, if it needs one."""
    functions: tuple[tuple[Definition, str], ...] = ()
    """Functions whose parameters are options, with the prefix of their names."""


class _Reader:
    """Reads one program; the methods are one for each library."""

    def __init__(self, sources: Sources, found: list[Region]) -> None:
        self.sources = sources
        self.regions = found
        self.calls = [(region, node) for region in found for node in region.nodes if isinstance(node, ast.Call)]
        self.imported = {
            alias.name.split(".")[0] if isinstance(node, ast.Import) else (node.module or "").split(".")[0]
            for region in found
            for node in region.module.nodes
            if isinstance(node, ast.Import | ast.ImportFrom)
            for alias in node.names
        }
        self.functions: list[tuple[Definition, str]] = []

    def named(self, region: Region, node: ast.expr | None) -> tuple[Module, Definition] | None:
        """The function or class that an expression names; of a module's main file, it may be defined anywhere."""
        if not isinstance(node, ast.Name):
            return None
        found = definition(self.sources, region.module, node.id)
        if found is not None:
            return found
        inner = (each for each in region.nodes if isinstance(each, Definition) and each.name == node.id)
        return next(((region.module, each) for each in inner), None)

    def argparse(self) -> Iterator[Flag]:
        for region in self.regions:
            commands, uncertain = _parsers(region.node), _uncertain(region.node)
            for node in region.nodes:
                if isinstance(node, ast.Call) and last_name(node.func) == "add_argument":
                    command = _subcommand(node.func, commands)
                    yield from added_flags(node, command=command, is_certain=node not in uncertain)

    def absl(self) -> Iterator[Flag]:
        if "absl" not in self.imported and "ml_collections" not in self.imported:
            return
        required = {name for _, call in self.calls for name in _marked_required(call)}
        for _, call in self.calls:
            function = last_name(call.func)
            name = literal(call.args[0]) if call.args else None
            if not function.startswith("DEFINE_") or not isinstance(name, str):
                continue
            given = keywords(call)
            default = given.get("default") or (call.args[1] if len(call.args) > 1 else None)
            is_file = function == "DEFINE_config_file" and default is None
            yield Flag(
                name=name,
                default=literal(default),
                required=is_file or name in required or literal(given.get("required")) is True,
                is_switch=function in ("DEFINE_bool", "DEFINE_boolean"),
                type_name={"DEFINE_integer": "int", "DEFINE_float": "float"}.get(function),
                has_choices=function.startswith("DEFINE_enum"),
                help=one_line(given.get("help") or (call.args[2] if len(call.args) > 2 else None)),
                line=call.lineno,
            )

    def click(self) -> Iterator[Flag]:
        for region in self.regions:
            for node in region.nodes:
                if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                    yield from self._click_flags(node)

    def _click_flags(self, function: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[Flag]:
        for decorator in function.decorator_list:
            if not isinstance(decorator, ast.Call) or last_name(decorator.func) not in ("option", "argument"):
                continue
            if not ({"click", "rich_click", "asyncclick"} & self.imported):
                continue
            self.functions.append((function, ""))
            for flag in added_flags(decorator):
                if last_name(decorator.func) == "argument":
                    is_needed = literal(keywords(decorator).get("required")) is not False
                    yield replace(flag, is_positional=True, required=flag.required and is_needed)
                else:
                    is_flag = literal(keywords(decorator).get("is_flag")) is True or "/" in flag.name
                    yield replace(flag, name=flag.name.split("/")[0], is_switch=is_flag)

    def functions_and_classes(self) -> Iterator[Flag]:
        for region, call in self.calls:
            package = ONE_OF_SIGNATURE.get(last_name(call.func))
            if package is not None and call.args and self._is_from_library(call, package):
                for module, node in self._callables(region, call.args[0]):
                    yield from self._parameters(module, node, "", style=package)

    def typer(self) -> Iterator[Flag]:
        for region in self.regions if "typer" in self.imported else ():
            for node in region.nodes:
                if isinstance(node, ast.FunctionDef) and any(_is_command(each) for each in node.decorator_list):
                    yield from self._parameters(region.module, node, "", style="typer")

    def lightning(self) -> Iterator[Flag]:
        for region, call in self.calls:
            if last_name(call.func).endswith("LightningCLI"):
                command = None if literal(keywords(call).get("run")) is False else "fit"
                yield from (replace(flag, command=command) for flag in self._lightning_flags(region, call))

    def _lightning_flags(self, region: Region, call: ast.Call) -> Iterator[Flag]:
        yield Flag(name="trainer.default_root_dir")
        if literal(keywords(call).get("run")) is not False:
            yield Flag(name="ckpt_path")
        for prefix, argument in zip(("model.", "data."), call.args, strict=False):
            for module, node in self._callables(region, argument):
                yield from self._parameters(module, node, prefix, style="flags")

    def _is_from_library(self, call: ast.Call, package: str) -> bool:
        owner = dotted(call.func).rpartition(".")[0]
        if package:
            return owner == package
        return bool({"fire", "tyro", "jsonargparse"} & self.imported) and owner in ("", "fire", "tyro", "jsonargparse")

    def _callables(self, region: Region, node: ast.expr) -> Iterator[tuple[Module, Definition]]:
        values = node.values if isinstance(node, ast.Dict) and len(node.values) == 1 else [node]
        for value in values:
            if (found := self.named(region, value)) is not None:
                yield found

    def _parameters(self, module: Module, node: Definition, prefix: str, *, style: str) -> Iterator[Flag]:
        """The parameters of a function, or the fields or parameters of a class, as flags."""
        if isinstance(node, ast.ClassDef) and is_dataclass(node):
            yield from self._fields(module, node, prefix, nested=True)
            return
        if isinstance(node, ast.ClassDef):
            inits = (each for each in node.body if isinstance(each, ast.FunctionDef) and each.name == "__init__")
            init = next(inits, None)
            if init is None:
                return
            self.functions.append((init, prefix))
            yield from flags_of_parameters(init, prefix, style=style, is_method=True)
            return
        self.functions.append((node, prefix))
        for flag, annotation in annotated(node, prefix, style=style):
            inner = self._inner_class(module, annotation)
            if inner is not None:
                yield from self._fields(*inner, "" if len(node.args.args) == 1 else f"{flag.name}.", nested=True)
            else:
                yield flag

    def _inner_class(self, module: Module, annotation: ast.expr | None) -> tuple[Module, ast.ClassDef] | None:
        found = self.named(Region(module, module.tree), annotation)
        return (found[0], found[1]) if found and isinstance(found[1], ast.ClassDef) and is_dataclass(found[1]) else None

    def dataclasses(self) -> Iterator[Flag]:
        for region, call in self.calls:
            name, given = last_name(call.func), keywords(call)
            if name in OF_DATACLASSES:
                classes = call.args[0] if call.args else given.get("dataclass_types")
                yield from self._class_flags(region, classes, nested=False)
            elif any(package in self.imported and name in names for package, names in PARSES_DATACLASS.items()):
                for argument in (*call.args[:1], *filter(None, [given.get("config_class")])):
                    yield from self._class_flags(region, argument, nested=True)

    def _class_flags(self, region: Region, node: ast.expr | None, *, nested: bool) -> Iterator[Flag]:
        node = _assigned_value(region, node) if isinstance(node, ast.Name) else node
        classes = node.elts if isinstance(node, ast.Tuple | ast.List) else [node]
        for each in classes:
            found = self.named(region, each)
            if found is not None and isinstance(found[1], ast.ClassDef):
                yield from self._fields(found[0], found[1], "", nested=nested)
            elif each is not None:
                yield from library_fields(each)

    def _fields(self, module: Module, node: ast.ClassDef, prefix: str, *, nested: bool) -> Iterator[Flag]:
        """The fields of a dataclass and of its bases; those of a dataclass inside it with its name in front."""
        for base in node.bases:
            found = self.named(Region(module, module.tree), base)
            if found is not None and isinstance(found[1], ast.ClassDef) and found[1] is not node:
                yield from self._fields(found[0], found[1], prefix, nested=nested)
            else:
                yield from library_fields(base)
        for statement in node.body:
            if not isinstance(statement, ast.AnnAssign) or not isinstance(statement.target, ast.Name):
                continue
            inner = self._inner_class(module, statement.annotation) if nested else None
            if inner is not None and inner[1] is not node:
                yield from self._fields(*inner, f"{prefix}{statement.target.id}.", nested=True)
            elif "ClassVar" not in ast.dump(statement.annotation):
                yield field(statement, prefix)


def command_line(sources: Sources, found: list[Region]) -> CommandLine:
    """The command line that a program reads.

    Args:
        sources: The program's files.
        found: The parts of them that it reaches.
    """
    reader = _Reader(sources, found)
    calls = {last_name(call.func) for _, call in reader.calls}
    if words.has_configurator(sources.main.tree):
        return CommandLine(flags=tuple(words.variables(sources.main)), style="assignments")
    if "hydra" in reader.imported or "from_cli" in calls:
        is_hydra = "hydra" in reader.imported
        return CommandLine(
            flags=tuple(words.hydra(sources.main)), style="overrides", accepts_others=True, is_hydra=is_hydra
        )
    flags = [flag for read in _READERS for flag in read(reader)]
    if not flags and words.divides_words(sources.main, [call for _, call in reader.calls]):
        return CommandLine(style="assignments", accepts_others=True)
    flags = flags or list(words.positions(sources.main))
    computed = any(last_name(call.func) == "add_argument" and not list(added_flags(call)) for _, call in reader.calls)
    libraries = calls & (OF_DATACLASSES | ADD_FLAGS)
    return CommandLine(
        flags=tuple(flags),
        accepts_others=computed or bool(libraries) or bool(reader.imported & _KNOWN_BY_THEMSELVES),
        commands=_commands(found),
        functions=tuple(reader.functions),
    )


_READERS: tuple[Callable[[_Reader], Iterator[Flag]], ...] = (
    _Reader.dataclasses,
    _Reader.argparse,
    _Reader.absl,
    _Reader.click,
    _Reader.functions_and_classes,
    _Reader.typer,
    _Reader.lightning,
)

_KNOWN_BY_THEMSELVES = {
    "click",
    "typer",
    "fire",
    "absl",
    "simple_parsing",
    "tyro",
    "jsonargparse",
    "draccus",
    "pyrallis",
}
"""Libraries that add flags which no source names."""


def _parsers(tree: ast.AST) -> dict[str, str]:
    """Variables that hold the parser of a subcommand, with its name."""
    return {
        last_name(target): name
        for node in ast.walk(tree)
        for target, value in assigned(node)
        if isinstance(value, ast.Call) and last_name(value.func) == "add_parser" and value.args
        if isinstance(name := literal(value.args[0]), str)
    }


def _subcommand(function: ast.expr, commands: Mapping[str, str]) -> str | None:
    """The subcommand whose parser `add_argument` is called on."""
    owner = function.value if isinstance(function, ast.Attribute) else None
    if isinstance(owner, ast.Call) and last_name(owner.func) == "add_parser" and owner.args:
        name = literal(owner.args[0])
        return name if isinstance(name, str) else None
    return commands.get(last_name(owner))


def _commands(found: list[Region]) -> tuple[str, ...]:
    """Subcommands of a program; argparse lets a user leave one out, and hardly a program works then."""
    calls = [node for region in found for node in region.nodes if isinstance(node, ast.Call)]
    uncertain = set().union(*(_uncertain(region.node) for region in found))
    names = [
        literal(call.args[0])
        for call in calls
        if last_name(call.func) == "add_parser" and call.args and call not in uncertain
    ]
    if any(
        last_name(call.func).endswith("LightningCLI") and literal(keywords(call).get("run")) is not False
        for call in calls
    ):
        return ("fit", "validate", "test", "predict")
    return tuple(dict.fromkeys(name for name in names if isinstance(name, str)))


def _uncertain(tree: ast.AST) -> set[ast.AST]:
    """Nodes inside an `if`, which may be left out; a test whether the file is the program does not count."""
    return {
        inner
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and "__main__" not in ast.dump(node.test)
        for statement in (*node.body, *node.orelse)
        for inner in ast.walk(statement)
    }


def _marked_required(call: ast.Call) -> Iterator[str]:
    if last_name(call.func) in ("mark_flag_as_required", "mark_flags_as_required") and call.args:
        names = literal(call.args[0])
        yield from [names] if isinstance(names, str) else [str(name) for name in names or ()]


def _assigned_value(region: Region, name: ast.Name) -> ast.expr:
    """The tuple or list that a variable is, or the name itself."""
    values = (value for node in region.nodes for target, value in assigned(node) if last_name(target) == name.id)
    return next((value for value in values if isinstance(value, ast.Tuple | ast.List)), name)


def _is_command(decorator: ast.expr) -> bool:
    return last_name(decorator.func if isinstance(decorator, ast.Call) else decorator) == "command"
