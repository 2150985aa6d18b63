"""Rules about the state machines and their functions."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from stacks.checks.templates import Finding, Resource, Templates, text

LAMBDA = ":states:::lambda:invoke"
STATE_MACHINE = "AWS::StepFunctions::StateMachine"


def tasks_retry_and_catch(templates: Templates) -> Iterator[Finding]:
    """Every task retries transient errors, catches the others, and has a time limit."""
    for machine in templates.resources(STATE_MACHINE):
        for name, state in _tasks(machine):
            for field in ("TimeoutSeconds", "Retry", "Catch"):
                if not state.get(field) and not state.get(f"{field}Path"):
                    yield Finding.at(machine, "task-states", f"the task {name} has no {field}.")


def functions_end_before_their_tasks(templates: Templates) -> Iterator[Finding]:
    """A task must not time out before its function: it would retry while the function still runs."""
    for machine in templates.resources(STATE_MACHINE):
        for name, state in _tasks(machine):
            if not str(state.get("Resource", "")).endswith(LAMBDA):
                continue
            function = _function(templates, machine, state)
            if function is None:
                yield Finding.at(machine, "timeouts", f"the task {name} leads to no function of this app.")
                continue
            limit = function.properties.get("Timeout", 3)  # Lambda's default
            patience = state.get("TimeoutSeconds", 0)
            if limit >= patience:
                yield Finding.at(
                    function, "timeouts", f"the function may run for {limit} s, but its task {name} waits {patience} s."
                )


def definitions_can_be_read(templates: Templates) -> Iterator[Finding]:
    """The definition is JSON in the template; the other rules cannot read another form."""
    for machine in templates.resources(STATE_MACHINE):
        if not _definition(machine):
            yield Finding.at(machine, "task-states", "the definition does not stand in the template as JSON.")


def _definition(machine: Resource) -> dict[str, Any]:
    try:
        definition = json.loads(text(machine.properties.get("DefinitionString")))
    except ValueError:
        return {}
    return definition if isinstance(definition, dict) else {}


def _tasks(machine: Resource) -> Iterator[tuple[str, dict[str, Any]]]:
    yield from _all_tasks(_definition(machine))


def _all_tasks(definition: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for name, state in (definition.get("States") or {}).items():
        if state.get("Type") == "Task":
            yield name, state
        for inner in (*state.get("Branches", ()), state.get("ItemProcessor"), state.get("Iterator")):
            if inner:
                yield from _all_tasks(inner)


def _function(templates: Templates, machine: Resource, state: Mapping[str, Any]) -> Resource | None:
    arguments = state.get("Parameters") or state.get("Arguments") or {}
    placeholder = str(arguments.get("FunctionName", "")).removeprefix("${").removesuffix("}")
    value = (machine.properties.get("DefinitionSubstitutions") or {}).get(placeholder)
    found = templates.find(templates.origin(machine.stack, value))
    while found is not None and found.type in ("AWS::Lambda::Alias", "AWS::Lambda::Version"):
        found = templates.find(templates.origin(found.stack, found.properties.get("FunctionName")))
    return found if found is not None and found.type == "AWS::Lambda::Function" else None
