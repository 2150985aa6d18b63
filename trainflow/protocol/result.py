"""The one JSON object that a program in a pod leaves behind: Kubernetes carries it in the pod's status.

`{"result": {…}}` of a program that did what it was asked to, else `{"error": "DatasetInvalid", "message": "…"}`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

# Decision 2: the termination message needs one API call of constant size, and any image can write it.
RESULT_FILE = "/dev/termination-log"
"""File for the result of a pod's program: Kubernetes copies its text into the pod's status."""

MAX_BYTES = 4096
"""Longest termination message that Kubernetes keeps (Kubernetes documentation, "Customizing the termination
message"); the rest would be cut off and the JSON with it."""


def success(result: Mapping[str, Any]) -> dict[str, Any]:
    """The document of a program that did what it was asked to."""
    return {"result": dict(result)}


def failure(error: str, message: str) -> dict[str, Any]:
    """The document of a program that did not.

    Args:
        error: Name of the error; an entry of `trainflow/failures/errors.toml`, if the program knows what is wrong.
        message: One sentence that names the file or field and what to do; shortened until the document fits.
    """
    document = {"error": error, "message": message}
    while message and len(to_bytes(document)) > MAX_BYTES:
        message = message[: len(message) * 3 // 4]
        document["message"] = message + "…"
    return document


def to_bytes(document: Mapping[str, Any]) -> bytes:
    """The document as it is left; characters that no file can hold become question marks."""
    return json.dumps(document, ensure_ascii=False).encode(errors="replace")


def read_result(message: str | bytes | None) -> dict[str, Any]:
    """The document that a program left as its termination message; empty if it left something else."""
    try:
        document = json.loads(message or "")
    except (ValueError, RecursionError):
        return {}
    return document if isinstance(document, dict) else {}
