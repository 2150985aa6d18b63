"""Facts about a run, from its pods: pods to examine, rendezvous, folders, devices. Pure."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trainflow.deployment.kubernetes_names import ATTEMPT_LABEL, STAGE_LABEL
from trainflow.observed.containers import program_container
from trainflow.protocol import variables
from trainflow.protocol.plan import Launch, PlanInvalid, parse_plan

Object = Mapping[str, Any]

DOCTOR_LABEL = "trainflow/doctor"
"""Label of the doctor's own pods, which are not part of the run."""

GANG_STAGES = ("training", "precompile", "publish", "stage", "preflight")
"""Stages whose pods are examined, the most informative first."""


@dataclass(frozen=True, kw_only=True)
class Rendezvous:
    """Host and port of a gang's rendezvous."""

    host: str
    port: int


def newest_gang(pods: Sequence[Object]) -> list[Object]:
    """The pods of the run's most informative stage and its last attempt, in the order of their names."""
    mine = [pod for pod in pods if DOCTOR_LABEL not in labels(pod)]
    for stage in GANG_STAGES:
        of_stage = [pod for pod in mine if labels(pod).get(STAGE_LABEL) == stage]
        if of_stage:
            last = max(_attempt(pod) for pod in of_stage)
            return sorted((p for p in of_stage if _attempt(p) == last), key=lambda p: str(p["metadata"]["name"]))
    return []


def pod_to_probe(gang: Sequence[Object]) -> Object:
    """The pod to probe from: the last one that runs, so that rank 0 is in another pod where there are several."""
    return next((pod for pod in reversed(gang) if phase(pod) == "Running"), gang[-1])


def rendezvous(pod: Object) -> Rendezvous | None:
    """The rendezvous of the pod's own plan or launcher, static or elastic; None for programs without one."""
    launch, found = _launch(pod), dict(itertools.pairwise(_command(pod)))
    host, port = found.get("--master_addr", ""), found.get("--master_port", "")
    store = found.get("--rdzv_endpoint")
    if launch is not None:
        port, store = str(launch.port), launch.elastic.store if launch.elastic else None
    if store is not None:
        host, _, port = store.partition(":")
    return Rendezvous(host=host, port=int(port)) if host and port.isdigit() else None


def meets_under_torchrun(pod: Object) -> bool:
    """Whether torchrun starts the program: its workers meet before it begins. Another program listens if it likes."""
    launch = _launch(pod)
    if launch is not None:
        return launch.launcher == "torchrun"
    return any(word in ("torchrun", "torch.distributed.run") for word in _command(pod))


CLUSTER_DOMAIN = "svc.cluster.local"
"""Cluster domain of EKS."""


def full_name(host: str, pod: Object) -> str | None:
    """Full DNS name of a host that is named by its Service only; None for addresses and for full names."""
    if host == "localhost" or host.count(".") > 1 or re.fullmatch(r"[\d.]+", host):
        return None
    return f"{host}.{pod['metadata'].get('namespace', 'default')}.{CLUSTER_DOMAIN}"


def labels(pod: Object) -> Mapping[str, str]:
    """The pod's labels."""
    found: Mapping[str, str] = pod["metadata"].get("labels") or {}
    return found


def phase(pod: Object) -> str:
    """The pod's phase; `Terminating` for a pod that is being deleted."""
    return "Terminating" if pod["metadata"].get("deletionTimestamp") else str((pod.get("status") or {}).get("phase"))


def container(pod: Object) -> Object:
    """The container that trains."""
    return program_container(pod)


def claims(pod: Object) -> list[str]:
    """The names of the claims that the pod mounts."""
    volumes = pod["spec"].get("volumes") or []
    return [v["persistentVolumeClaim"]["claimName"] for v in volumes if "persistentVolumeClaim" in v]


def shared_folders(pod: Object, *, read_only: bool = False) -> list[str]:
    """Mount paths of the pod's claims, either the writable or the read-only ones."""
    volumes = {v["name"] for v in pod["spec"].get("volumes") or [] if "persistentVolumeClaim" in v}
    mounts = [m for m in container(pod).get("volumeMounts") or [] if m["name"] in volumes]
    return [m["mountPath"] for m in mounts if m.get("readOnly", False) is read_only]


def cache_folder(pod: Object) -> str | None:
    """The shared folder that the compile cache is in."""
    named = next((e.get("value", "") for e in container(pod).get("env") or [] if e["name"] == variables.CACHE_DIR), "")
    mounted = (*shared_folders(pod), *shared_folders(pod, read_only=True))
    return next((f for f in mounted if named == f or named.startswith(f"{f}/")), None)


def requested(pod: Object, resource: str) -> int:
    """Number of devices that the pod requests of one kind."""
    resources = container(pod).get("resources") or {}
    found = (resources.get("limits") or {}).get(resource) or (resources.get("requests") or {}).get(resource)
    return int(found or 0)


def _attempt(pod: Object) -> int:
    return int(labels(pod).get(ATTEMPT_LABEL, "0"))


def _launch(pod: Object) -> Launch | None:
    """The program of the plan that the pod's command ends with; None without one, as in runs of earlier versions."""
    words = _command(pod)
    end = words.index("--") if "--" in words else len(words)
    try:
        return parse_plan("".join(words[end + 1 :]).replace("$$", "$")).launch
    except PlanInvalid:
        return None


def _command(pod: Object) -> list[str]:
    only = container(pod)
    return [str(word) for word in [*(only.get("command") or []), *(only.get("args") or [])]]
