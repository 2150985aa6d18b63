"""Asks the cluster about a run, and a pod about what only a pod can see."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from trainflow.cli.doctor import gang
from trainflow.cli.doctor.cluster import Cluster, DoctorError, Object, ProbeFailed, random_suffix, run_pod
from trainflow.cli.doctor.findings import Evidence
from trainflow.cli.doctor.probe import probe_pod, questions
from trainflow.deployment.kubernetes_names import RUN_LABEL
from trainflow.observed.node import Node, read_node

PROBE_SECONDS = 120.0
"""Longest time of the probe pod; its image is usually on the node already."""

_RUN_ID = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


def examine(cluster: Cluster, run: str, namespace: str, *, probe_seconds: float = PROBE_SECONDS) -> Evidence:
    """Gather everything that the checks need.

    Raises:
        DoctorError: If the namespace does not have a pod of the run, or the cluster does not answer.
    """
    if not _RUN_ID.fullmatch(run):
        raise DoctorError(f"--run: '{run}' is not a run id: lower-case letters, digits and dashes, at most 63.")
    below = f"namespaces/{namespace}"
    pods = gang.newest_gang(_items(cluster, f"{below}/pods", labelSelector=f"{RUN_LABEL}={run}"))
    if not pods:
        raise DoctorError(
            f"--run: no pods of '{run}' are in namespace '{namespace}': one that has ended has none, and "
            f"`trainflow status` says why it failed. Runs with pods: kubectl get pods -n {namespace} -L {RUN_LABEL}"
        )
    pod = gang.pod_to_probe(pods)
    account = pod["spec"].get("serviceAccountName") or "default"
    inside, own, why_not = _look(cluster, run, namespace, pod, probe_seconds)
    return Evidence(
        pods=pods,
        nodes=_nodes(cluster, pods),
        events=_events(cluster, below, pods),
        claims={name: cluster.get(f"{below}/persistentvolumeclaims/{name}") for name in gang.claims(pod)},
        service_account=cluster.get(f"{below}/serviceaccounts/{account}"),
        inside=inside,
        why_not_inside=why_not,
        in_own_pod=own,
    )


def _look(
    cluster: Cluster, run: str, namespace: str, pod: Object, seconds: float
) -> tuple[Mapping[str, Any] | None, bool, str]:
    """Run the probe in a pod of the run, or else in a pod that is started for it.

    Only the run's own pod sees its devices; it may not accept commands.

    Returns:
        The probe's findings, None if it failed; whether it ran in the run's own pod; and why it failed.
    """
    if gang.phase(pod) == "Running":
        try:
            name = f"{namespace}/{pod['metadata']['name']}"
            return _parsed(cluster.execute(name, str(gang.container(pod)["name"]), questions(pod))), True, ""
        except ProbeFailed:
            pass
    try:
        manifest = probe_pod(pod, run, random_suffix())
        return _parsed(run_pod(cluster, namespace, manifest, seconds=seconds)), False, ""
    except ProbeFailed as reason:
        return None, False, str(reason)


def _parsed(text: str) -> dict[str, Any]:
    """The last line that is a JSON object; the client's stream module prints one as Python's own."""
    for line in reversed(text.strip().splitlines()):
        for read in (json.loads, ast.literal_eval):
            try:
                found = read(line)
            except (ValueError, SyntaxError):
                continue
            if isinstance(found, dict) and "credentials" in found:
                return found
    raise ProbeFailed(f"what was seen inside cannot be read: {text.strip()[-200:] or 'nothing was printed'}")


def _items(cluster: Cluster, path: str, **query: str) -> list[Object]:
    answer = cluster.get(path, **query)
    return list((answer or {}).get("items") or [])


def _nodes(cluster: Cluster, pods: Sequence[Object]) -> dict[str, Node | None]:
    names = {pod["spec"]["nodeName"] for pod in pods if pod["spec"].get("nodeName")}
    found = {name: cluster.get(f"nodes/{name}") for name in sorted(names)}
    return {name: None if node is None else read_node(node) for name, node in found.items()}


def _events(cluster: Cluster, below: str, pods: Sequence[Object]) -> list[Object]:
    names = {pod["metadata"]["name"] for pod in pods}
    events = _items(cluster, f"{below}/events", fieldSelector="involvedObject.kind=Pod")
    return [event for event in events if (event.get("involvedObject") or {}).get("name") in names]
