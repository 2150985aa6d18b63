"""Daemon sets without pods: they can be listed, because people and programs find device plugins by them.

Others are refused: a node's shape lists the devices that daemon sets would advertise.
"""

from __future__ import annotations

from kubetwin.model.errors import FieldError, Object, forbidden_field
from kubetwin.resources.resource import AGE, NAME, STATUS, Resource

NOWHERE = {"kubetwin/runs": "nowhere"}
"""Node selector of a daemon set that is only listed; no node has this label."""


def _validate(daemon_set: Object) -> list[FieldError]:
    if daemon_set["spec"]["template"]["spec"].get("nodeSelector") == NOWHERE:
        return []
    return [forbidden_field("spec", "this cluster runs no DaemonSets: create a pod for each node")]


RESOURCES = (
    Resource(
        kind="DaemonSet",
        plural="daemonsets",
        group="apps",
        type_name="io.k8s.api.apps.v1.DaemonSet",
        short_names=("ds",),
        categories=("all",),
        has_generation=True,
        subresources=(STATUS,),
        validate=_validate,
        columns=(NAME, AGE),
    ),
)
