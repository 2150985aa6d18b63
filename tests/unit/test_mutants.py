from __future__ import annotations

from collections import Counter

import pytest

from tests.mutants import Mutant, chosen, mutants
from trainflow.state_machines import NAMES, definition


@pytest.fixture(scope="module")
def found() -> list[Mutant]:
    return [mutant for machine in NAMES for mutant in mutants(machine)]


def test_a_mutant_differs_from_the_state_machine_in_one_state(found: list[Mutant]) -> None:
    originals = {machine: definition(machine) for machine in NAMES}
    for mutant in found:
        before, after = originals[mutant.machine], mutant.definition
        changed = [name for name in before["States"] if before["States"][name] != after["States"][name]]
        assert changed == [mutant.where.split(":")[0]]
        assert before | {"States": None} == after | {"States": None}


def test_a_sample_has_its_share_of_each_kind_and_is_the_same_again(found: list[Mutant]) -> None:
    kinds = Counter(mutant.kind for mutant in found)
    sample = chosen(2 * len(kinds), seed=1)
    assert Counter(mutant.kind for mutant in sample) == dict.fromkeys(kinds, 2)
    assert sample == chosen(2 * len(kinds), seed=1)
    assert sample != chosen(2 * len(kinds), seed=2)
