"""Backend `pod`: one Pod, as the digits tutorial starts it. No controller: nothing makes it again, or cleans it up."""

from __future__ import annotations

from typing import Any

from lambdas.backends.kubernetes import pods
from lambdas.logic.jobs import Job


def render(job: Job) -> list[dict[str, Any]]:
    """The object to create."""
    return [{"apiVersion": "v1", "kind": "Pod", "metadata": pods.metadata(job), "spec": pods.pod_spec(job)}]
