"""Selection of the objects of a list, a watch or a deletecollection, and the pages of a list."""

from __future__ import annotations

import base64
import binascii
import json
from dataclasses import dataclass

from kubetwin.api.bodies import NotJson, parse_json
from kubetwin.api.requests import ListOptions, RequestInfo
from kubetwin.model.errors import ApiError, Object, bad_request
from kubetwin.model.names import namespaced_name
from kubetwin.model.selectors import (
    BadSelector,
    FieldSelector,
    LabelSelector,
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
    """The page of a list that `limit` and `continue` select.

    Args:
        objects: The list as it was at `revision`.
        options: The request's.
        revision: The time of the first page; further pages show the list of that time.
    """
    if options.continue_token:
        start = decode_token(options.continue_token).start
        objects = [obj for obj in objects if namespaced_name(obj) > start]
    if not options.limit or len(objects) <= options.limit:
        return Page(objects)
    items = objects[: options.limit]
    return Page(items, encode_token(revision, namespaced_name(items[-1])), len(objects) - len(items))


@dataclass(frozen=True)
class ContinueToken:
    """Start of a page: after an object, in the list of a revision (-1 for that of the present)."""

    revision: int
    start: tuple[str, str]


def encode_token(revision: int, start: tuple[str, str]) -> str:
    token = json.dumps({"v": "meta.k8s.io/v1", "rv": revision, "start": "/".join(start)})
    return base64.urlsafe_b64encode(token.encode()).decode().rstrip("=")


def decode_token(token: str) -> ContinueToken:
    """The place that a client's token names.

    Raises:
        ApiError: 400 for a token that this server did not make.
    """
    try:
        data = base64.b64decode(token + "=" * (-len(token) % 4), altchars=b"-_", validate=True)
        parsed = parse_token(data)
        start, revision = str(parsed["start"]), int(parsed["rv"])
    except (binascii.Error, NotJson, KeyError, TypeError) as fault:
        raise bad_request(f"invalid continue token: continue key is not valid: {fault}") from None
    namespace, _, name = start.rpartition("/")
    return ContinueToken(revision, (namespace, name))


def parse_token(data: bytes) -> Object:
    """The JSON inside a continue token; bytes that are not text are named as Go names them (`\\u0081`)."""
    if data and not 0x20 <= data[0] < 0x7F:
        raise NotJson(f"invalid character '\\u{data[0]:04x}' looking for beginning of value")
    parsed: Object = parse_json(data)
    return parsed


def parse_version(text: str) -> int:
    """A resourceVersion parameter; empty is 0.

    Raises:
        BadVersion: If it is not a number.
    """
    if not text:
        return 0
    if not text.isdigit():
        raise BadVersion(text)
    return int(text)


class BadVersion(ValueError):
    """A resourceVersion that is not a number; list answers 400 and watch 500."""

    def __init__(self, text: str) -> None:
        super().__init__(
            f'resourceVersion: Invalid value: "{text}": strconv.ParseUint: parsing "{text}": invalid syntax'
        )


def list_expired(options: ListOptions) -> ApiError:
    """The answer when the list of a former time can no longer be made; it holds a token to go on with the present."""
    if not options.continue_token:
        return ApiError(410, "Expired", "The resourceVersion for the provided list is too old.")
    message = (
        "The provided continue parameter is too old to display a consistent list result. You can start a new list "
        "without the continue parameter, or use the continue token in this response to retrieve the remainder of the "
        "results. Continuing with the provided token results in an inconsistent list - objects that were created, "
        "modified, or deleted between the time the first chunk was returned and now may show up in the list."
    )
    token = encode_token(-1, decode_token(options.continue_token).start)
    return ApiError(410, "Expired", message, metadata={"continue": token})


def version_too_large(wanted: int, current: int) -> ApiError:
    causes = [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}]
    message = f"Timeout: Too large resource version: {wanted}, current: {current}"
    return ApiError(504, "Timeout", message, {"causes": causes, "retryAfterSeconds": 1})
