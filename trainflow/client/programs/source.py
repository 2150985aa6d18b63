"""Sources of a Python program: its own file, and the files of the same folder that it imports.

Files are read as bytes, so that Python itself finds their encoding: UTF-8, with or without a byte order mark, or what a
coding cookie says (PEP 263).
"""

from __future__ import annotations

import ast
import codecs
import json
import warnings
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

MAX_BYTES = 2 << 20
"""Most bytes of a file that is read. The largest programs that people write have a tenth of it; trees of more take
gigabytes of memory."""

MAX_FILES = 40
"""Most files of one program that are read."""

NOT_FOLLOWED = frozenset(
    (
        *("torch", "transformers", "trl", "accelerate", "peft", "datasets", "deepspeed", "lightning", "keras"),
        *("pytorch_lightning", "lightning_fabric", "torchtitan", "nemo", "megatron", "composer", "detectron2"),
        *("tensorflow", "jax", "flax", "optax", "numpy", "torchvision", "torch_xla", "mmengine", "mmcv", "ignite"),
    )
)
"""Packages whose own source is not read, also where the folder is a checkout of theirs: `libraries` knows them."""

Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef

_OLD_PYTHON = ("Missing parentheses in call to", "multiple exception types must be parenthesized")
"""Beginnings of the messages of Python 3 about statements of Python 2."""

_UTF_16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


class ProgramUnreadable(ValueError):
    """A file is not Python.

    Attributes:
        advice: What to do instead, as a part of a sentence.
    """

    def __init__(self, reason: str, *, advice: str = "give a Python script") -> None:
        super().__init__(reason)
        self.advice = advice


