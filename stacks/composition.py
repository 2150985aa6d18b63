"""The stacks of one deployment, in the order of their dependencies."""

from __future__ import annotations

from typing import Any

import aws_cdk as cdk

from stacks.capacity.stack import CapacityStack
from stacks.cluster.stack import ClusterStack, existing_cluster
from stacks.images.stack import ImagesStack
from stacks.network.stack import NetworkStack
from stacks.observability.stack import ObservabilityStack
from stacks.orchestration.stack import OrchestrationStack
from stacks.slurm.access import existing_slurm
from stacks.slurm.stack import SlurmStack
from stacks.storage.stack import StorageStack
from stacks.triggers.stack import TriggersStack
from trainflow.configuration.deployment import Configuration


def compose(app: cdk.App, configuration: Configuration) -> None:
    """Make every stack that the configuration asks for, in the order of their dependencies."""

    def settings(what: str) -> dict[str, Any]:
        return {
            "configuration": configuration,
            "stack_name": f"{configuration.name}-{what}",
            "env": cdk.Environment(account=configuration.account, region=configuration.region),
            "termination_protection": configuration.production,
        }

    network = NetworkStack(app, "Network", **settings("network")) if configuration.network else None
    storage = StorageStack(app, "Storage", network=network, **settings("storage"))
    if network is None:
        cluster = existing_cluster(storage, configuration)
    else:
        own = ClusterStack(app, "Cluster", network=network, storage=storage, **settings("cluster"))
        CapacityStack(app, "Capacity", network=network, cluster=own, **settings("capacity"))
        cluster = own.reference
    slurm = existing_slurm(configuration)
    if network is not None and configuration.pcs is not None:
        own_slurm: dict[str, Any] = {"network": network, "storage": storage, "settings": configuration.pcs}
        slurm = SlurmStack(app, "Slurm", **own_slurm, **settings("slurm")).reference
    images = ImagesStack(app, "Images", **settings("images"))
    shared: dict[str, Any] = {"storage": storage, "cluster": cluster}
    orchestration = OrchestrationStack(
        app, "Orchestration", slurm=slurm, images=images, **shared, **settings("orchestration")
    )
    triggers = TriggersStack(app, "Triggers", orchestration=orchestration, **shared, **settings("triggers"))
    ObservabilityStack(
        app,
        "Observability",
        orchestration=orchestration,
        triggers=triggers,
        storage=storage,
        **settings("observability"),
    )
    cdk.Tags.of(app).add("trainflow:deployment", configuration.name)
