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


def _last_seen(event: Object) -> str:
    return times.age(event.get("lastTimestamp") or event.get("eventTime") or "", times.now())


def _object(event: Object) -> str:
    return f"{event['involvedObject'].get('kind', '').lower()}/{event['involvedObject'].get('name', '')}"


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
            Column("Last Seen", _last_seen),
            Column("Type", lambda event: event.get("type", "")),
            Column("Reason", lambda event: event.get("reason", "")),
            Column("Object", _object),
            Column("Message", lambda event: event.get("message", "").strip()),
        ),
    ),
)
