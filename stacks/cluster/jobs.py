"""Names of the Jobs that the stacks apply to the cluster."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

import aws_cdk as cdk

HASH_LENGTH = 8


def named_after_template(job: Mapping[str, Any]) -> dict[str, Any]:
    """Append the hash of a Job's pod template to its name.

    The template of a Job is immutable: to apply another one under the same name fails, and the deployment with it.
    Under another name it is a new Job, and `kubectl apply --prune`, as CDK calls it, removes the old one.

    Raises:
        ValueError: If the template holds a value that is unknown before the deployment; the hash would not follow it.
    """
    if cdk.Token.is_unresolved(json.dumps(job["spec"]["template"])):
        raise ValueError(f"the pod template of {job['metadata']['name']} holds a value that only CloudFormation knows")
    name = f"{job['metadata']['name']}-{template_hash(job)}"
    return {**job, "metadata": {**job["metadata"], "name": name}}


def template_hash(job: Mapping[str, Any]) -> str:
    """Hash of the pod template, independent of the order of its keys."""
    text = json.dumps(job["spec"]["template"], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:HASH_LENGTH]
