"""The Helm charts of `trainflow.configuration.cluster_software`, installed in the cluster.

The training operator is not published as a chart; it is in `training_operator.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import aws_cdk as cdk

from trainflow.configuration.cluster_software import JOBSET, TRAINER, charts

if TYPE_CHECKING:
    from aws_cdk import aws_eks_v2 as eks
    from constructs import IConstruct

LONGEST_MINUTES = 10
"""Time limit of a chart's installation. The kubectl handler is a Lambda function and has 15 minutes in all."""


def add_charts(cluster: eks.Cluster, *, trainer: bool, after: IConstruct) -> dict[str, eks.HelmChart]:
    """Install the charts as soon as there are nodes and names resolve, and return them by name.

    Args:
        cluster: The cluster.
        trainer: Whether Kubeflow Trainer is one of them. It needs the definition of JobSets when it starts.
        after: Construct that they wait for.
    """
    installed = {}
    for chart in charts(trainer=trainer):
        release = cluster.add_helm_chart(
            chart.name,
            chart=chart.name,
            repository=chart.repository,
            version=chart.version,
            release=chart.name,
            namespace=chart.namespace,
            create_namespace=chart.namespace != "kube-system",
            values=dict(chart.values),
            wait=chart.awaited,
            timeout=cdk.Duration.minutes(LONGEST_MINUTES),
        )
        release.node.add_dependency(after)
        installed[chart.name] = release
    if trainer:
        installed[TRAINER.name].node.add_dependency(installed[JOBSET])
    return installed
