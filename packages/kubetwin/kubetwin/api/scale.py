"""The scale subresource: number of replicas, in the one form that `kubectl scale` uses for every kind."""

from __future__ import annotations

import copy
from typing import Any

from starlette.responses import Response

from kubetwin.api.bodies import NotJson, parse_body, parse_json
from kubetwin.api.call import Call
from kubetwin.api.negotiation import respond
from kubetwin.model import errors
from kubetwin.model.errors import Object, bad_request, bad_value, internal_error
from kubetwin.model.patches import PatchFailed, json_patch, merge_patch
from kubetwin.state.cluster import Cluster

_JSON_PATCH = "application/json-patch+json"


_SCALED = "pytorchjobs.kubeflow.org"
"""The one kind with a Scale; its paths are those that its CustomResourceDefinition declares (training operator 1.9)."""

_WANTED = ("spec", "pytorchReplicaSpecs", "Worker", "replicas")
_WORKERS = ("status", "replicaStatuses", "Worker")


class Scales:
    """Answers reads and writes of Scales."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster

    def answer(self, call: Call, method: str) -> Response:
        """Read or change the number of replicas.

        Raises:
            ApiError: 404, 405, 422, or 500 for an object without replicas.
        """
        if call.resource.key != _SCALED or method not in ("GET", "HEAD", "PUT", "PATCH"):
            raise errors.method_not_allowed()
        owner = self.cluster.get(call.resource, call.info.namespace, call.info.name)
        scale = _scale(owner)
        if method in ("GET", "HEAD"):
            return respond(scale)
        changed = (
            _patched(call, scale) if method == "PATCH" else parse_body(call.body, call.content_type, call.resource)
        )
        replicas = (changed.get("spec") or {}).get("replicas", 0)
        if not isinstance(replicas, int) or replicas < 0:
            fault = bad_value("spec.replicas", replicas, "must be greater than or equal to 0")
            raise errors.invalid("Scale", "autoscaling", call.info.name, [fault])
        return respond(_scale(self._store(call, owner, changed, replicas)))

    def _store(self, call: Call, owner: Object, changed: Object, replicas: int) -> Object:
        new = copy.deepcopy(owner)
        place: Any = new
        for key in _WANTED[:-1]:
            place = place[key]
        place[_WANTED[-1]] = replicas
        new["metadata"]["resourceVersion"] = (changed.get("metadata") or {}).get("resourceVersion", "")
        return self.cluster.update(call.resource, call.info.namespace, new, dry_run=call.dry_run)


def _scale(owner: Object) -> Object:
    wanted = _value(owner, _WANTED)
    if wanted is None:
        raise internal_error(f'the spec replicas field ".{".".join(_WANTED)}" does not exist')
    metadata = {
        key: owner["metadata"][key]
        for key in ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
        if key in owner["metadata"]
    }
    status: Object = {"replicas": _value(owner, (*_WORKERS, "active")) or 0}
    if selector := _value(owner, (*_WORKERS, "selector")):
        status["selector"] = selector
    spec = {"replicas": wanted}
    return {"kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": metadata, "spec": spec, "status": status}


def _value(obj: Object, path: tuple[str, ...]) -> Any:
    value: Any = obj
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def _patched(call: Call, scale: Object) -> Object:
    try:
        patch = parse_json(call.body)
        changed: Object = json_patch(scale, patch) if call.content_type == _JSON_PATCH else merge_patch(scale, patch)
    except (NotJson, PatchFailed) as fault:
        raise bad_request(f"error decoding patch: {fault}") from None
    return changed
