"""The one JSON object that a program leaves behind: Kubernetes carries it in the pod's status."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

MAX_BYTES = 4096
"""Longest termination message that Kubernetes keeps (Kubernetes documentation, "Customizing the termination
message"); the rest would be cut off and the JSON with it."""


def success(result: Mapping[str, Any]) -> dict[str, Any]:
    """The document of a program that did what it was asked to."""
    return {"result": dict(result)}


def failure(error: str, message: str) -> dict[str, Any]:
    """The document of a program that did not.

    Args:
        error: Name of the error, as in `trainer.runtime.errors`.
        message: One sentence that names the file or field and what to do; shortened until the document fits.
    """
    document = {"error": error, "message": message}
    while len(_encoded(document)) > MAX_BYTES:
        message = message[: len(message) * 3 // 4]
        document["message"] = message + "…"
    return document


def write(document: Mapping[str, Any], result_file: Path | None) -> None:
    """Leave the document in the pod's result file; nowhere, outside a pod.

    The file is written in place: the kubelet mounts this one file, so it cannot be renamed over.
    """
    if result_file is not None:
        result_file.write_bytes(_encoded(document))


def _encoded(document: Mapping[str, Any]) -> bytes:
    return json.dumps(document, ensure_ascii=False).encode()
