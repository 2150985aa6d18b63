"""Findings of the checks, with advice. Pure: evidence in, one finding for each check out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from trainflow.cli.doctor import gang
from trainflow.cli.doctor.gang import Object
from trainflow.deployment.kubernetes_names import NO_IMAGE
from trainflow.nodes.instances import EFA_INTERFACE, GPU_DEVICE, NEURON_CORE, NEURON_DEVICE
from trainflow.observed.containers import is_injected, waiting_container, workload
from trainflow.observed.node import Node

LOW_SPACE_BYTES = 5 * 1024**3
"""BERT-large with LAMB's two moments in float32 makes checkpoints of 336 million × 12 bytes = 4 GB."""

PLUGINS = {
    NEURON_DEVICE: "the Neuron device plugin's daemon set",
    NEURON_CORE: "the Neuron device plugin's daemon set",
    GPU_DEVICE: "the daemon set nvidia-device-plugin",
    EFA_INTERFACE: "the daemon set aws-efa-k8s-device-plugin",
}
DEVICE_FILES = {NEURON_DEVICE: "neuron", GPU_DEVICE: "nvidia", EFA_INTERFACE: "efa"}


class Outcome(StrEnum):
    """Result of a check."""

    OK = "ok"
    FAILED = "failed"
    SKIPPED = "skipped"


@dataclass(frozen=True)
class Finding:
    """One check: what was seen, and for a failed one what to do."""

    check: str
    outcome: Outcome
    seen: str
    advice: str = ""


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """Everything that was asked, as the API and the pod answered."""

    pods: Sequence[Object]
    """Pods of one gang; at least one."""
    nodes: Mapping[str, Node | None] = field(default_factory=dict)
    """The nodes that the pods are on, by name; None for one that does not exist."""
    events: Sequence[Object] = ()
    """Events about the pods."""
    claims: Mapping[str, Object | None] = field(default_factory=dict)
    """The claims that the pods mount; None for one that does not exist."""
    service_account: Object | None = None
    inside: Mapping[str, Any] | None = None
    """Result of the checks inside of a pod; None if no pod could run them."""
    why_not_inside: str = ""
    in_own_pod: bool = False
    """Whether it was seen from a pod of the run, which has the run's devices, and not from one beside it."""
    devices_on_paper: bool = False
    """Whether nodes offer devices that their machine does not have, as the twin's do."""


REFUSED = "Connection refused"
"""The probe's answer if the host was reached and no process listens at the port."""


def findings(evidence: Evidence) -> Iterator[Finding]:
    """Every check, after those that it depends on."""
    yield _pods(evidence)
    yield _images(evidence)
    yield from _nodes(evidence)
    for resource in (NEURON_DEVICE, NEURON_CORE, GPU_DEVICE, EFA_INTERFACE):
        if gang.requested(gang.pod_to_probe(evidence.pods), resource):
            yield _devices(evidence, resource)
    yield _service_account(evidence)
    yield from _claims(evidence)
    if evidence.inside is None:
        yield Finding(
            "inside a pod",
            Outcome.FAILED,
            evidence.why_not_inside,
            "Names, ports and folders were not looked at; put right what is named and ask again.",
        )
        return
    yield _credentials(evidence)
    yield from _folders(evidence)
    yield from _rendezvous(evidence)


def _ok(check: str, seen: str) -> Finding:
    return Finding(check, Outcome.OK, seen)


def _failed(check: str, seen: str, advice: str) -> Finding:
    return Finding(check, Outcome.FAILED, seen, advice)


def _pods(evidence: Evidence) -> Finding:
    waiting = [pod for pod in evidence.pods if gang.phase(pod) == "Pending"]
    counted = [gang.phase(pod) for pod in evidence.pods]
    seen = ", ".join(f"{counted.count(phase)} {phase}" for phase in sorted(set(counted)))
    if waiting:
        first = waiting[0]
        return _failed("pods", f"{seen}; {_name(first)}: {_why_pending(first, evidence.events)}", _way_out(first))
    if "Failed" in counted:
        failed = next(pod for pod in evidence.pods if gang.phase(pod) == "Failed")
        advice = f"Read what it said last: kubectl logs {_name(failed)} -c {workload(failed).container}."
        return _failed("pods", f"{seen}; {_name(failed)} has failed", advice)
    return _ok("pods", seen)


