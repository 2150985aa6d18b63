"""Read secrets of AWS Secrets Manager into environment variables.

The values are read with the pod's own role and exist only in the environment of the supervisor and its program: no
object of the cluster, no record and no log holds them (docs/decisions/0038-pods-read-secrets-manager.md).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from trainer.runtime.errors import SecretUnavailable
from trainer.runtime.node import Node, Prepared
from trainflow.protocol.plan import Secrets, SecretSource

if TYPE_CHECKING:
    from mypy_boto3_secretsmanager.client import SecretsManagerClient

MISSING = "ResourceNotFoundException"
DENIED = "AccessDeniedException"
"""Codes of the API (Secrets Manager API reference, GetSecretValue and 'Common Errors')."""

ATTEMPTS = 8
"""Tries of a call, in botocore's standard mode with pauses of up to 20 s: every node of a gang reads at once."""


def prepare(step: Secrets, _node: Node) -> Prepared:
    """Read the secrets.

    Raises:
        SecretUnavailable: If a value cannot be read.
    """
    return Prepared(variables=values_of(step.variables))


# Decision 38: each pod reads its secrets itself, so that no object of the cluster holds them.
def values_of(variables: Mapping[str, SecretSource]) -> dict[str, str]:
    """Values of the variables.

    Args:
        variables: Source of each variable.

    Raises:
        SecretUnavailable: If a value cannot be read; the message holds none.
    """
    texts: dict[str, str] = {}
    values: dict[str, str] = {}
    for name, source in variables.items():
        field, secret = f"workload.secrets.{name}", source.secret
        if secret not in texts:
            texts[secret] = _text(secret, field=field)
        values[name] = _value(texts[secret], source.key, secret=secret, field=field)
    return values


def _text(secret: str, *, field: str) -> str:
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        found: Mapping[str, Any] = _connect(secret).get_secret_value(SecretId=secret)
    except ClientError as error:
        code, reason = error.response["Error"]["Code"], error.response["Error"].get("Message", "")
        raise SecretUnavailable(f"{field}: {_explained(secret, code, reason.rstrip('.'))}") from None
    except BotoCoreError as error:
        raise SecretUnavailable(
            f"{field}: the secret '{secret}' cannot be read from Secrets Manager ({error})."
        ) from None
    text: str | None = found.get("SecretString")
    if text is None:
        raise SecretUnavailable(f"{field}: the secret '{secret}' is binary; store it as text.")
    return text


def _explained(secret: str, code: str, reason: str) -> str:
    if code == MISSING:
        return (
            f"Secrets Manager has no secret '{secret}' with a value in the Region of the run; create it, or correct "
            "the spec."
        )
    if code == DENIED:
        return (
            f"runs of this deployment may not read the secret '{secret}' ({reason}); name its ARN in run_secrets of "
            "the configuration and deploy the cluster stack, or correct the spec."
        )
    return f"the secret '{secret}' cannot be read from Secrets Manager ({code}: {reason})."


def _value(text: str, key: str | None, *, secret: str, field: str) -> str:
    """The secret's text, or what the key names in it. Messages must not quote the text."""
    if key is not None:
        try:
            document = json.loads(text)
        except ValueError:
            document = None
        if not isinstance(document, dict):
            raise SecretUnavailable(f"{field}: the secret '{secret}' is not a JSON object, so it has no key '{key}'.")
        if key not in document:
            raise SecretUnavailable(f"{field}: the secret '{secret}' has no key '{key}'; add it, or correct the spec.")
        if isinstance(document[key], dict | list | None):
            raise SecretUnavailable(f"{field}: the key '{key}' of the secret '{secret}' holds no text or number.")
        text = document[key] if isinstance(document[key], str) else json.dumps(document[key])
    if "\x00" in text:
        raise SecretUnavailable(f"{field}: the secret '{secret}' holds a NUL character, which no variable can.")
    return text


def _connect(secret: str) -> SecretsManagerClient:
    """A client with the pod's own role, in the Region that the secret's ARN names or else in the pod's own."""
    import boto3
    from botocore.config import Config

    region = secret.split(":")[3] if secret.startswith("arn:") else None
    retries = Config(retries={"mode": "standard", "max_attempts": ATTEMPTS}, connect_timeout=10, read_timeout=10)
    # A session of its own: the default one would keep credentials that a secret may replace for later steps.
    return boto3.Session().client("secretsmanager", region_name=region, config=retries)
