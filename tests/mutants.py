"""Small faults in the state machines, and how many of them their tests notice.

    python -m tests.mutants [--count 150] [--seed 1] [--jobs 2] [--floor 0.85]

A mutant is a state machine with one fault that a person could make: a Catch that is gone or loses the error, another
number of retries, another next state, another time limit, a payload, call or assignment without one of its fields. The
tests that read the texts run on each, in a process of its own; a mutant that passes them all has survived. The check of
the language itself is left out: it takes long, and none of these faults is one of the language.
"""

from __future__ import annotations

import argparse
import copy
import multiprocessing
import os
import random
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import trainflow.state_machines as texts

TESTS = (
    "tests/infrastructure/test_state_machines.py",
    "tests/infrastructure/test_choices.py",
    "tests/infrastructure/test_decisions.py",
    "tests/unit/page/test_workflow.py",
)
LEFT_OUT = "test_the_validator_of_the_language_accepts_it"

State = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Mutant:
    """A state machine with a fault."""

    machine: str
    kind: str
    where: str
    """The state, and what was changed in it."""
    definition: dict[str, Any]


def mutants(machine: str) -> Iterator[Mutant]:
    """Every mutant of a state machine."""
    original = texts.definition(machine)
    for name, state in original["States"].items():
        for kind, what, change in _changes(state, others=[other for other in original["States"] if other != name]):
            changed = copy.deepcopy(state)
            change(changed)
            if changed != state:
                definition = {**original, "States": {**original["States"], name: changed}}
                yield Mutant(machine=machine, kind=kind, where=f"{name}: {what}", definition=definition)


Change = tuple[str, str, Callable[[State], None]]


def _changes(state: State, *, others: list[str]) -> Iterator[Change]:
    """Faults of a state: their kind, their place and what makes them."""
    for number, catcher in enumerate(state.get("Catch", ())):
        yield "a Catch is gone", f"Catch {number}", lambda at, i=number: at["Catch"].pop(i)
        yield "a Catch leads elsewhere", f"Catch {number}", _redirected(("Catch", number), others)
        for key in catcher.get("Assign", {}):
            yield "a Catch loses what it assigns", f"Catch {number}, {key}", _without(("Catch", number, "Assign"), key)
        if "ResultPath" in catcher:
            yield "a Catch loses the error", f"Catch {number}", _with(("Catch", number), "ResultPath", None)
    for number, rule in enumerate(state.get("Retry", ())):
        place = ("Retry", number)
        for key, other in (("MaxAttempts", 99), ("BackoffRate", 1), ("IntervalSeconds", 600), ("MaxDelaySeconds", 1)):
            if key in rule and (key == "MaxAttempts" or rule["MaxAttempts"] > 0):
                yield "another number of a Retry", f"Retry {number}, {key}", _with(place, key, other)
        for error in rule["ErrorEquals"]:
            kept = [name for name in rule["ErrorEquals"] if name != error]
            yield "a Retry without an error", f"Retry {number}, {error}", _with(place, "ErrorEquals", kept or ["Other"])
    for number, rule in enumerate(state.get("Choices", ())):
        yield "a Choice leads elsewhere", f"rule {number}", _redirected(("Choices", number), others)
        yield "a Choice without a rule", f"rule {number}", lambda at, i=number: at["Choices"].pop(i)
        for key in rule.get("Assign", {}):
            yield "a Choice that assigns less", f"rule {number}, {key}", _without(("Choices", number, "Assign"), key)
        for key in ("BooleanEquals", "IsNull", "IsPresent"):
            if key in rule:
                yield "a Choice the other way round", f"rule {number}", _with(("Choices", number), key, not rule[key])
    for key in ("Next", "Default"):
        if key in state:
            yield "another next state", key, _redirected((), others, key)
    if "TimeoutSeconds" in state:
        yield "another time limit", "TimeoutSeconds", _with((), "TimeoutSeconds", 5)
    for key in state.get("Parameters", {}).get("Payload", {}):
        yield "a payload without a field", key, _without(("Parameters", "Payload"), key)
    for key in state.get("Parameters", {}):
        if key != "Payload":
            yield "a call without a parameter", key, _without(("Parameters",), key)
    for key in state.get("Parameters", {}).get("Input", {}):
        yield "an input of an execution without a field", key, _without(("Parameters", "Input"), key)
    for key in state.get("Assign", {}):
        yield "a state that assigns less", key, _without(("Assign",), key)


