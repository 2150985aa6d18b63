"""Reads synthesized templates: their resources, and the targets of their references."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

Template: TypeAlias = Mapping[str, Any]

UNKNOWN = "token"
"""Placeholder for a value that CloudFormation fills in, where only the text around it matters."""


@dataclass(frozen=True, kw_only=True)
class Resource:
    """One resource of one stack."""

    stack: str
    logical_id: str
    type: str
    definition: Mapping[str, Any]

    @property
    def properties(self) -> Mapping[str, Any]:
        """Properties as in the template, with intrinsic functions."""
        return self.definition.get("Properties") or {}

    @property
    def origin(self) -> tuple[str, str]:
        """The value that a reference to it resolves to."""
        return self.stack, self.logical_id


@dataclass(frozen=True, kw_only=True)
class Finding:
    """A violation of a rule by a resource, in a sentence."""

    rule: str
    stack: str
    logical_id: str
    sentence: str

    @classmethod
    def at(cls, resource: Resource, rule: str, sentence: str) -> Finding:
        """Make a finding about a resource."""
        return cls(rule=rule, stack=resource.stack, logical_id=resource.logical_id, sentence=sentence)

    def __str__(self) -> str:
        return f"{self.stack}/{self.logical_id}: {self.sentence} [{self.rule}]"


class Templates:
    """All templates of an app, by stack name."""

    def __init__(self, templates: Mapping[str, Template]) -> None:
        self._templates = templates
        self._exports = {
            output["Export"]["Name"]: (stack, output.get("Value"))
            for stack, template in templates.items()
            for output in (template.get("Outputs") or {}).values()
            if isinstance(output.get("Export", {}).get("Name"), str)
        }

    def resources(self, *types: str) -> Iterator[Resource]:
        """Resources of the given types, in every stack; of all types if none is given."""
        for stack, template in self._templates.items():
            for logical_id, definition in (template.get("Resources") or {}).items():
                if not types or definition["Type"] in types:
                    yield Resource(stack=stack, logical_id=logical_id, type=definition["Type"], definition=definition)

    def find(self, origin: tuple[str, str] | None) -> Resource | None:
        """The resource that a reference leads to."""
        if origin is None:
            return None
        stack, logical_id = origin
        definition = (self._templates[stack].get("Resources") or {}).get(logical_id)
        if definition is None:
            return None
        return Resource(stack=stack, logical_id=logical_id, type=definition["Type"], definition=definition)

    def origin(self, stack: str, value: Any) -> tuple[str, str] | None:
        """Stack and logical id of the target of `Ref`, `Fn::GetAtt` or an import; None for any other value."""
        found = self.attribute(stack, value)
        return found and found[:2]

    def attribute(self, stack: str, value: Any) -> tuple[str, str, str] | None:
        """Stack, logical id and attribute of the target of `Ref` (as attribute `Ref`), `Fn::GetAtt` or an import; None
        for any other value."""
        if not isinstance(value, Mapping) or len(value) != 1:
            return None
        (function, argument), *_ = value.items()
        match function, argument:
            case "Ref", str(logical_id):
                return stack, logical_id, "Ref"
            case "Fn::GetAtt", [str(logical_id), *rest]:
                return stack, logical_id, ".".join(map(str, rest))
            case "Fn::ImportValue", str(name) if name in self._exports:
                return self.attribute(*self._exports[name])
            case "Fn::GetStackOutput", {"StackName": str(other), "OutputName": str(name)}:
                outputs = self._templates.get(other, {}).get("Outputs") or {}
                return self.attribute(other, outputs.get(name, {}).get("Value"))
        return None

    def made_before(self, resource: Resource) -> set[str]:
        """Logical ids of everything in its stack that CloudFormation creates before a resource."""
        resources = self._templates[resource.stack].get("Resources") or {}
        found: set[str] = set()
        waiting = [resource.logical_id]
        while waiting:
            definition = resources.get(waiting.pop(), {})
            before = {*listed(definition.get("DependsOn")), *_references(definition.get("Properties"))}
            waiting += before - found
            found |= before
        return found & resources.keys()


def _references(value: Any) -> Iterator[str]:
    """Logical ids in `Ref` and `Fn::GetAtt` at any depth; those in `Fn::Sub` are not read."""
    match value:
        case {"Ref": str(logical_id), **rest} if not rest:
            yield logical_id
        case {"Fn::GetAtt": [str(logical_id), *_], **rest} if not rest:
            yield logical_id
        case Mapping():
            for inner in value.values():
                yield from _references(inner)
        case list():
            for inner in value:
                yield from _references(inner)


def values(value: Any) -> Iterator[Any]:
    """A value and every value inside of it, at any depth."""
    yield value
    inner = value.values() if isinstance(value, Mapping) else value if isinstance(value, list) else ()
    for each in inner:
        yield from values(each)


def text(value: Any) -> str:
    """A string property with every intrinsic function replaced by `token`."""
    if isinstance(value, str):
        return value
    if isinstance(value, Mapping) and "Fn::Join" in value:
        separator, parts = value["Fn::Join"]
        return str(separator).join(text(part) for part in parts) if isinstance(parts, Sequence) else UNKNOWN
    return UNKNOWN


def listed(value: Any) -> list[Any]:
    """Statements as a list; policies write a list of one as a single value."""
    if value is None:
        return []
    return list(value) if isinstance(value, list) else [value]
