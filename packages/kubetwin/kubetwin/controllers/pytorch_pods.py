"""Objects of a PyTorchJob's replicas: pods, their variables, a Service each. Pure.

After kubeflow/training-operator 1.9, pkg/controller.v1/pytorch: envvar.go, elastic.go, initcontainer.go.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from kubetwin.controllers.owners import owner_reference
from kubetwin.model.errors import Object

PREFIX = "training.kubeflow.org/"
TYPE_LABEL, INDEX_LABEL = f"{PREFIX}replica-type", f"{PREFIX}replica-index"
MASTER, WORKER = "Master", "Worker"
CONTAINER, PORT_NAME, DEFAULT_PORT = "pytorch", "pytorchjob-port", 23456
DEFAULT_RESTARTS = "OnFailure"
_INIT_IMAGE = "alpine:3.10"
_WAIT_FOR_MASTER = (
    "err=1;for i in $(seq 100); do if nslookup {master}; then err=0 && break; fi;"
    "echo waiting for master; sleep 2; done; exit $err"
)


@dataclass(frozen=True)
class Replica:
    """One pod that a job requires."""

    kind: str
    """Master or Worker."""
    index: int
    name: str


def replica_specs(job: Object) -> dict[str, Object]:
    """Replica specs by type, the master first; `master` is read as `Master`."""
    given = job["spec"]["pytorchReplicaSpecs"]
    found = {key[:1].upper() + key[1:]: spec for key, spec in given.items()}
    return {kind: found[kind] for kind in (MASTER, WORKER) if kind in found}


def count_of(spec: Object) -> int:
    return int(spec.get("replicas", 1))


def restarts_of(spec: Object) -> str:
    return str(spec.get("restartPolicy") or DEFAULT_RESTARTS)


def replicas_of(job: Object) -> list[Replica]:
    """All replicas that the job requires, the master first."""
    name = job["metadata"]["name"]
    return [
        Replica(kind, index, f"{name}-{kind.lower()}-{index}")
        for kind, spec in replica_specs(job).items()
        for index in range(count_of(spec))
    ]


def base_labels(job: Object, kind: str) -> dict[str, str]:
    """Labels of the pods of one replica type."""
    return {
        f"{PREFIX}job-name": job["metadata"]["name"],
        f"{PREFIX}operator-name": "pytorchjob-controller",
        TYPE_LABEL: kind.lower(),
    }


def pod_of(job: Object, replica: Replica) -> Object:
    """The pod of one replica."""
    specs = replica_specs(job)
    spec = specs[replica.kind]
    template = copy.deepcopy(spec["template"])
    metadata, pod = template.get("metadata") or {}, template["spec"]
    labels = {**(metadata.get("labels") or {}), **base_labels(job, replica.kind), INDEX_LABEL: str(replica.index)}
    if replica.kind == MASTER or (MASTER not in specs and replica.index == 0):
        labels[f"{PREFIX}job-role"] = "master"
    _open_port(pod)
    for container in pod["containers"]:
        container.setdefault("env", []).extend(variables(job, replica))
    if replica.kind == WORKER and MASTER in specs:
        pod.setdefault("initContainers", []).append(_wait_for_master(job))
    # A policy of the replica overrides the template's. The operator itself implements ExitCode.
    policy = restarts_of(spec)
    pod["restartPolicy"] = "Never" if policy == "ExitCode" else policy
    return {
        "metadata": {
            "name": replica.name,
            "labels": labels,
            "annotations": dict(metadata.get("annotations") or {}),
            "ownerReferences": [owner_reference(job)],
        },
        "spec": pod,
    }


def service_of(job: Object, replica: Replica) -> Object:
    """The headless Service that gives a pod without hostname its name."""
    labels = {**base_labels(job, replica.kind), INDEX_LABEL: str(replica.index)}
    pod = copy.deepcopy(replica_specs(job)[replica.kind]["template"]["spec"])
    _open_port(pod)
    ports = [
        {"name": port["name"], "port": port["containerPort"], "targetPort": port["containerPort"]}
        for port in _main_container(pod).get("ports") or []
        if port.get("name")
    ]
    return {
        "metadata": {"name": replica.name, "labels": labels, "ownerReferences": [owner_reference(job)]},
        "spec": {"clusterIP": "None", "selector": dict(labels), "ports": ports},
    }


def variables(job: Object, replica: Replica) -> list[Object]:
    """Variables that are added to every container, in the operator's order."""
    return [{"name": name, "value": value} for name, value in _variables(job, replica)]


