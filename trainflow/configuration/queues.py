"""Queues of Volcano, which divide the cluster's nodes between runs in fixed proportions."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, field_validator

from trainflow.configuration.section import Section
from trainflow.deployment.volcano_queues import MADE_BY_VOLCANO

QUEUE = r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$"
QUANTITY = r"^\d+(\.\d+)?(m|k|M|G|T|Ki|Mi|Gi|Ti)?$"

IN_WORDS = {
    QUEUE: "must be lower-case letters, digits and dashes, at most 63",
    QUANTITY: 'must be an amount as Kubernetes writes it, in quotes, such as "32" or "512Gi"',
}


class VolcanoQueue(Section):
    """A queue for runs with backend `volcano`, which name it in `compute.queue`."""

    name: Annotated[str, Field(pattern=QUEUE)]
    """Name of the queue in run specs."""
    weight: Annotated[int, Field(ge=1, le=65535)] = 1
    """Share of the cluster, relative to the other queues' weights, while they compete."""
    capability: dict[str, Annotated[str, Field(pattern=QUANTITY)]] = Field(default_factory=dict)
    """Most that all runs of the queue may hold together, by resource: `{aws.amazon.com/neuron: "32"}`."""
    reclaimable: bool = True
    """Whether other queues may reclaim resources that this queue holds beyond its share."""

    @field_validator("name")
    @classmethod
    def _reject_reserved_name(cls, name: str) -> str:
        if name in MADE_BY_VOLCANO:
            raise ValueError(f"Volcano makes the queue '{name}' itself; leave it out, or choose another name")
        return name


def same_name_twice(queues: tuple[VolcanoQueue, ...]) -> str | None:
    """A name that more than one queue has."""
    names = [queue.name for queue in queues]
    return next((name for name in names if names.count(name) > 1), None)
