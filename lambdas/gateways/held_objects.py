"""Everything that runs hold in a Kubernetes cluster: jobs of every kind, pods without one, services, claims, grants."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from lambdas.gateways.kubernetes_objects import grants_name, parse_claim
from trainflow.deployment.backends import KUBERNETES_KINDS, KubernetesKind
from trainflow.deployment.kubernetes_names import (
    BACKEND_LABEL,
    CLAIM_LABEL,
    JOB_LABEL,
    MANAGED_BY,
    PLACEHOLDER_LABEL,
    RUN_LABEL,
    STAGE_LABEL,
)
from trainflow.deployment.network_policies import API, KIND, PLURAL
from trainflow.kubernetes.api import KubernetesApi
from trainflow.kubernetes.faults import AlreadyExists, NotFound
from trainflow.workflow.leftovers import CLAIM, GRANT, POD, SERVICE, Held, HeldObject
from trainflow.workflow.run import Stage

GANGS = frozenset({Stage.PRECOMPILE.value, Stage.TRAINING.value})
"""Stages whose pods occupy training nodes."""

ENDED = frozenset({"Succeeded", "Failed"})
"""Phases of pods that occupy nothing any more."""

CORE = "/api/v1"
OURS = ",".join(f"{name}={value}" for name, value in MANAGED_BY.items())


class HeldObjects:
    """One namespace of the cluster. What is being deleted already is not listed."""

    def __init__(self, api: KubernetesApi, *, namespace: str) -> None:
        self._api, self._namespace = api, namespace
        self._grants: dict[str, Any] = {}
        """Objects with grants by their names, in the versions that were listed."""

    def held(self) -> list[Held]:
        """Everything that runs hold: one call for each kind of job and of what it refers to, and four more."""
        pods = self._listed(self._core("pods"), RUN_LABEL)
        jobs = [(kind, job) for kind in KUBERNETES_KINDS.values() for job in self._jobs(kind)]
        names = {job["metadata"]["name"] for _, job in jobs}
        alone = [pod for pod in pods if pod["metadata"]["labels"].get(JOB_LABEL) not in names]
        companions = [found for kind in KUBERNETES_KINDS.values() for found in self._companions(kind)]
        services = self._listed(self._core("services"), RUN_LABEL)
        policies = self._listed(self._policies, RUN_LABEL)
        return [
            *(_job(kind, job, pods, path=self._path(kind)) for kind, job in jobs),
            *(_pod(pod, path=self._core("pods")) for pod in alone),
            *companions,
            *(_held(SERVICE, service, path=self._core("services")) for service in services),
            *(_held(KIND, policy, path=self._policies) for policy in policies),
            *self._claims_and_grants(),
        ]

    def delete(self, held: Held) -> None:
        """Delete a listed object; a job with its pods. Safe to repeat."""
        if held.thing.kind == GRANT:
            self._withdraw(held)
        else:
            self._api.delete(f"{held.path}/{held.thing.name}")

    def _claims_and_grants(self) -> Iterator[Held]:
        path = self._core("configmaps")
        for found in self._listed(path, OURS):
            name, labels = found["metadata"]["name"], found["metadata"].get("labels") or {}
            if CLAIM_LABEL in labels:
                claim = parse_claim(found)
                yield _held(CLAIM, found, path=path, instance_type=claim.instance_type, num_nodes=claim.num_nodes)
            elif name.startswith(grants_name("")):
                self._grants[name] = found
                for run_id in found.get("data") or {}:
                    yield Held(thing=HeldObject(kind=GRANT, name=name), run_id=run_id, path=path)

    def _withdraw(self, held: Held) -> None:
        """Remove a run from the grants that were listed, unless these have been replaced meanwhile."""
        found = self._grants[held.thing.name]
        body = {
            **found,
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "data": {run_id: nodes for run_id, nodes in found["data"].items() if run_id != held.run_id},
        }
        with suppress(AlreadyExists, NotFound):
            path = f"{held.path}/{held.thing.name}"
            self._grants[held.thing.name] = {"data": {}, **self._api.call("PUT", path, body=body)}

    def _jobs(self, kind: KubernetesKind) -> list[Any]:
        """Jobs of one kind; none of a kind that the cluster does not know."""
        try:
            return self._listed(self._path(kind), f"{RUN_LABEL},{BACKEND_LABEL}={kind.name}")
        except NotFound:
            if kind.software:
                return []
            raise

    def _companions(self, kind: KubernetesKind) -> Iterator[Held]:
        """The objects that jobs of a kind refer to; none of a kind that the cluster does not know."""
        if kind.companion is None:
            return
        path = f"{kind.api}/namespaces/{self._namespace}/{kind.companion.plural}"
        with suppress(NotFound):
            for found in self._listed(path, RUN_LABEL):
                yield _held(kind.companion.kind, found, path=path)

    def _listed(self, path: str, selector: str) -> list[Any]:
        return [found for found in self._api.list(path, selector) if not found["metadata"].get("deletionTimestamp")]

    def _path(self, kind: KubernetesKind) -> str:
        return f"{kind.api}/namespaces/{self._namespace}/{kind.plural}"

    @property
    def _policies(self) -> str:
        return f"{API}/namespaces/{self._namespace}/{PLURAL}"

    def _core(self, plural: str) -> str:
        return f"{CORE}/namespaces/{self._namespace}/{plural}"


def _job(kind: KubernetesKind, job: Any, pods: list[Any], *, path: str) -> Held:
    name = job["metadata"]["name"]
    own = [pod for pod in pods if pod["metadata"]["labels"].get(JOB_LABEL) == name]
    return _held(kind.kind, job, path=path, nodes=frozenset(node for pod in own for node in _occupied(pod)))


def _pod(pod: Any, *, path: str) -> Held:
    return _held(POD, pod, path=path, nodes=_occupied(pod))


def _held(kind: str, found: Any, **facts: Any) -> Held:
    metadata = found["metadata"]
    return Held(thing=HeldObject(kind=kind, name=metadata["name"]), run_id=metadata["labels"][RUN_LABEL], **facts)


def _occupied(pod: Any) -> frozenset[str]:
    """The training node that a pod occupies, as a set of one or none. Small programs run on other nodes."""
    node = pod.get("spec", {}).get("nodeName")
    labels = pod["metadata"]["labels"]
    is_gang = labels.get(STAGE_LABEL) in GANGS or PLACEHOLDER_LABEL in labels
    return frozenset({node}) if node and is_gang and pod.get("status", {}).get("phase") not in ENDED else frozenset()