def _variables(job: Object, replica: Replica) -> Iterator[tuple[str, str]]:
    specs, spec = replica_specs(job), job["spec"]
    elastic = spec.get("elasticPolicy")
    total = sum(map(count_of, specs.values()))
    processes = str(spec.get("nprocPerNode") or (elastic or {}).get("nProcPerNode") or "auto")
    yield "PYTHONUNBUFFERED", "1"
    if MASTER in specs:
        port, address = str(_port(specs[MASTER])), f"{job['metadata']['name']}-master-0"
        rank = replica.index + (1 if replica.kind == WORKER else 0)
        yield from (("MASTER_PORT", port), ("PET_MASTER_PORT", port))
        yield from (("MASTER_ADDR", address), ("PET_MASTER_ADDR", address))
        yield "WORLD_SIZE", str(total * (int(processes) if processes.isdigit() else 1))
        yield from (("RANK", str(rank)), ("PET_NODE_RANK", str(rank)))
    yield "PET_NPROC_PER_NODE", processes
    if elastic is None:
        yield "PET_NNODES", str(total)
    else:
        yield from _elastic(job, elastic, specs[WORKER])


def elastic_limits(policy: Object, workers: Object) -> tuple[int, int]:
    """Fewest and most workers; a missing limit is taken from the other limit or from the replicas."""
    least, most = policy.get("minReplicas"), policy.get("maxReplicas")
    default = count_of(workers)
    return (
        int(least if least is not None else most if most is not None else default),
        int(most if most is not None else least if least is not None else default),
    )


def _elastic(job: Object, policy: Object, workers: Object) -> Iterator[tuple[str, str]]:
    host = policy.get("rdzvHost") or f"{job['metadata']['name']}-worker-0"
    least, most = elastic_limits(policy, workers)
    yield "PET_RDZV_ENDPOINT", f"{host}:{policy.get('rdzvPort') or _port(workers)}"
    yield "PET_RDZV_BACKEND", str(policy.get("rdzvBackend") or "c10d")
    yield "PET_NNODES", f"{least}:{most}"
    for variable, name in (("PET_MAX_RESTARTS", "maxRestarts"), ("PET_RDZV_ID", "rdzvId")):
        if name in policy:
            yield variable, str(policy[name])
    if policy.get("rdzvConf"):
        yield "PET_RDZV_CONF", ",".join(f"{entry['key']}={entry['value']}" for entry in policy["rdzvConf"])
    if policy.get("standalone"):
        yield "PET_STANDALONE", ""


def _main_container(pod: Object) -> Object:
    containers = pod["containers"]
    found: Object = next((c for c in containers if c["name"] == CONTAINER), containers[0])
    return found


def _open_port(pod: Object) -> None:
    ports = _main_container(pod).setdefault("ports", [])
    if all(port.get("name") != PORT_NAME for port in ports):
        ports.append({"name": PORT_NAME, "containerPort": DEFAULT_PORT, "protocol": "TCP"})


def _port(spec: Object) -> int:
    ports = _main_container(spec["template"]["spec"]).get("ports") or []
    return int(next((p["containerPort"] for p in ports if p.get("name") == PORT_NAME), DEFAULT_PORT))


def _wait_for_master(job: Object) -> dict[str, Any]:
    """Workers start when the master's name resolves."""
    command = _WAIT_FOR_MASTER.format(master=f"{job['metadata']['name']}-master-0")
    return {
        "name": "init-pytorch",
        "image": _INIT_IMAGE,
        "imagePullPolicy": "IfNotPresent",
        "command": ["sh", "-c", command],
        "resources": {
            "requests": {"cpu": "50m", "memory": "10Mi"},
            "limits": {"cpu": "100m", "memory": "20Mi"},
        },
    }
