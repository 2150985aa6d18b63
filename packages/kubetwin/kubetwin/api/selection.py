"""Selection of the objects of a list, a watch or a deletecollection, and the pages of a list."""

from __future__ import annotations

import base64
import binascii
import json
from dataclasses import dataclass

from kubetwin.api.bodies import NotJson, parse_json
from kubetwin.api.requests import ListOptions, RequestInfo
from kubetwin.model.errors import ApiError, Object, bad_request
from kubetwin.model.selectors import (
    BadSelector,
    FieldSelector,
    LabelSelector,
    field_value,
    parse_field_selector,
    parse_label_selector,
)
from kubetwin.resources.resource import Resource
from kubetwin.store import Store


@dataclass(frozen=True)
class Selection:
    """A namespace ("" for all) and two selectors."""

    namespace: str
    labels: LabelSelector
    fields: FieldSelector

    def matches(self, obj: Object) -> bool:
        metadata = obj["metadata"]
        if self.namespace and metadata.get("namespace") != self.namespace:
            return False
        return self.labels.matches(metadata.get("labels")) and self.fields.matches(obj)

    @property
    def selects(self) -> bool:
        return bool(self.labels.requirements or self.fields.terms)


def select(resource: Resource, info: RequestInfo, options: ListOptions) -> Selection:
    """Parse the selectors of a request.

    Raises:
        ApiError: 400.
    """
    try:
        labels = parse_label_selector(options.label_selector)
        fields = parse_field_selector(options.field_selector, resource.selectable_fields)
    except BadSelector as fault:
        raise bad_request(str(fault)) from None
    return Selection(info.namespace, labels, fields)


def selected(store: Store, resource: Resource, selection: Selection) -> list[Object]:
    """The objects there are, in the order of their names."""
    namespace = selection.namespace or selection.fields.required_value("metadata.namespace") or ""
    name = selection.fields.required_value("metadata.name")
    if name and (namespace or not resource.namespaced):
        found = store.get(resource.key, namespace, name)
        return [found] if found is not None and selection.matches(found) else []
    labels = selection.labels.required_values
    objects = store.labelled(resource.key, namespace, labels) if labels else store.objects(resource.key, namespace)
    return [obj for obj in objects if selection.matches(obj)]


@dataclass(frozen=True)
class Page:
    """A part of a list."""

    items: list[Object]
    continue_token: str = ""
    remaining: int = 0


def page(objects: list[Object], options: ListOptions, revision: int) -> Page:
    """The page of a list that `limit` and `continue` select, from the current objects instead of a snapshot."""
    if options.continue_token:
        start = _decode_token(options.continue_token)
        objects = [obj for obj in objects if _place(obj) > start]
    if not options.limit or len(objects) <= options.limit:
        return Page(objects)
    items = objects[: options.limit]
    token = json.dumps({"v": "meta.k8s.io/v1", "rv": revision, "start": "/".join(_place(items[-1]))})
    encoded = base64.urlsafe_b64encode(token.encode()).decode().rstrip("=")
    return Page(items, encoded, len(objects) - len(items))


def _place(obj: Object) -> tuple[str, str]:
    return field_value(obj, "metadata.namespace"), obj["metadata"]["name"]


def _decode_token(token: str) -> tuple[str, str]:
    try:
        data = base64.b64decode(token + "=" * (-len(token) % 4), altchars=b"-_", validate=True)
        start = str(parse_token(data)["start"])
    except binascii.Error as fault:
        raise bad_request(f"invalid continue token: continue key is not valid: {fault}") from None
    except (NotJson, KeyError, TypeError) as fault:
        raise bad_request(f"invalid continue token: continue key is not valid: {fault}") from None
    namespace, _, name = start.rpartition("/")
    return namespace, name


def parse_token(data: bytes) -> Object:
    """The JSON inside a continue token; bytes that are no text are named as Go names them (`\\u0081`)."""
    if data and not 0x20 <= data[0] < 0x7F:
        raise NotJson(f"invalid character '\\u{data[0]:04x}' looking for beginning of value")
    parsed: Object = parse_json(data)
    return parsed


def parse_version(text: str) -> int:
    """A resourceVersion parameter; empty is 0.

    Raises:
        BadVersion: If it is no number.
    """
    if not text:
        return 0
    if not text.isdigit():
        raise BadVersion(text)
    return int(text)


class BadVersion(ValueError):
    """A resourceVersion that is no number; list answers 400 and watch 500."""

    def __init__(self, text: str) -> None:
        super().__init__(
            f'resourceVersion: Invalid value: "{text}": strconv.ParseUint: parsing "{text}": invalid syntax'
        )


def version_too_large(wanted: int, current: int) -> ApiError:
    causes = [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}]
    message = f"Timeout: Too large resource version: {wanted}, current: {current}"
    return ApiError(504, "Timeout", message, {"causes": causes, "retryAfterSeconds": 1})
