"""The Kubernetes objects that a stack applies to the cluster."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from stacks.checks.templates import Finding, Resource, Templates, listed, text
from stacks.cluster.jobs import template_hash

MANIFEST = "Custom::AWSCDK-EKS-KubernetesResource"
"""Resource type of CDK for an object in the cluster; its manifest is JSON in a string."""


def jobs_are_named_after_their_templates(templates: Templates) -> Iterator[Finding]:
    """The template of a Job is immutable, so a changed Job needs a new name."""
    for resource in templates.resources(MANIFEST):
        for manifest in manifests(resource) or []:
            if manifest.get("kind") != "Job":
                continue
            name, wanted = str(manifest["metadata"]["name"]), template_hash(manifest)
            if not name.endswith(f"-{wanted}"):
                yield Finding.at(
                    resource, "job-names", f"the Job {name} does not end with its template's hash {wanted}."
                )
            if not resource.properties.get("PruneLabel"):
                yield Finding.at(resource, "job-names", f"nothing removes the Job {name} when its name changes.")


def manifests(resource: Resource) -> list[dict[str, Any]] | None:
    """The objects of one resource; None if they are not JSON."""
    try:
        found = json.loads(text(resource.properties.get("Manifest")))
    except ValueError:
        return None
    return [manifest for manifest in listed(found) if isinstance(manifest, dict)]
