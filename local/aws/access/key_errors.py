"""The errors of services whose request uses a KMS key that cannot be used, or that the caller may not use."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class KeyErrors:
    """Error codes of one service."""

    missing: str
    """The key does not exist."""
    disabled: str
    invalid_state: str
    """The key waits for its deletion, or for its material."""
    denied: str = "AccessDenied"
    """The caller may not use the key. `AccessDenied` reads as in every other refusal of the service."""

    def of_state(self, state: str | None) -> str:
        """The error for a key's state that is not `Enabled`; None for a missing key."""
        return {None: self.missing, "Disabled": self.disabled}.get(state, self.invalid_state)


OF_KMS = KeyErrors("NotFoundException", "DisabledException", "KMSInvalidStateException")
"""Errors of requests to KMS itself."""

BY_SERVICE: Mapping[str, KeyErrors] = {
    # DynamoDB documents the error of a denied key alone; a key that cannot be used is refused in the same way.
    "dynamodb": KeyErrors("AccessDenied", "AccessDenied", "AccessDenied"),
    "s3": KeyErrors("KMS.NotFoundException", "KMS.DisabledException", "KMS.KMSInvalidStateException"),
    "secretsmanager": KeyErrors("DecryptionFailure", "DecryptionFailure", "DecryptionFailure"),
    "sns": KeyErrors("KMSNotFound", "KMSDisabled", "KMSInvalidState", "KMSAccessDenied"),
    "sqs": KeyErrors("KmsNotFound", "KmsDisabled", "KmsInvalidState", "KmsAccessDenied"),
    # "The KMS key is not in valid state, for example: Disabled or Deleted" (API reference, DescribeExecution).
    "states": KeyErrors(
        "KmsInvalidStateException", "KmsInvalidStateException", "KmsInvalidStateException", "KmsAccessDeniedException"
    ),
}
"""Errors by the first label of `kms:ViaService`. Source: the services' models in botocore and their API references."""

QUERY_CODES = {
    "KmsAccessDenied": "KMS.AccessDeniedException",
    "KmsDisabled": "KMS.DisabledException",
    "KmsInvalidState": "KMS.InvalidStateException",
    "KmsNotFound": "KMS.NotFoundException",
}
"""Codes of SQS's errors in its older protocol; the answers of the newer one contain them as well."""

MESSAGES = {"dynamodb": "KMS key access denied error"}
"""Text of a service before the reason."""


def errors_of(via_service: tuple[str, ...]) -> KeyErrors:
    """The errors of a request, by the value of `kms:ViaService`; empty for KMS itself."""
    return BY_SERVICE.get(_name(via_service), OF_KMS)


def prefix_of(via_service: tuple[str, ...]) -> str:
    """Beginning of the message of a request's error."""
    said = MESSAGES.get(_name(via_service))
    return f"{said}: " if said else ""


def _name(via_service: tuple[str, ...]) -> str:
    return via_service[0].partition(".")[0] if via_service else ""
