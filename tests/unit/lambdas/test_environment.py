"""One list of environment variables: what is set for a function, what it reads, and what it says of a wrong one."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pytest

from lambdas.handlers.environment import InvalidEnvironment, read
from trainflow.deployment.environment import (
    NotificationEnvironment,
    ReapingEnvironment,
    RegionEnvironment,
    SlurmEnvironment,
    WorkflowEnvironment,
)
from trainflow.deployment.functions import FUNCTIONS, SLURM, Function

each_function = pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.name)


@cache
def tree_of(module: str) -> ast.Module | None:
    path = Path(*module.split(".")).with_suffix(".py")
    return ast.parse(path.read_text()) if path.exists() else None


@cache
def imported(module: str) -> frozenset[str]:
    """The modules of `lambdas` that a module imports."""
    tree = tree_of(module)
    found = set[str]()
    for node in ast.walk(tree) if tree else ():
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("lambdas"):
            found |= {str(node.module), *(f"{node.module}.{alias.name}" for alias in node.names)}
    return frozenset(found)


@cache
def reads(module: str) -> frozenset[str]:
    """Names of the classes that a module gives to `read`."""
    tree = tree_of(module)
    return frozenset(
        node.args[0].id
        for node in (ast.walk(tree) if tree else ())
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "read"
        and isinstance(node.args[0], ast.Name)
    )


def reachable(module: str) -> set[str]:
    found, waiting = set[str](), {module}
    while waiting:
        found |= waiting
        waiting = set().union(*(imported(name) for name in waiting)) - found
    return found


@each_function
def test_a_handler_reads_nothing_that_is_not_set_for_it(function: Function) -> None:
    given = {settings.__name__ for settings in function.settings} | {RegionEnvironment.__name__}
    assert reads(f"lambdas.handlers.{function.module}") <= given


@each_function
@pytest.mark.lengthy
def test_nothing_is_set_for_a_function_that_nothing_in_it_reads(function: Function) -> None:
    read_somewhere = set().union(*(reads(module) for module in reachable(f"lambdas.handlers.{function.module}")))
    assert {settings.__name__ for settings in function.settings} <= read_somewhere


@each_function
def test_no_variable_is_set_twice(function: Function) -> None:
    assert len(set(function.environment)) == len(function.environment)


WRONG = [
    (NotificationEnvironment, {}, "TOPIC_ARN is missing"),
    (NotificationEnvironment, {"TOPIC_ARN": "runs"}, "TOPIC_ARN is 'runs'"),
    (WorkflowEnvironment, {"TRAINING_STATE_MACHINE_ARN": "arn:aws:sns:us-west-2:123456789012:x"}, "is 'arn:aws:sns"),
    (ReapingEnvironment, {"IDLE_MINUTES": "soon"}, "IDLE_MINUTES is 'soon' "),
    (SlurmEnvironment, {**dict.fromkeys(SLURM, ""), "SLURM_API_URL": "slurm"}, "SLURM_API_URL is 'slurm'"),
    (SlurmEnvironment, {**dict.fromkeys(SLURM, ""), "SLURM_CLAIMS": "[]"}, "SLURM_CLAIMS is '\\[\\]'"),
    (SlurmEnvironment, {**dict.fromkeys(SLURM, ""), "SLURM_PROPERTIES": "{"}, "SLURM_PROPERTIES is '{'"),
]


@pytest.mark.parametrize(("settings", "variables", "said"), WRONG, ids=[said for *_, said in WRONG])
def test_a_wrong_variable_is_named_in_one_sentence(
    settings: type[NotificationEnvironment], variables: dict[str, str], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in (*NotificationEnvironment.variables(), *SLURM):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(InvalidEnvironment, match=said) as raised:
        read(settings)
    assert str(raised.value).endswith("Deploy its stack again.")
    assert "\n" not in str(raised.value)
