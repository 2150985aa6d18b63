"""The network policy of a gang: its pods are reached by each other, and by no other pod.

What the processes of a gang exchange is neither encrypted nor authenticated, and the store of an elastic gang executes
what is written to it. Policies add up, so that of the namespace (`stacks/cluster/network_policies.py`) lets nobody in.
"""

from __future__ import annotations

from typing import Any

from lambdas.backends.kubernetes import pods
from lambdas.logic.jobs import Job
from trainflow.deployment.kubernetes_names import JOB_LABEL, RUN_LABEL
from trainflow.deployment.network_policies import API_VERSION, KIND


# Decision 77: a gang is reached by its own pods only.
def network_policies(job: Job) -> list[dict[str, Any]]:
    """The policy of a job whose pods reach each other; none for a job of one pod, which no pod has to reach."""
    if job.ref.num_nodes == 1:
        return []
    gang = {"podSelector": {"matchLabels": {RUN_LABEL: job.run_id, JOB_LABEL: job.ref.name}}}
    return [
        {
            "apiVersion": API_VERSION,
            "kind": KIND,
            "metadata": pods.metadata(job),
            "spec": {**gang, "policyTypes": ["Ingress"], "ingress": [{"from": [gang]}]},
        }
    ]
