"""Kinds that can be listed and that this cluster does not run: creating one is refused by name."""

from __future__ import annotations

from collections.abc import Callable

from kubetwin.model.errors import FieldError, Object, forbidden_field
from kubetwin.resources.custom import AGE, NAME, custom_resource
from kubetwin.resources.resource import STATUS, Resource
from kubetwin.resources.structural import ANYTHING


def _refuse(what: str, instead: str) -> Callable[[Object], list[FieldError]]:
    def validate(_obj: Object) -> list[FieldError]:
        return [forbidden_field("spec", f"this cluster runs no {what}: {instead}")]

    return validate


_NO_SCHEDULES = _refuse("CronJobs", "create the job itself when it is due")
_NO_TRAINER = _refuse("Kubeflow Trainer v2", "use a JobSet or a PyTorchJob")

RESOURCES = (
    Resource(
        kind="CronJob",
        plural="cronjobs",
        group="batch",
        type_name="io.k8s.api.batch.v1.CronJob",
        short_names=("cj",),
        categories=("all",),
        storage_hash="sd5LIXh4Fjs=",
        has_generation=True,
        subresources=(STATUS,),
        validate=_NO_SCHEDULES,
        columns=(NAME, AGE),
    ),
    custom_resource(
        kind="CronJob",
        plural="cronjobs",
        group="batch.volcano.sh",
        version="v1alpha1",
        spec=ANYTHING,
        short_names=("cronvcjob", "cronvj"),
        storage_hash="ggEZ4lDoP94=",
        validate=_NO_SCHEDULES,
        columns=(NAME, AGE),
    ),
    custom_resource(
        kind="TrainJob",
        plural="trainjobs",
        group="trainer.kubeflow.org",
        version="v1alpha1",
        spec=ANYTHING,
        validate=_NO_TRAINER,
        columns=(NAME, AGE),
    ),
)
