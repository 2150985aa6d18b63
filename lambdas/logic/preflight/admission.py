"""Admission of a run's pods by the cluster: a dry run shows refusals, injected containers and changed fields.

The cluster may have been set up by others: Pod Security by namespace label, policies of Kyverno or Gatekeeper, a mesh,
limits of the namespace. It accepts a job nonetheless, and refuses the pods when its controller makes them, when nodes
have been paid for. So the pods themselves are sent to the API, which answers with the pods that it would store, and
stores none (docs/decisions/0103-dry-run-of-pods-in-the-preflight.md).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from lambdas.logic.preflight.findings import Finding, Note, Problem, shortened
from lambdas.logic.preflight.pod_comparison import lost_fields, lost_fields_of_container
from trainflow.nodes.instances import InstanceType
from trainflow.nodes.node_room import room_for_pods
from trainflow.observed.quantity import parse_quantity
from trainflow.workflow.preflight import Refused, Unknown

Pod = Mapping[str, Any]

PAGE = "docs/existing-clusters.md"

TRANSIENT = "exceeded quota"
"""Words of a refusal that may end when other pods do (kubernetes, plugin/pkg/admission/resourcequota)."""

PROGRAM = "the program's container"

CONTAINERS = ("containers", "initContainers")

PLACING = ("nodeSelector", "schedulerName", "priorityClassName", "runtimeClassName", "hostNetwork", "affinity")
"""Fields of a pod that decide where it runs. A change is reported and may be what the cluster's owners want."""

LOADED_FIRST = ("LD_PRELOAD", "PYTHONPATH", "PYTHONHOME", "PYTHONSTARTUP", "LD_LIBRARY_PATH")
"""Variables that load an agent's code into a program: Datadog and Dynatrace use the first one, the
OpenTelemetry operator the second."""

CHARGED = ("requests", "limits")


@dataclass(frozen=True, kw_only=True)
class Admission:
    """A pod as a run sends it, and the cluster's answer."""

    sent: Pod
    answer: Pod | Refused | Unknown
    number: int
    """Pods of this form in the gang."""


def distinct_pods(manifests: Iterable[Mapping[str, Any]], *, job: str) -> list[tuple[dict[str, Any], int]]:
    """Each form of pod that a job's controller will make, and how many of it.

    Args:
        manifests: Objects of the job.
        job: Name of the job, which names the pods and their owner: policies against pods without one do not concern
            the pods of a controller.
    """
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": job, "uid": "00000000-0000-0000-0000-000000000000"}
    found: dict[str, tuple[dict[str, Any], int]] = {}
    for manifest in manifests:
        for template, number in _templates(manifest, 1):
            metadata = {**template.get("metadata", {}), "name": f"{job}-preflight", "ownerReferences": [owner]}
            pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]}
            key = json.dumps(template["spec"], sort_keys=True)
            found[key] = (pod, number + found.get(key, (pod, 0))[1])
    return list(found.values())


def _templates(document: Any, number: int) -> Iterator[tuple[Mapping[str, Any], int]]:
    """Templates of pods inside an object, and the pod itself, with the number that the object asks for."""
    if isinstance(document, Mapping):
        spec = document.get("spec")
        if isinstance(spec, Mapping) and "containers" in spec:
            yield document, number
            return
        own = next((document[each] for each in ("parallelism", "replicas") if isinstance(document.get(each), int)), 1)
        for value in document.values():
            yield from _templates(value, number * own)
    elif isinstance(document, list):
        for value in document:
            yield from _templates(value, number)


def admission_findings(
    admissions: Sequence[Admission], quotas: Sequence[Mapping[str, Any]] | Unknown, instance: InstanceType
) -> Iterator[Finding]:
    """Findings about pods that the cluster refuses or changes, and about quotas that are too small.

    Args:
        admissions: The forms of the gang's pods.
        quotas: ResourceQuotas of the runs' namespace.
        instance: Instance type of the gang's nodes.
    """
    for each in admissions:
        if isinstance(each.answer, Unknown):
            yield Note(f"Whether the cluster takes the pods of this run: {each.answer.reason}.")
        elif isinstance(each.answer, Refused):
            yield _refusal(each.answer)
        else:
            yield from _changes(each.sent, each.answer, instance)
    if isinstance(quotas, Unknown):
        yield Note(f"Whether the namespace's quotas allow this run: {quotas.reason}.")
    else:
        yield from _quotas(admissions, quotas)


