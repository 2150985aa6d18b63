"""Leftovers of ended runs, from a deployment's survey function, which judges and deletes them."""

from __future__ import annotations

from typing import Any

from trainflow.client.functions import invoke
from trainflow.deployment.address import DeploymentAddress
from trainflow.workflow.leftovers import SweepReport


def sweep(client: Any, address: DeploymentAddress, *, delete: bool) -> SweepReport:
    """The function's answer; raises as `invoke` does.

    Args:
        client: A boto3 client of Lambda.
        address: The deployment.
        delete: Whether what ended runs have left is deleted; otherwise it is listed.
    """
    payload = {"sweep": "delete" if delete else "list"}
    function, deployment = address.survey_function, address.deployment
    text = invoke(client, function, payload, deployment=deployment, purpose="that sweeps")
    return SweepReport.model_validate_json(text)
