"""A deployment as CloudFormation knows it: by the configuration's name, through the outputs of its stacks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import boto3
import yaml
from botocore.exceptions import BotoCoreError, ClientError


class DeploymentError(Exception):
    """The deployment cannot be reached; the message is one sentence for the person who asked."""


class NotDeployed(DeploymentError):
    """The stack does not exist."""


@dataclass(frozen=True, kw_only=True)
class Deployment:
    """One configuration, deployed."""

    name: str
    region: str
    cluster: str
    """Name of the EKS cluster, the deployment's own or an existing one."""

    def client(self, service: str) -> Any:
        """A boto3 client with the caller's own credentials."""
        # A session of its own: boto3's shared one keeps the credentials that its first client found.
        return boto3.Session(region_name=self.region).client(service)  # type: ignore[call-overload]

    def outputs(self, stack: str) -> dict[str, str]:
        """The outputs of one of its stacks.

        Args:
            stack: What follows the deployment's name in the stack's name: `orchestration`, `images`.

        Raises:
            NotDeployed: If the stack is not there.
            DeploymentError: If AWS does not let the caller see it.
        """
        found = self._describe(stack)
        return {output["OutputKey"]: output["OutputValue"] for output in found.get("Outputs", ())}

    def status(self, stack: str) -> str:
        """The status of one of its stacks, as CloudFormation writes it; raises as `outputs` does."""
        return str(self._describe(stack)["StackStatus"])

    def _describe(self, stack: str) -> Mapping[str, Any]:
        name = f"{self.name}-{stack}"
        try:
            found: Mapping[str, Any] = self.client("cloudformation").describe_stacks(StackName=name)["Stacks"][0]
        except ClientError as error:
            reason = error.response["Error"]["Message"]
            if "does not exist" in reason:
                raise NotDeployed(f"There is no stack {name} in {self.region}; `make deploy` makes it.") from None
            raise DeploymentError(f"The stack {name} cannot be read in {self.region}: {reason}.") from None
        except BotoCoreError as error:
            raise DeploymentError(f"AWS cannot be asked about the stack {name}: {error}.") from None
        return found


def read_deployment(configuration: Path) -> Deployment:
    """The deployment of a configuration file; only its name and region are read, the rest is checked by `make synth`.

    Raises:
        DeploymentError: If the file does not say them.
    """
    try:
        document = yaml.safe_load(configuration.read_text())
    except OSError as error:
        raise DeploymentError(f"{configuration} cannot be read ({error.strerror}).") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise DeploymentError(f"{configuration} is not YAML: {' '.join(str(error).split())}.") from None
    fields = document if isinstance(document, dict) else {}
    missing = [field for field in ("name", "region") if not isinstance(fields.get(field), str)]
    if missing:
        raise DeploymentError(f"{configuration} is not a configuration: it has no {' and no '.join(missing)}.")
    existing = fields.get("existing_cluster")
    cluster = existing.get("name") if isinstance(existing, dict) else None
    return Deployment(name=fields["name"], region=fields["region"], cluster=str(cluster or fields["name"]))
