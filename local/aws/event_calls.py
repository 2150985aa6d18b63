"""Calls of EventBridge that moto 5.2.5 does not answer, or takes although the service refuses them.

Sources: EventBridge API reference; answers recorded on AWS (`tests/assets/aws/event_patterns.yaml`). All patches
replace methods of moto: check them again when moto's version is raised.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Mapping
from typing import Any

from local.aws import event_inputs
from local.aws.event_patterns import InvalidPattern, matches, parse
from local.aws.replacements import replace

MAX_BYTES = 1024 * 1024
"""All entries of PutEvents (EventBridge user guide, 'Calculating PutEvents event entry size')."""

MAX_ENTRIES = 10

MANDATORY = ("id", "account", "source", "time", "region", "detail-type")
"""Fields that TestEventPattern asks of an event."""


def apply_all() -> None:
    """Apply every patch of this module."""
    _patterns()
    _targets()
    _entries()
    _missing_rules()


def _patterns() -> None:
    """Rules with invalid patterns are refused, also those of stacks; TestEventPattern answers."""
    from moto.events.exceptions import InvalidEventPatternException, ValidationException
    from moto.events.models import EventsBackend
    from moto.events.responses import EventsHandler

    put_rule = EventsBackend.put_rule

    def put_valid_rule(self: Any, name: str, *arguments: Any, event_pattern: str | None = None, **named: Any) -> Any:
        try:
            if event_pattern:
                parse(event_pattern)
        except InvalidPattern as invalid:
            raise InvalidEventPatternException(str(invalid)) from None
        return put_rule(self, name, *arguments, event_pattern=event_pattern, **named)

    def test_event_pattern(self: Any) -> Any:
        try:
            event = json.loads(self._get_param("Event"))
        except ValueError:
            event = None
        if not isinstance(event, Mapping) or not all(field in event for field in MANDATORY):
            raise ValidationException("Parameter Event is not valid.")
        try:
            return self._create_response({"Result": matches(self._get_param("EventPattern"), event)})
        except InvalidPattern as invalid:
            raise InvalidEventPatternException(str(invalid)) from None

    replace(EventsBackend, "put_rule", put_valid_rule)
    replace(EventsHandler, "test_event_pattern", test_event_pattern)


def _targets() -> None:
    """PutTargets refuses inputs that cannot be made."""
    from moto.events.responses import EventsHandler

    put_targets = EventsHandler.put_targets

    def put_valid_targets(self: Any) -> Any:
        refusals = map(event_inputs.refusal, self._get_param("Targets") or ())
        said = next((each for each in refusals if each), None)
        return self.error("ValidationException", said) if said else put_targets(self)

    replace(EventsHandler, "put_targets", put_valid_targets)


def _missing_rules() -> None:
    """The refusal of a rule that does not exist names the bus, as that of its targets does."""
    from moto.events.responses import EventsHandler

    def refused(present: Callable[[Any], Any]) -> Callable[[Any], Any]:
        @functools.wraps(present)
        def call(self: Any) -> Any:
            name, bus = self._get_param("Name") or self._get_param("Rule"), self._get_param("EventBusName")
            found = self.events_backend.describe_event_bus(bus or "default")
            if name and name not in found.rules:
                said = f"Rule {name} does not exist on EventBus {found.name}."
                return self.error("ResourceNotFoundException", said)
            return present(self)

        return call

    for name in ("describe_rule", "enable_rule", "disable_rule", "list_targets_by_rule"):
        replace(EventsHandler, name, refused(getattr(EventsHandler, name)))


def _entries() -> None:
    """PutEvents refuses sources of AWS, details other than objects, and more than a megabyte."""
    from moto.events.exceptions import ValidationException
    from moto.events.models import EventsBackend

    put_events = EventsBackend.put_events

    def put_valid_events(self: Any, events: list[dict[str, Any]]) -> list[dict[str, Any]]:
        if sum(map(_size, events)) > MAX_BYTES:
            raise ValidationException("Total size of the entries in the request is over the limit.")
        if len(events) > MAX_ENTRIES:
            return list(put_events(self, events))  # which refuses them
        return [_refused(event) or put_events(self, [event])[0] for event in events]

    replace(EventsBackend, "put_events", put_valid_events)


def _size(entry: Mapping[str, Any]) -> int:
    texts = [str(entry.get(name) or "") for name in ("Source", "DetailType", "Detail")]
    time = 14 if entry.get("Time") else 0
    return time + sum(len(text.encode()) for text in (*texts, *entry.get("Resources", ())))


def _refused(entry: Mapping[str, Any]) -> dict[str, str] | None:
    if str(entry.get("Source", "")).startswith("aws."):
        return {"ErrorCode": "NotAuthorizedForSourceException", "ErrorMessage": "Not authorized for the source."}
    try:
        detail = json.loads(entry.get("Detail") or "{}")
    except ValueError:
        return None  # which moto refuses
    if not isinstance(detail, dict):
        return {"ErrorCode": "MalformedDetail", "ErrorMessage": "Detail is malformed."}
    return None
