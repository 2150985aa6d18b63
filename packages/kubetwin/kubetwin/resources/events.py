"""Events."""

from __future__ import annotations

from kubetwin.model import times
from kubetwin.model.errors import FieldError, Object, bad_value
from kubetwin.resources.resource import Column, Resource


def _validate(event: Object) -> list[FieldError]:
    involved = (event.get("involvedObject") or {}).get("namespace", "")
    namespace = event["metadata"]["namespace"]
    if (involved or "default") != namespace:
        return [bad_value("involvedObject.namespace", involved, "does not match event.namespace")]
    return []


def _seen(event: Object, field: str) -> str:
    return times.age(event.get(field) or event.get("eventTime") or "", times.now())


def _object(event: Object) -> str:
    return f"{event['involvedObject'].get('kind', '').lower()}/{event['involvedObject'].get('name', '')}"


def _source(event: Object) -> str:
    source = event.get("source") or {}
    component = source.get("component") or event.get("reportingComponent", "")
    return f"{component}, {source['host']}" if source.get("host") else component


RESOURCES = (
    Resource(
        kind="Event",
        plural="events",
        type_name="io.k8s.api.core.v1.Event",
        short_names=("ev",),
        storage_hash="r2yiGXH7wu8=",
        fields=(
            "involvedObject.kind",
            "involvedObject.namespace",
            "involvedObject.name",
            "involvedObject.uid",
            "involvedObject.apiVersion",
            "involvedObject.resourceVersion",
            "involvedObject.fieldPath",
            "reason",
            "reportingComponent",
            "source",
            "type",
        ),
        validate=_validate,
        columns=(
            Column("Last Seen", lambda event: _seen(event, "lastTimestamp")),
            Column("Type", lambda event: event.get("type", "")),
            Column("Reason", lambda event: event.get("reason", "")),
            Column("Object", _object),
            Column("Subobject", lambda event: event["involvedObject"].get("fieldPath", ""), priority=1),
            Column("Source", _source, priority=1),
            Column("Message", lambda event: event.get("message", "").strip()),
            Column("First Seen", lambda event: _seen(event, "firstTimestamp"), priority=1),
            Column("Count", lambda event: event.get("count") or 1, type="integer", priority=1),
            Column("Name", lambda event: event["metadata"]["name"], priority=1),
        ),
    ),
)
