"""create, update, patch and delete."""

from __future__ import annotations

from typing import Any

import yaml
from starlette.responses import Response

from kubetwin.api import tables
from kubetwin.api.bodies import (
    ACCEPTED,
    BadBody,
    NotJson,
    check_kind,
    check_unknown,
    duplicate_fields,
    fitted,
    not_registered,
    parse_body,
    parse_json,
    typed,
)
from kubetwin.api.call import Call
from kubetwin.api.negotiation import negotiate, respond, warnings
from kubetwin.api.requests import check_write_options, options_error, parse_boolean, parse_integer, parse_list_options
from kubetwin.api.selection import select, selected
from kubetwin.controllers.pod_security import warnings_of
from kubetwin.model import errors, times
from kubetwin.model.apply import apply, faults_of_type
from kubetwin.model.decoding import json_kind
from kubetwin.model.errors import ApiError, Object, bad_request, bad_value, forbidden_field, not_supported, required
from kubetwin.model.patches import PatchFailed, go_text, json_patch, merge_patch, strategic_merge
from kubetwin.model.protobuf import MEDIA_TYPE, parse_protobuf
from kubetwin.model.schema import Schema, definition
from kubetwin.state.cluster import Cluster, Deleted
from kubetwin.state.deletion import POLICIES, DeleteOptions

_KEPT_NAMESPACES = ("default", "kube-system", "kube-public")
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
        created = self.cluster.create(
            call.resource, call.info.namespace, obj, dry_run=call.dry_run, manager=call.manager
        )
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
        patch = _parsed_patch(call)
        patched, notes = self._typed_patch(call, _patched(call, old, patch), patch)
        _match_path(patched, call)
        _check_uid(patched, old, call)
        return self._answer(call, self._store(call, patched), 200, notes)

    def delete(self, call: Call) -> Response:
        check_write_options("delete", call.query, call.query.getlist("dryRun"))
        options, dry_run = _delete_options(call)
        if call.resource.kind == "Namespace" and call.info.name in _KEPT_NAMESPACES:  # NamespaceLifecycle admission
            detail = "this namespace may not be deleted"
            raise errors.forbidden(call.resource.group_resource, call.info.name, detail)
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
            manager=call.manager,
        )

    def _object(self, call: Call) -> tuple[Object, list[str]]:
        obj = parse_body(call.body, call.content_type, call.resource)
        check_kind(obj, call.resource, self.cluster.registry)
        value, unknown = typed(obj, call.resource)
        twice = duplicate_fields(call.body) if call.content_type in ("", "application/json") else []
        return value, check_unknown(unknown, call.resource, call.field_validation, twice)

    def _typed_patch(self, call: Call, patched: Object, patch: Any) -> tuple[Object, list[str]]:
        """The patched object, fitted to its type.

        Raises:
            ApiError: 422 that shows the patch (strategic) or the patched object, and says why it does not fit.
        """
        strategic = call.content_type == STRATEGIC_PATCH
        shown = go_text(patch) if strategic else errors.show(patched)
        try:
            _check_registered(patched, call)
            value, unknown = fitted(patched, call.resource)
        except BadBody as fault:
            raise errors.invalid("", "", "", [bad_value("patch", shown, str(fault))]) from None
        if unknown and call.field_validation == "Strict":
            texts = ", ".join(f'unknown field "{path}"' for path in unknown)
            raise errors.invalid("", "", "", [bad_value("patch", shown, f"strict decoding error: {texts}")])
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
        _match_path(applied, call)
        schema = call.resource.type_schema()
        if (applied.get("metadata") or {}).get("managedFields"):
            raise bad_request("metadata.managedFields must be nil")
        _check_applicable(applied, schema)
        value, unknown = typed(applied, call.resource)
        notes = check_unknown(unknown, call.resource, call.field_validation)
        live = self.cluster.store.get(call.resource.key, call.info.namespace, call.info.name)
        uid = value["metadata"].get("uid")
        if live is None and uid:
            detail = f"uid mismatch: the provided object specified uid {uid}, and no existing object was found"
            raise errors.conflict(call.resource.group_resource, call.info.name, detail)
        force = parse_boolean(call.query.get("force"))
        base = live or {"metadata": {"name": call.info.name}}
        result = apply(base, value, schema, manager=call.field_manager, force=force, moment=times.now())
        if live is None:
            created = self.cluster.create(call.resource, call.info.namespace, result, dry_run=call.dry_run)
            return self._answer(call, created, 201, notes)
        return self._answer(call, self._store(call, result), 200, notes)

    def _answer(self, call: Call, obj: Object, status: int, notes: list[str]) -> Response:
        wanted = negotiate(call.headers.get("accept", ""), tables.KINDS)
        if not call.info.subresource and (status == 201 or call.resource.key != "pods"):
            notes = [*notes, *warnings_of(self.cluster, call.resource, obj)]
        return respond(tables.present(call.resource, obj, wanted), status, wanted, warnings(notes))


