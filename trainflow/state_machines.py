"""The state machines of the repository: YAML for people, JSON for Step Functions.

This is the one loader: the stacks deploy its JSON, the twin executes it and the tests read it. YAML is used for its
comments and for its anchors, so that a list of retriers stands once in a file. Top-level keys that begin with `x-` hold
what is anchored and are dropped. `x-errors:<list>` in an item of a list stands for the errors of that list
(`trainflow.failures.error_table`): the item is repeated with the name of each.

Amazon States Language is JSON, so everything else that YAML can say is refused with its line: duplicate keys (YAML 1.2,
§3.2.1.3, forbids them; PyYAML keeps the last one: https://github.com/yaml/pyyaml/issues/165), dates, tags, merge keys,
and plain scalars that are a number, a truth value or null in one version of YAML and a string in another (`on`, `1e3`).
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import yaml

from trainflow.failures.error_table import error_list

FOLDER = Path(__file__).parents[1] / "statemachines"
"""Folder of the texts in a checkout of the repository, which the stacks and the twin read."""

NAMES = ("training", "watch_job")
"""Each is the name of a file, without its ending."""

SHARED = "x-"
"""Beginning of the top-level keys whose values are there to be anchored."""

ERRORS = "x-errors:"
"""Beginning of a string that stands for the names of a list of errors."""

_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""Ten times as fast where PyYAML was built with libyaml, as its wheels are."""

_STRING = "tag:yaml.org,2002:str"
_LITERALS = frozenset(f"tag:yaml.org,2002:{name}" for name in ("null", "bool", "int", "float"))
_OTHER_COLLECTIONS = frozenset(f"tag:yaml.org,2002:{name}" for name in ("set", "omap", "pairs"))
_NUMBER = re.compile(r"[-+]?(\.\d+|\d+(\.\d*)?)([eE][-+]?\d+)?|0o[0-7]+|0x[0-9a-fA-F]+|[-+]?\.(inf|nan)", re.IGNORECASE)
"""Numbers in YAML 1.2's core schema (§10.3.2). YAML 1.1, which PyYAML reads, does not accept all of them."""


class InvalidDefinition(ValueError):
    """A text is not JSON written as YAML. The message names the file, the line and what to write instead."""


def definition(name: str, *, folder: Path = FOLDER) -> dict[str, Any]:
    """A state machine in Amazon States Language, with `${Name}` in the places of ARNs.

    Args:
        name: One of `NAMES`.
        folder: Folder of the texts.

    Raises:
        InvalidDefinition: If the text holds anything that JSON cannot say.
    """
    path = folder / f"{name}.asl.yaml"
    try:
        root = yaml.compose(path.read_text(encoding="utf-8"), Loader=_LOADER)
    except yaml.YAMLError as error:
        mark, problem = getattr(error, "problem_mark", None), getattr(error, "problem", None)
        where = f"{path.name}, line {mark.line + 1}" if mark else path.name
        raise InvalidDefinition(f"{where}: this is not YAML: {problem or error}.") from None
    if not isinstance(root, yaml.MappingNode):
        raise InvalidDefinition(f"{path.name}: write a mapping with the keys StartAt and States.")
    document: dict[str, Any] = _Converter(path.name).value(root)
    made = {key: value for key, value in document.items() if not key.startswith(SHARED)}
    if f'"{ERRORS}' in json.dumps(made):
        raise InvalidDefinition(f"{path.name}: write {ERRORS}<list> as an item of a list, or as a value of one.")
    return made


def definition_json(name: str, *, folder: Path = FOLDER) -> str:
    """The same as the text that Step Functions is given; its console shows it as it is."""
    return json.dumps(definition(name, folder=folder), indent=2) + "\n"


class _Converter:
    """Converts the YAML nodes of one file to JSON values."""

    def __init__(self, file_name: str) -> None:
        self._file_name = file_name
        self._open: list[yaml.Node] = []

    def value(self, node: yaml.Node) -> Any:
        if node in self._open:
            raise self._refusal(node, "an alias repeats what it stands in; JSON has no references")
        if node.tag.startswith("!") or node.tag in _OTHER_COLLECTIONS:
            raise self._refusal(node, "JSON has no tags; write the value without its tag")
        self._open.append(node)
        try:
            if isinstance(node, yaml.MappingNode):
                return self._mapping(node)
            if isinstance(node, yaml.ScalarNode):
                return self._scalar(node)
            return [value for item in node.value for value in self._repeated(item)]
        finally:
            self._open.pop()

    def _repeated(self, item: yaml.Node) -> list[Any]:
        """The item of a list, once for each error of the list of errors that it names."""
        value = self.value(item)
        texts = value.values() if isinstance(value, dict) else [value]
        named = next((text for text in texts if isinstance(text, str) and text.startswith(ERRORS)), None)
        if named is None:
            return [value]
        try:
            errors = error_list(named.removeprefix(ERRORS))
        except KeyError:
            raise self._refusal(item, f"there is no list of errors {named.removeprefix(ERRORS)}") from None
        if not isinstance(value, dict):
            return list(errors)
        return [{key: error if text == named else text for key, text in value.items()} for error in errors]

    def _mapping(self, node: yaml.MappingNode) -> dict[str, Any]:
        made: dict[str, Any] = {}
        for key_node, value_node in node.value:
            key = self.value(key_node)
            if not isinstance(key, str):
                raise self._refusal(key_node, "a key is a string; put it in quotes")
            if key in made:
                raise self._refusal(key_node, f"the key {key} stands twice in one mapping; remove one of the two")
            made[key] = self.value(value_node)
        return made

    def _scalar(self, node: yaml.ScalarNode) -> Any:
        text, plain = str(node.value), not node.style  # None, or an empty string from libyaml
        if node.tag == _STRING:
            if plain and _NUMBER.fullmatch(text):
                raise self._refusal(node, f"YAML's versions differ on {text}; write a decimal number, or quote it")
            return text
        if node.tag in _LITERALS and plain:
            try:
                return json.loads(text)
            except ValueError:
                pass
        found = text or "an empty value"
        raise self._refusal(node, f"{found} is not JSON; quote it, or write true, false, null or a decimal number")

    def _refusal(self, node: yaml.Node, why: str) -> InvalidDefinition:
        return InvalidDefinition(f"{self._file_name}, line {node.start_mark.line + 1}: {why}.")