def _refusal(refused: Refused) -> Finding:
    if TRANSIENT in refused.message:
        return Note(f"At the moment the cluster takes no pod of this run: {shortened(refused.message)}.")
    return Problem(
        f"The cluster refuses the pods of this run: {shortened(refused.message)}; let the runs' namespace take them "
        f"({PAGE})."
    )


def placeholder_refused(refused: Refused) -> Finding:
    """Finding about a pod that should hold a node of the gang, on a cluster that makes nodes by itself."""
    if TRANSIENT in refused.message:
        return _refusal(refused)
    return Problem(
        f"The cluster refuses the pods that hold the nodes of this run: {shortened(refused.message)}; apply what "
        "`python -m stacks.tools.manifests` prints (docs/nodes-by-the-cluster.md)."
    )


def _changes(sent: Pod, answer: Pod, instance: InstanceType) -> Iterator[Finding]:
    name = sent["spec"]["containers"][0]["name"]
    ours = {each["name"] for each in _containers(sent)}
    added = [each["name"] for each in _containers(answer) if each["name"] not in ours]
    if added:
        yield Note(
            f"The cluster adds containers to the pods of this run: {', '.join(added)}. They run beside the program, "
            f"and do not decide how it ends ({PAGE})."
        )
    for kind in CONTAINERS:
        for container in sent["spec"].get(kind) or ():
            subject = PROGRAM if container["name"] == name else f"the container '{container['name']}'"
            yield from _changed_container(container, answer["spec"].get(kind) or (), subject)
    yield from _changed_pod(sent, answer)
    yield from _room(sent, answer, instance)


def _changed_pod(sent: Pod, answer: Pod) -> Iterator[Finding]:
    before, after = sent["spec"], answer["spec"]
    fixed = {field: value for field, value in before.items() if field not in (*CONTAINERS, *PLACING)}
    lost = lost_fields(fixed, after)
    if lost:
        yield Problem(
            f"The cluster changes the pods of this run: {', '.join(lost)}, which this run needs as they are; exempt "
            f"the runs' namespace from that policy ({PAGE})."
        )
    placing = [
        each
        for each in PLACING
        if after.get(each) != before.get(each) and (_is_set(sent, each) or _is_set(answer, each))
    ]
    if placing:
        yield Note(f"The cluster changes where the pods of this run may run: {', '.join(placing)} ({PAGE}).")
    if gates := [each["name"] for each in after.get("schedulingGates") or ()]:
        yield Note(
            f"The cluster holds the pods of this run back by scheduling gates: {', '.join(gates)}. They start when the "
            f"gates' owners remove them ({PAGE})."
        )
    if "activeDeadlineSeconds" not in before and (seconds := after.get("activeDeadlineSeconds")):
        yield Note(f"The cluster ends each pod of this run after {seconds} seconds ({PAGE}).")


def _is_set(pod: Pod, field: str) -> bool:
    """Whether a field has another value than the API's default."""
    return pod["spec"].get(field) not in (None, "", "default-scheduler", False)


def _changed_container(
    sent: Mapping[str, Any], answers: Iterable[Mapping[str, Any]], subject: str
) -> Iterator[Finding]:
    answer = next((each for each in answers if each["name"] == sent["name"]), None)
    if answer is None:
        yield Problem(f"The cluster removes {subject} from the pods of this run ({PAGE}).")
        return
    lost = lost_fields_of_container(sent, answer)
    if lost:
        yield Problem(
            f"The cluster changes {subject}: {', '.join(lost)}, which this run needs as they are; exempt "
            f"the runs' namespace from that policy ({PAGE})."
        )
    if subject == PROGRAM:
        yield from _notes_on_program(sent, answer)


