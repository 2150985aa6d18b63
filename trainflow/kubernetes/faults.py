"""Errors in a cluster's answers.

`ClusterUnavailable` and `ClusterAccessDenied` (`trainflow.errors`) mean the same to every caller: the state machines
know them by name. The caller interprets the others: it raises an error of its own or continues.
"""

from __future__ import annotations

import json

from trainflow.errors import TrainflowError


class KubeconfigInvalid(TrainflowError):
    """The kubeconfig cannot be used."""

    what_to_do = "Name a kubeconfig that `kubectl --kubeconfig FILE get pods` works with."
    input_at_fault = True


class CommandNotRun(TrainflowError):
    """A container did not take a command."""

    input_at_fault = True


class RequestRefused(TrainflowError):
    """The Kubernetes API understood who asks, and refuses the request as it is.

    Attributes:
        status: HTTP status.
        from_api_group: Whether an API group answered; a path that none answers for gets plain text.
    """

    def __init__(self, sentence: str, *, status: int, from_api_group: bool) -> None:
        super().__init__(sentence)
        self.status, self.from_api_group = status, from_api_group


class NotFound(RequestRefused):
    """404: the object, or its API, does not exist."""


class AlreadyExists(RequestRefused):
    """409: an object of this name exists, or was changed meanwhile."""


class Expired(RequestRefused):
    """410: the server no longer has the changes since this version; the caller has to list anew."""


BY_STATUS: dict[int, type[RequestRefused]] = {404: NotFound, 409: AlreadyExists, 410: Expired}


def refusal(status: int, reason: str | None, body: str | bytes | None) -> RequestRefused:
    """The fault of an answer; its message is the server's own, where it gave one.

    Args:
        status: HTTP status.
        reason: The status line's text.
        body: A `Status` object as JSON, or plain text.
    """
    message = status_message(body)
    kind = BY_STATUS.get(status, RequestRefused)
    return kind(message or f"{status} {reason}", status=status, from_api_group=message is not None)


def status_message(body: str | bytes | None) -> str | None:
    """Message of a `Status` object; None if the body is of another kind."""
    try:
        found = json.loads(body or "")
        return str(found.get("message", "")) if found["kind"] == "Status" else None
    except (TypeError, ValueError, KeyError, AttributeError):
        return None
