"""The subresources that are actions: binding, eviction, token, finalize."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from starlette.responses import Response

from kubetwin.api.bodies import parse_body
from kubetwin.api.call import Call
from kubetwin.api.negotiation import respond
from kubetwin.controllers.disruptions import budget_status, budgets_of
from kubetwin.controllers.scheduler import bind
from kubetwin.model import errors, times
from kubetwin.model.conditions import mark_disrupted
from kubetwin.model.errors import ApiError, FieldError, GroupResource, Object, bad_value, not_supported, required
from kubetwin.model.selectors import label_selector_of
from kubetwin.state.cluster import Cluster
from kubetwin.state.deletion import DeleteOptions
from kubetwin.tokens import AUDIENCE, ServiceAccountTokens

SHORTEST_TOKEN_SECONDS, DEFAULT_TOKEN_SECONDS, LONGEST_TOKEN_SECONDS = 600, 3600, 2**32
_SUCCESS = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}


_BINDABLE = ("pods", "secrets", "nodes")
"""Kinds that a token can be bound to."""


def _check_name(call: Call, obj: Object, kind: str) -> None:
    if (obj.get("metadata") or {}).get("name", "") != call.info.name:
        raise errors.bad_request(f"name in URL does not match name in {kind} object")


def _mark_evicted(pod: Object) -> None:
    mark_disrupted(pod, "EvictionByEvictionAPI", "Eviction API: evicting")


class Subresources:
    """Answers POST and PUT on acting subresources."""

    def __init__(self, cluster: Cluster, tokens: ServiceAccountTokens) -> None:
        self.cluster = cluster
        self.tokens = tokens

    def act(self, call: Call) -> Response:
        acts = {
            ("pods", "binding"): self._bind,
            ("pods", "eviction"): self._evict,
            ("serviceaccounts", "token"): self._issue_token,
            ("namespaces", "finalize"): self._finalize,
        }
        act = acts.get((call.resource.plural, call.info.subresource))
        if act is None:
            raise errors.method_not_allowed()
        return act(call, parse_body(call.body, call.content_type, call.resource))

    def _bind(self, call: Call, binding: Object) -> Response:
        pod = self.cluster.get(call.resource, call.info.namespace, call.info.name)
        target = binding.get("target") or {}
        node, bound = target.get("name", ""), GroupResource("pods/binding")
        _check_name(call, binding, "Binding")
        faults: list[FieldError] = []
        if target.get("kind", "") not in ("", "Node"):
            faults.append(not_supported("target.kind", target["kind"], ("Node", "<empty>")))
        if not node:
            faults.append(required("target.name"))
        if faults:  # no status of the server's own: its aggregate of field errors
            listed = ", ".join(map(str, faults))
            raise ApiError(500, "", listed if len(faults) == 1 else f"[{listed}]")
        if pod["metadata"].get("deletionTimestamp"):
            raise errors.conflict(
                bound, call.info.name, f"pod {call.info.name} is being deleted, cannot be assigned to a host"
            )
        if pod["spec"].get("nodeName"):
            detail = f'pod {call.info.name} is already assigned to node "{pod["spec"]["nodeName"]}"'
            raise errors.conflict(bound, call.info.name, detail)
        if not call.dry_run:
            bind(self.cluster, call.info.namespace, call.info.name, node)
        return respond(_SUCCESS, 201)

    def _evict(self, call: Call, eviction: Object) -> Response:
        _check_name(call, eviction, "Eviction")
        pod = self.cluster.get(call.resource, call.info.namespace, call.info.name)
        ends = pod["metadata"].get("deletionTimestamp") or pod["status"].get("phase") in ("Succeeded", "Failed")
        if not ends and pod["status"].get("phase") != "Pending":
            self._respect_budgets(pod)
        asked = eviction.get("deleteOptions") or {}
        conditions = asked.get("preconditions") or {}
        options = DeleteOptions(
            grace_seconds=asked.get("gracePeriodSeconds"),
            uid=conditions.get("uid") or "",
            resource_version=conditions.get("resourceVersion") or "",
        )
        options.check(call.resource, pod)
        if not call.dry_run:
            self.cluster.modify(call.resource, call.info.namespace, call.info.name, _mark_evicted)
            options = replace(options, resource_version="")  # it has held, and was changed just now
        self.cluster.delete(call.resource, call.info.namespace, call.info.name, options, dry_run=call.dry_run)
        return respond(_SUCCESS, 201)

    def _respect_budgets(self, pod: Object) -> None:
        for budget in budgets_of(self.cluster.store, pod):
            selector = label_selector_of(budget["spec"].get("selector"))
            pods = self.cluster.store.objects("pods", pod["metadata"]["namespace"])
            mine = [p for p in pods if selector.matches(p["metadata"].get("labels"))]
            status = budget_status(budget, mine)
            if status["disruptionsAllowed"] > 0:
                continue
            name = budget["metadata"]["name"]
            wanted, healthy = status["desiredHealthy"], status["currentHealthy"]
            text = f"The disruption budget {name} needs {wanted} healthy pods and has {healthy} currently"
            message = "Cannot evict pod as it would violate the pod's disruption budget."
            causes = [{"reason": "DisruptionBudget", "message": text}]
            raise ApiError(429, "TooManyRequests", message, {"causes": causes})

    def _issue_token(self, call: Call, request: Object) -> Response:
        account = self.cluster.get(call.resource, call.info.namespace, call.info.name)
        spec = request.get("spec") or {}
        seconds = spec.get("expirationSeconds") or DEFAULT_TOKEN_SECONDS
        if seconds < SHORTEST_TOKEN_SECONDS:
            fault = bad_value("spec.expirationSeconds", seconds, "may not specify a duration less than 10 minutes")
            raise errors.invalid("TokenRequest", "authentication.k8s.io", "", [fault])
        if seconds > LONGEST_TOKEN_SECONDS:
            fault = bad_value("spec.expirationSeconds", seconds, "may not specify a duration larger than 2^32 seconds")
            raise errors.invalid("TokenRequest", "authentication.k8s.io", "", [fault])
        if bound := spec.get("boundObjectRef"):
            self._check_bound_object(call, bound)
        audiences = spec.get("audiences") or [AUDIENCE]
        answer = {
            "kind": "TokenRequest",
            "apiVersion": "authentication.k8s.io/v1",
            "metadata": {
                "name": call.info.name,
                "namespace": call.info.namespace,
                "uid": account["metadata"]["uid"],
                "creationTimestamp": times.seconds(times.now()),
            },
            "spec": {
                "audiences": audiences,
                "expirationSeconds": seconds,
                "boundObjectRef": spec.get("boundObjectRef"),
            },
            "status": {
                "token": self.tokens.issue(account, seconds, audiences),
                "expirationTimestamp": times.seconds(times.now() + timedelta(seconds=seconds)),
            },
        }
        return respond(answer, 201)

    def _check_bound_object(self, call: Call, bound: Object) -> None:
        """A token may be bound to a pod, a secret or a node that exists.

        Raises:
            ApiError: 400 for another kind, 404, or 409 for another uid.
        """
        resource = next((r for r in map(self.cluster.registry.by_key, _BINDABLE) if r.kind == bound.get("kind")), None)
        if resource is None:
            detail = f"{bound.get('apiVersion', '')}, Kind={bound.get('kind', '')}".removeprefix("v1, ")
            shown = f"/v1, {detail}" if bound.get("apiVersion") == "v1" else detail
            account = call.info.name
            raise errors.bad_request(f'cannot bind token for serviceaccount "{account}" to object of type {shown}')
        namespace, name = call.info.namespace if resource.namespaced else "", bound.get("name", "")
        uid, found = bound.get("uid", ""), self.cluster.get(resource, namespace, name)
        if uid and uid != found["metadata"]["uid"]:
            detail = (
                f"the UID in the bound object reference ({uid}) does not match the UID in record. "
                "The object might have been deleted and then recreated"
            )
            raise errors.conflict(GroupResource(resource.kind), name, detail)

    def _finalize(self, call: Call, namespace: Object) -> Response:
        def write(stored: Object) -> None:
            stored["spec"]["finalizers"] = (namespace.get("spec") or {}).get("finalizers") or []

        self.cluster.get(call.resource, "", call.info.name)
        changed = self.cluster.modify(call.resource, "", call.info.name, write)
        return respond(changed)
