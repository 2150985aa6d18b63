"""Kinds that a CustomResourceDefinition would bring: how they differ from built-in ones, in one place."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from kubetwin.model.errors import FieldError, Object
from kubetwin.model.schema import OBJECT_META, Schema
from kubetwin.resources.resource import STATUS, Resource
from kubetwin.resources.structural import ANYTHING, check, fields, fill, reference

VERBS = ("delete", "deletecollection", "get", "list", "patch", "create", "update", "watch")
"""Verbs in the order of apiextensions-apiserver's list."""

_UNCHECKED = FieldError(
    "FieldValueInvalid",
    "<nil>",
    "Invalid value: null: some validation rules were not checked because the object was invalid; "
    "correct the existing errors to complete validation",
)
"""Fault that kinds with CEL rules add to every refusal by their schema."""


def _nothing_more(_obj: Object) -> Iterable[FieldError]:
    return ()


def custom_resource(
    *,
    spec: Schema,
    webhook: Callable[[Object], Iterable[FieldError]] = _nothing_more,
    rules: bool = False,
    has_status: bool = True,
    **settings: Any,
) -> Resource:
    """A custom kind.

    Args:
        spec: Schema of `spec`.
        webhook: Faults that the operator's admission webhook finds in an object that fits the schema.
        rules: Whether its definition has CEL rules.
        has_status: Whether it has the status subresource; without it every update may write the status.
        settings: As of `Resource`.
    """
    schema = fields(
        apiVersion={"type": "string"},
        kind={"type": "string"},
        metadata=reference(OBJECT_META),
        spec=spec,
        status=ANYTHING,
    )
    checked = fields(needed=("spec",), spec=spec)

    def default(obj: Object) -> None:
        fill(obj, checked)

    def validate(obj: Object) -> list[FieldError]:
        faults = list(check(obj, checked))
        if faults:
            return [*faults, _UNCHECKED] if rules else faults
        return list(webhook(obj))

    settings = {"default": default, "validate": validate, "verbs": VERBS, "has_generation": True, **settings}
    if has_status:
        settings["subresources"] = (STATUS, *settings.get("subresources", ()))
    return Resource(custom=True, schema=schema, **settings)