def _match_path(obj: Object, call: Call) -> None:
    """Name and namespace of the body must be those of the path; a missing namespace is filled in."""
    metadata = obj["metadata"] = obj.get("metadata") or {}
    info = call.info
    if info.name:
        name = metadata.get("name")
        if not name:
            missing = "was undeterminable: name must be provided"
            raise bad_request(f"the name of the object ({info.name} based on URL) {missing}")
        if name != info.name:
            raise bad_request(f"the name of the object ({name}) does not match the name on the URL ({info.name})")
    namespace = metadata.get("namespace")
    if call.resource.namespaced and namespace and namespace != info.namespace:
        raise bad_request("the namespace of the provided object does not match the namespace sent on the request")


def _check_uid(patched: Object, old: Object, call: Call) -> None:
    """A patch cannot change the uid; in an update, another one is a failed precondition."""
    uid = patched["metadata"].get("uid")
    if uid and uid != old["metadata"]["uid"]:
        fault = bad_value("metadata.uid", uid, "field is immutable")
        raise errors.invalid(call.resource.kind, call.resource.group, call.info.name, [fault])


def _check_registered(patched: Object, call: Call) -> None:
    """Refuse a patch that would make an object of an unknown kind."""
    kind, version = patched.get("kind", call.resource.kind), patched.get("apiVersion", call.resource.group_version)
    if not call.resource.custom and (kind, version) != (call.resource.kind, call.resource.group_version):
        raise BadBody(not_registered(kind, version))


def _check_applicable(applied: Object, schema: Schema) -> None:
    """Refuse what does not fit the type, field by field."""
    faults = [*faults_of_type({k: v for k, v in applied.items() if k not in ("kind", "apiVersion")}, schema)]
    if not faults or not schema:
        return
    group, _, version = applied["apiVersion"].rpartition("/")
    metadata = applied["metadata"]
    place = f"{metadata.get('namespace', '')}/{metadata.get('name', '')}"
    listed = faults[0] if len(faults) == 1 else "errors:" + "".join(f"\n  {fault}" for fault in faults)
    kind = f"{group}/{version}, Kind={applied['kind']}"
    raise ApiError(500, "", f"failed to create typed patch object ({place}; {kind}): {listed}")


def _parsed_patch(call: Call) -> Any:
    """The patch as sent.

    Raises:
        ApiError: 400 for a body that is not a patch.
    """
    try:
        patch: Any = parse_json(call.body)
    except NotJson as fault:
        raise bad_request(f"error decoding patch: {fault}") from None
    wanted: type = dict
    go_type = "map[string]interface {}"
    if call.content_type == JSON_PATCH:
        wanted, go_type = list, "[]handlers.jsonPatchOp"
    if patch is None:
        return wanted()
    if not isinstance(patch, wanted):
        kind = json_kind(patch)
        raise bad_request(f"error decoding patch: json: cannot unmarshal {kind} into Go value of type {go_type}")
    return patch


def _patched(call: Call, old: Object, patch: Any) -> Object:
    """The object after the patch, before it is checked.

    Raises:
        ApiError: 422 for a JSON patch that does not apply, 500 for a strategic one that cannot be understood.
    """
    if call.content_type == JSON_PATCH:
        try:
            return json_patch(old, patch)
        except PatchFailed:
            message = "the server rejected our request due to an error in our request"
            raise ApiError(422, "Invalid", message, {}) from None
    if call.content_type == MERGE_PATCH or not call.resource.type_name:
        merged: Object = merge_patch(old, patch)
        return merged
    try:
        strategic: Object = strategic_merge(old, patch, definition(call.resource.type_name))
    except PatchFailed as fault:
        raise ApiError(500, "", str(fault)) from None
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
    if orphan is not None and policy:
        detail = "orphanDependents and deletionPropagation cannot be both set"
        raise options_error("DeleteOptions", [bad_value("propagationPolicy", policy, detail)])
    if orphan is not None:
        policy = "Orphan" if parse_boolean(str(orphan)) else "Background"
    if policy and policy not in POLICIES:
        supported = ("Foreground", "Background", "Orphan", "nil")
        raise options_error("DeleteOptions", [not_supported("propagationPolicy", policy, supported)])
    conditions = body.get("preconditions") or {}
    options = DeleteOptions(
        grace_seconds=parse_integer(str(grace)) if grace is not None else None,
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