def _at(state: State, place: tuple[str | int, ...]) -> Any:
    found: Any = state
    for step in place:
        found = found[step]
    return found


def _with(place: tuple[str | int, ...], key: str, value: Any) -> Callable[[State], None]:
    def change(state: State) -> None:
        _at(state, place)[key] = value

    return change


def _without(place: tuple[str | int, ...], key: str) -> Callable[[State], None]:
    def change(state: State) -> None:
        del _at(state, place)[key]

    return change


def _redirected(place: tuple[str | int, ...], others: list[str], key: str = "Next") -> Callable[[State], None]:
    def change(state: State) -> None:
        found = _at(state, place)
        found[key] = next(other for other in reversed(others) if other != found.get(key))

    return change


def chosen(count: int, *, seed: int) -> list[Mutant]:
    """A sample of all mutants in which each kind has its share, the same for the same seed."""
    by_kind: dict[str, list[Mutant]] = defaultdict(list)
    for machine in texts.NAMES:
        for mutant in mutants(machine):
            by_kind[mutant.kind].append(mutant)
    generator = random.Random(seed)
    for found in by_kind.values():
        generator.shuffle(found)
    sample: list[Mutant] = []
    while len(sample) < count and any(by_kind.values()):
        sample += [found.pop() for found in by_kind.values() if found]
    return sample[:count]


def is_noticed(mutant: Mutant) -> bool:
    """Whether a test fails on a mutant. Called in a process that has imported nothing yet that reads the texts."""
    original = texts.definition

    def definition(name: str, **options: Any) -> dict[str, Any]:
        return copy.deepcopy(mutant.definition) if name == mutant.machine else original(name, **options)

    texts.definition = definition
    with Path(os.devnull).open("w") as nowhere, redirect_stdout(nowhere), redirect_stderr(nowhere):
        status = pytest.main(["-q", "-x", "-p", "no:cacheprovider", "-k", f"not {LEFT_OUT}", *TESTS])
    return status == pytest.ExitCode.TESTS_FAILED


def main(argv: list[str] | None = None) -> int:
    """Print the survivors and the share of mutants that were noticed; 1 if it is below the floor."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=150, help="size of the sample")
    parser.add_argument("--seed", type=int, default=1, help="of the sample")
    parser.add_argument("--floor", type=float, default=0.85, help="least share of mutants that is noticed")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="mutants at a time")
    options = parser.parse_args(argv)
    sample = chosen(options.count, seed=options.seed)
    # Each mutant has a fork of its own, made of this process.
    with multiprocessing.get_context("fork").Pool(options.jobs, maxtasksperchild=1) as pool:
        found = pool.map(is_noticed, sample, chunksize=1)
    made, noticed = Counter(mutant.kind for mutant in sample), Counter[str]()
    for mutant, was_noticed in zip(sample, found, strict=True):
        noticed[mutant.kind] += was_noticed
        if not was_noticed:
            print(f"survived: {mutant.kind}: {mutant.machine}, {mutant.where}")
    for kind, count in sorted(made.items()):
        print(f"{noticed[kind]:4} of {count:4}  {kind}")
    share = sum(found) / len(sample)
    print(f"{sum(found)} of {len(sample)} mutants were noticed: {share:.1%}")
    return 0 if share >= options.floor else 1


if __name__ == "__main__":
    sys.exit(main())
