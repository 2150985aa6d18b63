"""create, update, patch and delete."""

from __future__ import annotations

from typing import Any

import yaml
from starlette.responses import Response

from kubetwin.api import tables
from kubetwin.api.bodies import ACCEPTED, NotJson, check_kind, check_unknown, parse_body, parse_json, typed
from kubetwin.api.call import Call
from kubetwin.api.negotiation import negotiate, respond, warnings
from kubetwin.api.requests import check_write_options, options_error, parse_boolean, parse_list_options
from kubetwin.api.selection import select, selected
from kubetwin.model import errors, times
from kubetwin.model.apply import apply
from kubetwin.model.errors import ApiError, Object, bad_request, bad_value, forbidden_field, not_supported, required
from kubetwin.model.patches import PatchFailed, json_patch, merge_patch, strategic_merge
from kubetwin.model.protobuf import MEDIA_TYPE, parse_protobuf
from kubetwin.model.schema import definition
from kubetwin.state.cluster import Cluster, Deleted
from kubetwin.state.deletion import POLICIES, DeleteOptions

JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"


class Writer:
    """Answers writes."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster

    def create(self, call: Call) -> Response:
        check_write_options("create", call.query, call.query.getlist("dryRun"))
        obj, notes = self._object(call)
        _match_path(obj, call)
        created = self.cluster.create(call.resource, call.info.namespace, obj, dry_run=call.dry_run)
        return self._answer(call, created, 201, notes)

    def update(self, call: Call) -> Response:
        check_write_options("update", call.query, call.query.getlist("dryRun"))
        obj, notes = self._object(call)
        _match_path(obj, call)
        return self._answer(call, self._store(call, obj), 200, notes)

    def patch(self, call: Call) -> Response:
        check_write_options("patch", call.query, call.query.getlist("dryRun"))
        accepted = [JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH, APPLY_PATCH]
        if call.resource.custom:
            accepted.remove(STRATEGIC_PATCH)
        if call.content_type not in accepted:
            if call.resource.custom and call.content_type == STRATEGIC_PATCH:
                raise errors.unsupported_media_type(accepted)
            raise ApiError(415, "UnsupportedMediaType", "415: Unsupported Media Type", {})
        if call.content_type == APPLY_PATCH:
            return self._apply(call)
        if "force" in call.query:
            detail = "may not be specified for non-apply patch"
            raise options_error("PatchOptions", [forbidden_field("force", detail)])
        old = self.cluster.get(call.resource, call.info.namespace, call.info.name)
        patched, notes = self._typed_patch(call, _patched(call, old))
        _match_path(patched, call)
        return self._answer(call, self._store(call, patched), 200, notes)

    def delete(self, call: Call) -> Response:
        check_write_options("delete", call.query, call.query.getlist("dryRun"))
        options, dry_run = _delete_options(call)
        done = self.cluster.delete(
            call.resource, call.info.namespace, call.info.name, options, dry_run=call.dry_run or dry_run
        )
        return respond(_deletion_answer(call, done))

    def delete_collection(self, call: Call) -> Response:
        check_write_options("delete", call.query, call.query.getlist("dryRun"))
        delete_options, dry_run = _delete_options(call)
        options = parse_list_options(call.query, watch=False)
        found = selected(self.cluster.store, call.resource, select(call.resource, call.info, options))
        gone = [self._delete_one(call, obj, delete_options, dry_run=dry_run) for obj in found]
        metadata = {"resourceVersion": str(self.cluster.store.revision)}
        wanted = negotiate("application/json")
        return respond(tables.present_list(call.resource, gone, metadata, wanted))

    def _delete_one(self, call: Call, obj: Object, options: DeleteOptions, *, dry_run: bool) -> Object:
        metadata = obj["metadata"]
        namespace = metadata.get("namespace", "")
        done = self.cluster.delete(call.resource, namespace, metadata["name"], options, dry_run=call.dry_run or dry_run)
        return done.object

    def _store(self, call: Call, obj: Object) -> Object:
        return self.cluster.update(
            call.resource,
            call.info.namespace,
            obj,
            subresource=call.info.subresource,
            dry_run=call.dry_run,
            manager=call.field_manager or call.user_agent,
        )

    def _object(self, call: Call) -> tuple[Object, list[str]]:
        obj = parse_body(call.body, call.content_type, call.resource)
        check_kind(obj, call.resource, self.cluster.registry)
        value, unknown = typed(obj, call.resource)
        return value, check_unknown(unknown, call.resource, call.field_validation)

    def _typed_patch(self, call: Call, patched: Object) -> tuple[Object, list[str]]:
        value, unknown = typed(patched, call.resource)
        if unknown and call.field_validation == "Strict":
            texts = ", ".join(f'unknown field "{path}"' for path in unknown)
            fault = bad_value("patch", errors.show(patched), f"strict decoding error: {texts}")
            raise errors.invalid("", "", "", [fault])
        return value, check_unknown(unknown, call.resource, call.field_validation)

    def _apply(self, call: Call) -> Response:
        if not call.field_manager:
            raise options_error("PatchOptions", [required("fieldManager", "is required for apply patch")])
        try:
            applied = yaml.safe_load(call.body)
        except yaml.YAMLError as fault:
            raise bad_request(f"error decoding YAML: {fault}") from None
        if not isinstance(applied, dict) or not applied.get("kind") or not applied.get("apiVersion"):
            kind = applied.get("kind", "") if isinstance(applied, dict) else ""
            raise bad_request(f"invalid object type: /, Kind={kind}")
        check_kind(applied, call.resource, self.cluster.registry)
        value, unknown = typed(applied, call.resource)
        notes = check_unknown(unknown, call.resource, call.field_validation)
        _match_path(value, call)
        live = self.cluster.store.get(call.resource.key, call.info.namespace, call.info.name)
        schema = call.resource.type_schema()
        force = parse_boolean(call.query.get("force"))
        base = live or {"metadata": {"name": call.info.name}}
        result = apply(base, value, schema, manager=call.field_manager, force=force, moment=times.now())
        if live is None:
            created = self.cluster.create(call.resource, call.info.namespace, result, dry_run=call.dry_run)
            return self._answer(call, created, 201, notes)
        return self._answer(call, self._store(call, result), 200, notes)

    def _answer(self, call: Call, obj: Object, status: int, notes: list[str]) -> Response:
        wanted = negotiate(call.headers.get("accept", ""), tables.KINDS)
        return respond(tables.present(call.resource, obj, wanted), status, wanted, warnings(notes))


def _match_path(obj: Object, call: Call) -> None:
    """Name and namespace of the body must be those of the path; missing ones are filled in."""
    metadata = obj.setdefault("metadata", {})
    info = call.info
    if info.name:
        name = metadata.setdefault("name", info.name) or info.name
        if name != info.name:
            raise bad_request(f"the name of the object ({name}) does not match the name on the URL ({info.name})")
    namespace = metadata.get("namespace")
    if call.resource.namespaced and namespace and namespace != info.namespace:
        raise bad_request("the namespace of the provided object does not match the namespace sent on the request")


def _patched(call: Call, old: Object) -> Object:
    """The object after the patch, before it is checked.

    Raises:
        ApiError: 400 for a body that is no patch, 422 for a JSON patch that does not apply.
    """
    try:
        patch: Any = parse_json(call.body)
    except NotJson as fault:
        raise bad_request(f"error decoding patch: {fault}") from None
    if call.content_type == JSON_PATCH:
        if not isinstance(patch, list):
            kind = "object" if isinstance(patch, dict) else "value"
            raise bad_request(
                f"error decoding patch: json: cannot unmarshal {kind} into Go value of type []handlers.jsonPatchOp"
            )
        try:
            return json_patch(old, patch)
        except PatchFailed:
            message = "the server rejected our request due to an error in our request"
            raise ApiError(422, "Invalid", message, {}) from None
    if not isinstance(patch, dict):
        raise bad_request(
            "error decoding patch: json: cannot unmarshal array into Go value of type map[string]interface {}"
        )
    if call.content_type == MERGE_PATCH or not call.resource.type_name:
        merged: Object = merge_patch(old, patch)
        return merged
    try:
        strategic: Object = strategic_merge(old, patch, definition(call.resource.type_name))
    except PatchFailed as fault:
        raise ApiError(422, "Invalid", str(fault), {}) from None
    return strategic


def _delete_options(call: Call) -> tuple[DeleteOptions, bool]:
    """Options of the body, else of the query, and whether they request a dry run."""
    body: Object = {}
    if call.body.strip():
        if call.content_type not in ("", *ACCEPTED):
            raise errors.unsupported_media_type(ACCEPTED)
        readers = {"application/yaml": yaml.safe_load, MEDIA_TYPE: parse_protobuf}
        try:
            parsed = readers.get(call.content_type, parse_json)(call.body)
        except (ValueError, yaml.YAMLError) as fault:
            raise bad_request(str(fault)) from None
        body = parsed if isinstance(parsed, dict) else {}
    grace = body.get("gracePeriodSeconds", call.query.get("gracePeriodSeconds"))
    policy = body.get("propagationPolicy") or call.query.get("propagationPolicy") or ""
    orphan = body.get("orphanDependents", call.query.get("orphanDependents"))
    if orphan is not None and not policy:
        policy = "Orphan" if parse_boolean(str(orphan)) else "Background"
    if policy and policy not in POLICIES:
        supported = ("Foreground", "Background", "Orphan", "nil")
        raise options_error("DeleteOptions", [not_supported("propagationPolicy", policy, supported)])
    conditions = body.get("preconditions") or {}
    options = DeleteOptions(
        grace_seconds=int(grace) if grace is not None else None,
        propagation=policy,
        uid=conditions.get("uid") or "",
        resource_version=conditions.get("resourceVersion") or "",
    )
    return options, bool(body.get("dryRun"))


def _deletion_answer(call: Call, done: Deleted) -> Object:
    if call.resource.returns_deleted or not done.gone:
        return done.object
    details: Object = {"name": call.info.name}
    if call.resource.group:
        details["group"] = call.resource.group
    details |= {"kind": call.resource.plural, "uid": done.object["metadata"]["uid"]}
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details}