@dataclass(eq=False)
class Module:
    """One file of a program, parsed when it is first looked into.

    Attributes:
        path: Its file; None for a text without one.
        given: Its tree, where it is parsed already.
    """

    path: Path | None = None
    given: ast.Module | None = None

    @cached_property
    def tree(self) -> ast.Module:
        """Its syntax tree; an empty one for a file that cannot be read."""
        if self.given is not None or self.path is None:
            return self.given or ast.Module(body=[], type_ignores=[])
        try:
            return parsed(self.path.read_bytes() if self.path.stat().st_size <= MAX_BYTES else b"")
        except (OSError, ProgramUnreadable):
            return ast.Module(body=[], type_ignores=[])

    @cached_property
    def nodes(self) -> tuple[ast.AST, ...]:
        """Every node of the tree."""
        return tuple(ast.walk(self.tree))

    @cached_property
    def imports(self) -> frozenset[str]:
        """Dotted names of everything that it imports absolutely: modules, and names of modules."""
        return frozenset(_imported_names(self.nodes))

    @cached_property
    def imported_as(self) -> Mapping[str, str]:
        """Dotted names that it imports, by their names in the file."""
        found: dict[str, str] = {}
        for node in self.nodes:
            if isinstance(node, ast.Import):
                found |= {alias.asname or alias.name: alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                found |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
        return found

    @cached_property
    def definitions(self) -> Mapping[str, Definition]:
        """Functions and classes at its top."""
        return {node.name: node for node in self.tree.body if isinstance(node, Definition)}


@dataclass(frozen=True, eq=False)
class Binding:
    """Meaning of an imported name."""

    module: Module
    name: str | None = None
    """Name in that module; None for the module itself."""


def parsed(content: bytes | str) -> ast.Module:
    """The syntax tree of a source.

    Raises:
        ProgramUnreadable: If it is not Python.
    """
    if len(content) > MAX_BYTES:
        raise ProgramUnreadable(f"is too large for a program, with {len(content) / 2**20:.0f} MiB")
    raw = content.encode(errors="replace") if isinstance(content, str) else content
    _refuse_other_formats(raw)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # such as those about escapes, which are the author's business
            return ast.parse(content)
    except SyntaxError as error:
        where = f"line {error.lineno}: {error.msg}" if error.lineno else error.msg
        if any(text in error.msg for text in _OLD_PYTHON):
            raise ProgramUnreadable(
                f"is a Python 2 program ({where})", advice="convert it to Python 3 and give that"
            ) from None
        raise ProgramUnreadable(f"is not a Python program ({where})") from None
    except (ValueError, RecursionError, MemoryError) as error:
        raise ProgramUnreadable(f"is not a Python program ({error})") from None


def _refuse_other_formats(raw: bytes) -> None:
    """Refuse other formats than Python, whatever the name of the file says.

    Raises:
        ProgramUnreadable: If it is a notebook, a script of a shell, text in UTF-16, or binary.
    """
    if _is_notebook(raw):
        raise ProgramUnreadable(
            "is a Jupyter notebook",
            advice="make a script of it with `jupyter nbconvert --to script`, remove the cells that only explore, and "
            "give that script",
        )
    if raw.startswith(_UTF_16):
        raise ProgramUnreadable("is text in UTF-16", advice="save it as UTF-8, or give a Python script")
    if b"\0" in raw:
        raise ProgramUnreadable("is not a Python program but a binary file")
    first_line = raw.split(b"\n", 1)[0]
    if first_line.startswith(b"#!") and first_line.rstrip().endswith(b"sh"):
        raise ProgramUnreadable(
            "is not a Python program but a script of a shell",
            advice="give the Python script that it starts, or write a spec with workload.command",
        )


def _is_notebook(raw: bytes) -> bool:
    if b'"cells"' not in raw or not raw.removeprefix(codecs.BOM_UTF8).lstrip().startswith(b"{"):
        return False
    try:
        document = json.loads(raw)
    except (ValueError, RecursionError):
        return False
    return isinstance(document, dict) and isinstance(document.get("cells"), list)


@dataclass(eq=False)
class Sources:
    """The files of a program, read as they are asked for.

    Attributes:
        main: The program's own file.
        roots: Folders that are searched for its imports.
    """

    main: Module
    roots: tuple[Path, ...] = ()
    _modules: dict[Path, Module] = field(default_factory=dict)

    def bindings(self, module: Module) -> dict[str, Binding]:
        """Names that a module imports from other files of the program."""
        if module not in self._bindings:
            self._bindings[module] = {}  # also ends circular imports
            self._bindings[module].update(self._imported(module))
        return self._bindings[module]

    @cached_property
    def _bindings(self) -> dict[Module, dict[str, Binding]]:
        return {}

    def _imported(self, module: Module) -> Iterator[tuple[str, Binding]]:
        for node in module.nodes:
            if isinstance(node, ast.Import):
                for alias in node.names:
                    name = alias.name if alias.asname else alias.name.split(".")[0]
                    if (found := self._find(module, name, 0)) is not None:
                        yield alias.asname or name, Binding(found)
            elif isinstance(node, ast.ImportFrom):
                yield from self._imported_from(module, node)

    def _imported_from(self, module: Module, node: ast.ImportFrom) -> Iterator[tuple[str, Binding]]:
        source = self._find(module, node.module or "", node.level)
        for alias in node.names:
            if alias.name == "*" and source is not None:
                yield from ((name, Binding(source, name)) for name in _defined(source.tree))
                continue
            inner = f"{node.module}.{alias.name}" if node.module else alias.name
            below = self._find(module, inner, node.level)
            if below is not None:
                yield alias.asname or alias.name, Binding(below)
            elif source is not None:
                yield alias.asname or alias.name, Binding(source, alias.name)

    def _find(self, module: Module, name: str, level: int) -> Module | None:
        """The file of a module by its dotted name; None if it is not one of the program's."""
        if module.path is None or (not level and name.split(".")[0] in NOT_FOLLOWED):
            return None
        roots = (module.path.parents[level - 1],) if 0 < level <= len(module.path.parents) else self.roots
        relative = Path(*name.split(".")) if name else Path()
        for root in roots:
            for path in ((root / relative).with_suffix(".py") if name else None, root / relative / "__init__.py"):
                if path is not None and (found := self._read(path)) is not None:
                    return found
        return None

    def _read(self, path: Path) -> Module | None:
        if path == self.main.path:
            return self.main
        if path not in self._modules:
            is_read = len(self._modules) < MAX_FILES and path.is_file()
            if not is_read:
                return None
            self._modules[path] = Module(path)
        return self._modules[path]


def _defined(tree: ast.Module) -> Iterator[str]:
    """Names that the statements of a module define."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Assign):
            yield from (target.id for target in node.targets if isinstance(target, ast.Name))


def _imported_names(nodes: Iterable[ast.AST]) -> Iterator[str]:
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def last_name(node: ast.expr | None) -> str:
    """Last part of a dotted name, such as that of a function in a call; empty for other expressions."""
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def dotted(node: ast.expr) -> str:
    """A name with all of its parts, such as `torch.distributed.init_process_group`; empty for other expressions."""
    if isinstance(node, ast.Attribute):
        owner = dotted(node.value)
        return f"{owner}.{node.attr}" if owner else ""
    return node.id if isinstance(node, ast.Name) else ""
