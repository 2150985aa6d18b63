"""Functions of a deployment that the client invokes, so that one program answers the deployment and its users."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from trainflow.client.place import PlaceUnavailable
from trainflow.errors import TrainflowError


class FunctionFailed(TrainflowError):
    """The function ended with an error."""


def invoke(client: Any, function: str, payload: Mapping[str, Any], *, deployment: str, purpose: str) -> bytes:
    """The function's answer.

    Args:
        client: A boto3 client of Lambda.
        function: Name of the function; empty in deployments from before there was one.
        payload: What it is asked.
        deployment: The deployment.
        purpose: What the function does, for messages: "that sweeps".

    Raises:
        PlaceUnavailable: If the deployment lacks the function.
        FunctionFailed: If the function failed.
    """
    too_old = PlaceUnavailable(
        f"The deployment '{deployment}' has no function {purpose}; deploy this version: make deploy."
    )
    if not function:
        raise too_old
    try:
        answer = client.invoke(FunctionName=function, Payload=json.dumps(payload))
    except client.exceptions.ResourceNotFoundException:
        raise too_old from None
    text: bytes = answer["Payload"].read()
    if "FunctionError" in answer:
        raise FunctionFailed(_sentence(function, text))
    return text


def _sentence(function: str, text: bytes) -> str:
    try:
        document = json.loads(text)
        said = f"{document.get('errorType', 'an error')}: {document.get('errorMessage', '')}"
    except (ValueError, AttributeError):
        said = text.decode(errors="replace")
    return f"The function {function} failed with {' '.join(said.split()).rstrip('.')}. Its log says more."
