"""Check that this image has every package that its programs import: `python -m trainer.images.smoke training|tools`.

Each image runs this as the last step of its build. Importing an entry point is not enough, because many packages are
imported inside functions, when they are needed: so the sources are read, and every package that an entry point can come
to import has to be there.
"""

from __future__ import annotations

import ast
import importlib
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from trainer.helpers import start

SMALL_JOBS = ("trainer.stage", "trainer.publish", "trainer.helpers.install", "trainer.helpers.share_packages")
"""The small jobs of the workflow, and what prepares a training's container; they need no package of the training."""

HELPERS = tuple(f"trainer.{name}" for name in start.PROGRAMS)
"""Programs that run around any training program. The image `tools` holds them, for containers of any image."""

TOOLS = (*SMALL_JOBS, *HELPERS)

TRAINING = (
    "trainer.argument_check",
    "trainer.pretrain",
    "trainer.mlp",
    "trainer.classifier",
    "trainer.corpus",
    "trainer.exchange",
    *(f"trainer.{name}" for name in start.IN_TRAININGS),
)
"""The training programs, the check of their arguments, the test of a gang's nodes, and what people run by hand on their
files."""

BATCH = ("trainer.lost_files", "trainer.slurm.ship", "trainer.slurm.finish")
"""Programs that run beside every job of Slurm, in the one environment that its nodes have for all programs."""

ENTRY_POINTS: Mapping[str, Sequence[str]] = {
    "tools": TOOLS,
    "training": TRAINING,
    "slurm": (*TOOLS, *TRAINING, *BATCH),  # nodes have the helpers installed
}
"""Modules that each kind of environment can run with `python -m`."""

OF_DEVICES = frozenset({"torch_xla", "torch_neuronx"})
"""Packages that need a device: a program imports one of them where its device is, and no image contains two of them."""

PACKAGES = ("trainer", "trainflow")
"""Ours: the trainer, and the protocol that it shares with the workflow."""

ROOT = Path(__file__).parents[2]


def main(argv: Sequence[str]) -> int:
    """Import every package of one kind of environment; the exit code."""
    if len(argv) != 1 or argv[0] not in ENTRY_POINTS:
        print(f"usage: python -m trainer.images.smoke {'|'.join(ENTRY_POINTS)}", file=sys.stderr)
        return 2
    entry_points = ENTRY_POINTS[argv[0]]
    modules = sorted(module for module in foreign_modules(entry_points) if module.split(".")[0] not in OF_DEVICES)
    wrong = [sentence for module in modules if (sentence := import_problem(module))]
    for sentence in wrong:
        print(sentence, file=sys.stderr)
    if not wrong:
        print(f"{argv[0]}: {len(entry_points)} entry points have every package that they import.")
    return 1 if wrong else 0


def foreign_modules(entry_points: Iterable[str], *, without: Collection[str] = ()) -> frozenset[str]:
    """Modules of other packages than ours and the standard library that entry points can come to import."""
    return _reached(entry_points, without=without)[1]


def modules_of_ours(entry_points: Iterable[str], *, without: Collection[str] = ()) -> frozenset[str]:
    """Modules of ours that entry points are, or can come to import."""
    return _reached(entry_points, without=without)[0]


def _reached(entry_points: Iterable[str], *, without: Collection[str]) -> tuple[frozenset[str], frozenset[str]]:
    """Modules of ours, and of others, that entry points lead to, except through some modules."""
    ours: set[str] = set()
    foreign: set[str] = set()
    waiting = list(entry_points)
    while waiting:
        module = waiting.pop()
        if module in ours or module in without:
            continue
        ours.add(module)
        for imported, names in imported_modules(module_file(module)):
            if imported.split(".")[0] in PACKAGES and is_module(imported):
                candidates = (imported, *(f"{imported}.{name}" for name in names))
                waiting.extend(filter(is_module, candidates))
            elif imported.split(".")[0] not in sys.stdlib_module_names:
                foreign.add(imported)
    return frozenset(ours), frozenset(foreign)


def module_file(module: str) -> Path:
    """The file that `python -m` would run.

    Raises:
        FileNotFoundError: If the trainer does not contain the module.
    """
    path = ROOT.joinpath(*module.split("."))
    for candidate in (path.with_suffix(".py"), path / "__main__.py", path / "__init__.py"):
        if candidate.is_file():
            return candidate
    raise FileNotFoundError(f"The trainer has no module {module}.")


def is_module(name: str) -> bool:
    """Whether a name is a module of ours, and not a name inside of a module."""
    path = ROOT.joinpath(*name.split("."))
    return path.with_suffix(".py").is_file() or (path / "__init__.py").is_file()


def imported_modules(source: Path) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Modules that a file imports anywhere, and the names that it takes from each, without imports for type checking
    only."""
    yield from _imports(ast.parse(source.read_text()))


def _imports(node: ast.AST) -> Iterator[tuple[str, tuple[str, ...]]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import):
            yield from ((alias.name, ()) for alias in child.names)
        elif isinstance(child, ast.ImportFrom) and child.module:
            yield child.module, tuple(alias.name for alias in child.names)
        elif isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING":
            for other in child.orelse:
                yield from _imports(other)
        else:
            yield from _imports(child)


def import_problem(module: str) -> str | None:
    """The reason why a module cannot be imported, in a sentence; None if it can."""
    try:
        importlib.import_module(module)
    except ImportError as error:
        return f"The module {module} cannot be imported ({error}); add its package to the image's requirements."
    return None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