def _notes_on_program(sent: Mapping[str, Any], answer: Mapping[str, Any]) -> Iterator[Note]:
    if answer.get("image") != sent.get("image"):
        yield Note(f"The cluster replaces workload.image '{sent.get('image')}' by '{answer.get('image')}'.")
    ours = {each["name"] for each in sent.get("env") or ()}
    added = [each["name"] for each in answer.get("env") or () if each["name"] not in ours]
    if loading := [name for name in added if name in LOADED_FIRST]:
        yield Note(
            f"The cluster adds variables that load other code into the program: {', '.join(loading)}. If the program "
            f"fails in that code, exempt the runs' namespace ({PAGE})."
        )


def _room(sent: Pod, answer: Pod, instance: InstanceType) -> Iterator[Finding]:
    """A problem if what the cluster has added does not fit a node any more. Only requests that have grown count: what
    a run itself requests is known to fit."""
    before, after = _amounts(sent, "requests"), _amounts(answer, "requests")
    room = room_for_pods(instance)
    offered = {"cpu": Decimal(room.millicpu) / 1000, "memory": Decimal(room.memory_mib) * 2**20}
    for resource, most in offered.items():
        requested = after.get(resource, Decimal(0))
        if requested > before.get(resource, Decimal(0)) and requested > most:
            yield Problem(
                f"With what the cluster adds, a pod of this run requests {_shown(resource, requested)} of {resource}, "
                f"and a node of {instance.name} has {_shown(resource, most)} for pods; lower the requests of what is "
                f"added, or exempt the runs' namespace ({PAGE})."
            )


def _quotas(admissions: Sequence[Admission], quotas: Sequence[Mapping[str, Any]]) -> Iterator[Finding]:
    """A problem for each quota that could not hold the gang if nothing else ran."""
    for quota in quotas:
        if quota["spec"].get("scopes") or quota["spec"].get("scopeSelector"):
            continue
        for resource, limit in (quota["spec"].get("hard") or {}).items():
            needed = sum((_charge(_pod(each), resource) * each.number for each in admissions), Decimal(0))
            allowed = parse_quantity(limit)
            if needed > allowed:
                yield Problem(
                    f"The ResourceQuota '{quota['metadata']['name']}' of the runs' namespace allows {limit} of "
                    f"{resource}, and the pods of this run need {_shown(resource, needed)} together; raise it, or ask "
                    "for fewer nodes."
                )


def _pod(admission: Admission) -> Pod:
    return admission.sent if isinstance(admission.answer, Refused | Unknown) else admission.answer


def _charge(pod: Pod, resource: str) -> Decimal:
    """Amount of one pod that a quota counts under a name (Kubernetes documentation, "Resource Quotas")."""
    if resource in ("pods", "count/pods"):
        return Decimal(1)
    kind, _, amount = resource.partition(".")
    if kind in CHARGED and amount:
        return _amounts(pod, kind).get(amount, Decimal(0))
    return _amounts(pod, "requests").get(resource, Decimal(0)) if resource in ("cpu", "memory") else Decimal(0)


def _amounts(pod: Pod, kind: str) -> dict[str, Decimal]:
    """Sum over the containers that run beside each other: the program's, and init containers that keep running."""
    spec = pod["spec"]
    beside = [each for each in spec.get("initContainers") or () if each.get("restartPolicy") == "Always"]
    total: dict[str, Decimal] = {}
    for container in (*spec["containers"], *beside):
        for resource, amount in ((container.get("resources") or {}).get(kind) or {}).items():
            total[resource] = total.get(resource, Decimal(0)) + parse_quantity(amount)
    return total


def _containers(pod: Pod) -> list[Mapping[str, Any]]:
    return [*pod["spec"]["containers"], *(pod["spec"].get("initContainers") or ())]


def _shown(resource: str, amount: Decimal) -> str:
    return f"{amount / 2**30:.1f} GiB" if resource.endswith(("memory", "storage")) else f"{amount.normalize():f}"
