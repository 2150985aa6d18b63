"""Set variables to secrets of AWS Secrets Manager, and start a command with them.

`fetch_secrets --variables '{"HF_TOKEN": {"secret": "hugging-face", "key": "token"}}' -- torchrun … train.py`

The values are read with the pod's own role and exist in the environment of the command alone: no object of the cluster,
no record and no log holds them. The command replaces this process.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

from trainer.runtime import program
from trainer.runtime.arguments import divided, parse
from trainer.runtime.commands import become
from trainer.runtime.environment import Environment
from trainer.runtime.errors import ConfigInvalid, SecretUnavailable

if TYPE_CHECKING:
    from mypy_boto3_secretsmanager.client import SecretsManagerClient

MISSING = "ResourceNotFoundException"
DENIED = "AccessDeniedException"
"""Codes of the API (Secrets Manager API reference, GetSecretValue and 'Common Errors')."""

ATTEMPTS = 8
"""Tries of a call, in botocore's standard mode with pauses of up to 20 s: every node of a gang reads at once."""


@dataclass(frozen=True, kw_only=True)
class SecretsConfig:
    """The variables; the command follows after `--`."""

    variables: str
    """JSON object: for each variable an object with `secret`, a name or an ARN, and perhaps `key`, a key of the JSON
    object that the secret is."""


def main(argv: Sequence[str], _environment: Environment) -> NoReturn:
    """Read the secrets, and replace this process by the command."""
    own, command = divided(argv)
    if not command:
        raise ConfigInvalid("Give the command behind `--`: fetch_secrets --variables JSON -- torchrun …")
    config = parse(SecretsConfig, own, program="trainer.fetch_secrets")
    become(command, values_of(json.loads(config.variables)))


# Decision 38: each pod reads its secrets itself, so that no object of the cluster holds them.
def values_of(variables: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
    """Values of the variables.

    Args:
        variables: Secret, and perhaps its key, of each variable.

    Raises:
        SecretUnavailable: If a value cannot be read; the message holds none.
    """
    texts: dict[str, str] = {}
    values: dict[str, str] = {}
    for name, source in variables.items():
        field, secret = f"workload.secrets.{name}", source["secret"]
        if secret not in texts:
            texts[secret] = _text(secret, field=field)
        values[name] = _value(texts[secret], source.get("key"), secret=secret, field=field)
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
            raise SecretUnavailable(f"{field}: the secret '{secret}' is no JSON object, so it has no key '{key}'.")
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
    return boto3.client("secretsmanager", region_name=region, config=retries)


if __name__ == "__main__":
    program.raise_on_sigterm()
    sys.exit(program.run(main, sys.argv[1:], os.environ))
