"""What ended runs have left: asked of a deployment's survey function, which judges and deletes it."""

from __future__ import annotations

import json
from typing import Any

from trainflow.client.place import PlaceUnavailable
from trainflow.errors import TrainflowError
from trainflow.models.deployment_address import DeploymentAddress
from trainflow.models.leftovers import SweepReport


class SweepFailed(TrainflowError):
    """The survey function ended with an error."""


def sweep(client: Any, address: DeploymentAddress, *, delete: bool) -> SweepReport:
    """The function's answer.

    Args:
        client: A boto3 client of Lambda.
        address: The deployment.
        delete: Whether what ended runs have left is deleted; otherwise it is listed.

    Raises:
        PlaceUnavailable: If the deployment has no such function.
        SweepFailed: If the function failed.
    """
    too_old = PlaceUnavailable(
        f"The deployment '{address.deployment}' has no function that sweeps; deploy this version: make deploy."
    )
    if not address.survey_function:
        raise too_old
    payload = json.dumps({"sweep": "delete" if delete else "list"})
    try:
        answer = client.invoke(FunctionName=address.survey_function, Payload=payload)
    except client.exceptions.ResourceNotFoundException:
        raise too_old from None
    text = answer["Payload"].read()
    if "FunctionError" in answer:
        raise SweepFailed(_sentence(address.survey_function, text))
    return SweepReport.model_validate_json(text)


def _sentence(function: str, text: bytes) -> str:
    try:
        document = json.loads(text)
        said = f"{document.get('errorType', 'an error')}: {document.get('errorMessage', '')}"
    except (ValueError, AttributeError):
        said = text.decode(errors="replace")
    return f"The function {function} failed with {' '.join(said.split()).rstrip('.')}. Its log says more."
