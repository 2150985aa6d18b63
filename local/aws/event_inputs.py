"""The text that a target of a rule receives: the event, a part of it, or a filled template. Pure.

Source: EventBridge user guide, 'Amazon EventBridge input transformation'; texts recorded on AWS
(`tests/assets/aws/event_inputs.yaml`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

Event = Mapping[str, Any]

CHOICES = ("Input", "InputPath", "InputTransformer")

PREDEFINED = (
    "aws.events.rule-arn",
    "aws.events.rule-name",
    "aws.events.event.ingestion-time",
    "aws.events.event",
    "aws.events.event.json",
)
"""Placeholders that need no path."""

CAMEL_CASE = {"detail-type": "detailType"}
"""Names of fields in `aws.events.event`, where they differ."""

_PLACEHOLDER = re.compile(r"<(?P<name>[\w.-]+)>")
_STRING_OR_PLACEHOLDER = re.compile(r'(?P<string>"(?:[^"\\]|\\.)*")|<(?P<name>[\w.-]+)>')


def refusal(target: Mapping[str, Any]) -> str | None:
    """The reason why EventBridge refuses a target's input; None if it does not."""
    if sum(name in target for name in CHOICES) > 1:
        return f"Only one of Input, InputPath, or InputTransformer must be provided for target {target['Id']}."
    transformer = target.get("InputTransformer") or {}
    known = {*transformer.get("InputPathsMap", {}), *PREDEFINED}
    for match in _PLACEHOLDER.finditer(transformer.get("InputTemplate", "")):
        if match["name"] not in known:
            return f"InputTemplate for target {target['Id']} contains invalid placeholder {match['name']}."
    return None


def input_text(target: Mapping[str, Any], event: Event, *, rule_name: str, rule_arn: str) -> str | None:
    """The text for a target; None if a template for JSON gives none, which is not delivered."""
    if "Input" in target:
        return str(target["Input"])
    if "InputPath" in target:
        return json.dumps(_at(target["InputPath"], event, missing=None))
    if "InputTransformer" in target:
        rule = {"aws.events.rule-arn": rule_arn, "aws.events.rule-name": rule_name}
        text = transformed(target["InputTransformer"], event, rule=rule)
        return text if _is_json(text) or not text.lstrip().startswith("{") else None
    return json.dumps(event)


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def transformed(transformer: Mapping[str, Any], event: Event, *, rule: Mapping[str, str]) -> str:
    """Fill the placeholders of an input template.

    In a template of text a value becomes part of it, without quotation marks. In a template of JSON it is a JSON value,
    also inside of a string, where only a text, a number or a truth value leaves JSON that can be delivered. A path that
    leads nowhere is an empty text.
    """
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    fields = {CAMEL_CASE.get(name, name): value for name, value in event.items() if name != "detail"}
    values = {
        **{name: _at(path, event, missing="") for name, path in transformer.get("InputPathsMap", {}).items()},
        **rule,
        "aws.events.event.ingestion-time": now,
        "aws.events.event": {**fields, "time": now},
        "aws.events.event.json": event,
    }

    is_text = not transformer["InputTemplate"].lstrip().startswith("{")

    def fill(match: re.Match[str]) -> str:
        string, name = match["string"], match["name"]
        if string is not None:
            return _PLACEHOLDER.sub(lambda inner: _within_string(values, inner, is_text=is_text), string)
        return json.dumps(values[name]) if name in values else match.group()

    return _STRING_OR_PLACEHOLDER.sub(fill, transformer["InputTemplate"])


def _within_string(values: Mapping[str, Any], match: re.Match[str], *, is_text: bool) -> str:
    if match["name"] not in values:
        return match.group()
    value = values[match["name"]]
    if isinstance(value, str):
        return json.dumps(value)[1:-1]
    text = json.dumps(value, separators=(",", ":"))
    return text.replace('"', "") if is_text else text


def _at(path: str, event: Event, *, missing: Any) -> Any:
    from jsonpath_ng.ext import parse  # type: ignore[attr-defined]

    found = parse(path).find(event)
    return found[0].value if found else missing