def _why_pending(pod: Object, events: Sequence[Object]) -> str:
    """The newest warning about the pod, or what its conditions and its container say."""
    warnings = [e for e in events if e.get("type") == "Warning" and e["involvedObject"].get("name") == _name(pod)]
    if warnings:
        newest = max(warnings, key=lambda e: str(e.get("lastTimestamp") or e.get("eventTime") or ""))
        return f"{newest['reason']}: {newest['message'].strip()}"
    for condition in (pod.get("status") or {}).get("conditions") or []:
        if condition["type"] == "PodScheduled" and condition["status"] == "False":
            return str(condition.get("message") or condition.get("reason"))
    _, reason = waiting_container(pod)
    return reason.get("message") or reason.get("reason") or "it has not been looked at by the scheduler yet"


def _way_out(pod: Object) -> str:
    if not pod["spec"].get("nodeName"):
        return "Check the node group: are there enough nodes of the pod's instance type, and do they have free devices?"
    return f"Look at what its node says: kubectl describe pod {_name(pod)}."


def _images(evidence: Evidence) -> Finding:
    for pod in evidence.pods:
        container, waiting = waiting_container(pod)
        if waiting.get("reason") in NO_IMAGE:
            seen = f"{_name(pod)}: {waiting['reason']}: {waiting.get('message', '')}".rstrip(": ")
            if is_injected(pod, container):
                return _failed("images", seen, f"Correct what adds the container '{container}' to the cluster's pods.")
            return _failed(
                "images", seen, "Correct workload.image, or let the nodes' role read the repository (ECR pull rights)."
            )
    return _ok("images", str(gang.container(gang.pod_to_probe(evidence.pods))["image"]))


def _nodes(evidence: Evidence) -> Iterator[Finding]:
    for name, node in sorted(evidence.nodes.items()):
        if node is None or node.ready_status != "True":
            yield _failed(f"node {name}", "is not Ready", f"Look at why: kubectl describe node {name}.")
            return
    if evidence.nodes:
        yield _ok("nodes", f"{', '.join(sorted(evidence.nodes))}: Ready")


def _devices(evidence: Evidence, resource: str) -> Finding:
    pod = gang.pod_to_probe(evidence.pods)
    wanted = gang.requested(pod, resource)
    for name, node in sorted(evidence.nodes.items()):
        offered = int(node.allocatable.get(resource, 0)) if node else 0
        if offered < wanted:
            seen = f"{name} offers {offered}, each pod asks for {wanted}"
            return _failed(resource, seen, f"Look at {PLUGINS[resource]} on that node, and at its driver.")
    if not evidence.nodes:
        return Finding(resource, Outcome.SKIPPED, "no pod has a node yet")
    if evidence.devices_on_paper:
        return Finding(resource, Outcome.SKIPPED, "the twin's nodes have it on paper, and pods do not see it")
    if evidence.in_own_pod and evidence.inside is not None and resource in DEVICE_FILES:
        here = int(evidence.inside["devices"][DEVICE_FILES[resource]])
        if here < wanted:
            seen = f"{_name(pod)} sees {here} devices of the {wanted} that it was given"
            return _failed(resource, seen, f"Start {PLUGINS[resource]} again, then the pod.")
    return _ok(resource, f"every node offers the {wanted} that a pod asks for")


def _service_account(evidence: Evidence) -> Finding:
    name = gang.pod_to_probe(evidence.pods)["spec"].get("serviceAccountName") or "default"
    if evidence.service_account is None:
        return _failed("service account", f"{name} does not exist", f"Make it: kubectl create serviceaccount {name}.")
    return _ok("service account", name)


def _claims(evidence: Evidence) -> Iterator[Finding]:
    for name, claim in sorted(evidence.claims.items()):
        bound = ((claim or {}).get("status") or {}).get("phase")
        if claim is None:
            yield _failed(f"claim {name}", "does not exist", "Deploy the storage stack, or make the claim by hand.")
        elif bound != "Bound":
            advice = f"Look at why no volume is bound to it: kubectl describe pvc {name}."
            yield _failed(f"claim {name}", f"is {bound or 'not bound'}", advice)
        else:
            yield _ok(f"claim {name}", f"bound to {(claim.get('spec') or {}).get('volumeName', 'a volume')}")


def _credentials(evidence: Evidence) -> Finding:
    found = (evidence.inside or {})["credentials"]
    if found["source"] and found["readable"]:
        return _ok("AWS credentials", f"from {found['source']}")
    account = gang.pod_to_probe(evidence.pods)["spec"].get("serviceAccountName") or "default"
    seen = f"the token file of {found['source']} cannot be read" if found["source"] else "the pod is given none"
    advice = f"Associate a role with service account {account} (EKS Pod Identity), and start the pods again."
    return _failed("AWS credentials", seen, advice)


