"""What the list of faults in the stacks refers to is there."""

from __future__ import annotations

import ast

import pytest

from tests.module_mutants import REPOSITORY
from tests.stack_mutants import FAULTS, Fault


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.what)
def test_a_fault_changes_one_place_and_leaves_a_module_that_can_be_read(fault: Fault) -> None:
    text = (REPOSITORY / "stacks" / fault.module).read_text()
    assert text.count(fault.before) == 1
    assert ast.dump(ast.parse(text.replace(fault.before, fault.after))) != ast.dump(ast.parse(text))


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.what)
def test_the_test_that_notices_a_fault_is_there(fault: Fault) -> None:
    path, _, name = fault.test.partition("::")
    assert f"def {name}(" in (REPOSITORY / "tests" / "infrastructure" / path).read_text()
