"""The parts of a program's files that it can reach: its own file, and functions and classes that it uses of others.

An import runs the whole file, but most files of a package define options, writers and printers that another program
uses. Names are followed, and calls of what nobody can know (callbacks, registries) are not.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from trainflow.client.programs.source import Binding, Definition, Module, Sources

MAX_REGIONS = 300
"""Most functions, classes and statements that are followed."""

MAX_HOPS = 8
"""Most files that pass a name on, as packages do in their `__init__`."""


@dataclass(frozen=True, eq=False)
class Region:
    """A part of a file: the whole of the program's own one, else a definition or a statement."""

    module: Module
    node: ast.AST

    @cached_property
    def nodes(self) -> tuple[ast.AST, ...]:
        """Every node of the part."""
        return self.module.nodes if self.node is self.module.tree else tuple(ast.walk(self.node))


def regions(sources: Sources) -> list[Region]:
    """The reachable parts, the program's own file first."""
    found = [Region(sources.main, sources.main.tree)]
    seen: set[ast.AST] = {sources.main.tree}
    names: set[tuple[Module, str | None]] = set()
    for region in found:  # grows
        for binding in _used(sources, region):
            if (binding.module, binding.name) in names:
                continue
            names.add((binding.module, binding.name))
            for module, node in _nodes(sources, binding):
                if node not in seen and module is not sources.main and len(found) < MAX_REGIONS:
                    seen.add(node)
                    found.append(Region(module, node))
    return found


def definition(sources: Sources, module: Module, name: str) -> tuple[Module, Definition] | None:
    """The function or class that a name at the top of a module stands for."""
    for _ in range(MAX_HOPS):
        if (node := module.definitions.get(name)) is not None:
            return module, node
        binding = sources.bindings(module).get(name)
        if binding is None or binding.name is None:
            return None
        module, name = binding.module, binding.name
    return None


def _used(sources: Sources, region: Region) -> Iterator[Binding]:
    """Names of other files, or of the same one, that a part uses."""
    bindings = sources.bindings(region.module)
    for node in region.nodes:
        if isinstance(node, ast.Name):
            yield bindings.get(node.id, Binding(region.module, node.id))
        elif isinstance(node, ast.Attribute) and (owner := module_named(sources, region.module, node.value)):
            yield Binding(owner, node.attr)


def module_named(sources: Sources, module: Module, node: ast.expr) -> Module | None:
    """The module that an expression such as `utils` or `package.utils` names."""
    if isinstance(node, ast.Name):
        binding = sources.bindings(module).get(node.id)
        return binding.module if binding is not None and binding.name is None else None
    if isinstance(node, ast.Attribute) and (owner := module_named(sources, module, node.value)) is not None:
        binding = sources.bindings(owner).get(node.attr)
        return binding.module if binding is not None and binding.name is None else None
    return None


def _nodes(sources: Sources, binding: Binding) -> Iterator[tuple[Module, ast.AST]]:
    """The definition that a name stands for, and the statements that its files run when they are imported."""
    found = definition(sources, binding.module, binding.name) if binding.name is not None else None
    modules = [binding.module] if found is None else [binding.module, found[0]]
    if found is not None:
        yield found
    for module in modules:
        yield from ((module, node) for node in module.tree.body if _is_run_by_import(node))


def _is_run_by_import(node: ast.stmt) -> bool:
    is_main = isinstance(node, ast.If) and "__main__" in ast.dump(node.test)
    return not (is_main or isinstance(node, Definition | ast.Import | ast.ImportFrom))