def _folders(evidence: Evidence) -> Iterator[Finding]:
    pod = gang.pod_to_probe(evidence.pods)
    cache = gang.cache_folder(pod)
    inside = evidence.inside or {}
    for path, seen in zip(gang.shared_folders(pod), inside["folders"], strict=True):
        check = _folder_check(path, cache)
        if not seen["writable"]:
            advice = "Let the folder belong to the user that the pods run as, and check the claim's access mode."
            yield _failed(check, f"cannot be written to: {seen['error']}", advice)
        elif seen["free_bytes"] < LOW_SPACE_BYTES:
            advice = "Remove old runs' checkpoints, or give the file system more storage."
            yield _failed(check, f"{_gib(seen['free_bytes'])} are free, less than one checkpoint may need", advice)
        else:
            yield _ok(check, f"writable, {_gib(seen['free_bytes'])} free")
    for path, seen in zip(gang.shared_folders(pod, read_only=True), inside["read_only"], strict=True):
        if seen["readable"]:
            yield _ok(_folder_check(path, cache), "readable")
        else:
            advice = "Let the pods' user read the folder; nothing in it is written by this pod."
            yield _failed(_folder_check(path, cache), f"cannot be read: {seen['error']}", advice)


def _folder_check(path: str, cache: str | None) -> str:
    return f"cache folder {path}" if path == cache else f"folder {path}"


def _rendezvous(evidence: Evidence) -> Iterator[Finding]:
    pod, inside = gang.pod_to_probe(evidence.pods), evidence.inside or {}
    place = gang.rendezvous(pod)
    if place is None:
        yield Finding("rendezvous", Outcome.SKIPPED, "the pods' program names none")
        return
    if not any(gang.phase(peer) == "Running" for peer in evidence.pods):
        yield Finding("rendezvous", Outcome.SKIPPED, f"{place.host} does not answer: no pod of the gang runs")
        return
    addresses = inside["name"].get("addresses")
    if not addresses:
        seen = f"{place.host} is not known: {inside['name']['error']}"
        advice = "Is there a headless Service of the job (kubectl get services), and does CoreDNS run?"
        yield _failed("rendezvous name", seen, advice)
        return
    yield _ok("rendezvous name", f"{place.host} is {', '.join(addresses)}")
    yield from _full_name(gang.full_name(place.host, pod), inside.get("full_name"))
    yield _ping(place.host, inside["ping"], port_is_open=inside["port"]["open"])
    if inside["port"]["open"]:
        yield _ok("rendezvous port", f"{place.host}:{place.port} accepts connections")
        return
    seen = f"{place.host}:{place.port}: {inside['port']['error']}"
    if inside["port"]["error"] == REFUSED and not gang.meets_under_torchrun(pod):
        yield Finding("rendezvous port", Outcome.SKIPPED, f"{seen}; torchrun does not start this program")
        return
    yield _failed(
        "rendezvous port",
        seen,
        "Does rank 0 still start (its log tells), and does the nodes' security group allow traffic among them?",
    )


def _full_name(name: str | None, seen: Mapping[str, Any] | None) -> Iterator[Finding]:
    """Known by its short name and not by its whole one, or the other way round: the pod's search domains are wrong."""
    if name is None or seen is None:
        return
    if addresses := seen.get("addresses"):
        yield _ok("rendezvous full name", f"{name} is {', '.join(addresses)}")
        return
    advice = "Is the cluster's domain another one (kubectl -n kube-system get configmap coredns -o yaml)?"
    yield _failed("rendezvous full name", f"{name} is not known: {seen['error']}", advice)


def _ping(host: str, seen: Mapping[str, Any], *, port_is_open: bool) -> Finding:
    """Many networks drop echo requests, so silence says something only together with a port that is closed."""
    if seen["answered"]:
        return _ok("rendezvous ping", f"{host} answers")
    if seen["answered"] is None or port_is_open:
        return Finding("rendezvous ping", Outcome.SKIPPED, f"{host} was not reached by ICMP: {seen['error']}")
    advice = "Is its node Ready, and does the nodes' security group allow all traffic among them, ICMP included?"
    return _failed("rendezvous ping", f"{host} does not answer: {seen['error']}", advice)


def _name(pod: Object) -> str:
    return str(pod["metadata"]["name"])


def _gib(size: int) -> str:
    return f"{size / 1024**3:,.0f} GiB"
