"""Objects of a JobSet: child Jobs with their labels, and the headless Service. Pure.

After sigs.k8s.io/jobset, pkg/controllers/jobset_controller.go (constructJob, labelAndAnnotateObject).
"""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Iterator
from dataclasses import dataclass

from kubetwin.controllers.owners import owner_reference
from kubetwin.model.errors import Object

PREFIX = "jobset.sigs.k8s.io/"
RESTART_ATTEMPT, REPLICATED_JOB = f"{PREFIX}restart-attempt", f"{PREFIX}replicatedjob-name"


@dataclass(frozen=True)
class Child:
    """One Job that a JobSet requires."""

    name: str
    replicated_job: str
    index: int
    global_index: int
    group_index: int


def replicated_jobs(jobset: Object) -> list[Object]:
    found: list[Object] = jobset["spec"].get("replicatedJobs") or []
    return found


def replicas_of(replicated: Object) -> int:
    return int(replicated.get("replicas", 1))


def group_name(replicated: Object) -> str:
    return str(replicated.get("groupName", "default"))


def children_of(jobset: Object) -> Iterator[Child]:
    """All Jobs of a JobSet, numbered as a whole and within their groups."""
    total, of_group = 0, dict[str, int]()
    for replicated in replicated_jobs(jobset):
        group = group_name(replicated)
        for index in range(replicas_of(replicated)):
            name = f"{jobset['metadata']['name']}-{replicated['name']}-{index}"
            yield Child(name, replicated["name"], index, total, of_group.get(group, 0))
            total += 1
            of_group[group] = of_group.get(group, 0) + 1


def subdomain(jobset: Object) -> str:
    network = jobset["spec"].get("network") or {}
    return str(network.get("subdomain") or jobset["metadata"]["name"])


def has_names(jobset: Object) -> bool:
    """Whether pods get DNS names; the webhook's default is yes."""
    return bool((jobset["spec"].get("network") or {}).get("enableDNSHostnames", True))


def service_of(jobset: Object) -> Object:
    """The headless Service of all pods of the set."""
    network = jobset["spec"].get("network") or {}
    return {
        "metadata": {"name": subdomain(jobset), "ownerReferences": [owner_reference(jobset)]},
        "spec": {
            "clusterIP": "None",
            "selector": {f"{PREFIX}jobset-name": jobset["metadata"]["name"]},
            "publishNotReadyAddresses": network.get("publishNotReadyAddresses", True),
        },
    }


def job_of(jobset: Object, child: Child, restarts: int) -> Object:
    """One child Job."""
    replicated = next(r for r in replicated_jobs(jobset) if r["name"] == child.replicated_job)
    template = copy.deepcopy(replicated["template"])
    metadata, spec = template.get("metadata") or {}, template["spec"]
    marks = _marks(jobset, replicated, child, restarts)
    pod_template = spec.setdefault("template", {})
    for part in (pod_template.setdefault("metadata", {}), metadata):
        for kind in ("labels", "annotations"):
            part[kind] = {**(part.get(kind) or {}), **marks}
    if has_names(jobset):
        pod_template["spec"]["subdomain"] = subdomain(jobset)
    # Defaults of the webhook.
    spec.setdefault("completionMode", "Indexed")
    if spec["completionMode"] == "Indexed":
        spec.setdefault("completions", spec.get("parallelism", 1))
    pod_template["spec"].setdefault("restartPolicy", "OnFailure")
    spec["suspend"] = bool(jobset["spec"].get("suspend"))
    return {
        "metadata": {
            "name": child.name,
            "labels": metadata["labels"],
            "annotations": metadata["annotations"],
            "ownerReferences": [owner_reference(jobset)],
        },
        "spec": spec,
    }


def _marks(jobset: Object, replicated: Object, child: Child, restarts: int) -> dict[str, str]:
    """The labels, which are annotations too, of a child Job and its pods."""
    name, namespace = jobset["metadata"]["name"], jobset["metadata"]["namespace"]
    group = group_name(replicated)
    peers = [r for r in replicated_jobs(jobset) if group_name(r) == group]
    marks = {
        "jobset-name": name,
        "jobset-uid": jobset["metadata"]["uid"],
        "replicatedjob-name": replicated["name"],
        "replicatedjob-replicas": str(replicas_of(replicated)),
        "global-replicas": str(sum(map(replicas_of, replicated_jobs(jobset)))),
        "job-index": str(child.index),
        "job-global-index": str(child.global_index),
        "job-key": hashlib.sha1(f"{namespace}/{child.name}".encode(), usedforsecurity=False).hexdigest(),
        "group-name": group,
        "group-replicas": str(sum(map(replicas_of, peers))),
        "job-group-index": str(child.group_index),
        "restart-attempt": str(restarts),
    }
    coordinator = jobset["spec"].get("coordinator")
    if coordinator:
        job, pod = coordinator.get("jobIndex", 0), coordinator.get("podIndex", 0)
        host = f"{name}-{coordinator['replicatedJob']}-{job}-{pod}"
        marks["coordinator"] = f"{host}.{subdomain(jobset)}"
    return {f"{PREFIX}{key}": value for key, value in marks.items()}
