"""The names and places that workflow and pods share stand in `trainflow/protocol/` and nowhere else."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from tests.lints.sources import PRODUCT, docstrings, imported, sources, texts
from trainflow.client import place_variable
from trainflow.protocol import pods, result, variables

PROTOCOL = Path("trainflow/protocol")
VARIABLE = re.compile(r"TRAINFLOW_[A-Z0-9_]+")
VARIABLES = {value for name, value in vars(variables).items() if name.isupper()}
MAY_NAME_VARIABLES = {
    PROTOCOL / "variables.py",
    PROTOCOL / "report.py",  # works as a copy; tests/unit/protocol/test_report.py compares its name
    Path("trainflow/client/place_variable.py"),  # the variable of a person's shell
}
PLACES = {pods.CLAIM, pods.SCRATCH_MOUNT, result.RESULT_FILE, *pods.MOUNTS}
OURS = ("benchmarks", "kubetwin", "lambdas", "local", "stacks", "trainer", "trainflow")


def test_code_takes_the_names_of_variables_from_the_protocol() -> None:
    named = {
        f"{source}:{text.lineno}: {text.value!r}"
        for source in set(sources(*PRODUCT)) - MAY_NAME_VARIABLES
        for text in set(texts(source)) - docstrings(source)
        if VARIABLE.search(str(text.value))
    }
    assert named == set()


def test_documents_name_no_variable_that_does_not_exist() -> None:
    named = {
        (str(path), name)
        for path in [*Path("docs").glob("*.md"), Path("README.md")]
        for name in VARIABLE.findall(path.read_text())
    }
    assert {each for each in named if each[1] not in VARIABLES | {place_variable.VARIABLE}} == set()


def test_code_takes_mounts_and_claims_from_the_protocol() -> None:
    named = {
        f"{source}:{text.lineno}: {text.value!r}"
        for source in sources(*PRODUCT)
        if not source.is_relative_to(PROTOCOL)
        for text in texts(source)
        if text.value in PLACES
    }
    assert named == set()


def test_the_protocol_imports_the_standard_library_and_itself_only() -> None:
    others = {
        (str(source), module)
        for source in sources(str(PROTOCOL))
        for module in imported(source)
        if module.split(".")[0] not in sys.stdlib_module_names and not f"{module}.".startswith("trainflow.protocol.")
    }
    assert others == set()


def test_the_package_around_the_protocol_imports_nothing() -> None:
    assert imported(Path("trainflow/__init__.py")) == set()


def test_the_trainer_imports_nothing_else_of_ours() -> None:
    """Import-linter forbids the packages that exist; this rule also holds for future ones."""
    others = {
        (str(source), module)
        for source in sources("trainer")
        for module in imported(source)
        if module.split(".")[0] in ("", *OURS) and not f"{module}.".startswith(("trainer.", "trainflow.protocol."))
    }
    assert others == set()
