"""PyTorchJobs (kubeflow.org/v1), after the definition of training operator 1.9."""

from __future__ import annotations

from collections.abc import Iterator

from kubetwin.model.errors import FieldError, Object, forbidden_field, one_of, required
from kubetwin.model.names import dns_label
from kubetwin.resources.custom import custom_resource
from kubetwin.resources.resource import AGE, NAME, Column, Subresource
from kubetwin.resources.structural import ANYTHING, POD_TEMPLATE, fields, flag, list_of, map_of, text, whole

_RUN_POLICY = fields(
    cleanPodPolicy=text(),
    ttlSecondsAfterFinished=whole(),
    activeDeadlineSeconds=whole(),
    backoffLimit=whole(),
    suspend=flag(default=False),
    managedBy=text(),
    schedulingPolicy=ANYTHING,
)
_ELASTIC = fields(
    minReplicas=whole(),
    maxReplicas=whole(),
    rdzvBackend=text(),
    rdzvHost=text(),
    rdzvPort=whole(),
    rdzvId=text(),
    rdzvConf=list_of(fields(key=text(), value=text())),
    standalone=flag(),
    nProcPerNode=whole(),
    maxRestarts=whole(),
    metrics=ANYTHING,
)
_SPEC = fields(
    needed=("pytorchReplicaSpecs",),
    pytorchReplicaSpecs=map_of(
        fields(needed=("template",), replicas=whole(), restartPolicy=text(), template=POD_TEMPLATE)
    ),
    runPolicy=_RUN_POLICY,
    elasticPolicy=_ELASTIC,
    nprocPerNode=text(),
)


def _webhook(job: Object) -> Iterator[FieldError]:
    """Faults that the operator's webhook refuses (pkg/webhooks/pytorch)."""
    spec, path = job["spec"], "spec.pytorchReplicaSpecs"
    replicas = {key[:1].upper() + key[1:]: value for key, value in spec["pytorchReplicaSpecs"].items()}
    for kind, replica in replicas.items():
        containers = replica["template"]["spec"]["containers"]
        yield from one_of(f"{path}[{kind}]", kind, ("Master", "Worker"))
        if all(container["name"] != "pytorch" for container in containers):
            place = f"{path}[{kind}].template.spec.containers"
            yield required(place, "must have at least one container with name pytorch")
    if replicas.get("Master", {}).get("replicas", 1) != 1:
        yield forbidden_field(f"{path}[Master].replicas", "must be 1")
    elastic = spec.get("elasticPolicy")
    if elastic is not None and "Worker" not in replicas:
        yield required(f"{path}[Worker]", "must be configured if elastic policy is used")
    if elastic is not None and "nProcPerNode" in elastic and "nprocPerNode" in spec:
        yield forbidden_field("spec.elasticPolicy.nProcPerNode", "must not be used with spec.nprocPerNode")


def _state(job: Object) -> str:
    """The type of the newest condition (`.status.conditions[-1:].type`)."""
    conditions = (job.get("status") or {}).get("conditions") or []
    return str(conditions[-1]["type"]) if conditions else ""


RESOURCES = (
    custom_resource(
        kind="PyTorchJob",
        plural="pytorchjobs",
        group="kubeflow.org",
        version="v1",
        spec=_SPEC,
        webhook=_webhook,
        rules=True,
        name_rule=dns_label,
        storage_hash="qvtXFuAPskk=",
        # Listed, and refused: docs/decisions/0081-kubetwin-without-port-forward-and-scale.md.
        subresources=(Subresource("scale", ("get", "patch", "update"), "Scale", "autoscaling", "v1"),),
        columns=(NAME, Column("State", _state), AGE),
    ),
)
