"""Objects of a Volcano Job: pods, a PodGroup, and the additions of its plugins. Pure.

After volcano-sh/volcano 1.15, pkg/controllers/job: job_controller_util.go, job_controller_actions.go.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from fractions import Fraction

from kubetwin.controllers.owners import owner_reference
from kubetwin.controllers.scheduling import pod_requests
from kubetwin.controllers.volcano_plugins import PLUGINS
from kubetwin.model.errors import Object
from kubetwin.model.quantity import add_quantities, format_quantity, parse_quantity

PREFIX = "volcano.sh/"
TASK_KEY, INDEX_KEY, VERSION_KEY = f"{PREFIX}task-spec", f"{PREFIX}task-index", f"{PREFIX}job-version"
GROUP_KEY = "scheduling.k8s.io/group-name"
SCHEDULER = "volcano"


def tasks_of(job: Object) -> list[Object]:
    """The tasks with the defaults of the admission webhook: names and replicas."""
    return [{"name": f"default{n}", "replicas": 1, **task} for n, task in enumerate(job["spec"]["tasks"])]


def min_available(job: Object) -> int:
    """The gang's size: what its tasks need unless the job sets `minAvailable`."""
    return int(job["spec"].get("minAvailable") or sum(map(_min_available_of_task, tasks_of(job))))


def _min_available_of_task(task: Object) -> int:
    """All replicas of a task unless it sets `minAvailable`, which is 0 for a task that the gang can do without."""
    return int(task["minAvailable" if "minAvailable" in task else "replicas"])


def queue_of(job: Object) -> str:
    return str(job["spec"].get("queue") or "default")


def pod_name(job: Object, task: str, index: int) -> str:
    return f"{job['metadata']['name']}-{task}-{index}"


def wanted_pods(job: Object) -> Iterator[tuple[Object, int]]:
    """Every task and index."""
    for task in tasks_of(job):
        for index in range(int(task["replicas"])):
            yield task, index


def group_name(job: Object) -> str:
    return f"{job['metadata']['name']}-{job['metadata']['uid']}"


def pod_of(job: Object, task: Object, index: int) -> Object:
    """The pod of one task and index."""
    spec, metadata = job["spec"], job["metadata"]
    template = copy.deepcopy(task["template"])
    given = template.get("metadata") or {}
    status = job.get("status") or {}
    common = {
        f"{PREFIX}job-name": metadata["name"],
        f"{PREFIX}queue-name": queue_of(job),
        INDEX_KEY: str(index),
        TASK_KEY: task["name"],
    }
    annotations = {
        GROUP_KEY: group_name(job),
        f"{PREFIX}job-retry-count": str(status.get("retryCount", 0)),
        VERSION_KEY: str(status.get("version", 0)),
        f"{PREFIX}template-uid": f"{metadata['name']}-{task['name']}",
    }
    pod: Object = {
        "metadata": {
            "name": pod_name(job, task["name"], index),
            "labels": {**(given.get("labels") or {}), **common, f"{PREFIX}job-namespace": metadata["namespace"]},
            "annotations": {**(given.get("annotations") or {}), **common, **annotations},
            "ownerReferences": [owner_reference(job)],
        },
        "spec": template["spec"],
    }
    pod["spec"]["schedulerName"] = spec.get("schedulerName") or SCHEDULER
    if spec.get("priorityClassName"):
        pod["spec"].setdefault("priorityClassName", spec["priorityClassName"])
    _mount_claims(job, pod["spec"])
    for name, arguments in (spec.get("plugins") or {}).items():
        if name in PLUGINS:
            PLUGINS[name].on_pod(job, pod, arguments)
    return pod


def _mount_claims(job: Object, pod: Object) -> None:
    for place, volume in enumerate(job["spec"].get("volumes") or []):
        claim = volume.get("volumeClaimName")
        if not claim:
            continue
        name = f"{job['metadata']['name']}-volume-{place}"
        pod.setdefault("volumes", []).append({"name": name, "persistentVolumeClaim": {"claimName": claim}})
        for container in pod["containers"]:
            container.setdefault("volumeMounts", []).append({"name": name, "mountPath": volume["mountPath"]})


def pod_group(job: Object) -> Object:
    """The PodGroup of the Job; the scheduler reads the gang from it."""
    tasks = tasks_of(job)
    spec: Object = {
        "minMember": min_available(job),
        "minTaskMember": {task["name"]: _min_available_of_task(task) for task in tasks},
        "minResources": {name: format_quantity(amount) for name, amount in sorted(_min_resources(job).items())},
        "queue": queue_of(job),
    }
    for name in ("priorityClassName", "networkTopology"):
        if job["spec"].get(name):
            spec[name] = job["spec"][name]
    metadata: Object = {"name": group_name(job), "ownerReferences": [owner_reference(job)]}
    for part in ("labels", "annotations"):
        if job["metadata"].get(part):
            metadata[part] = dict(job["metadata"][part])
    return {"metadata": metadata, "spec": spec, "status": {}}


def _min_resources(job: Object) -> Mapping[str, Fraction]:
    """Resources of the smallest gang, as quotas count them."""
    total: dict[str, Fraction] = {}
    for _, (task, _index) in zip(range(min_available(job)), wanted_pods(job), strict=False):
        total = add_quantities(total, _usage(task["template"]))
    return total


def _usage(template: Object) -> dict[str, Fraction]:
    usage = {"pods": Fraction(1), "count/pods": Fraction(1)}
    for name, amount in pod_requests(_with_requests(template)).items():
        usage |= {name: amount, f"requests.{name}": amount}
    for container in template["spec"]["containers"]:
        for name, amount in ((container.get("resources") or {}).get("limits") or {}).items():
            if name in ("cpu", "memory", "ephemeral-storage"):
                key = f"limits.{name}"
                usage[key] = usage.get(key, Fraction(0)) + parse_quantity(amount)
    return usage


def _with_requests(template: Object) -> Object:
    """The template with limits as requests where these are missing, as in a stored pod."""
    containers = []
    for container in template["spec"]["containers"]:
        resources = container.get("resources") or {}
        requests = {**(resources.get("limits") or {}), **(resources.get("requests") or {})}
        containers.append({"resources": {"requests": requests}})
    return {"spec": {**template["spec"], "containers": containers}}
