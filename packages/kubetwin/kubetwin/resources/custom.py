"""Kinds that a CustomResourceDefinition would bring: how they differ from built-in ones, in one place."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from kubetwin.model.errors import FieldError, Object
from kubetwin.model.schema import OBJECT_META, Schema
from kubetwin.resources.cel_rules import KEY, faults_of_rules
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

_BLOCKING = (
    "FieldValueNotSupported",
    "FieldValueRequired",
    "FieldValueTooLong",
    "FieldValueTooMany",
    "FieldValueTypeInvalid",
)
"""Faults by the schema that keep the rules from being checked (apiextensions-apiserver, `hasBlockingErr` in
pkg/registry/customresource/strategy.go)."""


def _nothing_more(_obj: Object) -> Iterable[FieldError]:
    return ()


def custom_resource(
    *,
    spec: Schema,
    status: Schema = ANYTHING,
    webhook: Callable[[Object], Iterable[FieldError]] = _nothing_more,
    rules: bool = False,
    root_rules: Sequence[Object] = (),
    has_status: bool = True,
    needs_spec: bool = True,
    **settings: Any,
) -> Resource:
    """A custom kind.

    Args:
        spec: Schema of `spec`.
        status: Schema of `status`, for what clients write to it.
        webhook: Faults that the operator's admission webhook finds in an object that fits the schema.
        rules: Whether its definition has CEL rules.
        root_rules: Those of them that are about the whole object.
        has_status: Whether it has the status subresource; without it every update may write the status.
        needs_spec: Whether its definition requires `spec`.
        settings: As of `Resource`.
    """
    schema = fields(
        apiVersion={"type": "string"},
        kind={"type": "string"},
        metadata=reference(OBJECT_META),
        spec=spec,
        status=status,
    )
    checked = {**fields(needed=("spec",) if needs_spec else (), spec=spec), KEY: list(root_rules)}
    with_status = fields(status=status)

    def default(obj: Object) -> None:
        fill(obj, checked)

    def compare(obj: Object, old: Object | None) -> list[FieldError]:
        faults = list(check(obj, checked))
        if rules and any(fault.reason in _BLOCKING for fault in faults):
            return [*faults, _UNCHECKED]
        if rules:
            faults += faults_of_rules(obj, old, checked)
        return faults

    def validate(obj: Object) -> list[FieldError]:
        return compare(obj, None) or list(webhook(obj))

    def validate_status(obj: Object) -> list[FieldError]:
        if not obj.get("status"):
            return []
        return [*check(obj, with_status), *faults_of_rules(obj, None, with_status)]

    settings = {
        "default": default,
        "validate": validate,
        "validate_update": compare if rules else _accept_update,
        "validate_status": validate_status,
        "verbs": VERBS,
        "has_generation": True,
        **settings,
    }
    if has_status:
        settings["subresources"] = (STATUS, *settings.get("subresources", ()))
    return Resource(custom=True, schema=schema, **settings)


def _accept_update(_new: Object, _old: Object) -> list[FieldError]:
    return []
