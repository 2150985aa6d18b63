"""Kinds that can be listed and that this cluster does not run: creating one is refused by name."""

from __future__ import annotations

from collections.abc import Callable

from kubetwin.model.errors import FieldError, Object, forbidden_field
from kubetwin.resources.custom import custom_resource
from kubetwin.resources.resource import AGE, ALL_VERBS, NAME, STATUS, Column, Resource, Subresource
from kubetwin.resources.structural import ANYTHING

DEFINITIONS = "customresourcedefinitions.apiextensions.k8s.io"
"""Resource of the records of custom kinds."""

_READ_VERBS = ("get", "list", "watch")
_WORKLOADS = "create a Pod, a Job or a JobSet"
_SCALED = (STATUS, Subresource("scale", ("get", "patch", "update"), "Scale", "autoscaling", "v1"))


# What kubetwin refuses, and why it does: docs/decisions/0073-kubetwin-size.md.
def _refuse(what: str, instead: str) -> Callable[[Object], list[FieldError]]:
    def validate(_obj: Object) -> list[FieldError]:
        return [forbidden_field("spec", _sentence(what, instead))]

    return validate


def _sentence(what: str, instead: str) -> str:
    return f"this cluster runs no {what}: {instead}"


def _unoffered(
    kind: str,
    group: str,
    short: str,
    instead: str,
    *,
    version: str = "v1",
    plural: str = "",
    namespaced: bool = True,
    in_all: bool = False,
    subresources: tuple[Subresource, ...] = (STATUS,),
    storage_hash: str = "",
) -> Resource:
    return Resource(
        kind=kind,
        plural=plural or f"{kind.lower()}s",
        group=group,
        version=version,
        namespaced=namespaced,
        type_name=f"io.k8s.api.{group.partition('.')[0] or 'core'}.{version}.{kind}",
        short_names=(short,),
        categories=("all",) if in_all else (),
        storage_hash=storage_hash,
        subresources=subresources,
        refusal=_sentence(f"{kind}{'es' if kind.endswith('s') else 's'}", instead),
        columns=(NAME, AGE),
    )


_NO_SCHEDULES = ("CronJobs", "create the job itself when it is due")

RESOURCES = (
    _unoffered("Deployment", "apps", "deploy", _WORKLOADS, in_all=True, subresources=_SCALED),
    _unoffered("ReplicaSet", "apps", "rs", _WORKLOADS, in_all=True, subresources=_SCALED),
    _unoffered("StatefulSet", "apps", "sts", _WORKLOADS, in_all=True, subresources=_SCALED),
    _unoffered("ReplicationController", "", "rc", _WORKLOADS, in_all=True, subresources=_SCALED),
    _unoffered(
        "HorizontalPodAutoscaler",
        "autoscaling",
        "hpa",
        "set the number of replicas yourself",
        version="v2",
        in_all=True,
    ),
    _unoffered("CronJob", "batch", "cj", _NO_SCHEDULES[1], in_all=True, storage_hash="sd5LIXh4Fjs="),
    _unoffered("Ingress", "networking.k8s.io", "ing", "nothing routes traffic; use `kubectl exec`", plural="ingresses"),
    _unoffered(
        "StorageClass",
        "storage.k8s.io",
        "sc",
        "create a PersistentVolume with a hostPath",
        plural="storageclasses",
        namespaced=False,
        subresources=(),
    ),
    Resource(
        kind="CustomResourceDefinition",
        plural="customresourcedefinitions",
        group="apiextensions.k8s.io",
        namespaced=False,
        type_name="io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.CustomResourceDefinition",
        short_names=("crd", "crds"),
        categories=("api-extensions",),
        subresources=(STATUS,),
        verbs=(*_READ_VERBS, *(verb for verb in ALL_VERBS if verb in ("create", "patch", "update"))),
        refusal="this cluster takes no further CustomResourceDefinitions: those of JobSet, Volcano, the training "
        "operator and Kubeflow Trainer are built in; other kinds need a cluster that runs their operators",
        columns=(NAME, Column("Created At", lambda crd: crd["metadata"]["creationTimestamp"])),
    ),
    custom_resource(
        kind="CronJob",
        plural="cronjobs",
        group="batch.volcano.sh",
        version="v1alpha1",
        spec=ANYTHING,
        short_names=("cronvcjob", "cronvj"),
        storage_hash="ggEZ4lDoP94=",
        validate=_refuse(*_NO_SCHEDULES),
        columns=(NAME, AGE),
    ),
    custom_resource(
        kind="OptimizationJob",
        plural="optimizationjobs",
        group="trainer.kubeflow.org",
        version="v1alpha1",
        spec=ANYTHING,
        storage_hash="LwF3ukifVrE=",
        validate=_refuse("searches of parameters", "create a TrainJob for each trial"),
        columns=(NAME, AGE),
    ),
)


def definition_of(resource: Resource) -> Object:
    """The record of a custom kind."""
    names = {
        "plural": resource.plural,
        "singular": resource.singular,
        "kind": resource.kind,
        "listKind": resource.list_kind,
        **resource.aliases,
    }
    version: Object = {
        "name": resource.version,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
    }
    if resource.has_status:
        version["subresources"] = {"status": {}}
    return {
        "metadata": {"name": resource.key},
        "spec": {
            "group": resource.group,
            "names": names,
            "scope": resource.scope,
            "versions": [version],
            "conversion": {"strategy": "None"},
        },
    }


def establish(definition: Object) -> None:
    """The status of a record whose kind is served."""
    moment = definition["metadata"]["creationTimestamp"]
    conditions = [
        ("NamesAccepted", "NoConflicts", "no conflicts found"),
        ("Established", "InitialNamesAccepted", "the initial names have been accepted"),
    ]
    definition["status"] = {
        "acceptedNames": definition["spec"]["names"],
        "storedVersions": [version["name"] for version in definition["spec"]["versions"]],
        "conditions": [
            {"type": kind, "status": "True", "lastTransitionTime": moment, "reason": reason, "message": message}
            for kind, reason, message in conditions
        ],
    }
